import numpy as np
import torch
from skorch import NeuralNetClassifier
from skorch.callbacks import Callback, LRScheduler

torch.manual_seed(4)
rng = np.random.default_rng(4)
x = rng.normal(size=(200, 6)).astype(np.float32)
y = (x[:, 0] * x[:, 1] > 0).astype(np.int64)


class Net(torch.nn.Module):
    seen = 0

    def __init__(self, width=16):
        super().__init__()
        self.first, self.last = torch.nn.Linear(6, width), torch.nn.Linear(width, 2)
        self.drop = torch.nn.Dropout(0.3)

    def forward(self, data):
        hidden = self.drop(torch.relu(self.first(data)))
        if self.training:
            Net.seen += len(data)
        return torch.softmax(self.last(hidden), -1)


class Watcher(Callback):
    def initialize(self):
        self.batches = 0
        return self

    def on_batch_end(self, net, training, **kwargs):
        self.batches += training

    def on_epoch_end(self, net, **kwargs):
        row = net.history[-1]
        print("epoch", row["epoch"], f"{row['train_loss']:.5f} {row['valid_acc']:.4f}")


net = NeuralNetClassifier(Net, max_epochs=5, lr=0.1, optimizer=torch.optim.Adam, optimizer__weight_decay=1e-4, batch_size=32,
                          callbacks=[("watcher", Watcher()), ("lr", LRScheduler("StepLR", step_size=2))], verbose=0,
                          iterator_train__shuffle=True)
net.fit(x, y)
print("fitted", Net.seen, len(net.history))
net.partial_fit(x, y)
score = (net.predict(x) == y).mean()
print("score", f"{score:.4f}")
