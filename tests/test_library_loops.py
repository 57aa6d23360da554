"""Training loops that live in libraries: what a user's callback prints is found again, and epochs are skipped."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Flor
from test_record_replay import files_of, probe

PROGRAMS = ROOT / "tests" / "programs" / "library_loops"
QUIET = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


@dataclass(frozen=True)
class Case:
    """A program, a probe in an epoch's callback, the steps that are skipped for it, and a probe in these steps.

    A probe is the line that it follows, and what it prints. Where an import is slow, the steps are another case's.
    """

    program: str
    library: str
    callback: tuple[str, str]
    skipped: int
    step: tuple[str, str] | None = None
    changes: tuple[tuple[str, str], ...] = ()


LIGHTNING = (
    "norm = module.net[0].weight.norm().item()",
    "trainer.current_epoch, self.ends, norm, train.served, Net.calls, trainer.optimizers[0].param_groups[0]['lr']",
)
IGNITE = (
    "norm = net[0].weight.norm().item()",
    "engine.state.epoch, engine.state.iteration, norm, len(seen), opt.param_groups[0]['lr']",
)
CASES = {
    "transformers": Case(
        "transformers_train",
        "transformers",
        (
            "norm = model.last.weight.norm().item()",
            "state.epoch, self.steps, norm, Net.seen, train.served, kwargs['optimizer'].param_groups[0]['lr']",
        ),
        24,
    ),
    "lightning": Case(
        "lightning_fit",
        "lightning",
        LIGHTNING,
        24,
        ("Net.calls += 1", "batch_idx, loss.item(), self.trainer.current_epoch, y.sum().item()"),
    ),
    "pytorch_lightning": Case(
        "lightning_fit",
        "pytorch_lightning",
        LIGHTNING,
        24,
        changes=(("lightning.pytorch as pl", "pytorch_lightning as pl"),),
    ),
    "accelerate": Case(
        "accelerate_loop",
        "accelerate",
        ("total = 0.0", "epoch, steps, opt.param_groups[0]['lr'], net[0].weight.sum().item()"),
        28,
        ("accelerator.backward(loss)", "epoch, loss.item(), accelerator.sync_gradients"),
    ),
    "skorch": Case(
        "skorch_fit",
        "skorch",
        (
            "row = net.history[-1]",
            "row['epoch'], row['train_loss'], self.batches, net.module_.first.weight.norm().item(), Net.seen",
        ),
        25,
        ("hidden = self.drop", "self.training, hidden.sum().item(), len(data)"),
    ),
    "ignite": Case("ignite_run", "ignite", IGNITE, 0),
    "ignite without its generators": Case(
        "ignite_run",
        "ignite",
        IGNITE,
        24,
        ("loss.backward()", "engine.state.iteration, loss.item(), net[0].weight.grad.norm().item()"),
        (("torch.manual_seed(5)", "torch.manual_seed(5)\nEngine.interrupt_resume_enabled = False"),),
    ),
}


def put(flor: Flor, added: tuple[str, str]) -> None:
    probe(flor, "train.py", added[0], f"print('@@', {added[1]})")


def plainly(flor: Flor) -> list[str]:
    """What a plain run of the program as it is now prints; its files are elsewhere."""
    elsewhere = flor.home.parent / "plain"
    shutil.copytree(flor.folder, elsewhere)
    done = Flor(elsewhere, flor.home).python("train.py", **QUIET)
    shutil.rmtree(elsewhere)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def replayed(flor: Flor, wanted: list[str], **changes: str) -> dict[str, Any]:
    """Replay what is there now, which has to print these lines and to change no file; the figures."""
    before, stats = files_of(flor.folder), flor.home.parent / "stats.json"
    done = flor("train.py", FLOR_MODE="replay", FLOR_STATS=str(stats), **QUIET, **changes)
    assert files_of(flor.folder) == before
    assert done.stdout.splitlines() == wanted, done.stderr
    figures: dict[str, Any] = json.loads(stats.read_text())
    assert (done.returncode, figures["diverged"]) == (0, 0), done.stderr
    return figures


@pytest.mark.needs_torch
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", CASES)
def test_a_print_in_a_callback_of_a_library_s_loop(name: str, flor: Flor) -> None:
    """The run is as without florhook. The print is as in a plain run, and the steps are skipped for it.

    Then the same of a print in the model's own code, which runs them, with all else that the program prints.
    """
    case = CASES[name]
    pytest.importorskip(case.library)
    text = (PROGRAMS / f"{case.program}.py").read_text()
    for old, new in case.changes:
        assert old in text
        text = text.replace(old, new)
    path = flor.folder / "train.py"
    path.write_text(text)
    done = flor("train.py", FLOR_EPSILON="inf", **QUIET)
    assert (done.returncode, "florhook" in done.stderr) == (0, False), done.stderr
    put(flor, case.callback)
    printed = plainly(flor)
    wanted = [line for line in printed if line.startswith("@@")]
    assert len(wanted) > 2
    assert done.stdout.splitlines() == [line for line in printed if line not in wanted]
    figures = replayed(flor, wanted)
    assert figures["iterations_skipped"] >= case.skipped
    if case.step:
        path.write_text(text)
        put(flor, case.step)
        replayed(flor, plainly(flor), FLOR_LOG="all")


# A library of our own ------------------------------------------------------------------------------------------

LIBRARY = """
import time
settings = {"rate": 0.5}

