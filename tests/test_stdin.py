"""Replays of programs that read their standard input."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import Flor

PROGRAM = """
import sys
import time

first = sys.stdin.readline()
total = 0
for epoch in range(10):
    text = sys.stdin.readline().strip()
    total += len(text)
    time.sleep(0.01)
    text = ""
print(total)
"""
LINES = "".join(f"line {number}{'!' * number}\n" for number in range(40))
PROBES = ["if epoch % 4 == 0: print('@@', epoch, text)", "print('@@', epoch, text)"]


@pytest.mark.parametrize("workers", ["1", "3"])
@pytest.mark.parametrize("kind", ["file", "pipe"])
@pytest.mark.parametrize("probe", PROBES)
def test_what_is_read_after_skipped_iterations(flor: Flor, probe: str, kind: str, workers: str) -> None:
    """Each line where the program reads it, whether the input is a file or a pipe."""
    (flor.folder / "lines.txt").write_text(LINES)

    def run(*options: str, **changes: str) -> subprocess.CompletedProcess[str]:
        if kind == "pipe":
            return flor.python(*options, stdin=LINES, **changes)
        with open(flor.folder / "lines.txt") as file:
            return subprocess.run(
                [sys.executable, *options],
                cwd=flor.folder,
                env=flor.environ(**changes),
                stdin=file,
                capture_output=True,
                text=True,
                timeout=60,
            )

    flor.write("train.py", PROGRAM)
    assert run("-m", "florhook", "train.py", FLOR_EPSILON="inf").returncode == 0
    flor.write("train.py", PROGRAM.replace("    total +=", f"    {probe}\n    total +="))
    wanted = [line for line in run("train.py").stdout.splitlines() if line.startswith("@@")]
    done = run("-m", "florhook", "train.py", FLOR_MODE="replay", FLOR_WORKERS=workers)
    assert (done.returncode, done.stdout.splitlines()) == (0, wanted), done.stderr
