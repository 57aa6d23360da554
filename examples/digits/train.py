"""Train a small convolutional network on scikit-learn's handwritten digits."""

import argparse
import copy

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class DigitsNet(nn.Module):
    def __init__(self, width=72):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(2 * width, 4 * width, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
        )
        self.dropout = nn.Dropout(0.3)
        self.head = nn.Linear(4 * width, 10)

    def forward(self, images):
        features = self.features(images).flatten(1)
        return self.head(self.dropout(features))


def load_data(batch_size, seed):
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    labels = torch.tensor(labels)
    train, test = train_test_split(range(len(labels)), test_size=0.2, stratify=labels, random_state=seed)
    train_loader = DataLoader(TensorDataset(images[train], labels[train]), batch_size, shuffle=True)
    test_loader = DataLoader(TensorDataset(images[test], labels[test]), batch_size=256)
    return train_loader, test_loader


def augment(images):
    """Shift each batch by up to one pixel."""
    down, right = torch.randint(-1, 2, (2,)).tolist()
    return torch.roll(images, (down, right), dims=(2, 3))


def train(model, loader, optimizer, loss_fn):
    model.train()
    total = 0.0
    for images, labels in loader:
        optimizer.zero_grad()
        loss = loss_fn(model(augment(images)), labels)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(labels)
    return total / len(loader.dataset)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct = 0
    for images, labels in loader:
        correct += (model(images).argmax(1) == labels).sum().item()
    return correct / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default="best.pt", help="where the best weights go")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    train_loader, test_loader = load_data(args.batch_size, args.seed)
    model = DigitsNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.05)

    best, best_weights = 0.0, None
    for epoch in range(args.epochs):
        loss = train(model, train_loader, optimizer, loss_fn)
        accuracy = evaluate(model, test_loader)
        scheduler.step()
        if accuracy > best:
            best, best_weights = accuracy, copy.deepcopy(model.state_dict())
        print(f"epoch {epoch:2d}  loss {loss:.4f}  accuracy {accuracy:.4f}")

    torch.save(best_weights, args.out)
    print(f"best accuracy {best:.4f}, saved to {args.out}")


if __name__ == "__main__":
    main()
