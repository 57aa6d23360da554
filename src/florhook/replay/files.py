"""Which version of a file a replayed program must find, after parts of the run were skipped.

The user's folder holds files as the run left them at its end; the overlay holds what the replay wrote. After a jump
either may be the wrong one: the overlay's may be older than what the skipped part wrote, the user's may be newer than
the place that the replay is at. What the run noted of a file at its checkpoints tells, or the time at which it last
wrote the file; where neither does, the replay is run again without skipping.

Times here are seconds since the epoch, but for those of `Found` and `Known`. At the nth jump (from 0 on) what the
overlay holds gets the time n, unless it has a number already: so it is known later in which stretch the replay wrote
it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import tempfile
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from enum import Enum, auto
from typing import Any

from ..dataclass import dataclass, replace
from ..runtime.opened import CACHE, COARSE_NS, DIGESTED, content_digest
from ..state.restore import CannotRestoreError
from ..store.rows import FOLDER_GONE, LINK, FileRow, RunRow
from .overlay import Overlay
from .versions import path_now

CLOCK_NS = 1_000_000  # nanoseconds that a copy of a file may lose
CLOCK = 0.01  # seconds: how much earlier than the write a file's time may be
NUMBERS = 1e8  # below are numbers of jumps, above are times
NOTED = ("size", "gone", "content")
TEMPORARY = re.compile(r"tmp[a-z0-9_]{8}")
LATER = 2.0  # seconds after the end of the run: the file was changed by somebody else


class Version(Enum):
    AS_IT_IS = auto()  # what the overlay shows
    OF_THE_RUN = auto()  # the user's file, as the run left it
    UNKNOWN = auto()  # a version that is nowhere
    CHANGED_SINCE = auto()  # the user's file, which is not the run's any more
    GONE = auto()  # none: the run had deleted it


@dataclass(frozen=True)
class Found:
    """A file that is there now."""

    path: str
    size: int  # bytes
    changed: int  # nanoseconds since the epoch, or the number of a jump

    @classmethod
    def at(cls, path: str) -> Found | None:
        try:
            found = os.stat(path)
        except OSError:
            return None
        return cls(path, found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None


@dataclass(frozen=True)
class Known:
    """What the run noted of a file at a checkpoint."""

    at: float  # seconds since the start of the run
    size: int  # bytes; -1: it was not there
    changed: int = 0  # nanoseconds since the epoch
    digest: int = -1
    certain: bool = False  # a write after this would have changed the time

    def is_this(self, file: Found | None) -> bool:
        """Whether nobody has written to the file since."""
        if file is None or file.size != self.size or abs(file.changed - self.changed) > CLOCK_NS:
            return False
        if self.digest == -1:
            return self.certain
        return content_digest(file.path, self.size) == self.digest

    def holds(self, file: Found | None) -> bool:
        """Whether the file has the same content, whenever it was written."""
        if file is None or file.size != self.size or self.size > DIGESTED or self.digest == -1:
            return False
        return content_digest(file.path, self.size) == self.digest


class FileHistory:
    """What was skipped so far."""

    def __init__(self, started: float, ended: float | None, opened: Iterable[FileRow] = ()) -> None:
        """`opened` has the paths of now, absolute and canonical."""
        self.started, self.ended = started, ended
        self.rows = list(opened)
        self.read: dict[str, FileRow] = {}
        self.written: dict[str, float] = {}  # since when
        self.noted: dict[str, list[Known]] = {}  # in the order of time
        self.folders = {row.path for row in self.rows if row.how == "folder"}
        self.links: dict[str, list[tuple[float, str]]] = {}  # since when they lead where ("": they are gone)
        self._folder_times: dict[str, list[tuple[float, bool]]] = {}  # since when they are there or not
        for row in self.rows:
            if row.how in ("folder", FOLDER_GONE):
                self._folder_times.setdefault(row.path, []).append((row.at, row.how == "folder"))
            if row.how.startswith(LINK):
                self.links.setdefault(row.path, []).append((row.at, row.how.removeprefix(LINK)))
            elif row.how == FOLDER_GONE:
                continue
            elif row.how == "read":
                self.read.setdefault(row.path, row)
            elif row.how in NOTED:
                self._note(row)
            else:
                self.written.setdefault(row.path, row.at)
        self.skipped: list[tuple[float, float]] = []
        self.restored_at = 0.0
        self.place = 0.0  # the same since the start of the run: sizes were noted at exactly such a time

    def _note(self, row: FileRow) -> None:
        found = self.noted.setdefault(row.path, [])
        if row.how != "content":
            age = (self.started + row.at) * 1e9 - row.changed
            found.append(Known(row.at, row.size, row.changed, certain=age > COARSE_NS))
        elif found and found[-1].at == row.at:
            found[-1] = replace(found[-1], digest=row.changed)

    def jumped(self, before: float, after: float) -> None:
        """The replay went from one place of the run to a later one; seconds since the start of the run."""
        self.skipped.append((self.started + before, self.started + max(before, after)))
        self.restored_at, self.place = self.started + after, after

    def made_later(self, path: str) -> bool:
        """Whether a file that was not there at the start was not there yet at the place that the replay is at."""
        first = self.written.get(path)
        return first is not None and self.started + first >= self.restored_at

    def has_folder(self, path: str) -> bool:
        """Whether a folder that the run made was there at the place that the replay is at."""
        known = [there for at, there in self._folder_times.get(path, ()) if at <= self.place]
        return bool(known) and known[-1]

    def link_at(self, path: str) -> str:
        """Where a symbolic link of the run's led at the place that the replay is at; empty where it was not there."""
        known = [target for at, target in self.links[path] if at <= self.place]
        return known[-1] if known else ""

    def was_changed(self, path: str) -> bool:
        """Whether a file that the run read, and did not write, is another one now.

        What was changed before the run ended may have been written by the run itself, through C code (`torch.save`):
        that is for `version` to tell.
        """
        row = self.read.get(path)
        if row is None or path in self.written:
            return False
        try:
            found = os.stat(path)
        except OSError:
            return False  # the program will say so
        if self.ended is not None and found.st_mtime_ns <= self.ended * 1e9:
            return False
        return found.st_size != row.size or found.st_mtime_ns > row.changed + CLOCK_NS

    def written_by(self, seconds: float) -> set[str]:
        """The files that were opened for writing until so many seconds after the start; some may still be open."""
        return {path for path, first in self.written.items() if first <= seconds and path not in self.folders}

    def size_at(self, path: str, seconds: float) -> int | None:
        """How long a file was that nobody but appending lines has changed since, so many seconds after the start."""
        later = [row for row in self.rows if row.path == path and row.at > seconds]
        if any(row.how == "write" for row in later):
            return None
        known = self.known(path, seconds)
        if known is not None:
            return None if known.size < 0 else known.size
        first = next((row.size for row in later if row.how == "append"), -1)
        return None if first < 0 else first

    def known(self, path: str, seconds: float | None = None) -> Known | None:
        """What was noted last of a file until then, or until the place that the replay is at."""
        noted = self.noted.get(path, [])
        index = bisect_right(noted, self.place if seconds is None else seconds, key=lambda each: each.at)
        return noted[index - 1] if index else None

    def gone(self) -> list[str]:
        """The files that the run had written and that were not there at this place."""
        found = ((path, self.known(path)) for path in self.noted)
        return [path for path, known in found if known is not None and known.size < 0]

    def only_appended(self, path: str) -> bool:
        """Whether no writer of it could change what was already there."""
        return not any(row.how == "write" for row in self.rows if row.path == path)

    def version(self, users: Found | None, overlays: Found | None, known: Known | None = None) -> Version:
        """Which version of a file holds at the place that the replay is at (None: there is none there)."""
        if not self.skipped or (overlays is not None and overlays.changed > NUMBERS * 1e9):
            return self._without_a_jump(users, overlays)
        if known is not None:
            if known.size < 0:
                return Version.GONE
            if known.is_this(users):
                return Version.OF_THE_RUN
            return Version.AS_IT_IS if known.holds(overlays) else Version.UNKNOWN
        return self._by_time(users, overlays)

    def _without_a_jump(self, users: Found | None, overlays: Found | None) -> Version:
        later = users is not None and self.ended is not None and users.changed > (self.ended + LATER) * 1e9
        return Version.CHANGED_SINCE if later and overlays is None else Version.AS_IT_IS

    def _by_time(self, users: Found | None, overlays: Found | None) -> Version:
        """Where nothing was noted of it: C code wrote it, or the run did not write it at all.

        A time may be earlier than the write by the grain of the file system's clock. So one that lies just before an
        end of a skipped part tells nothing.
        """
        written = None if users is None else users.changed / 1e9
        if written is None or written < self.started - CLOCK:
            return Version.AS_IT_IS
        if self.ended is not None and written > self.ended + LATER:
            return Version.CHANGED_SINCE if overlays is None else Version.AS_IT_IS
        if written > self.restored_at - CLOCK:
            return Version.UNKNOWN
        if overlays is None:
            return Version.OF_THE_RUN
        number = round(overlays.changed / 1e9)
        if any(before < written <= after for before, after in self.skipped[number:]):
            return Version.OF_THE_RUN
        near = any(before - CLOCK <= written <= before for before, _ in self.skipped[number:])
        return Version.UNKNOWN if near else Version.AS_IT_IS


