"""Programs whose stdin, stdout or stderr is closed, as those of daemons are, or that may open few files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Flor, run

from florhook.store.writer import _remove_lock

PROGRAM = """
    import os
    first = os.open("s.py", os.O_RDONLY)
    os.close(first)
    for epoch in range(3):
        x = sum(k * k for k in range(2000 + epoch)) % 97
        with open("out.txt", "a") as out:
            out.write(f"{epoch} {x} {first}\\n")
"""
VALUES = [sum(k * k for k in range(2000 + epoch)) % 97 for epoch in range(3)]
CLOSED = ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"]


def closed(flor: Flor, which: str, *words: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """florhook with some of its streams closed."""
    shell = ["/bin/sh", "-c", f'exec "$@" {which}', "sh", sys.executable, "-m", "florhook", *words]
    return run(shell, flor.folder, flor.environ(**changes))


@pytest.mark.parametrize("which", CLOSED)
def test_a_program_with_closed_streams_is_recorded_and_replayed(flor: Flor, which: str) -> None:
    """The writer holds the lock of the run until all is there, and nothing else is removed in its place."""
    device = os.stat(os.devnull)
    flor.write("s.py", PROGRAM)
    recorded = closed(flor, which, "s.py", FLOR_EPSILON="inf")
    assert (recorded.returncode, recorded.stderr) == (0, "")
    first = {"<&-": 0, ">&-": 1, "2>&-": 2, "<&- >&- 2>&-": 0}[which]  # the lowest number that is free
    lines = [f"{epoch} {value} {first}" for epoch, value in enumerate(VALUES)]
    assert (flor.folder / "out.txt").read_text().splitlines() == lines
    flor.write("s.py", PROGRAM + "        print('@@', epoch, x)\n")
    for workers in ("1", "2"):
        shown = closed(flor, which, "s.py", FLOR_MODE="replay", FLOR_WORKERS=workers)
        assert shown.returncode == 0
        if ">&-" not in which.replace("2>&-", ""):
            assert shown.stdout == "".join(f"@@ {epoch} {value}\n" for epoch, value in enumerate(VALUES))
    assert closed(flor, which, "runs").returncode == 0
    assert list((flor.home / "runs").iterdir()) == []
    assert os.path.samestat(device, os.stat(os.devnull))


def test_only_a_lock_of_a_run_is_removed(tmp_path: Path) -> None:
    """Whatever the descriptor is that a writer was given."""
    (tmp_path / "runs").mkdir()
    lock, other = tmp_path / "runs" / "20261130-120000-abcdef.lock", tmp_path / "data.txt"
    for path in (lock, other):
        path.write_text("x")
        with path.open() as file:
            _remove_lock(file.fileno())
    assert (lock.exists(), other.exists()) == (False, True)


@pytest.mark.parametrize("limit", [24, 64])
def test_few_descriptors_are_enough_for_a_replay(flor: Flor, limit: int) -> None:
    """As few as a machine may allow (`ulimit -n`)."""
    flor.write("s.py", PROGRAM)
    assert flor("s.py", FLOR_EPSILON="inf").returncode == 0
    flor.write("s.py", PROGRAM + "        print('@@', epoch, x)\n")
    shell = ["/bin/sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", sys.executable, "-m", "florhook", "s.py"]
    for workers in ("1", "2"):
        shown = run(shell, flor.folder, flor.environ(FLOR_MODE="replay", FLOR_WORKERS=workers))
        assert (shown.stdout, shown.returncode) == (
            "".join(f"@@ {epoch} {value}\n" for epoch, value in enumerate(VALUES)),
            0,
        ), shown.stderr


def test_a_replay_by_several_workers_leaves_nothing_open(flor: Flor) -> None:
    """Python's development mode would warn of it on stderr."""
    flor.write("s.py", PROGRAM)
    assert flor("s.py", FLOR_EPSILON="inf").returncode == 0
    flor.write("s.py", PROGRAM + "        print('@@', epoch, x)\n")
    shown = flor("s.py", FLOR_MODE="replay", FLOR_WORKERS="2", PYTHONDEVMODE="1")
    assert (shown.returncode, shown.stderr) == (0, "")
