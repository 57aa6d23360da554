"""Which files a recorded program opens: what it read must be the same in a replay, what it wrote is found again.

Python's audit events tell, for the program's own code and for most libraries. A hook for audit events cannot be
taken out again, so that it returns at its first comparison once the recording has ended.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import xxhash

from ..store.rows import FOLDER_GONE, LINK, FileRow
from . import probes

MOST_FILES = 20_000  # of each sort, and times of writing anew: a data set of a million pictures is not listed
WRITES = os.O_WRONLY | os.O_RDWR
EVENTS = frozenset(
    {
        *("open", "os.mkdir", "os.fork", "os.rename", "os.truncate"),
        *("os.symlink", "os.remove", "os.rmdir", "shutil.rmtree"),
    }
)
STARTERS = (
    "multiprocessing.popen_spawn_posix",
    "multiprocessing.popen_forkserver",
)  # they write to a new process
LOADERS = "torch.utils.data"  # whose worker processes are nothing that a replay looks into
TORCH = "torch.serialization"
CODE = (".py", ".pyc", ".so")
CACHE = (
    f"{os.sep}__pycache__{os.sep}"  # what lies there is made again from its source whenever that has changed
)
COARSE_NS = 20_000_000  # nanoseconds: within this a file may be written again and keep its time
DIGESTED = 1 << 20  # bytes of a file's end
MOST_DIGESTS = 64  # at a checkpoint


class OpenedFiles:
    """Notes each file when it is first opened for reading or for writing; `now` gives seconds since the run's start."""

    def __init__(self, now: Callable[[], float], home: str) -> None:
        self.now, self.home = now, home.rstrip(os.sep) + os.sep
        self.active = True
        self.read: set[str] = set()
        self.written: dict[str, tuple[int, int, bool] | None] = {}  # size, time and certainty noted last
        self.folders: set[str] = set()  # made by the run and not removed again
        self.links: set[str] = set()
        self._new: list[FileRow] = []
        self._writes = 0
        self.announce: Callable[[], None] = lambda: None  # called for each new file that is written
        self.child_mark: int | None = None  # to be set when the program starts a process; the one after it is
        # for the workers of a DataLoader

    def install(self) -> None:
        sys.addaudithook(self._hook)

    def take_up(self, earlier: OpenedFiles) -> OpenedFiles:
        """Another recording of this process: `earlier`, whose hook is in place, becomes what this one is."""
        earlier.__dict__.update(vars(self), install=lambda: None)
        return earlier

    def leave_torch(self, module: str = TORCH) -> None:
        """`torch.save` is as it was."""
        writer: Any = getattr(sys.modules.get(module), "_open_zipfile_writer_file", None)
        if writer is not None and isinstance(vars(writer).get("__new__"), staticmethod):
            del writer.__new__

    def watch_torch(self, module: str = TORCH) -> None:
        """Have `torch.save` noted, whose C code opens files without an audit event.

        Its class for a file gets a `__new__`, since that leaves no frame in the traceback of a failing `__init__`.
        """
        writer: Any = getattr(sys.modules.get(module), "_open_zipfile_writer_file", None)
        if writer is None or "__new__" in vars(writer):
            return

        def new(cls: type, name: Any, *arguments: Any, **options: Any) -> Any:
            self._hook("open", (os.fspath(name), "w", 0))
            return object.__new__(cls)

        writer.__new__ = staticmethod(new)

    def goes_on(self, written: Iterable[str]) -> None:
        """The run continues one that wrote these files."""
        for name in written:
            self.written.setdefault(name, None)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        try:
            if event not in EVENTS or not self.active:
                return
            if event == "open":
                self._opened(*arguments)
            elif event == "os.fork":
                self._started_child()
            elif event == "os.mkdir":
                self._made_folder(arguments[0])
            elif event == "os.symlink":
                self._linked(arguments[1], os.fsdecode(arguments[0]))
            elif event == "os.rename":
                self._renamed(*arguments[:2])
            elif event == "os.truncate":
                self._written_anew(arguments[0])
            else:
                self._removed(*arguments[:2])
        except Exception:  # whatever is odd about this file, the program opens it
            return

    def _opened(self, path: Any, mode: str | None, flags: int) -> None:
        if not isinstance(path, (str, bytes)):
            if sys._getframe(2).f_globals.get("__name__") in STARTERS:
                self._started_child()
            return
        name = os.path.abspath(os.fsdecode(path))
        writes = bool(flags & WRITES) or any(letter in (mode or "") for letter in "wax+")
        if name.startswith(self.home) or name.endswith(CODE) or CACHE in name:
            return
        if not writes and name not in self.read and name not in self.written and len(self.read) < MOST_FILES:
            self.read.add(name)
            self._note(name, "read")
        elif writes and len(self.written) < MOST_FILES and self._writes < MOST_FILES:
            appends = bool(flags & os.O_APPEND) or "a" in (mode or "")
            if not appends or name not in self.written:
                self._writes += 1
                how, size = ("append", _size(name)) if appends else ("write", -1)
                self._new.append(FileRow(name, how, self.now(), size, 0))
            if name not in self.written:
                self.written[name] = None
                self.announce()  # at once: a run that is killed and continued finds the file there

    def _written_anew(self, path: Any) -> None:
        """A file gets another content at once: it takes the place of one, or is cut."""
        if isinstance(path, (str, bytes)):
            self._opened(path, "w", 0)

    def _started_child(self) -> None:
        """Nobody can see into it: a replay runs this part again if a probe may lie in it."""
        if self.child_mark is not None:
            probes.marks[self.child_mark + starts_loader()][0] = True

    def _made_folder(self, path: Any) -> None:
        name = os.path.abspath(os.fsdecode(path))
        if not os.path.lexists(name) and self._noted(name, "folder"):
            self.folders.add(name)

    def _linked(self, path: Any, target: str) -> None:
        """A symbolic link is about to be there."""
        name = os.path.abspath(os.fsdecode(path))
        if self._noted(name, LINK + target):
            self.links.add(name)

    def _renamed(self, source: Any, target: Any) -> None:
        if os.path.islink(source):
            self._linked(target, os.readlink(os.fsdecode(source)))
        elif os.path.isdir(source):
            self._made_folder(target)
        else:
            self._written_anew(target)
        self._removed(source)

    def _removed(self, path: Any, folder: int = -1) -> None:
        """Of folders and links that the run made, it is noted when they are gone."""
        if folder is not None and folder >= 0:
            return  # below a folder that is removed as a whole
        name = os.path.abspath(os.fsdecode(path))
        if name in self.links:
            self.links.discard(name)
            self._noted(name, LINK)
        for each in [each for each in self.folders if each == name or each.startswith(name + os.sep)]:
            self.folders.discard(each)
            self._noted(each, FOLDER_GONE)

    def _noted(self, name: str, how: str) -> bool:
        if name.startswith(self.home) or self._writes >= MOST_FILES:
            return False
        self._writes += 1
        self._new.append(FileRow(name, how, self.now(), -1, 0))
        return True

    def _note(self, name: str, how: str) -> None:
        found = os.stat(name)
        if stat.S_ISREG(found.st_mode):
            self._new.append(FileRow(name, how, self.now(), found.st_size, found.st_mtime_ns))

    def rows(self) -> list[FileRow]:
        """What is new since the last call."""
        new, self._new = self._new, []
        return new

    def note_states(self, taken: float) -> None:
        """At a checkpoint that is taken then: what the files are that the program writes."""
        now, digests = time.time_ns(), 0
        for name, before in list(self.written.items()):  # other threads open files meanwhile
            try:
                found = os.stat(name)
            except OSError:
                state, how = (-1, 0, True), "gone"
            else:
                if not stat.S_ISREG(found.st_mode):
                    continue
                certain = now - found.st_mtime_ns > COARSE_NS  # a later write will change the time
                state, how = (found.st_size, found.st_mtime_ns, certain), "size"
            if state == before and state[2]:
                continue
            self.written[name] = state
            self._new.append(FileRow(name, how, taken, state[0], state[1]))
            if how == "size" and digests < MOST_DIGESTS:
                digests += 1
                self._new.append(FileRow(name, "content", taken, state[0], content_digest(name, state[0])))


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def content_digest(path: str, size: int) -> int:
    """63 bits of a digest of the last MiB before a position of a file; -1 if it cannot be read or is shorter."""
    start = max(0, size - DIGESTED)
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            data = os.pread(descriptor, size - start, start)
        finally:
            os.close(descriptor)
    except OSError:
        return -1
    return xxhash.xxh3_64_intdigest(data) >> 1 if len(data) == size - start else -1


def starts_loader() -> bool:
    """Whether what starts a process now is a DataLoader, for its workers."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(LOADERS):
            return True
        frame = frame.f_back
    return False
