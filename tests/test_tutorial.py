"""docs/tutorial.md: its files, edits and commands, taken in order, show what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import ROOT
from pages import agrees, steps_of, take


@pytest.mark.slow
def test_the_tutorial_shows_what_happens(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    folder = tmp_path / "tutorial"
    folder.mkdir()
    steps = list(steps_of((ROOT / "docs" / "tutorial.md").read_text()))
    assert [step.kind for step in steps].count("command") > 10
    for step in steps:
        shown = take(step, folder)
        if shown is not None:
            assert agrees(shown, step.text), f"$ {step.subject}\n{shown}\ninstead of\n{step.text}"
    # Derived by hand from make_data.py: the largest of a million normal numbers is about 5, and 60 times that of one
    # measurement's twenty is above 100; so the tutorial's conclusion holds of the data.
    import numpy as np

    largest = np.abs(np.load(folder / "data.npy")[:, :-1]).max(1)
    assert largest.argmax() == 4711
    assert largest[4711] > 100
    assert np.delete(largest, 4711).max() < 6


def test_the_readme_shows_parts_of_it() -> None:
    """Commands and what they show, but for the edit, which the README makes by sed."""
    tutorial = (ROOT / "docs" / "tutorial.md").read_text().splitlines()
    part = (ROOT / "README.md").read_text().partition("some lines left out:\n\n")[2].partition("\n\n")[0]
    lines = [line.removeprefix("    ") for line in part.splitlines()]
    assert len(lines) > 8
    assert [line for line in lines if line not in tutorial and line != "..." and "$ sed" not in line] == []


def test_what_differs_between_runs_is_not_compared() -> None:
    """Ids, dates, times, sizes and fractions may differ; whole numbers and words may not; `...` is any lines."""
    row = "20261130-171738-bf13eb  train.py    2026-11-30 17:17:38  1.9 s  0  2412  {}  7.1 MB  6.75 %\n"
    assert agrees(row.format(6), row.format(12).replace("1.9 s", "11.0 s").replace("7.1 MB", "812 KB"))
    assert agrees("epoch 1: loss 0.25\n", "epoch 1:  loss 1.5e-07\n")
    assert not agrees("epoch 1: loss 0.25\n", "epoch 2: loss 0.25\n")
    assert not agrees("epoch 1: loss 0.25\n", "")
    assert agrees("a\nb\nc\n", "a\n...\n")
    assert not agrees("a\nb\nc\n", "a\n...\nb\n")
