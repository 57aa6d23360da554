"""Much state and little compute, 100 million parameters with Adam at width 10,000: large.py EPOCHS STEPS WIDTH"""

import sys

import torch
from torch import nn


def main(epochs, steps, width):
    torch.manual_seed(0)
    model = nn.Linear(width, width, bias=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    vectors = torch.rand(steps, 1, width)
    for epoch in range(epochs):
        total = 0.0
        for vector in vectors:
            loss = model(vector).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            total += loss.item()
        print(f"epoch {epoch} loss {total:.6f}")
    print(f"done: {model.weight[0].norm():.6f}")


main(*map(int, sys.argv[1:]))
