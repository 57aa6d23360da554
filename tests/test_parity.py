"""Recording changes nothing that anyone can see: the programs of test_launch under the whole of florhook."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from test_launch import SCRIPTS, assert_same

FLORHOOK = ("-m", "florhook")


@pytest.mark.parametrize("epsilon", ["0.0667", "inf"])
@pytest.mark.parametrize("program", SCRIPTS, ids=" ".join)
def test_a_recorded_program_cannot_be_told_from_a_plain_run(
    program: Sequence[str], epsilon: str, tmp_path: Path
) -> None:
    """Status, stdout and stderr are the same, byte for byte, whatever the budget."""
    key = str(tmp_path / "config")
    assert_same(program, tmp_path, FLORHOOK, FLOR_EPSILON=epsilon, FLOR_STRICT="1", XDG_CONFIG_HOME=key)


@pytest.mark.parametrize("program", SCRIPTS, ids=" ".join)
def test_mode_off_runs_plainly(program: Sequence[str], tmp_path: Path) -> None:
    """FLOR_MODE=off is plain python, and writes no store."""
    assert_same(program, tmp_path, FLORHOOK, FLOR_MODE="off")
    assert not (tmp_path / "store").exists()
