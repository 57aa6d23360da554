import random
import warnings

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")


class Points(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, 4, generator=g)
        self.y = (self.x.sum(1) > 0).long()
        self.served = 0

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        self.served += 1
        return self.x[i] + 0.01 * random.random(), self.y[i]


class Net(pl.LightningModule):
    calls = 0

    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.2), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        self.losses = []

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self(x), y)
        Net.calls += 1
        self.losses.append(loss.item())
        self.log("train_loss", loss, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        hits = (self(x).argmax(1) == y).float().mean()
        self.log("hits", hits)

    def on_train_epoch_end(self):
        print("epoch", self.current_epoch, len(self.losses), f"{self.trainer.callback_metrics['train_loss']:.5f}")

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=0.02)
        return [opt], [torch.optim.lr_scheduler.StepLR(opt, 2, 0.5)]


class Watcher(pl.Callback):
    def __init__(self):
        self.ends = 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.ends += 1

    def on_train_epoch_end(self, trainer, module):
        norm = module.net[0].weight.norm().item()
        print("norm", trainer.current_epoch, f"{norm:.5f}")

    def on_validation_epoch_end(self, trainer, module):
        if not trainer.sanity_checking:
            print("hits", f"{trainer.callback_metrics['hits']:.4f}")


pl.seed_everything(3, verbose=False)
train, val = Points(96, 1), Points(40, 2)
model, watcher = Net(), Watcher()
trainer = pl.Trainer(max_epochs=4, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                     enable_model_summary=False, callbacks=[watcher], num_sanity_val_steps=1)
trainer.fit(model, DataLoader(train, batch_size=16, shuffle=True), DataLoader(val, batch_size=20))
print("done", trainer.global_step, train.served, watcher.ends, f"{sum(model.losses):.5f}")
result = trainer.validate(model, DataLoader(val, batch_size=20), verbose=False)
print(result)
total = 0.0
for k in range(5):
    total += model(val.x[k:k + 1]).sum().item()
print(f"{total:.6f}")
