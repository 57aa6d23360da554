"""The write overlay of a replay: the program finds again what it writes, and no file of the user's changes.

    reads    ->  root/files/<absolute path>, if it is there; else the real file, unless deleted
    writes   ->  root/files/<absolute path>, copied there first if the present contents matter
    deletions -> root/journal

Only what Python code does through Python's file functions, and what the libraries in `overlay_native` do, is covered:
child processes that are not forked, and other C code that opens files by path, see the real files, and may not change
them (`landlock.py`).
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from florhook.replay.overlay_native import Natives
from florhook.replay.overlay_ops import Operations
from florhook.replay.overlay_patch import Patches
from florhook.replay.overlay_tree import Tree


class Overlay:
    """Redirects the file functions of this process, and of those forked from it, while installed."""

    def __init__(
        self,
        root: Path,
        through: Iterable[str | os.PathLike[str]] = (),
        moved: tuple[str, str] | None = None,
    ) -> None:
        """Keep everything below `root`, absent or as another overlay left it; leave the folders `through` alone.

        `moved`: paths below the first folder lead into the second.
        """
        self._tree = Tree(root, (*compiler_caches(), *(os.fspath(each) for each in through)), moved)
        self._operations = Operations(self._tree)
        self._patches = Patches(self._tree, self._operations)
        self._natives = Natives(self._operations, self._redirects)
        tree = weakref.ref(self._tree)
        os.register_at_fork(after_in_child=lambda: _renew(tree()))

    def install(self) -> None:
        """Redirect, from now on, all threads."""
        if not self._patches.active:
            self._patches.apply()
            self._natives.apply()

    def uninstall(self) -> None:
        """Put everything back as it was before `install`."""
        if self._patches.active:
            self._natives.revert()
            self._patches.revert()

    def put_back(self, names: dict[str, Any]) -> None:
        """Replace functions of the overlay by Python's own in a module's names."""
        self._patches.put_back(names)

    def paused(self) -> AbstractContextManager[None]:
        """Let this thread see and change the real files meanwhile."""
        return self._tree.paused()

    def before_read(
        self, tell: Callable[[str], None], tell_of_folder: Callable[[str], None] | None = None
    ) -> None:
        """Call with the canonical path of each file that is about to be read, and of each folder to be listed."""
        self._operations.before_read, self._operations.before_list = tell, tell_of_folder

    def hide(self, paths: Iterable[str]) -> None:
        """Show the program no file at these canonical paths, until it makes one or `forget` shows the real one."""
        with self._tree.lock:
            for path in paths:
                self._tree.hide(path)

    def show_folder(self, path: str) -> None:
        """Show the program a folder that was hidden; what was hidden in it stays so."""
        with self._tree.lock:
            self._tree.show(path)

    def path_now(self, path: str) -> str:
        """Where a path of the run leads, if the project's folder was moved or copied."""
        return self._tree.where_now(path)[0]

    def version_of(self, path: str) -> str:
        """The real path of the overlay's version of a file, whether or not there is one; `path` is canonical."""
        return self._tree.upper(path)

    def forget(self, path: str | os.PathLike[str]) -> None:
        """Drop the overlay's version of a file, or of a folder and all in it: reads see the real one again."""
        self._tree.forget(self._tree.find(os.fspath(path), None, follow=False).path)

    def put_away(self, folder: str) -> None:
        """Drop the overlay's version of a folder, until somebody writes into it by its path."""
        self._tree.put_away(folder)

    def readable(self, path: str | os.PathLike[str]) -> str:
        """The real path of what the program would read, for code that bypasses Python's file functions."""
        return str(self._operations.readable(os.fspath(path)))

    def writable(self, path: str | os.PathLike[str], keep: bool = True) -> str:
        """The real path at which such code may write; OSError as `open` would raise."""
        return str(self._operations.writable(os.fspath(path), keep))

    def _redirects(self) -> bool:
        return self._patches.active and not self._tree.pause.depth


def compiler_caches() -> list[str]:
    """The folders that compilers of torch share with child processes: caches, not files of the user's."""
    home = os.path.expanduser("~")
    return [
        *filter(None, [os.environ.get("TORCHINDUCTOR_CACHE_DIR")]),
        os.environ.get("TRITON_CACHE_DIR", f"{home}/.triton"),
        os.environ.get("TORCH_EXTENSIONS_DIR", f"{home}/.cache/torch_extensions"),
    ]


def _renew(tree: Tree | None) -> None:
    if tree is not None:
        tree.renew_locks()
