"""Keeps what hindsight statements print beside the replay, line by line, with the loops around each line.

A file of JSON: first an object that tells of the replay, then one list for each line, [loops, out, exact, text, at]: of
each loop around, from outside in, [site, nth, iteration, labels]; how many characters the run had printed by then;
whether that is exact, or about right since prints of the program were edited; and which statement printed it, [module,
line], or null. What was handed to a library that logs has a sixth item, [library, head, place, named], as the catalog
has them.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..descriptors import moved_up

Loop = tuple[str, int, int, dict[str, Any]]  # site, nth, iteration, labels
At = tuple[str, int]  # a statement that was added: module, line
Logged = tuple[str, str, str, str]  # library, head, place, named
AT_ONCE = 64  # lines that are written together


class KeptLines:
    """Takes what hindsight statements write, piece by piece. Whatever fails here ends the keeping, and nothing else.

    `loops` gives those around the place that runs now, and `stamp` something that equals what it gave before as long as
    they are the same; `failed` is told why nothing is kept any more. A line that was begun in one iteration and ended
    in another belongs to what both have around them. `at` tells which statement runs now.
    """

    def __init__(
        self,
        loops: Callable[[], list[Loop]],
        stamp: Callable[[], object],
        failed: Callable[[str], None],
        at: Callable[[], At | None] = lambda: None,
    ) -> None:
        self._loops, self._stamp, self._failed, self._at = loops, stamp, failed, at
        self._statement: At | None = None  # that began the line
        self._stamped: object = self  # which no stamp equals
        self._place: list[Loop] = []
        self._descriptor: int | None = None
        self._file = 0, 0
        self._pid = os.getpid()
        self._text = ""
        self._began: tuple[list[Loop], int, bool] = [], 0, True
        self._lines: list[str] = []

    def goes_to(self, path: str | None) -> None:
        """From here on, lines go to that file."""
        self.finish()
        self._close()
        if path is not None:
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._descriptor = moved_up(os.open(path, flags, 0o600))
                self._file = _identity(self._descriptor)
            except OSError as error:
                self._give_up(error)

    def take(self, text: str, out: int, exact: bool) -> None:
        """A piece of output, before which the run had printed so many characters, about or exactly."""
        if self._descriptor is None or not text:
            return
        try:
            self._take(text, out, exact)
        except Exception as error:
            self._give_up(error)

    def _forget_the_parents(self) -> None:
        """What was begun before a fork is the parent's."""
        if self._pid != os.getpid():
            self._pid, self._text = os.getpid(), ""
            self._lines.clear()

    def _take(self, text: str, out: int, exact: bool) -> None:
        self._forget_the_parents()
        if not self._text:
            self._began = self._here(), out, exact
            self._statement = self._at()
        self._text += text
        if "\n" not in text:
            return
        *lines, rest = self._text.split("\n")
        now = self._here()
        for line in lines:
            around = common(self._began[0], now)
            self._lines.append(json.dumps([around, *self._began[1:], line, self._statement]))
            self._began = now, out, exact
        self._text = rest
        if len(self._lines) > AT_ONCE:
            self.flush()

    def log(self, text: str, how: Logged, out: int, exact: bool) -> None:
        """What was handed to a library that logs, as `take` has what is printed."""
        if self._descriptor is None:
            return
        try:
            self._forget_the_parents()
            self._lines.append(json.dumps([self._here(), out, exact, text, self._at(), how]))
            if len(self._lines) > AT_ONCE:
                self.flush()
        except Exception as error:
            self._give_up(error)

    def _here(self) -> list[Loop]:
        stamp = self._stamp()
        if stamp != self._stamped:
            self._stamped, self._place = stamp, self._loops()
        return self._place

    def flush(self) -> None:
        """Write the whole lines."""
        if self._lines and self._descriptor is not None and self._pid == os.getpid():
            data = "".join(f"{line}\n" for line in self._lines).encode()
            self._lines.clear()
            try:
                if not self._is_ours():
                    raise OSError(errno.EBADF, os.strerror(errno.EBADF))
                os.write(self._descriptor, data)
            except OSError as error:
                self._give_up(error)

    def drop(self) -> None:
        """Forget what was not written yet."""
        self._text = ""
        self._lines.clear()

    def finish(self) -> None:
        """Write everything, a line without an end included."""
        if self._text and self._descriptor is not None and self._pid == os.getpid():
            self._lines.append(json.dumps([*self._began, self._text, self._statement]))
        self._text = ""
        self.flush()

    def _close(self) -> None:
        if self._descriptor is not None and self._is_ours():
            os.close(self._descriptor)
        self._descriptor = None

    def _is_ours(self) -> bool:
        """Whether the program has not closed it, and opened a file of its own in its place."""
        try:
            return self._descriptor is not None and _identity(self._descriptor) == self._file
        except OSError:
            return False

    def _give_up(self, error: Exception) -> None:
        self._close()
        reason = (
            error.strerror if isinstance(error, OSError) else None
        ) or f"{type(error).__name__}: {error}"
        self._failed(f"what this replay prints is not kept for florhook logs: {reason}")


