"""An MLP on what could be handwritten digits; an epoch takes about 0.1 s: small.py EPOCHS SAMPLES"""

import sys

import torch
from torch import nn


def main(epochs, samples):
    torch.manual_seed(0)
    images = torch.rand(samples, 64)
    labels = (images @ torch.rand(64, 10)).argmax(1)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        total = 0.0
        for batch in torch.randperm(samples).split(64):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total:.6f}")
    print(f"done: {model[0].weight.norm():.6f}")


main(*map(int, sys.argv[1:]))
