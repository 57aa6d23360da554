"""Whether florhook works here: this Python, the store's place, the memory, the packages."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from ..activate import sitedir
from ..begin import staging_limit
from ..settings import Settings, without_password
from ..store.keys import key_path, load_key
from ..store.memory import available_bytes
from ..store.store import Store
from ..store.verify import Verifier

OLDEST, NEWEST = (3, 10), (3, 13)  # the Pythons that the tests run under
NEEDED = ("psutil", "xxhash", "zstandard")
EXTRAS = {  # of ours, with what they are for
    "rich": ("rich", "a coloured bar while a replay runs"),
    "IPython": ("jupyter", "%load_ext florhook, and the prompt of florhook shell"),
    "pandas": ("pandas", "florhook.dataframe"),
    "pyarrow": ("parquet", "florhook logs --parquet"),
    "tensorboard": ("tensorboard", "florhook export --tensorboard"),
    "mlflow": ("mlflow", "florhook export --mlflow"),
    "wandb": ("wandb", "florhook export --wandb"),
    "fsspec": ("remote", "a store at a URL"),
    "s3fs": ("remote", "a store at an s3:// URL"),
    "ray": ("ray", "florhook replay --executor ray"),
    "submitit": ("slurm", "florhook replay --executor slurm"),
}
LIBRARIES = {  # what of it florhook knows
    "torch": "tensors, modules, optimizers, random states, compiled functions",
    "numpy": "arrays, random states",
    "pandas": "frames",
    "scipy": "sparse arrays",
    "scikit-learn": "estimators",
    "tqdm": "bars around loops",
    "transformers": "the loop of Trainer",
    "accelerate": "launches of several ranks",
    "lightning": "its training loops",
    "pytorch-lightning": "its training loops",
    "skorch": "its training loop",
    "pytorch-ignite": "the loop of Engine",
    "numba": "compiled functions are left alone",
}
PROGRAM = "for number in range(3):\n    print(number)\n"
PRINTED = "0\n1\n2\n"
ITERATIONS = 3
PATIENCE = 60.0  # seconds
GIGABYTE = 1e9
MEGABYTE = 1e6
BLOCK = bytes(4_000_000)
MOST_WRITTEN, LONGEST_WRITING = 64e6, 1.0  # bytes, seconds
SLOW = 50e6  # bytes a second, with which checkpoints of a model of some size are left out


def findings(settings: Settings) -> Iterator[tuple[str, str]]:
    """What was looked at, and what was found."""
    yield "python", _python()
    yield "recording", _tried([sys.executable, "-m", "florhook"], {})
    yield "starting without a changed command (florhook sitedir)", _self_activation()
    stands_for = f"; it stands for {without_password(settings.remote)}" if settings.remote else ""
    yield "store", _store(settings.home) + stands_for
    yield "disk", _disk(settings.home)
    yield (
        "settings",
        f"from {settings.configured}" if settings.configured else "no [tool.florhook] in a pyproject.toml",
    )
    yield "key", _key()
    yield (
        "memory",
        f"{_size(available_bytes())} free, of which recording takes at most {_size(staging_limit())}",
    )
    yield "packages that florhook needs", _versions(NEEDED)
    for name, (extra, purpose) in EXTRAS.items():
        missing = f"not installed, pip install 'florhook[{extra}]'"
        yield f"optional package {name}", f"{_version(name) or missing} ({purpose})"
    for name, known in LIBRARIES.items():
        if _version(name):
            yield f"library {name}", f"{_version(name)} ({known})"
    yield (
        "libraries that it knows and that are not installed",
        ", ".join(name for name in LIBRARIES if not _version(name)) or "none",
    )


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
        problem = _problem_of(home)
        return f"does not work ({problem})" if problem else "works"


def _problem_of(home: Path) -> str:
    """What is wrong with the recording of the small program, if anything: of the hook or of the writer."""
    if not home.is_dir():
        return "the program ran, and was not recorded"
    with Store.open(home) as store:
        runs = store.runs()
        if not runs or not store.wait(runs[0], PATIENCE):
            return f"its writer did not come to an end in {PATIENCE:.0f} s"
        run = store.runs()[0]
        if [loop.iterations for loop in store.contexts(run)] != [ITERATIONS]:
            return "the hook did not see the program's loop"
        report = Verifier(store).run(run)
    if not report.checkpoints:
        return "the writer did not store a checkpoint"
    return "what the writer stored cannot be read back" if report.damages else ""


def _folder_of_florhook() -> str:
    return str(Path(__file__).resolve().parent.parent.parent)


def _existing(home: Path) -> Path:
    """What exists of a path."""
    while not home.exists() and home != home.parent:
        home = home.parent
    return home


def _store(home: Path) -> str:
    """Nothing is made here: what exists of the path says whether the rest can be made."""
    existing = _existing(home)
    if not existing.is_dir():
        return f"{home} cannot be made: {existing} is no folder"
    if not os.access(existing, os.W_OK | os.X_OK):
        return f"{home} cannot be written: no permission in {existing}"
    state = "can be written" if existing == home else "is not there yet and can be made"
    return f"{home} {state}, {_size(shutil.disk_usage(existing).free)} free"


def _disk(home: Path) -> str:
    """How fast the store's place takes bytes, by a file without a name that is written and synced."""
    try:
        with tempfile.TemporaryFile(dir=_existing(home), buffering=0) as file:
            written, began = 0, time.perf_counter()
            while written < MOST_WRITTEN and time.perf_counter() - began < LONGEST_WRITING:
                written += file.write(BLOCK)
            os.fsync(file.fileno())
            rate = written / (time.perf_counter() - began)
    except OSError as error:
        return f"cannot be tried: {error.strerror}"
    slow = "; slow: many checkpoints may be left out, --home names another place" if rate < SLOW else ""
    return f"{rate / MEGABYTE:.0f} MB/s, of {written / MEGABYTE:.0f} MB written and synced{slow}"


def _key() -> str:
    """Whether there is one that signs what is recorded."""
    try:
        path = key_path()
    except RuntimeError as error:
        return f"there is no place for one ({error}); FLOR_KEY names a file"
    if load_key() is not None:
        return f"{path}, which signs what is recorded"
    return f"{path} is {'no key that can be read' if path.exists() else 'not there yet, the first recording makes it'}"


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
