"""Two layers of files seen as one: where a path lies, copy-up before a write, deletions, merged listings."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import re
import shutil
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from pathlib import Path
from typing import Any, NoReturn

from florhook.replay.overlay_journal import HIDE, LINKS, SHOW, Journal
from florhook.replay.overlay_real import real

from ..dataclass import dataclass

CACHED_PATHS = 16384
MOST_LINKS = 40  # as Linux
EFFECTIVE = os.access in os.supports_effective_ids


class Layer(Enum):
    """Where the file behind a path lies."""

    THROUGH = auto()  # outside the overlay's care: devices, the overlay's own folder
    LOWER = auto()  # the user's own file system, whether or not there is a file
    UPPER = auto()  # the overlay's folder
    ABSENT = auto()  # deleted in the overlay


@dataclass(frozen=True)
class Place:
    """What a path means: its canonical form, the file to use, and whether the path as spelled leads there."""

    path: str
    real: str
    layer: Layer
    as_spelled: bool


class _Pause(threading.local):
    depth = 0


class Tree:
    """The union of the user's files (lower) and a folder (upper) that lays out what was written by absolute path."""

    def __init__(self, root: Path, through: tuple[str, ...], moved: tuple[str, str] | None = None) -> None:
        """`moved`: a folder whose files are now in another one, as far as these are there."""
        self._moved = moved
        self.root = os.path.realpath(root)
        self.files = self.root + "/files"
        self.pause = _Pause()
        self.lock = threading.RLock()
        self._through = (
            "/dev/",
            "/proc/",
            "/sys/",
            *(os.path.realpath(each) + "/" for each in (self.root, *through)),
        )
        temporary = os.path.realpath(tempfile.gettempdir())
        self._temporary = re.compile(re.escape(temporary) + r"/(tmp[a-z0-9_]{8}[^/]*)")
        self._old_names = frozenset(real.listdir(temporary))
        self._canonical: dict[str, tuple[str, bool]] = {}
        self._spare = self.root + "/spare"
        self._numbers = itertools.count()
        self._put_away: set[str] = set()
        self.untouched = _installed_packages()
        for folder in (self.root, self.files, self._spare):
            os.makedirs(folder, exist_ok=True)
        self._journal = Journal(Path(self.root), self._canonical.clear)

    def renew_locks(self) -> None:
        """Forget the locks that other threads held when this process was forked."""
        self.lock = threading.RLock()
        self._journal.renew_lock()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let this thread see and change the real files."""
        self.pause.depth += 1
        try:
            yield
        finally:
            self.pause.depth -= 1

    # Where things are

    def upper(self, path: str) -> str:
        """The path of the overlay's version of a canonical path."""
        return self.files + path

    def virtual(self, path: str) -> str:
        """The path that the user knows for one that may lie in the overlay."""
        if path == self.files:
            return "/"
        return path[len(self.files) :] if path.startswith(self.files + "/") else path

    def is_through(self, path: str) -> bool:
        """Whether a path is outside the overlay's care.

        multiprocessing's folders (`pymp-*`) hold sockets, whose path may not be long, and torch's (`torchinductor_*`)
        what its compiler's processes read; both look in the real file system. The same holds for many files that
        `tempfile` names: as long as there was none of the name before, none of the user's is touched.
        """
        if (path + "/").startswith(self._through) or "/pymp-" in path or "/torchinductor_" in path:
            return True
        found = self._temporary.match(path)
        return found is not None and found[1] not in self._old_names

    def find(self, path: str, folder: str | None, follow: bool) -> Place:
        """Say where a path, as the user spelled it, leads from a folder (the working folder, if None)."""
        start, detour = self._absolute(path, folder)
        start, elsewhere = self.where_now(start)
        detour = detour or elsewhere
        if follow:
            canonical, more = self._resolve(start)
        else:
            canonical, more = self._resolve_parent(start)
        return self.locate(canonical, as_spelled=not (detour or more))

    def locate(self, path: str, as_spelled: bool = False) -> Place:
        """Say in which layer a canonical path lies."""
        if self.is_through(path):
            return Place(path, path, Layer.THROUGH, as_spelled)
        upper = self.files + path
        if real.access(upper, os.F_OK, follow_symlinks=False):
            return Place(path, upper, Layer.UPPER, False)
        if self._journal.hidden(path):
            return Place(path, upper, Layer.ABSENT, False)
        return Place(path, path, Layer.LOWER, as_spelled)

    def _absolute(self, path: str, folder: str | None) -> tuple[str, bool]:
        if path.startswith("/"):
            return self.virtual(path), path.startswith(self.files)
        base = real.getcwd() if folder is None else folder
        virtual = self.virtual(base)
        return f"{virtual}/{path}", virtual is not base

    def where_now(self, path: str) -> tuple[str, bool]:
        """A path below a folder that was moved or copied, in the folder of now, and whether it is another one.

        A path that the program knew in the run, and that was restored, leads into the old folder. What the new one
        never had is still looked for in the old one.
        """
        if self._moved is None:
            return path, False
        old, new = self._moved
        if not (path + "/").startswith(old + "/") or (path + "/").startswith(new + "/"):
            return path, False
        now = new + path[len(old) :]
        place = self.locate(self._resolve_parent(now)[0])
        missing = place.layer is Layer.LOWER and not _lexists(place.real)
        return (path, False) if missing and _lexists(path) else (now, True)

    def _resolve(self, path: str, links: int = 0) -> tuple[str, bool]:
        """The canonical form of an absolute path, and whether a link of the overlay's own was followed."""
        self._journal.sync()
        known = self._canonical.get(path)
        if known is None:
            known = self._follow(path, links)
            if len(self._canonical) >= CACHED_PATHS:
                self._canonical.clear()
            self._canonical[path] = known
        return known

    def _resolve_parent(self, path: str, links: int = 0) -> tuple[str, bool]:
        head, _, name = path.rstrip("/").rpartition("/")
        if name in ("", ".", ".."):
            return self._resolve(path.rstrip("/") or "/", links)
        parent, detour = self._resolve(head, links) if head else ("/", False)
        return join(parent, name), detour

    def _follow(self, path: str, links: int) -> tuple[str, bool]:
        head, _, name = path.rpartition("/")
        parent, detour = self._resolve(head, links) if head else ("/", False)
        if not name:
            return parent, detour
        if name in (".", ".."):
            info = self.stat(self.locate(parent))
            if info is None or not stat.S_ISDIR(info.st_mode):
                fail(errno.ENOENT if info is None else errno.ENOTDIR, path)
            return parent if name == "." else os.path.dirname(parent), detour
        here = join(parent, name)
        place = self.locate(here)
        if place.layer is Layer.THROUGH or not _is_link(place.real):
            return here, detour
        if links >= MOST_LINKS:
            fail(errno.ELOOP, path)
        target = real.readlink(place.real)
        end, more = self._resolve(target if target.startswith("/") else join(parent, target), links + 1)
        return end, detour or more or place.layer is Layer.UPPER

    def stat(self, place: Place) -> os.stat_result | None:
        """What lies at a place, without following a link; None if nothing does."""
        if place.layer is Layer.ABSENT:
            return None
        try:
            return real.lstat(place.real)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def lower_shows(self, path: str) -> bool:
        """Whether there is a real file at a canonical path that the overlay has not deleted."""
        return _lexists(path) and not self._journal.hidden(path)

    # Folders

    def is_merged(self, place: Place) -> bool:
        """Whether listing a folder needs more than listing one real folder."""
        if place.layer is Layer.LOWER:
            return bool(self._journal.marks_below(place.path))
        return place.layer is Layer.UPPER

    def names(self, place: Place) -> list[str]:
        """The names in a folder as the replayed program sees it; OSError if it is none."""
        if place.layer is not Layer.UPPER:
            return [
                name for name in real.listdir(place.real) if not self._journal.hidden(join(place.path, name))
            ]
        names = dict.fromkeys(self._lower_names(place.path))
        names.update(dict.fromkeys(real.listdir(place.real)))
        return list(names)

    def _lower_names(self, path: str) -> list[str]:
        try:
            names = real.listdir(path)
        except OSError:
            return []
        return [name for name in names if not self._journal.hidden(join(path, name))]

    def parent(self, path: str) -> Place:
        """Where the folder of a canonical path lies; what the kernel would raise if it is none."""
        folder = os.path.dirname(path)
        parent = self.locate(folder)
        if folder in self._put_away and self.stat(parent) is None:
            self.make_parents(path)
            parent = self.locate(folder)
        info = self.stat(parent)
        if info is None:
            self.parent(parent.path)
            fail(errno.ENOENT, path)
        if not stat.S_ISDIR(info.st_mode):
            fail(errno.ENOTDIR, path)
        return parent

    def need_parent(self, path: str) -> None:
        """Raise what the kernel would if nothing can be created at, or removed from, a canonical path."""
        parent = self.parent(path)
        # The overlay's own folders are always writable: what counts is the user's folder, where there is one.
        judge = parent.path if self.lower_shows(parent.path) else parent.real
        if not may(judge, os.W_OK | os.X_OK):
            fail(errno.EACCES, path)

    def make_parents(self, path: str) -> None:
        """Lay out, in the overlay, the folders that lead to a canonical path."""
        self._touch(path)
        parent = os.path.dirname(path)
        upper = self.upper(parent)
        if real.access(upper, os.F_OK):
            return
        self.make_parents(parent)
        try:
            real.mkdir(upper)
            real.chmod(upper, 0o700 | stat.S_IMODE(real.stat(parent).st_mode))
        except OSError:
            if not real.access(upper, os.F_OK):
                raise

    # Changes

    def copy_up(self, place: Place, with_data: bool = True) -> str:
        """Give the overlay its own version of what lies at a place, and return its path."""
        if place.layer is not Layer.LOWER:
            return place.real
        upper = self.upper(place.path)
        self.make_parents(place.path)
        info = real.lstat(place.path)
        with self.paused():
            if stat.S_ISDIR(info.st_mode):
                os.makedirs(upper, exist_ok=True)
                shutil.copystat(place.path, upper)
            else:
                self._copy_file(place.path, upper, info, with_data)
        return upper

    @contextmanager
    def _spare_folder(self) -> Iterator[str]:
        """A folder for one file; `tempfile` would draw its name from those that the program is to get."""
        folder = f"{self._spare}/{os.getpid()}-{threading.get_ident()}-{next(self._numbers)}"
        with self.paused():
            os.mkdir(folder)
            try:
                yield folder
            finally:
                shutil.rmtree(folder)

    def _copy_file(self, source: str, upper: str, info: os.stat_result, with_data: bool) -> None:
        # Made aside and linked into place: another process may be doing the same.
        with self._spare_folder() as folder:
            spare = folder + "/copy"
            if stat.S_ISREG(info.st_mode) and not with_data:
                real.FileIO(spare, "w").close()
                shutil.copystat(source, spare)
            else:
                shutil.copy2(source, spare, follow_symlinks=False)
            with suppress(FileExistsError):
                real.link(spare, upper, follow_symlinks=False)

    def copy(self, source: str, upper: str) -> None:
        """Copy a file that lies outside the overlay over one in it."""
        with self.paused(), self._spare_folder() as folder:
            real.rename(shutil.copy2(source, folder + "/copy"), upper)

    def copy_up_all(self, place: Place) -> str:
        """Copy up a file, or a folder with everything in it."""
        upper = self.copy_up(place)
        info = self.stat(place)
        if info is not None and stat.S_ISDIR(info.st_mode):
            for name in self.names(self.locate(place.path)):
                self.copy_up_all(self.locate(join(place.path, name)))
        return upper

    def hide(self, path: str) -> None:
        """Mark the real file at a canonical path, if there is any, as deleted."""
        self._touch(path)
        if self.lower_shows(path):
            self._journal.add(HIDE, path)

    def show(self, path: str) -> None:
        """The opposite, for this path alone."""
        self._journal.add(SHOW, path)

    def hide_all(self, path: str) -> None:
        """Mark a real folder and whatever was made to show again below it as deleted."""
        for marked in (*self._journal.marks_below(path), path):
            self.hide(marked)

    def _touch(self, path: str) -> None:
        """Once the program changes anything among installed packages, these are looked at as all else."""
        if path.startswith(self.untouched) or any(each.startswith(path + "/") for each in self.untouched):
            self.untouched = ()

    def links_changed(self) -> None:
        """Tell all processes that a link or a folder has moved, so that known paths may lead elsewhere."""
        self._journal.add(LINKS)

    def forget(self, path: str) -> None:
        """Drop the overlay's version of a canonical path and all below it: the real one shows again."""
        upper = self.upper(path)
        with self.lock, self.paused():
            if os.path.isdir(upper) and not os.path.islink(upper):
                shutil.rmtree(upper)
            elif os.path.lexists(upper):
                os.unlink(upper)
            for marked in (path, *self._journal.marks_below(path)):
                self._journal.add(SHOW, marked)
            if _lexists(path):
                self.make_parents(path)

    def put_away(self, folder: str) -> None:
        """Drop a folder of the overlay's; it is there again once somebody who knows its path writes into it."""
        with self.paused():
            upper = self.upper(folder)
            self._put_away.update(folder + each[len(upper) :] for each, _, _ in os.walk(upper))
        self.forget(folder)


