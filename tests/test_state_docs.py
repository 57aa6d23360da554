"""docs/state.md: its tables are those of the code, and its example works."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

PAGE = ROOT / "docs" / "state.md"


@pytest.mark.needs_torch
def test_the_tables_are_up_to_date(tmp_path: Path) -> None:
    """scripts/state-table writes nothing else than what is there. In a process of its own: tests register kinds."""
    pytest.importorskip("tqdm")
    pytest.importorskip("numpy")
    copy = shutil.copy(PAGE, tmp_path)
    command = [sys.executable, "-W", "ignore", "-m", "florhook.state.table", str(copy)]
    subprocess.run(command, env={"PYTHONPATH": str(ROOT / "src")}, check=True, timeout=100)
    assert Path(copy).read_text() == PAGE.read_text()


def test_the_example_of_a_registration_runs() -> None:
    """As it stands, for a class that has what it uses."""

    class Table:
        def rows(self) -> list[Any]:
            return []

        def load(self, rows: list[Any]) -> None:
            pass

    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    code = compile(example, str(PAGE), "exec")
    exec(code, {"Table": Table})
    from florhook.registration import registrations

    assert registrations.pop().cls is Table
