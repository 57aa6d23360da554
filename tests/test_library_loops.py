"""Training loops that live in libraries: what a user's callback prints is found again, and epochs are skipped."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Flor
from test_record_replay import files_of, probe

from florhook.hook.locate import find_spec
from florhook.store.store import Store

PROGRAMS = ROOT / "tests" / "programs" / "library_loops"
QUIET = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


@dataclass(frozen=True)
class Case:
    """A program, a probe in an epoch's callback, one in its steps, and how many steps it trains."""

    program: str
    library: str
    callback: tuple[str, str]
    step: tuple[str, str]
    steps: int
    changes: tuple[tuple[str, str], ...] = ()
    skips: bool = True


LIGHTNING = (
    (
        "norm = module.net[0].weight.norm().item()",
        "print('@@', trainer.current_epoch, self.ends, norm, train.served, trainer.optimizers[0].param_groups[0]['lr'],"
        " Net.calls, sum(module.losses))",
    ),
    ("Net.calls += 1", "print('@@', batch_idx, loss.item(), self.trainer.current_epoch, y.sum().item())"),
    24,
)
IGNITE = (
    (
        "norm = net[0].weight.norm().item()",
        "print('@@', engine.state.epoch, engine.state.iteration, norm, len(seen), opt.param_groups[0]['lr'])",
    ),
    ("loss.backward()", "print('@@', engine.state.iteration, loss.item(), net[0].weight.grad.norm().item())"),
    24,
)
LEGACY = ("torch.manual_seed(5)", "torch.manual_seed(5)\nEngine.interrupt_resume_enabled = False")
CASES = {
    "transformers": Case(
        "transformers_train",
        "transformers",
        (
            "norm = model.last.weight.norm().item()",
            "print('@@', state.epoch, state.global_step, self.steps, norm, Net.seen, train.served,"
            " kwargs['optimizer'].param_groups[0]['lr'])",
        ),
        ("logits = self.last(hidden)", "print('@@', self.training, logits.sum().item())"),
        12,
    ),
    "lightning": Case("lightning_fit", "lightning", *LIGHTNING),
    "pytorch_lightning": Case(
        "lightning_fit",
        "pytorch_lightning",
        *LIGHTNING,
        changes=(("lightning.pytorch as pl", "pytorch_lightning as pl"),),
    ),
    "accelerate": Case(
        "accelerate_loop",
        "accelerate",
        (
            "steps += accelerator.sync_gradients",
            "if accelerator.gradient_state.end_of_dataloader: print('@@', epoch, total, steps, accelerator.step)",
        ),
        ("accelerator.backward(loss)", "print('@@', epoch, loss.item(), accelerator.sync_gradients)"),
        35,
        skips=False,  # the probe stands in the steps themselves
    ),
    "skorch": Case(
        "skorch_fit",
        "skorch",
        (
            "row = net.history[-1]",
            "print('@@', row['epoch'], row['train_loss'], self.batches, net.module_.first.weight.norm().item(), Net.seen)",
        ),
        ("hidden = self.drop", "print('@@', self.training, hidden.sum().item(), len(data))"),
        30,
    ),
    "ignite": Case("ignite_run", "ignite", *IGNITE, skips=False),
    "ignite without its generators": Case("ignite_run", "ignite", *IGNITE, changes=(LEGACY,)),
}


def replayed(flor: Flor, **changes: str) -> dict[str, Any]:
    """Replay what is there now, which has to print what a plain run prints; the figures."""
    elsewhere = flor.home.parent / "plain"
    shutil.copytree(flor.folder, elsewhere)
    plain = Flor(elsewhere, flor.home).python("train.py", **QUIET)
    shutil.rmtree(elsewhere)
    before = files_of(flor.folder)
    stats = flor.home.parent / "stats.json"
    done = flor("train.py", FLOR_MODE="replay", FLOR_STATS=str(stats), **QUIET, **changes)
    assert files_of(flor.folder) == before
    lines = plain.stdout.splitlines()
    wanted = [line for line in lines if line.startswith("@@") or "FLOR_LOG" in changes]
    assert len(wanted) > 2
    assert done.stdout.splitlines() == wanted, done.stderr
    assert done.returncode == plain.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(stats.read_text())
    assert figures["diverged"] == 0, done.stderr
    return figures


@pytest.mark.needs_torch
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", CASES)
def test_a_print_in_a_callback_of_a_library_s_loop(name: str, flor: Flor) -> None:
    """Exact; it skips the steps. So is one in the model's code, which runs them."""
    case = CASES[name]
    pytest.importorskip(case.library)
    text = (PROGRAMS / f"{case.program}.py").read_text()
    for old, new in case.changes:
        assert old in text
        text = text.replace(old, new)
    path = flor.folder / "train.py"
    path.write_text(text)
    plain = flor.python("train.py", **QUIET)
    done = flor("train.py", FLOR_EPSILON="inf", **QUIET)
    assert (done.returncode, done.stdout) == (0, plain.stdout), done.stderr
    assert "florhook" not in done.stderr
    probe(flor, "train.py", *case.callback)
    figures = replayed(flor)
    if case.skips:
        assert figures["iterations_skipped"] >= case.steps
    path.write_text(text)
    probe(flor, "train.py", *case.step)
    replayed(flor, FLOR_LOG="all")