def _installed_packages() -> tuple[str, ...]:
    """Folders of Python's library and of installed packages, of which an import asks thousands of questions."""
    here = os.path.realpath(os.getcwd()) + "/"
    packages = [path for path in sys.path if path.endswith(("/site-packages", "/dist-packages"))]
    folders = [os.path.dirname(os.__file__), *packages]
    paths = {path + "/" for folder in folders for path in (folder, os.path.realpath(folder))}
    return tuple(sorted(path for path in paths if not here.startswith(path)))


def join(folder: str, name: str) -> str:
    """One path of two, the first canonical."""
    return folder + name if folder == "/" else f"{folder}/{name}"


def fail(code: int, path: Any) -> NoReturn:
    """Raise the exception that the kernel's error would have become."""
    raise OSError(code, os.strerror(code), path)


def may(path: str, how: int) -> bool:
    """Whether the process, as the user it acts for, may do something with a file."""
    return real.access(path, how, effective_ids=EFFECTIVE)


def folder_of(descriptor: int) -> str:
    """The path of an open folder; OSError if the descriptor is none."""
    if real.access("/proc/self/fd", os.F_OK):
        return real.readlink(f"/proc/self/fd/{descriptor}")
    get_path = 50  # F_GETPATH of macOS, which the module does not name before 3.14
    return os.fsdecode(fcntl.fcntl(descriptor, get_path, bytes(1024)).rstrip(b"\0"))


def _lexists(path: str) -> bool:
    try:
        real.lstat(path)
    except OSError:
        return False
    return True


def _is_link(path: str) -> bool:
    try:
        return stat.S_ISLNK(real.lstat(path).st_mode)
    except OSError:
        return False
