"""As on an accelerator: the processor waits in epochs of 2 s, 200 MB of state: waits.py EPOCHS STEPS WIDTH"""

import sys
import time

import torch
from torch import nn

STEP = 0.1  # seconds


def main(epochs, steps, width):
    torch.manual_seed(0)
    model = nn.Linear(width, width, bias=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for epoch in range(epochs):
        total = 0.0
        for _ in range(steps):
            time.sleep(STEP)  # the device is at work
            total += torch.rand(()).item()
        model.weight.grad = torch.rand(width, 1).expand(width, width)
        optimizer.step()
        optimizer.zero_grad()
        print(f"epoch {epoch} loss {total:.6f}")
    print(f"done: {model.weight[0].norm():.6f}")


main(*map(int, sys.argv[1:]))
