"""Random programs with random probes; `scripts/fuzz` tries as many as one likes."""

from __future__ import annotations

from pathlib import Path

import pytest
from random_programs import check, check_resume


@pytest.mark.parametrize("seed", [14, 201, 205, 218, 246, 258, 287, 300, 301, 302])
def test_a_replay_prints_what_a_plain_run_prints(seed: int, tmp_path: Path) -> None:
    """The first seven once did not."""
    assert check(seed, tmp_path / "work") == []


@pytest.mark.parametrize("seed", [41, 107, 221, 287, 307])
def test_a_killed_run_is_continued_as_if_it_had_not_been(seed: int, tmp_path: Path) -> None:
    """Whose files once held lines twice."""
    assert check_resume(seed, tmp_path / "work") == []
