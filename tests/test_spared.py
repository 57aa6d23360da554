"""torch's compiler, which optimizers import: a replay that runs no step does without it."""

from __future__ import annotations

import json

import pytest
from conftest import Flor

pytestmark = pytest.mark.needs_torch

PROGRAM = """
import sys, time
import torch

torch.manual_seed(0)
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))]})
x, y = torch.randn(16, 4), torch.randn(16, 1)
for epoch in range(5):
    for step in range(3):
        optimizer.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)
    print(epoch, loss.item())
twice = torch.compile(lambda t: t * 2, backend="eager")
loss = twice((net(x) - y).square().mean())
loss.backward()
optimizer.step()
print(loss.item(), len(optimizer.state))
"""
HAS_IT = "'torch._dynamo' in sys.modules"


def test_it_comes_when_it_is_needed(flor: Flor) -> None:
    """Where nothing was run it is not there; what is compiled or stepped afterwards is as in the run."""
    path = flor.write("train.py", PROGRAM)
    recorded = flor("train.py", FLOR_EPSILON="inf")
    assert recorded.returncode == 0, recorded.stderr
    probes = {
        "    print(epoch": "    print('@@', epoch, loss.item(), [s['step'] for s in optimizer.state.values()])\n",
        "print(loss.item()": f"print('@@', loss.item(), {HAS_IT})\n",
        "twice = ": f"print('@@', {HAS_IT})\n",
    }
    text = PROGRAM
    for place, probe in probes.items():
        text = text.replace(place, probe + place)
    path.write_text(text)
    plain = flor.python("train.py").stdout.splitlines()
    wanted = [line for line in plain if line.startswith("@@")]
    assert wanted[5] == "@@ True"
    stats = flor.folder / "stats.json"
    done = flor("train.py", FLOR_MODE="replay", FLOR_STATS=str(stats))
    assert done.stdout.splitlines() == [*wanted[:5], "@@ False", *wanted[6:]]
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(stats.read_text())
    assert (figures["diverged"], figures["iterations_skipped"]) == (0, 15)


BEFORE_A_STEP = """
import time
import torch

net = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
names = (name for name in ("a", "b"))
next(names)  # no checkpoint holds where it stands
for epoch in range(2):
    total = 0
    for part in range(4):
        time.sleep(0.03)
        total += part
    net(torch.ones(1, 4)).sum().backward()
    optimizer.step()
"""


def test_what_its_import_sets_is_no_difference(flor: Flor) -> None:
    """The variable with the folder of its cache: it is there in the run, and not before the replay runs a step."""
    path = flor.write("train.py", BEFORE_A_STEP)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    path.write_text(BEFORE_A_STEP.replace("        total +=", "        print('@@', epoch, part)\n        total +="))
    stats = flor.folder / "stats.json"
    done = flor("train.py", FLOR_MODE="replay", FLOR_STATS=str(stats))
    assert done.stdout == "".join(f"@@ {epoch} {part}\n" for epoch in range(2) for part in range(4))
    assert done.returncode == 0, done.stderr
    assert json.loads(stats.read_text())["verified"] > 0
