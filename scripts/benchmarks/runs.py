"""Runs of programs, plainly and recorded: their time, processor time and memory, and what florhook says of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .figures import Values

# A process's peak memory counts that of its parent when it was forked: so the parent is a small one.
LAUNCHER = """
import json, os, sys, time
began = time.perf_counter()
child = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, used = os.wait4(child, 0)
wall, code = time.perf_counter() - began, os.waitstatus_to_exitcode(status)
with open(sys.argv[1], "w") as file:
    json.dump([code, wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024], file)
"""
PROGRAMS = Path(__file__).resolve().parent / "workloads"


class FailedError(Exception):
    """A program of the benchmark's own failed."""


@dataclass(frozen=True)
class Ran:
    """One run of a program, until its process had gone."""

    wall: float  # seconds
    cpu: float  # seconds of its processor time, without the writer's
    peak: float  # MiB
    stats: dict[str, Any] = field(default_factory=dict)  # what florhook says


@dataclass(frozen=True)
class Bench:
    """A folder with a program in it, and the store of its recordings."""

    folder: Path
    threads: int

    @property
    def home(self) -> Path:
        return self.folder / "store"

    @property
    def said(self) -> Path:
        """What the last run said, on stdout and stderr."""
        return self.folder.parent / f"{self.folder.name}.txt"

    def environ(self, **more: str) -> dict[str, str]:
        """As a user has it, with the number of threads: nothing that steers Python (but where it finds florhook)."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "FLOR"))}
        return {**kept, "OMP_NUM_THREADS": str(self.threads), "MKL_NUM_THREADS": str(self.threads), **more}

    def plain(self, *command: str, python: str = sys.executable, **more: str) -> Ran:
        os.sync()  # what runs before have left to be written is not this one's
        figures = self.said.with_suffix(".json")
        launch = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(figures), shutil.which(python) or python]
        with self.said.open("wb") as said:
            subprocess.run(
                [*launch, *command],
                cwd=self.folder,
                env=self.environ(**more),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                check=True,
            )
        code, *found = json.loads(figures.read_text())
        if code:
            raise FailedError(f"{' '.join(command)}: {code}\n{self.said.read_text()[-2000:]}")
        return Ran(*found)

    def hooked(self, *command: str, **more: str) -> Ran:
        """With florhook, which records unless FLOR_MODE says otherwise."""
        stats = self.folder.parent / f"{self.folder.name}-stats.json"
        ran = self.plain("-m", "florhook", *command, FLOR_HOME=str(self.home), FLOR_STATS=str(stats), **more)
        return Ran(ran.wall, ran.cpu, ran.peak, json.loads(stats.read_text()))

    def asked(self, ran: Ran) -> Ran:
        """A run with a new print in it, which has to have printed."""
        if "probe" not in self.said.read_text():
            raise FailedError(f"the new print printed nothing:\n{self.said.read_text()[-2000:]}")
        return ran

    def recorded(self, *command: str, **more: str) -> Ran:
        """Into a new store, since what is known from a run before is not stored again."""
        shutil.rmtree(self.home, ignore_errors=True)
        return self.hooked(*command, **more)


def bench(folder: Path, program: str, threads: int) -> Bench:
    """The program in a folder of its own."""
    place = folder / Path(program).stem
    place.mkdir(exist_ok=True)
    shutil.copy(PROGRAMS / program, place)
    return Bench(place, threads)


def places(names: Iterable[str], programs: Mapping[str, str], threads: int) -> Iterator[tuple[str, Bench]]:
    """Each of the names, said, with its program in a folder that lives as long as the caller is at it."""
    for name in names:
        say(name)
        with tempfile.TemporaryDirectory() as folder:
            yield name, bench(Path(folder), programs[name], threads)


def with_line(source: str, before: str, line: str) -> str:
    """The program with one more line before the only one that begins so, at the same depth."""
    lines = source.splitlines(keepends=True)
    (place,) = (index for index, each in enumerate(lines) if each.lstrip().startswith(before))
    indent = lines[place][: len(lines[place]) - len(lines[place].lstrip())]
    return "".join([*lines[:place], f"{indent}{line}\n", *lines[place:]])


def size(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def seconds_of(runs: Sequence[Ran]) -> Values:
    return tuple(run.wall for run in runs)
