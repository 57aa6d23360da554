"""Fine-tuning with 90 % of the weights frozen; may save each epoch by hand: finetune.py EPOCHS WIDTH SAVE"""

import sys

import torch
from torch import nn


def main(epochs, width, save):
    torch.manual_seed(0)
    backbone = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(9))).requires_grad_(False)
    model = nn.Sequential(backbone, nn.Linear(width, width, bias=False))
    optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
    inputs, targets = torch.rand(256, width), torch.rand(256, width)
    for epoch in range(epochs):
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"epoch {epoch} loss {loss.item():.6f}")
        if save:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, f"{epoch}.pt")


main(*map(int, sys.argv[1:]))
