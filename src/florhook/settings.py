"""One frozen Settings, from flags, FLOR_* variables and the project's pyproject.toml; the first that says it wins."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from .dataclass import dataclass
from .errors import UsageError
from .project import read_table

MODES = ("record", "replay", "resume", "off")
LOCAL = "local"  # where workers run if nothing else is said
EXECUTORS = (LOCAL, "ray", "slurm")
LOGS = ("hindsight", "all")
AUTO = 0  # workers: as many as the machine can take
DEFAULT_EPSILON = 1 / 15  # the paper's


@dataclass(frozen=True)
class Settings:
    """What the user asked for. `home` is absolute; `epsilon` is a share of run time, infinity for every boundary.

    `max_bytes` are those of all pack files of the store. `remote` is the URL that the folder `home` stands for.
    `configured` is the pyproject.toml that had a say, `problem` why one could not be read.
    """

    mode: str = "record"
    home: Path = Path(".florhook")
    run: str = "last"
    epsilon: float = DEFAULT_EPSILON
    workers: int = 1
    executor: str = LOCAL
    cluster: str | None = None
    select: str | None = None
    log: str = "hindsight"
    stats: Path | None = None
    at: str | None = None
    max_bytes: int | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    force: bool = False
    trust: bool = False
    plan: bool = False
    probe: tuple[str, ...] = ()
    until: str | None = None
    monotone: bool = False
    runs: str | None = None
    remote: str | None = None
    quiet: bool = False
    configured: str = ""
    problem: str = ""

    @property
    def base(self) -> Path:
        """The folder from which programs are named: where the store is, so that both can be moved together."""
        return Path.cwd() if self.remote else self.home.parent


def from_sources(environ: Mapping[str, str], flags: Mapping[str, str], cwd: Path) -> Settings:
    """`flags` maps the names of options that were given, without dashes, to their text ("" for switches).

    Several probes are separated by NUL. Paths in a pyproject.toml count from its folder, all others from `cwd`.
    """
    if "monotone" in flags and "until" not in flags:
        raise UsageError("--monotone goes with --until")
    table = read_table(cwd)

    def given(name: str) -> str | None:
        return flags.get(name) or environ.get(f"FLOR_{name.upper()}")

    def text(name: str, default: str) -> str:
        return given(name) or table.values.get(name) or default

    def source(name: str) -> str:
        if flags.get(name):
            return f"--{name.replace('_', '-')}"
        variable = f"FLOR_{name.upper()}"
        return table.source(name) if name in table.values and not environ.get(variable) else variable

    def base(name: str) -> Path:
        return Path(table.folder) if name in table.values and not given(name) else cwd

    def one_of(name: str, allowed: tuple[str, ...]) -> str:
        value = text(name, allowed[0])
        if value not in allowed:
            raise UsageError(f"{source(name)} must be one of {', '.join(allowed)}, not {value!r}")
        return value

    stats = text("stats", "")
    home = text("home", ".florhook")
    remote = _url(home, source("home")) if "://" in home else None
    return Settings(
        mode=one_of("mode", MODES),
        home=base("home") / home if remote is None else _cache(environ) / folder_of(remote),
        remote=remote,
        run=text("run", "last"),
        epsilon=_epsilon(text("epsilon", ""), source("epsilon")),
        workers=_workers(text("workers", "1"), source("workers")),
        executor=one_of("executor", EXECUTORS),
        cluster=text("cluster", "") or None,
        select=text("select", "") or None,
        log=one_of("log", LOGS),
        stats=base("stats") / stats if stats else None,
        at=text("at", "") or None,
        max_bytes=byte_count(text("max_bytes", ""), source("max_bytes")),
        include=_patterns(text("include", "")),
        exclude=_patterns(text("exclude", "")),
        force="force" in flags,
        trust="trust" in flags,
        plan="plan" in flags,
        probe=tuple(flags["probe"].split("\0")) if "probe" in flags else (),
        until=flags.get("until"),
        monotone="monotone" in flags,
        runs=flags.get("runs"),
        quiet="quiet" in flags or text("quiet", "").lower() not in ("", "0", "false", "no"),
        configured=table.path,
        problem=table.problem,
    )


def _url(text: str, source: str) -> str:
    if not re.match(r"[a-z][a-z0-9+.-]*://[^/]|(file|local|memory):///[^/]", text):
        raise UsageError(f"{source} must be a folder, or a URL such as s3://bucket/prefix, not {text!r}")
    if re.match(r"(file|local)://[^/]", text):
        raise UsageError(f"{source}: a URL of files needs three slashes, file:///{text.partition('://')[2]}")
    return text.rstrip("/")


def _cache(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME") or ""
    return (Path(base) if os.path.isabs(base) else Path("~/.cache").expanduser()) / "florhook"


def folder_of(url: str) -> str:
    """The name of the folder that stands for a URL; without the password that may be in it."""
    from hashlib import blake2b  # no start should pay for it

    readable = re.sub(r"[^\w.-]+", "-", without_password(url)).strip("-")[-80:]
    return f"{readable}-{blake2b(url.encode(), digest_size=5).hexdigest()}"


def without_password(url: str) -> str:
    """A URL as it may be shown."""
    return re.sub(r"//[^/]*@", "//", url)


def _epsilon(text: str, source: str) -> float:
    if not text:
        return DEFAULT_EPSILON
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not value > 0:
        raise UsageError(f"{source} must be a positive number such as 0.05, or inf, not {text!r}")
    return value


def byte_count(text: str, source: str) -> int | None:
    """`500M`: a number of bytes with K, M, G or T behind it, powers of 1000; None for no text."""
    if not text:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)B?", text.strip(), re.IGNORECASE | re.ASCII)
    count = int(float(match[1]) * 1000 ** " KMGT".index(match[2].upper() or " ")) if match else 0
    if count < 1:
        raise UsageError(f"{source} must be a number of bytes such as 500M or 20G, not {text!r}")
    return count


def _workers(text: str, source: str) -> int:
    if text == "auto":
        return AUTO
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"{source} must be a number of processes from 1 on, or auto, not {text!r}")
    return int(text)


def _patterns(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.replace(",", " ").split() if part)
