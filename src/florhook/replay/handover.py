"""Files at the point where a run is taken up: from the overlay of the way there to the user's own.

Up to the point the program wrote into an overlay, so that `open("log", "w")` did not destroy what the run before had
written. Now the files that it has open for writing become the real ones, cut to what they held at the point; what was
cut is kept. Files that it has closed again are there already, from the run before, or are moved into place.
"""

from __future__ import annotations

import fcntl
import gc
import io
import os
import shutil
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from ..state.restore import CannotRestoreError
from .overlay import Overlay

WRITERS = (io.BufferedWriter, io.BufferedRandom, io.TextIOWrapper)
SQLITE = b"SQLite format 3\0"
DELETED = " (deleted)"  # how the kernel spells it
SOME = 4  # files to name in one line


class Cut:
    """Brings the user's files to what they were at the point. The folder `kept` gets what is cut off."""

    def __init__(self, kept: Path) -> None:
        self.kept = kept
        self.paths: list[str] = []  # of the files of which something was

    def bring_to(self, path: str, size: int, otherwise: str | None = None) -> None:
        """Cut a real file to a size; one that is shorter gets the content of the file `otherwise`."""
        there = os.stat(path).st_size
        if there > size:
            self._keep(path, size)
            os.truncate(path, size)
        elif there < size and otherwise is not None:
            shutil.copyfile(otherwise, path)

    def take_away(self, path: str) -> None:
        """Remove a real file that was not there yet; its content is kept."""
        self._keep(path, 0)
        os.unlink(path)

    def _keep(self, path: str, start: int) -> None:
        self.paths.append(path)
        target = Path(str(self.kept) + path)
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(path, "rb") as source, open(target, "wb") as copy:
            source.seek(start)
            shutil.copyfileobj(source, copy)


class Handover:
    """One handover."""

    def __init__(self, overlay: Overlay, cut: Cut) -> None:
        self.overlay, self.cut = overlay, cut
        self.known: set[str] = set()  # files that are open for writing and are as the checkpoint knows them
        self.unknown: set[str] = set()  # files that are open for writing without the checkpoint knowing them
        self._upper = overlay.version_of("")
        self._given: set[str] = set()

    def check(self) -> None:
        """CannotRestoreError where something holds on to a file of the overlay that cannot be exchanged below it."""
        _flush_files()
        for descriptor, path in self._descriptors():
            with self.overlay.paused(), open(f"/proc/self/fd/{descriptor}", "rb") as file:
                if file.read(len(SQLITE)) == SQLITE:
                    raise CannotRestoreError(f"{path} is open as a database")
        with open("/proc/self/maps", "rb") as maps:
            if os.fsencode(self._upper) + b"/" in maps.read():
                raise CannotRestoreError("a file that the program writes is mapped into memory")

    def run(self, modules: Collection[str], known: Collection[int]) -> None:
        """Leave the overlay.

        `modules` are the program's, which may hold functions that the overlay put in; `known` are the descriptors of
        the files that the checkpoint knew. Others go on behind what the run before wrote to them.
        """
        open_files = list(self._descriptors())
        self.overlay.uninstall()
        for name in modules:
            self.overlay.put_back(vars(sys.modules[name]) if name in sys.modules else {})
        for descriptor, path in open_files:
            self._exchange(descriptor, path, descriptor in known)
        self._move_closed()
        folder = os.getcwd()
        if folder.startswith(self._upper + "/"):
            os.chdir(folder[len(self._upper) :])
        shutil.rmtree(os.path.dirname(self._upper), ignore_errors=True)

    def _descriptors(self) -> Iterator[tuple[int, str]]:
        """Open files of the overlay, and their paths in the user's terms."""
        with self.overlay.paused():
            for name in os.listdir("/proc/self/fd"):
                try:
                    path = os.readlink(f"/proc/self/fd/{name}")
                except OSError:
                    continue
                users = path[len(self._upper) :].removesuffix(DELETED)
                # A jump makes the overlay forget a version; what the program itself has deleted is nowhere any more.
                there = os.path.isfile(path) or (path.endswith(DELETED) and os.path.exists(users))
                if path.startswith(self._upper + "/") and there:
                    yield int(name), users

    def _exchange(self, descriptor: int, path: str, known: bool) -> None:
        """Make a descriptor lead to the real file."""
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        writes = flags & os.O_ACCMODE != os.O_RDONLY
        ours = f"/proc/self/fd/{descriptor}"
        if not os.path.exists(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            shutil.copyfile(ours, path)
        elif writes and known and path not in self._given:
            self.cut.bring_to(path, os.fstat(descriptor).st_size, ours)
        self._given.add(path)
        offset = os.lseek(descriptor, 0, os.SEEK_CUR)
        new = os.open(path, flags & (os.O_ACCMODE | os.O_APPEND) | os.O_CLOEXEC)
        if writes:
            (self.known if known else self.unknown).add(os.path.realpath(path))
        if writes and not known:
            os.lseek(new, 0, os.SEEK_END)
        else:
            os.lseek(new, offset, os.SEEK_SET)
        os.dup2(new, descriptor, inheritable=os.get_inheritable(descriptor))
        os.close(new)

    def _move_closed(self) -> None:
        for folder, names, files in os.walk(self._upper):
            for name in names:
                real = os.path.join(folder, name)[len(self._upper) :]
                if not os.path.lexists(real):
                    os.makedirs(real)
            for name in files:
                path = os.path.join(folder, name)
                real = path[len(self._upper) :]
                if not os.path.lexists(real):
                    _place(path, real)


def _place(source: str, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
    else:
        shutil.copy2(source, target)


def _flush_files() -> None:
    for each in gc.get_objects():
        if type(each) in WRITERS and not each.closed:
            try:
                each.flush()
            except (OSError, ValueError):  # open for reading only
                continue


class AppendWatch:
    """Tells once of each file that gets more appended although the run before wrote to it after the point.

    An audit hook, since nothing else sees every `open`; Python has no way to remove one.
    """

    def __init__(self, paths: Collection[str]) -> None:
        self.paths = set(paths)
        if self.paths:
            sys.addaudithook(self._see)

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("open", "os.remove") or not self.paths or not isinstance(arguments[0], (str, bytes)):
            return
        path, flags = arguments[0], arguments[2] if event == "open" else os.O_TRUNC
        if not isinstance(flags, int) or not flags & (os.O_APPEND | os.O_TRUNC):
            return
        real = os.path.realpath(os.fsdecode(path))
        if real not in self.paths:
            return
        if flags & os.O_TRUNC:  # it begins anew
            self.paths.discard(real)
        else:
            self.tell([real])

    def tell(self, paths: Collection[str]) -> None:
        """More is appended to these files."""
        for path in sorted(self.paths.intersection(paths)):
            self.paths.discard(path)
            sys.stderr.write(
                f"florhook: {path} holds what the run before appended after the point of resumption; "
                "those lines will be in it twice\n"
            )
