"""How much memory this process may still take: of the machine's, of its control groups', of its address space."""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator
from pathlib import Path

from ..dataclass import dataclass


@dataclass(frozen=True)
class _Files:
    """Where a version of control groups says what a group may take, takes, and could give back at once."""

    root: str
    limit: str
    usage: str
    cached: str  # in memory.stat


_FIRST = _Files(
    "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
)
_SECOND = _Files("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file")


def available_bytes() -> int:
    """Bytes."""
    import psutil  # which takes long, and is not needed before the first large checkpoint

    machine = int(psutil.virtual_memory().available)
    return max(0, min([machine, *_in_groups(Path("/proc/self/cgroup")), *_in_address_space()]))


def _in_groups(listed: Path, system: Path = Path("/")) -> Iterator[int]:
    for line in _read(listed).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        files = _FIRST if controllers else _SECOND
        group = Path(path)
        for name in (group, *group.parents):  # a container sees its own group as the root
            found = _in_group(system / files.root[1:] / str(name).lstrip("/"), files)
            if found is not None:
                yield found


def _in_group(folder: Path, files: _Files) -> int | None:
    cached = re.search(rf"^{files.cached} (\d+)$", _read(folder / "memory.stat"), re.MULTILINE)
    try:
        limit, usage = int(_read(folder / files.limit)), int(_read(folder / files.usage))
    except ValueError:  # no such file, or no limit
        return None
    return limit - usage + (int(cached[1]) if cached else 0)


def _in_address_space() -> Iterator[int]:
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        pages = int(_read(Path("/proc/self/statm")).split()[0])
        yield limit - pages * resource.getpagesize()


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
