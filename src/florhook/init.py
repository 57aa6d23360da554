"""`florhook init`: sets a project up, by lines that are appended to its pyproject.toml and its .gitignore."""

from __future__ import annotations

import os
from pathlib import Path

from .dataclass import dataclass
from .errors import UsageError
from .project import NAME, nearest, parse
from .settings import Settings
from .views.options import options_of

IGNORED = ".florhook/"
IGNORES = {".florhook", ".florhook/", "**/.florhook", "**/.florhook/"}  # lines that keep every store out
IGNORES_HERE = {"/.florhook", "/.florhook/"}  # lines that keep out the one beside them
TABLE = """\
[tool.florhook]
# Settings of florhook for this project. Options and FLOR_* variables come before them.
# Paths count from this folder.
#home = ".florhook"        # the store: a folder, or a URL such as "s3://bucket/prefix"
#epsilon = 0.0667          # the most that recording may add, as a share of the run time; inf: every boundary
#max_bytes = "20G"         # the most that the checkpoints of the store may take
#include = ["helpers.*"]   # modules to treat as the program's own
#exclude = ["vendored.*"]  # modules not to record
#workers = "auto"          # replay processes
#executor = "local"        # where they run: "local", "ray" or "slurm"
#cluster = "partition=gpu" # which cluster, and options for it
#mode = "record"           # or "off"; "replay", "resume"
#select = "epoch=::10"     # the iterations that a replay runs
#log = "hindsight"         # what a replay prints: "hindsight" or "all"
#run = "last"              # the run to replay or to resume
#at = "epoch=7"            # the place to resume at
#stats = "stats.json"      # a file that gets the figures of each run
#quiet = true              # no progress of replays
"""


@dataclass(frozen=True)
class Addition:
    """Lines to append to a file, which may not be there yet; none where it has them."""

    path: Path
    lines: str
    what: str


def init(settings: Settings, words: list[str]) -> None:
    """Append what is missing, and tell what that was."""
    options, rest = options_of("init", words, (), ("dry-run",))
    if rest:
        raise UsageError(f"init takes no arguments, not {rest[0]!r}")
    cwd = Path.cwd()
    additions = [_table(cwd), *_ignored(cwd)]
    for addition in additions:
        if not addition.lines:
            print(f"{addition.path}: has {addition.what} already")
        elif "dry-run" in options:
            print(f"{addition.path}: {addition.what} would be added:\n{addition.lines}", end="")
        else:
            new = not addition.path.exists()
            _append(addition)
            print(f"{addition.path}: {'made, with' if new else 'added'} {addition.what}")
    if len(additions) == 1:
        print(f"no .gitignore: {cwd} is in no git work tree")


def _table(cwd: Path) -> Addition:
    """The table for the nearest pyproject.toml, which must be a good one before and after."""
    path = Path(nearest(os.fspath(cwd)) or cwd / NAME)
    before = _read(path)
    try:
        table = parse(before.encode()).get("tool", {})
    except ValueError as error:
        raise UsageError(f"{path} is no valid TOML ({error}): nothing was changed") from None
    if not isinstance(table, dict):
        raise UsageError(f"{path}: tool is no table there: nothing was changed")
    if "florhook" in table:
        return Addition(path, "", "a table [tool.florhook]")
    lines = f"\n{TABLE}" if before.strip() else TABLE
    try:
        parse((_ended(before) + lines).encode())
    except ValueError:  # `tool = {...}` takes no more tables
        raise UsageError(f"{path} can take no table [tool.florhook]: its tool is an inline table") from None
    return Addition(path, lines, "a table [tool.florhook], all of it commented out")


def _ignored(cwd: Path) -> list[Addition]:
    """The line for the .gitignore of the git work tree, if there is one."""
    root = next((folder for folder in (cwd, *cwd.parents) if (folder / ".git").exists()), None)
    if root is None:
        return []
    path = root / ".gitignore"
    enough = IGNORES | IGNORES_HERE if root == cwd else IGNORES
    there = enough & {line.strip() for line in _read(path).splitlines()}
    return [Addition(path, "" if there else f"{IGNORED}\n", f"the line {IGNORED}")]


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode() if path.exists() else ""
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not in UTF-8: nothing was changed") from None


def _ended(text: str) -> str:
    return text if text.endswith("\n") or not text else f"{text}\n"


def _append(addition: Addition) -> None:
    """With the ends of lines that the file has."""
    before = _read(addition.path)
    lines = _ended(before)[len(before) :] + addition.lines
    if "\r\n" in before:
        lines = lines.replace("\n", "\r\n")
    try:
        with open(addition.path, "ab") as file:
            file.write(lines.encode())
    except OSError as error:
        raise UsageError(f"{addition.path} cannot be written: {error.strerror}") from None