def opened_now(rows: Iterable[FileRow], run: RunRow) -> list[FileRow]:
    """The files that a run opened, with the paths that they have now."""
    here = os.getcwd()
    return [replace(row, path=_canonical(path_now(row.path, run, here), row.how)) for row in rows]


def _canonical(path: str, how: str) -> str:
    if how.startswith(LINK):
        return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    return os.path.realpath(path)


class Files:
    """Holds an overlay to the history; `unknown(path)` and `changed(path)` are called where it says so."""

    def __init__(
        self, overlay: Overlay, history: FileHistory, unknown: Any, changed: Any, sources: Collection[str]
    ) -> None:
        """`sources` are the program's own files, which were edited and are read for tracebacks."""
        self.overlay, self.history, self.sources = overlay, history, sources
        self.unknown, self.changed = unknown, changed
        self._told: set[str] = set()
        self._hidden: set[str] = set()

    def begin_without(self, paths: Collection[str]) -> None:
        """Hide what the run had made; each file shows again when the part of the run that wrote it was skipped."""
        folders = {path for path in self.history.folders if os.path.isdir(path)}
        temporary = {path for path in self.history.written if is_temporary(path) and os.path.lexists(path)}
        links = {path for path in self.history.links if os.path.islink(path)}
        self._hidden = {*paths, *folders, *temporary, *links}
        self.overlay.hide(
            sorted(self._hidden, reverse=True)
        )  # what lies in a folder first: it is shown by itself

    def jumped(self, before: float, after: float) -> None:
        """The replay went from one place of the run to a later one; seconds since the start of the run."""
        number = len(self.history.skipped)
        self.history.jumped(before, after)
        for path in sorted(self._hidden & self.history.folders):
            if not self.history.made_later(path):
                self._hidden.discard(path)
                self.overlay.show_folder(path)
        for path in sorted(self._hidden - self.history.folders - self.history.links.keys()):
            if self.history.made_later(path):
                continue  # file times are coarser
            version = self._version(path)
            # Written before this place and again later, it is there; what is in it is asked when it is read.
            there = version is Version.UNKNOWN and path in self.history.written
            if there or version is Version.OF_THE_RUN:
                self._hidden.discard(path)
                self.overlay.forget(path)
        with self.overlay.paused():
            for folder, _, names in os.walk(self.overlay.version_of("")):
                for name in names:
                    path = os.path.join(folder, name)
                    with contextlib.suppress(OSError):
                        if os.lstat(path).st_mtime > NUMBERS:
                            os.utime(path, (number, number), follow_symlinks=False)
            strangers = list(self._folders_of_the_replay())
        gone = [path for path in self.history.gone() if self._version(path) is Version.GONE]
        for path in strangers:  # what no restore reaches, such as a library's thread, may hold the path
            self.overlay.put_away(path)
        for path in gone:
            self.overlay.forget(path)
        self._hidden.update(gone)
        self.overlay.hide(gone)
        for path in sorted(self.history.folders):
            if self.history.has_folder(path) and not os.path.isdir(path):
                os.makedirs(path, exist_ok=True)  # in the overlay
        for path in self.history.links:
            self._lead(path, self.history.link_at(path))

    def _lead(self, path: str, target: str) -> None:
        """Let a symbolic link lead where it did at this place."""
        now = os.readlink(path) if os.path.islink(path) else ""
        if now == target:
            return
        with self.overlay.paused():
            users = os.readlink(path) if os.path.islink(path) else ""
        self.overlay.forget(path)
        if users != target:
            self.overlay.hide([path])
            if target:
                os.symlink(target, path)  # in the overlay

    def _folders_of_the_replay(self) -> Iterator[str]:
        """Those that it made where the run had made others: their names came from the clock or from entropy."""
        root = self.overlay.version_of("")
        around = {os.path.dirname(path) for path in self.history.folders}
        for folder, names, _ in os.walk(root):
            if folder[len(root) :] in around:
                for name in names:
                    path = os.path.join(folder, name)[len(root) :]
                    if path not in self.history.folders and not os.path.lexists(path):
                        yield path

    def before_read(self, path: str) -> None:
        """The program is about to read the file with that canonical path."""
        if path in self.sources or not os.path.isabs(path) or CACHE in path:
            return
        if path in self._hidden and self.history.made_later(path):
            return
        version = self._version(path)
        with self.overlay.paused():
            if path in self.history.read and path not in self._told and self.history.was_changed(path):
                self._told.add(path)
                self.changed(path)
        if version is Version.OF_THE_RUN:
            self._hidden.discard(path)
            self.overlay.forget(path)
        elif version is Version.UNKNOWN and not self._was_cut(path):
            self.unknown(path)
        elif version is Version.CHANGED_SINCE and path not in self._told:
            self._told.add(path)
            self.changed(path)

    def before_list(self, folder: str) -> None:
        """The program is about to list a folder: files that were in it at this place, and are nowhere now, count."""
        if not self.history.skipped:
            return
        for path in self.history.noted:
            if os.path.dirname(path) == folder and self._was_there(path):
                self.before_read(path)

    def _was_there(self, path: str) -> bool:
        known = self.history.known(path)
        with self.overlay.paused():
            found = os.path.lexists(path) or os.path.lexists(self.overlay.version_of(path))
        return known is not None and known.size >= 0 and not found

    def _version(self, path: str) -> Version:
        with self.overlay.paused():
            overlays = Found.at(self.overlay.version_of(path))
            return self.history.version(Found.at(path), overlays, self.history.known(path))

    def _was_cut(self, path: str) -> bool:
        """Give the overlay what a file held at this place, if all that came later was appended to it."""
        known = self.history.known(path)
        if known is None or known.size < 0 or known.digest == -1:
            return False
        if known.size > DIGESTED and not self.history.only_appended(path):
            return False
        with self.overlay.paused():
            if content_digest(path, known.size) != known.digest:
                return False
            with open(path, "rb") as source:
                data = source.read(known.size)
        self._hidden.discard(path)
        self.overlay.forget(path)
        copy = self.overlay.writable(path, keep=False)
        with self.overlay.paused(), open(copy, "wb") as target:
            target.write(data)
        return True

    def bring_to(self, file: Any, position: int, name: str | None = None) -> None:
        """Give an open file that the program writes the content that it had, up to the recorded position.

        `name` is what it was called in the run, where that came from the clock or from entropy.
        """
        if not isinstance(file.name, (str, bytes)):
            raise CannotRestoreError("a file without a name was being written")
        name = None if name is None else self.overlay.path_now(name)
        if name is not None and name != file.name:
            self._rename(file, name)
            if file.tell() == position:
                return
        path = os.path.realpath(os.fsdecode(file.name))
        with self.overlay.paused():
            changed = _time_of(path)
            if changed is None or changed < self.history.started - CLOCK:
                raise CannotRestoreError(f"{path} is not as the run left it")
            with open(path, "rb") as source:
                data = source.read(position)
        if len(data) < position:
            raise CannotRestoreError(f"{path} is shorter than it was in the run")
        descriptor = file.fileno()
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, data)
        file.seek(0, os.SEEK_END)

    def _rename(self, file: Any, name: str) -> None:
        """From here on, the open file is the one that had that name in the run."""
        file.flush()
        flags = fcntl.fcntl(file.fileno(), fcntl.F_GETFL) & (os.O_ACCMODE | os.O_APPEND)
        os.makedirs(os.path.dirname(os.path.abspath(name)), exist_ok=True)
        other = os.open(name, flags | os.O_CREAT | os.O_TRUNC, 0o666)
        os.dup2(other, file.fileno(), inheritable=False)
        os.close(other)
        file.seek(0)
        raw = getattr(file, "buffer", file)
        getattr(raw, "raw", raw).name = name
        self._hidden.discard(os.path.realpath(name))


def is_temporary(path: str) -> bool:
    """Whether `tempfile` named it, which takes names only that nobody has."""
    folder, name = os.path.split(path)
    return folder == os.path.realpath(tempfile.gettempdir()) and bool(TEMPORARY.match(name))


def _time_of(path: str) -> float | None:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None