def holds(printed: str, text: str) -> bool:
    """Whether a library has printed a text, in its own layout."""
    words = text.split()
    return bool(words) and all(word in printed for word in words)


def common(one: list[Loop], other: list[Loop]) -> list[Loop]:
    """The loops, from outside in, that two places have around them, in the same iterations."""
    count = 0
    for mine, its in zip(one, other, strict=False):
        if mine[:3] != its[:3]:
            break
        count += 1
    return one[:count]


def _identity(descriptor: int) -> tuple[int, int]:
    stat = os.fstat(descriptor)
    return stat.st_dev, stat.st_ino


def folder_of(home: Path, run: str) -> Path:
    """Where the lines of a run's replays are."""
    return home / "logs" / run


def publish(home: Path, run: str, parts: list[Path], about: dict[str, Any]) -> None:
    """Make one file of what a replay kept, if it printed anything. OSError where that cannot be."""
    data = b"".join(path.read_bytes() for path in parts if path.exists())
    if not data:
        return
    write_whole(folder_of(home, run) / f"{about['replay']}.jsonl", json.dumps(about).encode() + b"\n" + data)


def write_whole(path: Path, data: bytes) -> None:
    """A file that is there with all of it, or not at all. OSError where that cannot be."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    spare = path.with_name(f".{path.name}.new")
    with open(os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    spare.rename(path)


def replays_of(home: Path, run: str) -> list[tuple[dict[str, Any], Path]]:
    """The replays that printed for a run, oldest first, and their files."""
    found = []
    for path in folder_of(home, run).glob("*.jsonl"):
        with open(path, "rb") as file:
            about = _parsed(file.readline())
        if isinstance(about, dict) and isinstance(about.get("ended"), float):
            found.append((about, path))
    return sorted(found, key=lambda each: (each[0]["ended"], each[1].name))


def read(path: Path) -> Iterator[tuple[list[Loop], int, bool, str, At | None, Logged | None]]:
    """The lines of a replay, as the module says. What is no line of ours is passed over."""
    with open(path, "rb") as file:
        file.readline()
        for row in file:
            match _parsed(row):
                # The first releases kept no statement.
                case [list(loops), int(out), bool(exact), str(text), *how] if all(map(_is_loop, loops)):
                    yield (
                        [(site, nth, iteration, labels) for site, nth, iteration, labels in loops],
                        out,
                        exact,
                        text,
                        _statement(how[:1]),
                        _logged(how[1:]),
                    )


def _statement(found: list[Any]) -> At | None:
    match found:
        case [[str(module), int(line)]]:
            return module, line
    return None


def _logged(found: list[Any]) -> Logged | None:
    match found:
        case [[str(via), str(head), str(place), str(named)]]:
            return via, head, place, named
    return None


def _is_loop(found: Any) -> bool:
    match found:
        case [str(), int(), int(), dict()]:
            return True
    return False


def _parsed(row: bytes) -> Any:
    try:
        return json.loads(row)
    except ValueError:
        return None
