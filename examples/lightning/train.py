"""Train a small module with Lightning: which of two spirals is a point on?"""

import argparse
import logging
import math
import warnings

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore", module="lightning")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def spirals(count, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(2, (count,), generator=generator)
    turns = torch.rand(count, generator=generator) * 3 + 0.3
    angles = turns * 2 + labels * math.pi
    points = torch.stack([turns * angles.cos(), turns * angles.sin()], 1)
    return TensorDataset(points + 0.1 * torch.randn(count, 2, generator=generator), labels)


class Spiral(pl.LightningModule):
    def __init__(self, width=32, lr=0.01):
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(
            nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2)
        )

    def training_step(self, batch, batch_idx):
        points, labels = batch
        loss = nn.functional.cross_entropy(self.net(points), labels)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        points, labels = batch
        self.log("accuracy", (self.net(points).argmax(1) == labels).float().mean())

    def on_train_epoch_end(self):
        metrics = self.trainer.callback_metrics
        print(f"epoch {self.current_epoch}: loss {metrics['loss']:.4f}, accuracy {metrics['accuracy']:.4f}")

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.lr)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.5)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--points", type=int, default=1024, help="points to train on")
    args = parser.parse_args()

    pl.seed_everything(5, verbose=False)
    trainer = pl.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    train = DataLoader(spirals(args.points, 1), batch_size=64, shuffle=True)
    trainer.fit(Spiral(), train, DataLoader(spirals(256, 2), batch_size=256))


if __name__ == "__main__":
    main()
