"""Changes all of its state in each iteration, and tries ways to keep it: stall.py ROUNDS WIDTH FOLDER

Between the iterations florhook takes a checkpoint, if it records this; what that takes is measured like the other ways.
"""

import sys
import time

import torch
import ways
from torch import nn


def main(rounds, width, folder):
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(5)))
    optimizer = torch.optim.Adam(model.parameters())
    sum(layer(torch.rand(1, width)).sum() for layer in model).backward()
    ways.begin(folder)
    ended = None
    for _ in range(rounds):
        if ended is not None:
            ways.note("florhook", time.perf_counter() - ended)
        ways.settle()
        torch._foreach_mul_([parameter.grad for parameter in model.parameters()], 0.99)
        optimizer.step()
        ways.try_all(model, optimizer)
        ended = time.perf_counter()
    ways.end()


main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
