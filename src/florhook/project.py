"""The table [tool.florhook] of the project's pyproject.toml: settings below flags and variables.

Every start of every recorded program comes through here, so a TOML parser is imported only where the table is.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from typing import TYPE_CHECKING, Any

from .dataclass import dataclass, field
from .errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

NAME = "pyproject.toml"
# [tool.florhook], tool.florhook.key, florhook.key under [tool], or [[tool.florhook]], which is refused
TABLE = re.compile(
    rb"""^(\xef\xbb\xbf)?[ \t]*(\[*[ \t]*["']?tool["']?[ \t]*\.[ \t]*["']?florhook\b|["']?florhook["']?[ \t]*[.=])""",
    re.MULTILINE,
)
TEXTS = ("mode", "home", "run", "select", "log", "stats", "at", "executor", "cluster")
NUMBERS = ("epsilon", "workers", "max_bytes")  # or texts: inf, auto, 20G
PATTERNS = ("include", "exclude")  # lists of texts, or one text
SWITCHES = ("quiet",)
PATHS = ("home", "stats")
# Not among them: FLOR_KEY. A folder from elsewhere could bring a store together with the key that vouches for it.
KEYS = (*TEXTS, *NUMBERS, *PATTERNS, *SWITCHES)


@dataclass(frozen=True)
class Table:
    """What a pyproject.toml says, as the texts that variables would have; `path` is "" where none says anything.

    `problem` is why the file could not be read.
    """

    path: str = ""
    values: dict[str, str] = field(default_factory=dict)
    problem: str = ""

    @property
    def folder(self) -> str:
        """From which relative paths in it count."""
        return os.path.dirname(self.path)

    def source(self, key: str) -> str:
        """How a message names a value."""
        return f"{self.path}: [tool.florhook] {key}"


def read_table(cwd: str | Path) -> Table:
    """The table of the nearest pyproject.toml; UsageError where it has a wrong key or a value of a wrong type."""
    path = nearest(os.fspath(cwd))
    data = b"" if path is None else _bytes_of(path)
    if path is None or not TABLE.search(data):
        return Table()
    try:
        whole = parse(data)
    except ImportError:
        return Table(problem=f"{path}: [tool.florhook] is not read: Python 3.10 needs tomli for it")
    except ValueError as error:
        return Table(problem=f"{path}: [tool.florhook] is not read, the file is no valid TOML: {error}")
    tools = whole.get("tool", {})
    table = tools.get("florhook", {}) if isinstance(tools, dict) else {}
    if not isinstance(table, dict):
        raise UsageError(f"{path}: [tool.florhook] must be a table")
    return Table(path, {key: _text(path, key, value) for key, value in table.items()})


def nearest(folder: str) -> str | None:
    """The pyproject.toml in a folder or the first one above."""
    while True:
        path = os.path.join(folder, NAME)
        if os.path.exists(path):
            return path
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def _bytes_of(path: str) -> bytes:
    """Nothing where it cannot be read: whether it means us cannot be known then."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return b""
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def parse(data: bytes) -> dict[str, Any]:
    """A TOML document; ValueError where it is none, ImportError where no parser is there."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return dict(tomllib.loads(data.decode()))


def _text(path: str, key: str, value: object) -> str:
    if key not in KEYS:
        raise UsageError(f"{path}: [tool.florhook] has no key {key!r}; it knows {', '.join(KEYS)}")
    kind = "a text"
    if isinstance(value, str) and "\0" in value:
        raise UsageError(f"{path}: [tool.florhook] {key} holds a NUL character")
    if isinstance(value, str) and key not in SWITCHES:
        return os.path.expanduser(value) if key in PATHS else value  # no shell has done it
    if key in SWITCHES:
        kind = "true or false"
        if isinstance(value, bool):
            return "1" if value else "0"
    elif key in NUMBERS:
        kind = "a number or a text"
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
    elif key in PATTERNS:
        kind = "a list of texts"
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return " ".join(value)
    raise UsageError(f"{path}: [tool.florhook] {key} must be {kind}, not {value!r}")
