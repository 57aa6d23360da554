"""The programs of examples/, recorded and replayed as their READMEs tell."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from conftest import ROOT
from pages import Step, agrees, edit, shell, steps_of

EXAMPLES = ROOT / "examples"
NEEDS = {  # what to skip an example without
    "chargpt": ["torch"],
    "hf_trainer": ["torch", "transformers", "accelerate"],
    "lightning": ["torch", "lightning"],
    "partial_fit": ["sklearn"],
    "reinforce": ["numpy"],
}


def test_every_example_is_here() -> None:
    """digits is what scripts/demo shows."""
    folders = {path.name for path in EXAMPLES.iterdir() if (path / "train.py").is_file()}
    assert folders == {*NEEDS, "digits"}
    assert [name for name in folders if f"[{name}]" not in (EXAMPLES / "README.md").read_text()] == []


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", NEEDS)
def test_an_example_is_recorded_and_replayed(name: str, tmp_path: Path) -> None:
    """What the README shows is what happens; the replay prints what a plain run of the probed program adds."""
    for module in NEEDS[name]:
        pytest.importorskip(module)
    record, probe, replay = steps_of((EXAMPLES / name / "README.md").read_text())
    assert [step.kind for step in (record, probe, replay)] == ["command", "edit", "command"]
    folder = Path(shutil.copytree(EXAMPLES / name, tmp_path / "program", ignore=leftovers))
    recorded = shown(record, folder)
    edit(folder / "train.py", probe.text)
    stats = tmp_path / "stats.json"
    hindsight = shown(replay, folder, FLOR_STATS=str(stats))
    plain = shell(record.subject.replace("-m florhook --epsilon inf ", ""), folder).splitlines()
    assert len(hindsight) > 2
    assert [line for line in plain if line in hindsight] == hindsight
    assert [line for line in plain if line not in hindsight] == recorded
    figures = json.loads(stats.read_text())
    assert figures["diverged"] == 0
    if name != "reinforce":  # whose loops take less than a checkpoint
        assert figures["iterations_skipped"] > 0


def leftovers(folder: str, names: list[str]) -> list[str]:
    """What runs of the examples in the checkout have left there."""
    return [name for name in names if name in (".florhook", "out", "__pycache__")]


def shown(step: Step, folder: Path, **changes: str) -> list[str]:
    """What the program prints, once it is seen that the README shows that."""
    text = shell(step.subject, folder, **changes)
    assert agrees(text, step.text), f"$ {step.subject}\n{text}\ninstead of\n{step.text}"
    return [line for line in text.splitlines() if not line.startswith("florhook: ")]
