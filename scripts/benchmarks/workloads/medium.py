"""A transformer of about 25 million parameters with AdamW: medium.py EPOCHS STEPS LAYERS FUSED"""

import sys

import torch
from torch import nn

WORDS, WIDTH, LENGTH, BATCH = 1000, 512, 32, 8


class Transformer(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words):
        return self.head(self.encoder(self.embedding(words)))


def main(epochs, steps, layers, fused):
    torch.manual_seed(0)
    text = torch.randint(WORDS, (steps, BATCH, LENGTH + 1))
    model = Transformer(layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=bool(fused))
    for epoch in range(epochs):
        total = 0.0
        for words in text:
            optimizer.zero_grad()
            guessed = model(words[:, :-1]).flatten(0, 1)
            loss = nn.functional.cross_entropy(guessed, words[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total:.6f}")
    print(f"done: {model.head.weight.norm():.6f}")


main(*map(int, sys.argv[1:]))
