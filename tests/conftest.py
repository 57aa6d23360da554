"""What the tests share: florhook run as a user runs it, and the markers."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if importlib.util.find_spec("torch") is None:
        skip = pytest.mark.skip(reason="torch is not installed")
        for item in items:
            if item.get_closest_marker("needs_torch"):
                item.add_marker(skip)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Shows why a test that was run again had failed (pytest-rerunfailures itself names it only)."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"at first: {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)


@dataclass(frozen=True)
class Flor:
    """Runs `python -m florhook` in a folder of its own: flor("train.py", "--lr=1", FLOR_MODE="replay")."""

    folder: Path
    home: Path

    def environ(self, **changes: str) -> dict[str, str]:
        """This process's environment less its FLOR_* variables, with florhook importable.

        Streams are buffered as Python does it by itself: what a buffer does to the record would not be seen otherwise.
        """
        ours = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("FLOR_") and name != "PYTHONUNBUFFERED"
        }
        path = os.pathsep.join(filter(None, [str(ROOT / "src"), ours.get("PYTHONPATH")]))
        return {**ours, "PYTHONPATH": path, "FLOR_HOME": str(self.home), **changes}

    def write(self, name: str, text: str) -> Path:
        """A file of the program, dedented."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"))
        return path

    def __call__(
        self, *args: str, stdin: str | None = None, timeout: float = 100, **changes: str
    ) -> subprocess.CompletedProcess[str]:
        return self.python("-m", "florhook", *args, stdin=stdin, timeout=timeout, **changes)

    def python(
        self, *args: str, stdin: str | None = None, timeout: float = 100, **changes: str
    ) -> subprocess.CompletedProcess[str]:
        """The same without florhook, to compare with."""
        return run([sys.executable, *args], self.folder, self.environ(**changes), stdin, timeout)


def new_flor(folder: Path) -> Flor:
    """A program's folder and a store, both new, in a folder."""
    program = folder / "program"
    program.mkdir()
    return Flor(program, folder / "store")


@contextlib.contextmanager
def unwritable_copy(folder: Path) -> Iterator[Path]:
    """A copy that all may read and nobody may write; outside of pytest's own folders, which keep other users out."""
    with tempfile.TemporaryDirectory() as outside:
        copy = Path(shutil.copytree(folder, Path(outside) / "copy"))
        Path(outside).chmod(0o755)
        for path in [copy, *copy.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        yield copy
        for path in [copy, *copy.rglob("*")]:
            path.chmod(0o700)


def run(
    command: list[str], cwd: Path, env: Mapping[str, str], stdin: str | None = None, timeout: float = 100
) -> subprocess.CompletedProcess[str]:
    given = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout, **given)


@pytest.fixture
def flor(tmp_path: Path) -> Flor:
    return new_flor(tmp_path)


@pytest.fixture
def own_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key that signs what is recorded is one of this test's."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of a store that is not there yet."""
    return tmp_path / "store"
