"""Python's file functions with the same parameters, carried out on the two layers of a `Tree`."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from florhook.replay.overlay_listing import Entry, Listing
from florhook.replay.overlay_real import real
from florhook.replay.overlay_tree import Layer, Place, Tree, fail, folder_of, join, may

WRITES = os.O_WRONLY | os.O_RDWR | os.O_TRUNC
ASKING = ("genericpath", "posixpath", "pathlib", "pathlib._local", "os", "shutil", "tempfile")
OF_FILES = ("exists", "lexists", "isfile", "isdir", "islink", "ismount", "is_file", "is_dir", "is_symlink")
OF_PATHS = ("realpath", "_joinrealpath", "resolve", "mkdir", "makedirs", "walk", "_walk")
WHETHER = frozenset((*OF_FILES, *OF_PATHS))
UNNAMED = getattr(os, "O_TMPFILE", 0)


class Operations:
    """One method for each function that needs more than another path; `reader` and `changer` make the others."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.before_read: Callable[[str], None] | None = None  # told the canonical path of a file to be read
        self.before_list: Callable[[str], None] | None = None  # and of a folder to be listed

    # Paths

    def place(self, path: Any, dir_fd: int | None = None, follow: bool = True) -> Place | None:
        """Where a path argument leads; None if it is no path (the original function then says so)."""
        text = text_of(path)
        if not text:
            return None
        folder = None
        if dir_fd is not None and not text.startswith("/"):
            try:
                folder = folder_of(dir_fd)
            except OSError:
                return None
        return self._tree.find(text, folder, follow)

    def place_of_descriptor(self, descriptor: int) -> Place | None:
        """Where an open file or folder lies, in the user's terms; None if it has no path."""
        try:
            path = folder_of(descriptor)
        except OSError:
            return None
        return self._tree.locate(self._tree.virtual(path)) if path.startswith("/") else None

    def reader(self, original: Callable[..., Any], follow: bool = True) -> Callable[..., Any]:
        """A function that only looks at a path."""

        def read(path: Any, *args: Any, **kwargs: Any) -> Any:
            if type(path) is str and not kwargs and path.startswith(self._tree.untouched):
                return original(path, *args)
            slash = _slash(path)
            follows = bool(slash) or (follow and kwargs.get("follow_symlinks", True))
            place = self.place(path, kwargs.get("dir_fd"), follows)
            if place is not None and (self._tree.stat(place) is None or not _asks_only_whether()):
                self._announce(path, kwargs.get("dir_fd"))
                place = self.place(path, kwargs.get("dir_fd"), follows) or place
            if place is None or place.as_spelled:
                return original(path, *args, **kwargs)
            kwargs.pop("dir_fd", None)
            return original(_as_given(path, place.real + slash), *args, **kwargs)

        return read

    def changer(
        self, original: Callable[..., Any], follow: bool = True, owner: bool = True
    ) -> Callable[..., Any]:
        """A function that changes what a file is or holds; `owner` if only its owner may."""

        def change(path: Any, *args: Any, **kwargs: Any) -> Any:
            slash = _slash(path)
            follows = bool(slash) or (follow and kwargs.get("follow_symlinks", True))
            if isinstance(path, int):
                path = self._users_file(path)
            self._announce(path, kwargs.get("dir_fd"))
            place = self.place(path, kwargs.get("dir_fd"), follows)
            if place is None:
                return original(path, *args, **kwargs)
            kwargs.pop("dir_fd", None)
            return original(_as_given(path, self._own(place, owner) + slash), *args, **kwargs)

        return change

    def _own(self, place: Place, owner: bool) -> str:
        info = self._tree.stat(place) if place.layer is Layer.LOWER else None
        if info is None or not (owner or stat.S_ISREG(info.st_mode)):
            return place.real  # nothing there, or the original function fails: let it say so
        if owner and os.geteuid() not in (0, info.st_uid):
            fail(errno.EPERM, place.path)
        if not owner and not may(place.real, os.W_OK):
            fail(errno.EACCES, place.path)
        with self._tree.lock:
            return self._tree.copy_up(place)

    def change_descriptor(
        self, by_path: Callable[..., Any], original: Callable[..., Any]
    ) -> Callable[..., Any]:
        """fchmod or fchown: a file of the user's that is open for reading must not be changed either."""

        def change(fd: int, *args: Any) -> Any:
            path = self._users_file(fd)
            return original(fd, *args) if path is fd else by_path(path, *args)

        return change

    def _users_file(self, descriptor: int) -> Any:
        """The path of an open file if it is one of the user's, else the descriptor."""
        try:
            path = folder_of(descriptor)
        except OSError:
            return descriptor
        ours = path == self._tree.virtual(path) and path.startswith("/") and not self._tree.is_through(path)
        return path if ours and self._tree.lower_shows(path) else descriptor

    def access(self, path: Any, mode: int, **kwargs: Any) -> bool:
        try:
            return bool(self.reader(real.access)(path, mode, **kwargs))
        except OSError:
            return False

    # Opening

    def _announce(self, path: Any, dir_fd: int | None = None) -> None:
        """Say that a file is about to be read, since what there is to read may be decided then."""
        if self.before_read is None or isinstance(path, int):
            return
        place = self.place(path, dir_fd)
        if place is not None and place.layer is not Layer.THROUGH:
            self.before_read(place.path)

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if not flags & os.O_TRUNC:
            self._announce(path, dir_fd)
        creates = flags & os.O_CREAT
        exclusive = creates and flags & os.O_EXCL
        place = self.place(path, dir_fd, follow=not (flags & os.O_NOFOLLOW or exclusive))
        if place is None or (place.as_spelled and not (flags & WRITES or creates)):
            return real.open(path, flags, mode, dir_fd=dir_fd)
        if creates and _slash(path):
            fail(errno.EISDIR, path)
        with self._tree.lock:
            target, flags = self._prepare(place, flags)
        return real.open(target + _slash(path), flags, mode)

    def _prepare(self, place: Place, flags: int) -> tuple[str, int]:
        """The path to open instead, and the flags for it."""
        if place.layer in (Layer.THROUGH, Layer.UPPER) or not flags & (WRITES | os.O_CREAT):
            return place.real, flags
        info = self._tree.stat(place)
        if info is None:
            return self._prepare_new(place, flags)
        if flags & os.O_CREAT and flags & os.O_EXCL:
            fail(errno.EEXIST, place.path)
        if UNNAMED and flags & UNNAMED == UNNAMED:
            return self._tree.copy_up(place), flags
        flags &= ~os.O_CREAT
        if stat.S_ISDIR(info.st_mode):
            fail(errno.EISDIR, place.path)
        if not stat.S_ISREG(info.st_mode) or not flags & WRITES:
            return place.real, flags
        if not may(place.real, os.W_OK):
            fail(errno.EACCES, place.path)
        return self._tree.copy_up(place, with_data=not flags & os.O_TRUNC), flags

    def _prepare_new(self, place: Place, flags: int) -> tuple[str, int]:
        if not flags & os.O_CREAT:
            self._tree.parent(place.path)
            fail(errno.ENOENT, place.path)
        self._tree.need_parent(place.path)
        self._tree.make_parents(place.path)
        return self._tree.upper(place.path), flags

    def open_file(
        self,
        file: Any,
        mode: Any = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Callable[[str, int], int] | None = None,
    ) -> Any:
        if opener is None and self.needs_opener(file, mode):
            opener = self.opener
        elif opener is None and isinstance(mode, str):
            self._announce(file)
            opener = self.opener if self.needs_opener(file, mode) else None
        return real.open_file(file, mode, buffering, encoding, errors, newline, closefd, opener)

    def needs_opener(self, file: Any, mode: Any) -> bool:
        """Whether a file has to be opened elsewhere than its path says."""
        if not isinstance(mode, str):
            return False
        place = self.place(file)
        return place is not None and not (place.as_spelled and not set(mode) & set("wax+"))

    def opener(self, path: str, flags: int) -> int:
        """The `opener` of an open file, by which the file keeps the name that the user gave it."""
        return self.open(path, flags, 0o666)

    # Making and removing

    def _new(self, place: Place) -> str:
        """The path at which to make something that must not exist yet."""
        if self._tree.stat(place) is not None:
            fail(errno.EEXIST, place.path)
        self._tree.need_parent(place.path)
        self._tree.make_parents(place.path)
        return self._tree.upper(place.path)

    def maker(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """mkdir, mkfifo or mknod."""

        def make(path: Any, *args: Any, **kwargs: Any) -> Any:
            place = self.place(path, kwargs.get("dir_fd"), follow=False)
            if place is None or place.layer is Layer.THROUGH:
                return original(_at(place, path), *args, **kwargs)
            kwargs.pop("dir_fd", None)
            with self._tree.lock:
                return original(self._new(place), *args, **kwargs)

        return make

    def symlink(
        self, src: Any, dst: Any, target_is_directory: bool = False, *, dir_fd: int | None = None
    ) -> None:
        place = self.place(dst, dir_fd, follow=False) if text_of(src) else None
        if place is None or place.layer is Layer.THROUGH:
            real.symlink(src, _at(place, dst), target_is_directory, dir_fd=dir_fd)
            return
        with self._tree.lock:
            real.symlink(_text(src), self._new(place))
            self._tree.links_changed()

    def link(
        self,
        src: Any,
        dst: Any,
        *,
        src_dir_fd: int | None = None,
        dst_dir_fd: int | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        self._announce(src, src_dir_fd)
        source = self.place(src, src_dir_fd, follow=False)
        if source is not None and not text_of(dst):
            self._need(source)
        place = self.place(dst, dst_dir_fd, follow=False)
        if source is None or place is None or source.layer is place.layer is Layer.THROUGH:
            real.link(
                _at(source, src),
                _at(place, dst),
                src_dir_fd=src_dir_fd,
                dst_dir_fd=dst_dir_fd,
                follow_symlinks=follow_symlinks,
            )
            return
        with self._tree.lock:
            info = self._need(source)
            if Layer.THROUGH in (source.layer, place.layer):
                fail(errno.EXDEV, src)
            target = self._new(place)
            if stat.S_ISDIR(info.st_mode):
                fail(errno.EPERM, src)
            real.link(self._tree.copy_up(source), target, follow_symlinks=False)
            if stat.S_ISLNK(info.st_mode):
                self._tree.links_changed()

    def _need(self, place: Place) -> os.stat_result:
        info = self._tree.stat(place)
        if info is None:
            self._tree.parent(place.path)
            fail(errno.ENOENT, place.path)
        return info

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        place = self.place(path, dir_fd, follow=False)
        if place is None or place.layer is Layer.THROUGH:
            real.unlink(_at(place, path), dir_fd=dir_fd)
            return
        with self._tree.lock:
            info = self._need(place)
            if stat.S_ISDIR(info.st_mode) or _slash(path):
                fail(errno.EISDIR if stat.S_ISDIR(info.st_mode) else errno.ENOTDIR, path)
            self._tree.need_parent(place.path)
            if place.layer is Layer.UPPER:
                real.unlink(place.real)
            self._tree.hide(place.path)
            if stat.S_ISLNK(info.st_mode):
                self._tree.links_changed()

    def rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        place = self.place(path, dir_fd, follow=False)
        if place is None or place.layer is Layer.THROUGH:
            real.rmdir(_at(place, path), dir_fd=dir_fd)
            return
        with self._tree.lock:
            if _dots(path):
                fail(errno.EINVAL if _dots(path) == "." else errno.ENOTEMPTY, path)
            if not stat.S_ISDIR(self._need(place).st_mode):
                fail(errno.ENOTDIR, path)
            if self._tree.names(place):
                fail(errno.ENOTEMPTY, path)
            self._tree.need_parent(place.path)
            if place.layer is Layer.UPPER:
                real.rmdir(place.real)
            self._tree.hide_all(place.path)
            self._tree.links_changed()

    def rename(
        self, src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        self._announce(src, src_dir_fd)
        source = self.place(src, src_dir_fd, follow=False)
        if source is not None and not text_of(dst):
            self._tree.parent(source.path)
        target = self.place(dst, dst_dir_fd, follow=False)
        if source is None or target is None or source.layer is target.layer is Layer.THROUGH:
            real.rename(_at(source, src), _at(target, dst), src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            return
        with self._tree.lock:
            self._tree.parent(source.path)
            self._tree.parent(target.path)
            if _dots(src) or _dots(dst):
                fail(errno.EBUSY, src)
            info = self._need(source)
            if source.layer is Layer.THROUGH and stat.S_ISREG(info.st_mode):
                self._move_in(source, target)
                return
            if Layer.THROUGH in (source.layer, target.layer):
                fail(errno.EXDEV, src)
            self._tree.need_parent(target.path)
            self._tree.need_parent(source.path)
            is_folder = stat.S_ISDIR(info.st_mode)
            if not is_folder and (_slash(src) or _slash(dst)):
                fail(errno.ENOTDIR, src)
            if source.path != target.path:
                self._check_rename(source, target, is_folder)
                self._move(source, target, is_folder)

    def _check_rename(self, source: Place, target: Place, is_folder: bool) -> None:
        if target.path.startswith(source.path + "/"):
            fail(errno.EINVAL, source.path)
        if source.path.startswith(target.path + "/"):
            fail(errno.ENOTEMPTY, source.path)
        there = self._tree.stat(target)
        if there is None:
            return
        if is_folder and not stat.S_ISDIR(there.st_mode):
            fail(errno.ENOTDIR, source.path)
        if stat.S_ISDIR(there.st_mode):
            if not is_folder:
                fail(errno.EISDIR, source.path)
            if self._tree.names(target):
                fail(errno.ENOTEMPTY, source.path)

    def _move(self, source: Place, target: Place, is_folder: bool) -> None:
        moved = self._tree.copy_up_all(source)
        self._tree.make_parents(target.path)
        real.rename(moved, self._tree.upper(target.path))
        self._tree.hide_all(target.path)
        self._tree.hide_all(source.path)
        self._tree.links_changed()

    def _move_in(self, source: Place, target: Place) -> None:
        """Move a temporary file, which lies outside the overlay, to its final name in it."""
        self._check_rename(source, target, is_folder=False)
        self._tree.need_parent(target.path)
        self._tree.make_parents(target.path)
        self._tree.copy(source.path, self._tree.upper(target.path))
        self._tree.hide_all(target.path)
        self._tree.links_changed()
        real.unlink(source.path)

    # Listing

    def listdir(self, path: Any = None) -> Any:
        place = self._folder(path)
        if place is None:
            return real.listdir(path)
        names = self._tree.names(place)
        return [os.fsencode(name) for name in names] if isinstance(_text(path), bytes) else names

    def scandir(self, path: Any = None) -> Any:
        place = self._folder(path)
        if place is None:
            return real.scandir(path)
        text = "" if isinstance(path, int) else "." if path is None else _text(path)
        names: list[Any] = self._tree.names(place)
        if isinstance(text, bytes):
            names = [os.fsencode(name) for name in names]
        return Listing(
            [
                Entry(
                    name,
                    os.path.join(text, name) if text else name,
                    join(place.path, os.fsdecode(name)),
                    self._info,
                )
                for name in names
            ]
        )

    def _info(self, path: str, follow: bool) -> os.stat_result:
        place = self.place(path, follow=follow)
        assert place is not None
        return real.stat(place.real, follow_symlinks=False)

    def _folder(self, path: Any) -> Place | None:
        """The folder to list; None if the original function can list it."""
        if isinstance(path, int):
            place = self.place_of_descriptor(path)
            return place if place is not None and self._tree.is_merged(place) else None
        place = self.place("." if path is None else path)
        if place is not None and self.before_list is not None:
            self.before_list(place.path)
        if place is None or (place.as_spelled and not self._tree.is_merged(place)):
            return None
        return place

    # The working folder

    def chdir(self, path: Any) -> None:
        place = self.place(path) if not isinstance(path, int) else None
        if place is None or place.as_spelled:
            real.chdir(path)
            return
        # The user's folder wherever there is one, so that child processes start there.
        real.chdir(place.path if self._tree.lower_shows(place.path) else place.real)

    def getcwd(self) -> str:
        return self._tree.virtual(real.getcwd())

    def getcwdb(self) -> bytes:
        return os.fsencode(self.getcwd())

    # For writers in C, which take a path

    def readable(self, path: Any) -> Any:
        """The path at which C code finds what the program would read."""
        self._announce(path)
        place = self.place(path)
        return _at(place, path)

    def writable(self, path: Any, keep: bool) -> Any:
        """The path at which C code may write; the present contents are there if `keep`."""
        if keep:
            self._announce(path)
        place = self.place(path)
        if place is None or place.layer is Layer.THROUGH:
            return _at(place, path)
        flags = os.O_RDWR | os.O_CREAT | (0 if keep else os.O_TRUNC)
        with self._tree.lock:
            return self._prepare(place, flags)[0]

    def blocked(self, path: Any) -> Any:
        """A path at which C code fails to write, in its own words, where `writable` raises."""
        place = self.place(path)
        return path if place is None or place.layer is not Layer.ABSENT else place.real


def _asks_only_whether() -> bool:
    """Whether who calls a function of the overlay wants to know that there is something, and not what it is."""
    frame: FrameType | None = sys._getframe(2)
    for _ in range(2):  # `Path.exists` calls `Path.stat`
        if frame is None:
            return False
        if frame.f_code.co_name in WHETHER and frame.f_globals.get("__name__") in ASKING:
            return True
        frame = frame.f_back
    return False


def text_of(path: Any) -> str | None:
    """A path argument as text; None if it is none."""
    if type(path) is not str:
        try:
            path = os.fsdecode(path)
        except (TypeError, AttributeError):
            return None
    return None if "\0" in path else path


def _at(place: Place | None, path: Any) -> Any:
    """The path as given, if it leads to the place."""
    return path if place is None or place.as_spelled else place.real


def _dots(path: Any) -> str:
    """The `.` or `..` at the end of a path: the kernel does not remove or rename such a folder."""
    name = (text_of(path) or "").rstrip("/").rpartition("/")[2]
    return name if name in (".", "..") else ""


def _slash(path: Any) -> str:
    """The slash at the end of a path, which says that a folder is meant."""
    return "/" if (text_of(path) or "").endswith("/") else ""


def _text(path: Any) -> Any:
    return os.fspath(path) if hasattr(path, "__fspath__") else path


def _as_given(path: Any, instead: str) -> str | bytes:
    return os.fsencode(instead) if isinstance(_text(path), bytes) else instead
