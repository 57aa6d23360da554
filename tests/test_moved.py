"""A project's folder that was copied since the run: what a replay computes again names the folder of now."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import Flor

from florhook.runtime.moved import Moved

OLD, NEW = "/data/old", "/data/new"
MOVED = Moved((OLD, NEW), lambda line: {line - 2})


@pytest.mark.parametrize(
    ("path", "was", "now", "same"),
    [
        ("best", f"{OLD}/a.pt", f"{NEW}/a.pt", True),
        ("best", Path(f"{OLD}/a.pt"), Path(f"{NEW}/a.pt"), True),
        ("best", os.fsencode(f"{OLD}/a.pt"), os.fsencode(f"{NEW}/a.pt"), True),
        ("text", f"from {OLD} to {OLD}/a", f"from {NEW} to {NEW}/a", True),
        ("best", f"{OLD}/a.pt", f"{NEW}/b.pt", False),
        ("best", f"{OLD}er/a.pt", f"{NEW}er/a.pt", False),  # another folder, whose name begins as that one's
        ("best", f"/mnt{OLD}/a.pt", f"/mnt{NEW}/a.pt", False),
        ("note.lineno", 10, 12, True),
        ("note.lineno", 10, 13, False),
        ("number", 10, 12, False),
        ("text", f'File "{OLD}/a.py", line 7, in f\n', f'File "{NEW}/a.py", line 9, in f\n', True),
        ("text", f'File "{OLD}/a.py", line 7, in f\n', f'File "{NEW}/a.py", line 8, in f\n', False),
        ("best", Path(f"{OLD}/a"), f"{NEW}/a", False),
        ("number", 1.5, 2.5, False),
    ],
)
def test_what_says_the_same_of_where_the_program_lies(path: str, was: Any, now: Any, same: bool) -> None:
    """The folder at its boundaries, and lines by what was added above them."""
    assert MOVED.are_both(path, was, now) is same


def replayed_elsewhere(
    flor: Flor, program: str, old: str, new: str, *target: str
) -> tuple[subprocess.CompletedProcess[str], Any]:
    """Record, copy program and store, add a probe there and replay; and the figures."""
    assert flor(*target, FLOR_EPSILON="inf").returncode == 0
    place = flor.folder.parent / "elsewhere"
    shutil.copytree(flor.folder, place / "program")
    shutil.copytree(flor.home, place / "store")
    other = Flor(place / "program", place / "store")
    path = other.folder / program
    path.write_text(path.read_text().replace(old, new))
    done = other(*target, FLOR_MODE="replay", FLOR_STATS=str(place / "stats.json"))
    return done, json.loads((place / "stats.json").read_text())


PATHS = """
import logging
import os
import pathlib
import warnings

kept = []


class Keep(logging.Handler):
    def emit(self, record):
        kept.append(record)


log = logging.getLogger("paths")
log.addHandler(Keep())
total, saved = 0, {}
for epoch in range(4):
    for step in range(3):
        total += sum(range(30000)) % 7 + step
    where = os.path.abspath(f"{epoch}.txt")
    best = pathlib.Path("best.txt").resolve()
    saved[epoch] = os.fsencode(where)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn("hm")
    log.warning("total %d", total)
"""


def test_paths_and_lines_that_are_computed_again_are_no_difference(flor: Flor) -> None:
    """Paths in texts, bytes and path objects; warnings and log records, which know their file and line.

    sum(range(30000)) is 3 more than a multiple of 7: a step adds 3 and its number, an epoch 12.
    """
    flor.write("train.py", PATHS)
    done, stats = replayed_elsewhere(
        flor,
        "train.py",
        "    log.warning",
        "    print('@@', epoch, total, len(kept))\n    log.warning",
        "train.py",
    )
    wanted = "".join(f"@@ {epoch} {12 * (epoch + 1)} {epoch}\n" for epoch in range(4))
    assert (done.returncode, done.stdout) == (0, wanted), done.stderr
    assert stats["diverged"] == 0
    assert stats["verified"] > 0
    assert "where holds a path or a line number" in done.stderr


def test_plugins_are_imported_from_the_folder_of_now(flor: Flor) -> None:
    """What finds modules in a folder is kept by the import system, and is not led back to the run's folder."""
    flor.write(
        "plugins/__init__.py",
        """
        import importlib
        import pkgutil

        for info in pkgutil.iter_modules(__path__):
            importlib.import_module(f"{__name__}.{info.name}")
        """,
    )
    flor.write("plugins/doubles.py", "def twice(number):\n    result = 2 * number\n    return result\n")
    flor.write(
        "train.py",
        """
        import plugins

        total = 0
        for epoch in range(3):
            total += plugins.doubles.twice(epoch)
        print(total)
        """,
    )
    probe = "    print('@@', number, result)\n    return"
    done, _ = replayed_elsewhere(flor, "plugins/doubles.py", "    return", probe, "train.py")
    assert (done.returncode, done.stdout) == (0, "@@ 0 0\n@@ 1 2\n@@ 2 4\n"), done.stderr
