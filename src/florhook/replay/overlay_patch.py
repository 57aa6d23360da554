"""Every change to the running interpreter that the overlay needs, each with its undo."""

from __future__ import annotations

import builtins
import importlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Any

from florhook.replay.overlay_ops import Operations, text_of
from florhook.replay.overlay_real import real
from florhook.replay.overlay_tree import Tree

OWN_MODULES = "florhook.replay.overlay"
SUPPORT_SETS = ("supports_dir_fd", "supports_effective_ids", "supports_fd", "supports_follow_symlinks")
# Their classes and default arguments hold the functions, too.
DEEP_MODULES = ("pathlib", "tempfile", "glob")
FOUND = ("stat", "statvfs", "pathconf", "getxattr", "listxattr")
FOUND_ITSELF = ("lstat", "readlink")
CHANGED = ("chmod", "chown", "utime", "setxattr", "removexattr")
TWO_PATHS = frozenset({"rename", "replace", "link", "symlink"})


class Home:
    """Stands for a built-in function's module as its `__self__`; pickles as an import of it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __reduce__(self) -> tuple[Callable[[str], ModuleType], tuple[str]]:
        return importlib.import_module, (self._name,)

    def __repr__(self) -> str:
        return repr(sys.modules[self._name])


class Patches:
    """Puts the overlay's functions in the place of Python's, wherever a module refers to those."""

    def __init__(self, tree: Tree, operations: Operations) -> None:
        self.active = False
        self._tree = tree
        self._operations = operations
        self._undo: list[Callable[[], None]] = []
        self._swaps = {id(old): (old, new) for old, new in self._replacements()}

    def apply(self) -> None:
        """Replace all references."""
        self.active = True
        for module in list(sys.modules.values()):
            if isinstance(module, ModuleType) and not module.__name__.startswith(OWN_MODULES):
                self._patch_dict(object.__getattribute__(module, "__dict__"))
        for name in DEEP_MODULES:
            if name in sys.modules:
                self._patch_classes(sys.modules[name])
        for name in SUPPORT_SETS:
            self._patch_set(getattr(os, name))
        if "numpy" in sys.modules:
            self._patch_numpy()

    def revert(self) -> None:
        """Undo everything, last first. What took a reference meanwhile calls the original functions."""
        self.active = False
        while self._undo:
            self._undo.pop()()

    def put_back(self, names: dict[str, Any]) -> None:
        """The original functions for what a module took a reference to meanwhile."""
        originals = {id(new): old for old, new in self._swaps.values()}
        for key, value in list(names.items()):
            if id(value) in originals:
                names[key] = originals[id(value)]

    def _replacements(self) -> Iterator[tuple[Any, Any]]:
        for name, method in self._methods().items():
            original = getattr(os, name, None)
            if original is not None:
                yield original, self._stand_in(original, method)
        yield real.open_file, self._stand_in(real.open_file, self._operations.open_file)
        yield io.open_code, self._stand_in(io.open_code, self._operations.reader(io.open_code))
        yield real.FileIO, self._file_io()

    def _methods(self) -> dict[str, Callable[..., Any]]:
        ops = self._operations
        methods: dict[str, Callable[..., Any]] = {
            "access": ops.access,
            "open": ops.open,
            "unlink": ops.unlink,
            "remove": ops.unlink,
            "rmdir": ops.rmdir,
            "rename": ops.rename,
            "replace": ops.rename,
            "link": ops.link,
            "symlink": ops.symlink,
            "listdir": ops.listdir,
            "scandir": ops.scandir,
            "chdir": ops.chdir,
            "getcwd": ops.getcwd,
            "getcwdb": ops.getcwdb,
        }
        present = vars(os)
        methods.update({n: ops.reader(present[n], n in FOUND) for n in FOUND + FOUND_ITSELF if n in present})
        methods.update({n: ops.changer(present[n]) for n in CHANGED if n in present})
        methods.update({n: ops.maker(present[n]) for n in ("mkdir", "mkfifo", "mknod") if n in present})
        methods["lchown"] = ops.changer(os.lchown, follow=False)
        methods["truncate"] = ops.changer(os.truncate, owner=False)
        methods["fchmod"] = ops.change_descriptor(methods["chmod"], os.fchmod)
        methods["fchown"] = ops.change_descriptor(methods["chown"], os.fchown)
        return methods

    def _stand_in(self, original: Any, method: Callable[..., Any]) -> MethodType:
        """A function with the original's name that, like a built-in one, does not bind to a class it stands in."""
        pause = self._tree.pause
        two = original.__name__ in TWO_PATHS
        nameless = original.__name__ == "utime" and sys.version_info < (3, 13)  # its errors name no file

        def stand_in(_home: Home, *args: Any, **kwargs: Any) -> Any:
            if not self.active or pause.depth:
                return original(*args, **kwargs)
            try:
                return method(*args, **kwargs)
            except OSError as error:
                respell(error, args, kwargs, two)
                if nameless:
                    del error.filename
                raise error.with_traceback(None)  # noqa: B904 - the same error, without our own frames

        stand_in.__name__ = original.__name__
        stand_in.__qualname__ = original.__qualname__
        stand_in.__module__ = original.__module__
        stand_in.__doc__ = original.__doc__
        return MethodType(stand_in, Home(original.__module__))

    def _file_io(self) -> type[io.FileIO]:
        pause, patches, operations = self._tree.pause, self, self._operations
        base: Any = real.FileIO

        class FileIOType(type):
            """Makes what `open` returns an instance, although C code creates it from the original class."""

            def __instancecheck__(cls, instance: object) -> bool:
                return isinstance(instance, base) if cls is FileIO else super().__instancecheck__(instance)

            def __subclasscheck__(cls, subclass: type) -> bool:
                return issubclass(subclass, base) if cls is FileIO else super().__subclasscheck__(subclass)

        class FileIO(base, metaclass=FileIOType):  # type: ignore[misc]
            def __init__(self, file: Any, mode: str = "r", closefd: bool = True, opener: Any = None) -> None:
                redirects = opener is None and patches.active and not pause.depth
                try:
                    if redirects and operations.needs_opener(file, mode):
                        opener = operations.opener
                    super().__init__(file, mode, closefd, opener)
                except OSError as error:
                    if redirects and error.filename is not None:
                        error.filename = file
                    raise

        FileIO.__module__, FileIO.__qualname__, FileIO.__doc__ = base.__module__, "FileIO", base.__doc__
        return FileIO

    def _patch_dict(self, names: dict[str, Any]) -> None:
        for key, value in list(names.items()):
            swap = self._swaps.get(id(value))
            if swap is not None:
                names[key] = swap[1]
                self._undo.append(lambda key=key, value=value: names.__setitem__(key, value))  # type: ignore[misc]

    def _patch_classes(self, module: ModuleType) -> None:
        for owner in [value for value in vars(module).values() if isinstance(value, type)]:
            if owner.__module__ != module.__name__:
                continue
            for key, value in list(vars(owner).items()):
                swap = self._swaps.get(id(getattr(value, "__func__", value)))
                if swap is not None:
                    setattr(owner, key, swap[1])
                    self._undo.append(lambda owner=owner, key=key, value=value: setattr(owner, key, value))  # type: ignore[misc]
                elif isinstance(value, FunctionType) and value.__defaults__:
                    self._patch_defaults(value)

    def _patch_defaults(self, function: FunctionType) -> None:
        before = function.__defaults__ or ()
        after = tuple(self._swaps[id(each)][1] if id(each) in self._swaps else each for each in before)
        if after != before:
            function.__defaults__ = after
            self._undo.append(lambda: setattr(function, "__defaults__", before))

    def _patch_set(self, functions: set[Any]) -> None:
        added = {self._swaps[id(each)][1] for each in functions if id(each) in self._swaps}
        functions |= added
        self._undo.append(lambda: functions.difference_update(added))

    def _patch_numpy(self) -> None:
        """numpy's text files are opened by functions kept in an object since its import."""
        for name in ("numpy.lib._datasource", "numpy.lib.npyio"):
            openers = getattr(getattr(sys.modules.get(name), "_file_openers", None), "_file_openers", None)
            if isinstance(openers, dict):
                self._patch_dict(openers)


def respell(error: OSError, args: tuple[Any, ...], kwargs: dict[str, Any], two: bool) -> None:
    """Name the files in an error as the user did."""
    if error.filename is None or kwargs.get("opener") is not None:
        return
    given = [*args, *kwargs.values()]
    if given and isinstance(given[0], int):
        error.filename = given[0]
    elif given and text_of(given[0]) is not None:
        error.filename = os.fspath(given[0])
        if two and len(given) > 1 and text_of(given[1]) is not None:
            error.filename2 = os.fspath(given[1])


assert builtins.open is io.open
