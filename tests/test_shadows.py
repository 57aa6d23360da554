"""A module of the user's that has the name of one that florhook uses: nobody gets the other's."""

from __future__ import annotations

import pytest
from conftest import Flor

OWN = "print('own module')\nVALUE = 7\n"
PROGRAM = """
    import {name}
    total = 0
    for epoch in range(4):
        total += {name}.VALUE * sum(k * k for k in range(2000 + epoch)) % 97
        print(epoch, total)
"""
VALUES = [7 * sum(k * k for k in range(2000 + epoch)) % 97 for epoch in range(4)]
LINES = ["own module", *(f"{epoch} {sum(VALUES[: epoch + 1])}" for epoch in range(4))]


@pytest.mark.parametrize("place", ["", "sub/"])
@pytest.mark.parametrize("name", ["random", "resource", "hmac", "platform", "xxhash"])
def test_the_program_gets_its_own_module(flor: Flor, name: str, place: str) -> None:
    """One that a recording imports, or only a replay: the program runs as without florhook, which says why."""
    flor.write(f"{place}s.py", PROGRAM.format(name=name))
    flor.write(f"{place}{name}.py", OWN)
    recorded = flor(f"{place}s.py")
    assert (recorded.stdout.splitlines(), recorded.returncode) == (LINES, 0)
    (line,) = recorded.stderr.splitlines()
    assert line.startswith("florhook: ")
    assert f"{name}.py has the name of a module that florhook needs itself" in line
    assert "runs without being recorded" in line
    shown = flor(f"{place}s.py", FLOR_MODE="replay")
    assert (shown.returncode, shown.stdout) == (3, "")
    assert f"{name}.py" in shown.stderr


def assert_recorded_and_replayed(flor: Flor, folder: str, name: str) -> None:
    """A program in the folder, beside a module of its own of that name."""
    flor.write(f"{folder}s.py", PROGRAM.format(name=name))
    flor.write(f"{folder}{name}.py", OWN)
    recorded = flor(f"{folder}s.py", FLOR_EPSILON="inf")
    assert (recorded.stdout.splitlines(), recorded.returncode, recorded.stderr) == (LINES, 0, "")
    flor.write(f"{folder}s.py", PROGRAM.format(name=name) + "        print('@@', total)\n")
    shown = flor(f"{folder}s.py", FLOR_MODE="replay")
    wanted = [f"@@ {sum(VALUES[: epoch + 1])}" for epoch in range(4)]
    assert (shown.stdout.splitlines(), shown.returncode) == (wanted, 0)


@pytest.mark.parametrize("name", ["random", "socket", "hmac"])
def test_the_working_folder_is_not_the_programs(flor: Flor, name: str) -> None:
    """Python looks for the modules of a script in the script's folder only."""
    flor.write(f"{name}.py", "raise RuntimeError('imported')\n")
    assert_recorded_and_replayed(flor, "sub/", "values")


def test_a_name_that_nobody_needs_is_no_clash(flor: Flor) -> None:
    """`test.py` beside a program is common."""
    assert_recorded_and_replayed(flor, "", "test")
