import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

set_seed(6)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
x = torch.randn(100, 5)
y = x.sum(1, keepdim=True)
net = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Dropout(0.1), torch.nn.ReLU(), torch.nn.Linear(8, 1))
opt = torch.optim.AdamW(net.parameters(), lr=0.02)
plan = torch.optim.lr_scheduler.LambdaLR(opt, lambda n: 1 / (1 + n))
net, opt, loader, plan = accelerator.prepare(net, opt, DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True), plan)
steps = 0
for epoch in range(5):
    total = 0.0
    for data, target in loader:
        with accelerator.accumulate(net):
            loss = torch.nn.functional.mse_loss(net(data), target)
            accelerator.backward(loss)
            opt.step()
            plan.step()
            opt.zero_grad()
        total += loss.item()
        steps += accelerator.sync_gradients
    print("epoch", epoch, f"{total:.5f}", steps)
print("done", f"{sum(p.sum().item() for p in net.parameters()):.5f}")
