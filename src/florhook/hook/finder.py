"""Puts itself first among the import finders and gives the user's modules instrumented code.

It asks the finders behind it and touches a spec only if an ordinary `SourceFileLoader` owns it and the scope says
that the module is the user's. Then the loader's `get_code`, and nothing else, is overridden, for one call: afterwards
the loader is an ordinary `SourceFileLoader` again, so that whoever asks it later for code gets plain code.

Things that don't work:

- Code in `find_spec` that transforms at once: tools that only look for a spec would pay for it.
- Leaving our two frames as they are: CPython hides importlib's own frames from the tracebacks of failing imports, and
  one of ours in between keeps them all. So they carry importlib's file name, see `_disguise`.
"""

# This runs inside imports, where pathlib may not be there yet.

from __future__ import annotations

import os
import sys
import warnings
from importlib.machinery import SourceFileLoader
from importlib.util import MAGIC_NUMBER, cache_from_source

from florhook.hook.scope import Decision, Scope

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from importlib.machinery import ModuleSpec
    from types import CodeType, ModuleType
    from typing import Any

    Transform = Callable[[bytes, str, str], CodeType | None]


def install(scope: Scope, transform: Transform) -> Finder:
    """Places a new finder first in `sys.meta_path`; `transform(source, path, name)` gives code, or None to decline."""
    finder = Finder(scope, transform)
    sys.meta_path.insert(0, finder)
    return finder


def report(path: str, error: BaseException) -> None:
    """Says on stderr that a file runs uninstrumented."""
    reason = f"{type(error).__name__}: {error}".rstrip(": ").replace("\n", " ")
    try:
        sys.stderr.write(f"florhook: could not instrument {path} ({reason}), running it as it is\n")
    except Exception:  # stderr is closed: there is nobody to tell
        return


def decide(scope: Scope, name: str, spec: ModuleSpec) -> Decision:
    """Tells whether a module that was found is instrumented."""
    loader = spec.loader
    if type(loader) is SourceFileLoader:
        return scope.decide(name, loader.path)
    if loader is None or spec.origin is None:
        return Decision(False, "no source file")
    owner = loader if isinstance(loader, type) else type(loader)
    return Decision(False, f"loaded by {owner.__name__}")


class Finder:
    """Finds modules as the finders behind it do, and replaces the loader of the user's own."""

    def __init__(self, scope: Scope, transform: Transform) -> None:
        self.seen: list[tuple[str, str | None, Decision]] = []
        self.notices: dict[str, Callable[[str], None]] = {}  # what to call after a module was imported
        self.library_notices: dict[str, Callable[[str], None]] = {}  # the same, unless it is the user's own
        self._scope = scope
        self._transform = transform
        self._strict = os.environ.get("FLOR_STRICT") == "1"

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        for find in self._followers():
            spec = find(fullname, path, target)
            if spec is not None:
                self._consider(fullname, spec)
                return spec
        return None

    def uninstall(self) -> None:
        """Takes this finder out of `sys.meta_path`."""
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]

    def _followers(self) -> Iterator[Callable[..., ModuleSpec | None]]:
        """Gives the `find_spec` of the finders behind this one (those before it were asked already).

        An old finder without `find_spec` ends the search, so that the import system itself asks it in its turn.
        """
        finders = list(sys.meta_path)
        while finders and finders.pop(0) is not self:
            pass
        for finder in finders:
            find = getattr(finder, "find_spec", None)
            if find is None:
                return
            yield find

    def _consider(self, name: str, spec: ModuleSpec) -> None:
        try:
            decision = decide(self._scope, name, spec)
            self.seen.append((name, spec.origin, decision))
            if name in self.notices and type(spec.loader) is SourceFileLoader:
                spec.loader = NoticingLoader(name, spec.loader.path, self.notices[name])
            elif decision.user and isinstance(spec.loader, SourceFileLoader):
                spec.loader = InstrumentingLoader(name, spec.loader.path, self._transform, self._strict)
            elif name in self.library_notices and type(spec.loader) is SourceFileLoader:
                spec.loader = NoticingLoader(name, spec.loader.path, self.library_notices[name])
        except Exception as error:
            if self._strict:
                raise
            report(str(spec.origin), error)


class InstrumentingLoader(SourceFileLoader):
    """Gives the transformed code of a module once, and is an ordinary `SourceFileLoader` from then on."""

    def __init__(self, name: str, path: Any, transform: Transform, strict: bool) -> None:
        super().__init__(name, path)
        self._transform = transform
        self._strict = strict

    def get_code(self, fullname: str) -> CodeType | None:
        code = self._transformed(fullname)
        if code is None:
            return SourceFileLoader.get_code(self, fullname)
        return code

    def _transformed(self, fullname: str) -> CodeType | None:
        transform, strict = self._transform, self._strict
        del self._transform, self._strict
        self.__class__ = SourceFileLoader  # type: ignore[assignment]
        try:
            with WarnedBefore(self.path):
                return transform(self.get_data(self.path), self.path, fullname)
        except (SyntaxError, OSError):
            return None  # the ordinary way raises it, from the frames that plain python shows
        except Exception as error:
            if strict:
                raise
            report(self.path, error)
        return None


class NoticingLoader(SourceFileLoader):
    """Tells when a module has been imported, and is an ordinary `SourceFileLoader` from its execution on."""

    def __init__(self, name: str, path: Any, notice: Callable[[str], None]) -> None:
        super().__init__(name, path)
        self._notice = notice

    def exec_module(self, module: ModuleType) -> None:
        notice = self._notice
        del self._notice
        self.__class__ = SourceFileLoader  # type: ignore[assignment]
        self.exec_module(module)
        notice(module.__name__)


class WarnedBefore:
    """Keeps a file's SyntaxWarnings quiet if plain python would now take its code from a .pyc, and so not warn.

    A filter of `warnings` would do, but changing filters makes Python forget which warnings it has shown.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._active = False

    def __enter__(self) -> None:
        if has_bytecode(self._path):
            self._active = True
            self._show = warnings._showwarnmsg  # type: ignore[attr-defined]
            warnings._showwarnmsg = self._filter  # type: ignore[attr-defined]

    def __exit__(self, *exception: object) -> None:
        if self._active:
            self._active = False
            warnings._showwarnmsg = self._show  # type: ignore[attr-defined]

    def _filter(self, message: warnings.WarningMessage) -> None:
        if not (self._active and message.category is SyntaxWarning and message.filename == self._path):
            self._show(message)


def has_bytecode(path: str) -> bool:
    """Tells if the .pyc of a source file is there and up to date, as far as its header tells."""
    try:
        status = os.stat(path)
        with open(cache_from_source(path), "rb") as file:
            header = file.read(16)
    except (OSError, NotImplementedError):
        return False
    expected = [number & 0xFFFFFFFF for number in (0, int(status.st_mtime), status.st_size)]
    return header == MAGIC_NUMBER + b"".join(number.to_bytes(4, "little") for number in expected)


def _disguise(function: Any, model: Any) -> None:
    """Gives a function the file name of importlib's, so that tracebacks and `warnings` skip it too."""
    function.__code__ = function.__code__.replace(co_filename=model.__code__.co_filename)


_disguise(Finder.find_spec, SourceFileLoader.get_code)
_disguise(InstrumentingLoader.get_code, SourceFileLoader.get_code)