def fit(weights, epochs, callback):
    for epoch in range(epochs):
        for step in range(4):
            weights[step % 2] += settings["rate"] * len(weights)
            time.sleep(0.005)  # long enough to be worth a checkpoint on a busy machine too
        settings["rate"] *= 0.5
        callback(epoch)
"""


@pytest.fixture
def library(flor: Flor) -> Path:
    """A package outside the program's folder, and a recorded program that trains with it."""
    site = flor.home.parent / "first"
    write_library(site, LIBRARY)
    flor.write(
        "train.py",
        """
        import lib.loops
        weights = [0.0, 0.0]
        def callback(epoch):
            total = sum(weights)
            print(epoch, total)
        lib.loops.fit(weights, 5, callback)
        """,
    )
    done = flor("train.py", **found_in(flor, site), FLOR_INCLUDE="lib.loops", FLOR_EPSILON="inf")
    assert (done.returncode, done.stderr) == (0, "")
    probe(flor, "train.py", "total = sum(weights)", "print('@@', epoch, total, lib.loops.settings)")
    return site


def write_library(site: Path, text: str) -> None:
    (site / "lib").mkdir(parents=True)
    (site / "lib" / "__init__.py").touch()
    (site / "lib" / "loops.py").write_text(text)


def found_in(flor: Flor, site: Path) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join([str(site), flor.environ()["PYTHONPATH"]])}


def test_a_replay_keeps_the_run_s_patterns_and_finds_the_library_again(flor: Flor, library: Path) -> None:
    """Nobody has to set FLOR_INCLUDE again, and the library may have been installed anew elsewhere."""
    moved = library.rename(library.parent / "second")
    stats = flor.home.parent / "stats.json"
    done = flor("train.py", FLOR_MODE="replay", FLOR_STATS=str(stats), **found_in(flor, moved))
    rates = [0.5 / 2**epoch for epoch in range(5)]
    # Four steps an epoch, each of which adds twice the rate; the rate is halved before the callback.
    totals = [sum(8 * rate for rate in rates[: epoch + 1]) for epoch in range(5)]
    wanted = [f"@@ {epoch} {totals[epoch]} {{'rate': {rates[epoch] / 2}}}" for epoch in range(5)]
    assert (done.returncode, done.stdout.splitlines()) == (0, wanted), done.stderr
    figures = json.loads(stats.read_text())
    assert figures["iterations_skipped"] >= 20  # the steps
    assert figures["diverged"] == 0


def test_another_version_of_the_library_is_refused(flor: Flor, library: Path) -> None:
    """In one line for the module, though the run's own version is still there, where it was."""
    newer = library.parent / "newer"
    write_library(newer, LIBRARY.replace("*= 0.5", "*= 0.25").replace('"rate": 0.5', '"rate": 0.7'))
    done = flor("train.py", FLOR_MODE="replay", **found_in(flor, newer))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("lib.loops is another version than in the run") == 1
    assert len(done.stderr.splitlines()) == 2


def test_a_print_in_the_library_is_a_probe(flor: Flor, library: Path) -> None:
    """Its loops are the program's own."""
    path = library / "lib" / "loops.py"
    path.write_text(
        path.read_text().replace(
            "        callback(", "        print('@@ lib', epoch, weights)\n        callback("
        )
    )
    stats = flor.home.parent / "stats.json"
    done = flor("train.py", FLOR_MODE="replay", FLOR_STATS=str(stats), **found_in(flor, library))
    assert [line for line in done.stdout.splitlines() if "lib" in line] == [
        f"@@ lib {epoch} {[sum(4 * 0.5 / 2**n for n in range(epoch + 1))] * 2}" for epoch in range(5)
    ], done.stderr
    assert json.loads(stats.read_text())["iterations_skipped"] >= 20
