"""torch's compiler, which optimizers import: a replay that runs no step does without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types

import pytest
from conftest import Flor

from florhook.runtime import roots

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
    assert done.returncode == 0, done.stderr  # where all is slow, it tells how far it is
    figures = json.loads(stats.read_text())
    assert (figures["diverged"], figures["iterations_skipped"]) == (0, 15)


CACHE = "TORCHINDUCTOR_CACHE_DIR"


def test_what_its_import_sets_is_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable with the folder of its cache, unless somebody else has chosen that."""
    place = types.SimpleNamespace(default_cache_dir=lambda: "/somewhere/cache")
    monkeypatch.setitem(sys.modules, "torch._inductor.runtime.cache_dir_utils", place)
    monkeypatch.delenv(CACHE, raising=False)
    process = roots._Process()
    monkeypatch.setenv(CACHE, "/somewhere/cache")
    assert process.read()[0] == ()
    monkeypatch.setenv(CACHE, "/elsewhere")
    assert process.read()[0] == ((CACHE, "/elsewhere"),)


def test_its_import_sets_that_and_nothing_else() -> None:
    """As torch does it now."""
    asked = "import os, torch; b = dict(os.environ); import torch._dynamo, torch._inductor.runtime.cache_dir_utils as c"
    shown = "print({k: v == c.default_cache_dir() for k, v in os.environ.items() if b.get(k) != v})"
    environment = {name: value for name, value in os.environ.items() if name != CACHE}
    done = subprocess.run(
        [sys.executable, "-c", f"{asked}; {shown}"], env=environment, capture_output=True, text=True
    )
    assert done.stdout in ("{}\n", f"{{'{CACHE}': True}}\n"), done.stderr
