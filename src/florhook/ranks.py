"""The processes that one launcher (torchrun, accelerate) started for one program: its ranks."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from .dataclass import dataclass

if TYPE_CHECKING:
    import psutil

MARK = "LOCAL_RANK"  # a launcher sets it for the processes that it starts, and has none itself


@dataclass(frozen=True)
class Rank:
    """Which of them this process is. `launch` is the same for all ranks on this machine, and for no other launch."""

    number: int
    world: int  # how many there are, on all machines
    here: int  # how many of them run on this machine
    launch: str

    @classmethod
    def of(cls, environ: Mapping[str, str], program: str) -> Rank | None:
        """From the variables that torchrun sets; None where a program runs alone, or was started by a rank."""
        if environ.get("FLOR_OWNER"):
            return None
        try:
            number, world, here = (int(environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"))
        except (KeyError, ValueError):
            return None
        launcher = _launcher() if world > 1 else None
        if launcher is None:
            return None
        attempt = environ.get("TORCHELASTIC_RESTART_COUNT", "")
        return cls(number, world, here, _launch(launcher, f"{attempt} {program}"))

    @property
    def run_id(self) -> str:
        """The id of the run that this rank records."""
        return member_id(self.launch, self.number)


def member_id(run: str, number: int) -> str:
    """The id under which a rank of a run stands in the store; rank 0 has that of the run."""
    return f"{run}.{number}" if number else run


def of_rank(path: Path, number: int) -> Path:
    """A file of a rank's own: no two ranks write the same one."""
    return path.with_name(member_id(path.name, number))


def _launcher() -> psutil.Process | None:
    """The process that gave the ranks their numbers: the nearest one around that has none."""
    import psutil  # which takes long, and is needed by ranks only

    with contextlib.suppress(psutil.Error):
        for process in psutil.Process().parents():
            try:
                if MARK not in process.environ():
                    return process
            except (psutil.Error, OSError):
                return process  # another user's: no rank of this launch
    return None


def _launch(launcher: psutil.Process, attempt: str) -> str:
    import hashlib

    began = launcher.create_time()
    key = f"{launcher.pid} {_ticks(launcher.pid)} {attempt}"
    digest = hashlib.blake2b(key.encode(), digest_size=3).hexdigest()
    return time.strftime("%Y%m%d-%H%M%S-", time.localtime(began)) + digest


def _ticks(pid: int) -> str:
    """When a process started, in clock ticks since the machine did."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return text.rpartition(")")[2].split()[19]
