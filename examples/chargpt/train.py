"""Train a small character GPT on a text file, then let it write."""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        x = x + self.drop(self.out(seen.transpose(1, 2).reshape(batch, length, width)))
        return x + self.drop(self.mlp(self.norm2(x)))


class GPT(nn.Module):
    def __init__(self, symbols, context, width=64, heads=4, layers=2, dropout=0.1):
        super().__init__()
        self.context = context
        self.tokens, self.places = nn.Embedding(symbols, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, symbols, bias=False)
        for weight in (self.tokens.weight, self.places.weight):
            nn.init.normal_(weight, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(x)))

    @torch.no_grad()
    def generate(self, ids, count):
        for _ in range(count):
            logits = self(ids[:, -self.context :])[:, -1]
            ids = torch.cat([ids, torch.multinomial(logits.softmax(-1), 1)], 1)
        return ids


def get_batch(data, batch_size, context):
    starts = torch.randint(len(data) - context, (batch_size,))
    x = torch.stack([data[i : i + context] for i in starts])
    y = torch.stack([data[i + 1 : i + context + 1] for i in starts])
    return x, y


@torch.no_grad()
def evaluate(model, data, batch_size, batches=4):
    model.eval()
    losses = []
    for _ in range(batches):
        x, y = get_batch(data, batch_size, model.context)
        losses.append(F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item())
    model.train()
    return sum(losses) / len(losses)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", default="input.txt")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=40, help="steps in an epoch")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--context", type=int, default=48)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--write", type=int, default=200, help="how many characters to write in the end")
    args = parser.parse_args()

    torch.manual_seed(1337)
    text = Path(args.text).read_text()
    symbols = sorted(set(text))
    data = torch.tensor([symbols.index(symbol) for symbol in text])
    cut = int(0.9 * len(data))
    train, held_out = data[:cut], data[cut:]

    model = GPT(len(symbols), args.context)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * args.steps)
    for epoch in range(args.epochs):
        for _step in range(args.steps):
            x, y = get_batch(train, args.batch_size, args.context)
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
        val_loss = evaluate(model, held_out, args.batch_size)
        print(f"epoch {epoch}: loss {loss.item():.4f}, val loss {val_loss:.4f}")

    model.eval()
    start = torch.tensor([[symbols.index("\n")]])
    print("".join(symbols[i] for i in model.generate(start, args.write)[0].tolist()))


if __name__ == "__main__":
    main()
