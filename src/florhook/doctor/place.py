"""Whether florhook works here: this Python, the store's place, the memory, the packages."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from ..activate import sitedir
from ..begin import staging_limit
from ..settings import Settings, without_password
from ..store.memory import available_bytes
from ..store.store import Store

OLDEST, NEWEST = (3, 10), (3, 13)  # the Pythons that the tests run under
NEEDED = ("psutil", "xxhash", "zstandard")
OPTIONAL = (
    "torch", "numpy", "pandas", "scipy", "scikit-learn", "tqdm", "transformers", "accelerate", "lightning",
    "pytorch-lightning", "skorch", "pytorch-ignite", "numba", "IPython",
)  # fmt: skip
PROGRAM = "for number in range(3):\n    print(number)\n"
PRINTED = "0\n1\n2\n"
PATIENCE = 60.0  # seconds
GIGABYTE = 1e9


def findings(settings: Settings) -> Iterator[tuple[str, str]]:
    """What was looked at, and what was found."""
    yield "python", _python()
    yield "recording", _tried([sys.executable, "-m", "florhook"], {})
    yield "starting without a changed command (florhook sitedir)", _self_activation()
    stands_for = f"; it stands for {without_password(settings.remote)}" if settings.remote else ""
    yield "store", _store(settings.home) + stands_for
    yield (
        "memory",
        f"{_size(available_bytes())} free, of which recording takes at most {_size(staging_limit())}",
    )
    yield "packages that florhook needs", _versions(NEEDED)
    yield "packages that it knows", _versions(OPTIONAL)


def _python() -> str:
    text = f"{platform.python_implementation()} {platform.python_version()} on {platform.system()}, {sys.executable}"
    if platform.python_implementation() != "CPython" or platform.system() != "Linux":
        return f"{text}: not supported, florhook is for CPython on Linux"
    tested = OLDEST <= sys.version_info[:2] <= NEWEST
    return text if tested else f"{text}: not tested (3.10 to 3.13 are)"


def _self_activation() -> str:
    if sys.flags.no_site or sys.flags.ignore_environment:
        return "cannot work: this Python was started with -S, -E or -I"
    return _tried([sys.executable], {"PYTHONPATH": str(sitedir())})


def _tried(command: list[str], changes: Mapping[str, str]) -> str:
    """Record a small program in a folder of its own: "works", or what went wrong."""
    ours = ("FLOR", "PYTHONPATH")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    paths = [changes.get("PYTHONPATH"), _folder_of_florhook(), os.environ.get("PYTHONPATH")]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "store"
        (Path(folder) / "program.py").write_text(PROGRAM)
        environ |= {
            "FLOR_HOME": str(home),
            "FLOR_MODE": "record",
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        }
        try:
            done = subprocess.run(
                [*command, "program.py"],
                cwd=folder, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"does not work ({error})"
        if done.returncode or done.stdout != PRINTED:
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            return f"does not work (exit code {done.returncode}: {last})"
        if done.stderr:
            return f"does not work ({done.stderr.strip().splitlines()[-1].removeprefix('florhook: ')})"
        return "works" if _has_run(home) else "does not work (the program ran, and was not recorded)"


def _has_run(home: Path) -> bool:
    """Whether a store holds a run that its writer has finished."""
    if not home.is_dir():
        return False
    with Store.open(home) as store:
        runs = store.runs()
        return bool(runs) and store.wait(runs[0], PATIENCE)


def _folder_of_florhook() -> str:
    return str(Path(__file__).resolve().parent.parent.parent)


def _store(home: Path) -> str:
    """Nothing is made here: what exists of the path says whether the rest can be made."""
    existing = home
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        return f"{home} cannot be made: {existing} is no folder"
    if not os.access(existing, os.W_OK | os.X_OK):
        return f"{home} cannot be written: no permission in {existing}"
    state = "can be written" if existing == home else "is not there yet and can be made"
    return f"{home} {state}, {_size(shutil.disk_usage(existing).free)} free"


def _versions(names: tuple[str, ...]) -> str:
    found = {name: _version(name) for name in names}
    there = ", ".join(f"{name} {version}" for name, version in found.items() if version)
    missing = ", ".join(name for name, version in found.items() if not version)
    return "; ".join(filter(None, [there, f"not installed: {missing}" if missing else ""]))


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _size(count: float) -> str:
    return f"{count / GIGABYTE:.1f} GB"
