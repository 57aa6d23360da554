"""`florhook diff` of runs that train with torch."""

from __future__ import annotations

import diffs
import pytest
from conftest import Flor
from diffs import Compared, record

compared = diffs.compared


@pytest.mark.needs_torch
def test_torch(flor: Flor, compared: Compared) -> None:
    """Parameters by their names, by how many numbers and by how much; the same seed gives no difference."""
    source = """
import sys, time, torch
torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(20, 40), torch.nn.ReLU(), torch.nn.Linear(40, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=float(sys.argv[1]))
for epoch in range(3):
    x = torch.randn(16, 20)
    loss = net(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.003)
    print(epoch, loss.item())
"""
    first, again = record(flor, "0.01", source=source), record(flor, "0.01", source=source)
    status, found, _ = compared(first, again)
    assert (status, found["state"]["compared"]) == (0, 5)
    other = record(flor, "0.02", source=source)
    status, found, text = compared(first, other)
    assert status == 1
    assert found["state"]["start"]["values"][0]["path"].startswith("optimizer.")
    assert found["state"]["parting"]["place"] == "after epoch=0 of the loop at train.py:6"
    by_path = {value["path"]: value["how"] for value in found["state"]["parting"]["values"]}
    weight = by_path["net[0].weight"]
    # Adam's first step is the learning rate for whatever has a gradient: the two are 0.01 apart
    assert "of 800 values differ, by up to 0.01 " in weight
    assert "torch's random state" not in text
