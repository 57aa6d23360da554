import torch
from ignite.engine import Engine, Events
from ignite.metrics import RunningAverage
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(5)
x = torch.randn(120, 5)
y = (x[:, :2].sum(1) > 0).float()
net = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Dropout(0.1), torch.nn.Tanh(), torch.nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
seen = []


def step(engine, batch):
    data, target = batch
    net.train()
    opt.zero_grad()
    loss = torch.nn.functional.binary_cross_entropy_with_logits(net(data)[:, 0], target)
    loss.backward()
    opt.step()
    seen.append(len(data))
    return loss.item()


def check(engine, batch):
    net.eval()
    with torch.no_grad():
        return ((net(batch[0])[:, 0] > 0).float() == batch[1]).float().mean().item()


trainer, evaluator = Engine(step), Engine(check)
RunningAverage(output_transform=lambda value: value).attach(trainer, "mean")
loader = DataLoader(TensorDataset(x, y), batch_size=20, shuffle=True)
best = {"hits": 0.0}


@trainer.on(Events.EPOCH_COMPLETED)
def report(engine):
    evaluator.run(loader)
    norm = net[0].weight.norm().item()
    best["hits"] = max(best["hits"], evaluator.state.output)
    print("epoch", engine.state.epoch, f"{engine.state.metrics['mean']:.5f} {norm:.5f}")


@trainer.on(Events.ITERATION_COMPLETED(every=5))
def tick(engine):
    opt.param_groups[0]["lr"] *= 0.98


trainer.run(loader, max_epochs=4)
print("done", trainer.state.iteration, len(seen), f"{best['hits']:.4f}")
for k in range(3):
    print("out", k, f"{net(x[k:k + 1]).item():.5f}")
