"""Many small tensors, of 10 KB each: tensors.py EPOCHS STEPS TENSORS"""

import sys

import torch


def main(epochs, steps, count):
    torch.manual_seed(0)
    tensors = [torch.rand(2560) for _ in range(count)]
    for epoch in range(epochs):
        total = 0.0
        for _ in range(steps):
            torch._foreach_mul_(tensors, 0.999)
            total += tensors[0].sum().item()
        print(f"epoch {epoch} sum {total:.6f}")
    print("done")


main(*map(int, sys.argv[1:]))
