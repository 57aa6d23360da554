"""Two recorded runs, compared by `florhook diff`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from conftest import Flor

from florhook.cli import main
from florhook.store.store import Store, settle

Compared = Callable[[str, str], tuple[int, dict[str, Any], str]]


def record(flor: Flor, *arguments: str, source: str) -> str:
    """Record a program at every boundary; the run's id."""
    flor.write("train.py", source)
    flor("train.py", *arguments, FLOR_EPSILON="inf")
    settle(flor.home, 30)
    with Store.open(flor.home) as store:
        return store.runs()[-1].id


@pytest.fixture
def compared(flor: Flor, capsys: pytest.CaptureFixture[str]) -> Compared:
    """Compares two runs: the status, the JSON, and the text."""

    def run(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        try:
            main(["--home", str(flor.home), "diff", *words])
            status = 0
        except SystemExit as ended:
            status = int(ended.code or 0)
        printed = capsys.readouterr()
        assert printed.err == ""
        return status, printed.out

    def both(first: str, second: str) -> tuple[int, dict[str, Any], str]:
        status, found = run("--json", first, second)
        again, text = run(first, second)
        assert status == again
        return status, json.loads(found), text

    return both
