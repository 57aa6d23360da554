"""Random programs with random probes; `scripts/fuzz` tries as many as one likes."""

from __future__ import annotations

from pathlib import Path

import pytest
from random_programs import check


@pytest.mark.parametrize("seed", [14, 201, 205, 218, 246, 258, 287, 300, 301, 302])
def test_a_replay_prints_what_a_plain_run_prints(seed: int, tmp_path: Path) -> None:
    """The first seven once did not."""
    assert check(seed, tmp_path / "work") == []
