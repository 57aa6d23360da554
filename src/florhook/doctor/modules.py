"""Follows a program's imports without running it, and asks the hook's own code what it would do with each module."""

from __future__ import annotations

import ast
import itertools
import os
import pkgutil
import sys
import warnings
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, SourceFileLoader

from ..dataclass import dataclass
from ..errors import UsageError
from ..hook.finder import decide
from ..hook.locate import find_spec, folders_of
from ..hook.rewrite import rewrite
from ..hook.scope import DEFAULT_INCLUDE, Decision, Scope
from ..hook.sites import Instrumented
from ..launch import Target, has_importer, script_folder, set_path0
from ..record import scope_of
from ..settings import Settings
from .imports import imported_names

ONLY_IN_OUTLINE = "entered and left only: it calls nothing"
LOADERS = {
    "loaded by ExtensionFileLoader": "an extension module",
    "loaded by zipimporter": "in a zip file",
    "loaded by BuiltinImporter": "built into Python",
    "loaded by FrozenImporter": "the standard library, frozen into Python",
    "loaded by SourcelessFileLoader": "bytecode without its source",
}
NOT_FOUND = "not found: it may be optional"


@dataclass(frozen=True)
class Loop:
    """A loop of an instrumented module: `hindrance` says why it is not recorded iteration by iteration."""

    line: int
    text: str
    hindrance: str = ""


@dataclass(frozen=True)
class Module:
    """A module that the program names. `problem`: why it runs uninstrumented though it should not."""

    name: str
    path: str
    decision: Decision
    problem: str = ""
    loops: tuple[Loop, ...] = ()
    named: bool = True  # by an import; else its package may import it

    @property
    def instrumented(self) -> bool:
        return self.decision.user and not self.problem


@dataclass(frozen=True)
class Source:
    """A module's source: `package` is where its relative imports start."""

    name: str
    path: str
    package: str
    data: bytes


def examine(target: Target, settings: Settings, everything: bool = False) -> list[Module]:
    """Every module that a program would import, in the order of finding.

    Changes `sys.path` as the start of the program does. Imports are followed through what is the user's; through
    libraries only if `everything` is asked for.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is said of a source is said when the program runs
        return _Walk(scope_of(target, settings), settings, everything).run(target)


class _Walk:
    def __init__(self, scope: Scope, settings: Settings, everything: bool) -> None:
        self.scope, self.everything = scope, everything
        self.patterns = (*settings.include, *DEFAULT_INCLUDE)
        self.found: dict[str, Module] = {}
        self.pending: list[list[tuple[str, bool]]] = []  # the names that a module imports

    def run(self, target: Target) -> list[Module]:
        main = _main_source(target)
        if isinstance(main, Module):
            return [main]
        parents = main.name.rpartition(".")[0]
        self._add_source(main, Decision(True, "the program itself"))
        if parents:
            self._import(parents, True)
        self._follow()
        for name in _of_the_list(self.patterns, {name.partition(".")[0] for name in self.found}):
            if self.scope.decide(name, None).user:
                self._import(name, False, named=False)
        self._follow()
        return list(self.found.values())

    def _follow(self) -> None:
        while self.pending:
            for name, certain in self.pending.pop(0):
                self._import(name, certain)

    def _import(self, name: str, certain: bool, named: bool = True) -> None:
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            part = ".".join(parts[:end])
            if part not in self.found:
                self._add(part, certain or end < len(parts), named)

    def _add(self, name: str, certain: bool, named: bool) -> None:
        try:
            spec = find_spec(name)
        except Exception as error:  # a finder of somebody else's
            self.found[name] = Module(
                name, "", Decision(False, f"cannot be looked for ({error})"), named=named
            )
            return
        if spec is None:
            if certain and not self._has_attribute(name):
                self.found[name] = Module(name, "", Decision(False, NOT_FOUND), named=named)
            return
        decision = decide(self.scope, name, spec)
        if type(spec.loader) is SourceFileLoader:
            package = name if spec.submodule_search_locations is not None else name.rpartition(".")[0]
            source = _read(name, spec.loader.path, package)
            if source is not None:
                self._add_source(source, decision, named)
                return
        reason = LOADERS.get(decision.reason, decision.reason)
        if spec.origin is None and folders_of(spec):
            reason = "a folder of modules"
        self.found[name] = Module(name, _path_of(spec), Decision(False, reason), named=named)

    def _has_attribute(self, name: str) -> bool:
        """`os.path`: a module that another one holds, rather than one to be found; true of what is imported here."""
        return name in sys.modules

    def _add_source(self, source: Source, decision: Decision, named: bool = True) -> None:
        is_followed = self.everything or self._is_the_users(source.path)
        if not (decision.user or is_followed):
            self.found[source.name] = Module(source.name, source.path, decision, named=named)
            return
        try:
            tree = ast.parse(source.data, source.path)
        except (SyntaxError, ValueError) as error:
            place = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else str(error)
            problem = f"it cannot be parsed ({place})"
            self.found[source.name] = Module(source.name, source.path, decision, problem, named=named)
            return
        if is_followed:
            self.pending.append(list(imported_names(tree, source.package)))
        problem, loops = _loops(tree, source) if decision.user else ("", ())
        self.found[source.name] = Module(source.name, source.path, decision, problem, loops, named)

    def _is_the_users(self, path: str) -> bool:
        """Whether a file lies among the user's, instrumented or not, so that it may import more of those."""
        return path == "<string>" or self.scope.decide("", path).user


def _main_source(target: Target) -> Source | Module:
    """The program itself, after `sys.path` was made as for it."""
    if target.kind == "code":
        set_path0("")
        return Source("__main__", "<string>", "", target.value.encode())
    if target.kind == "module":
        set_path0(os.getcwd())
        return _main_of(target.value, f"there is no module {target.value}")
    path = os.path.abspath(target.value)
    if not os.path.exists(path):
        raise UsageError(f"there is no file {target.value}")
    if has_importer(path):
        set_path0(path, always=True)
        return _main_of("__main__", f"{target.value} holds no __main__.py")
    set_path0(script_folder(target.value))
    return _read("__main__", path, "") or Module("__main__", path, Decision(False, "it cannot be read"))


def _main_of(name: str, otherwise: str) -> Source | Module:
    # florhook's own `__main__` is no answer: finders look at folders, not at what is imported.
    spec = find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        name = f"{name}.__main__"
        spec, otherwise = find_spec(name), f"the package {name.rpartition('.')[0]} has no __main__.py"
    if spec is None:
        raise UsageError(otherwise)
    if type(spec.loader) is SourceFileLoader:
        source = _read("__main__", spec.loader.path, name.rpartition(".")[0])
        if source is not None:
            return source
    reason = decide(Scope(None, os.getcwd()), name, spec).reason
    return Module(name, _path_of(spec), Decision(False, LOADERS.get(reason, reason)))


def _read(name: str, path: str | os.PathLike[str], package: str) -> Source | None:
    path = os.fspath(path)
    try:
        with open(path, "rb") as file:
            return Source(name, path, package, file.read())
    except OSError:
        return None


def _path_of(spec: ModuleSpec) -> str:
    return spec.origin if spec.has_location and spec.origin is not None else ""


def _loops(tree: ast.Module, source: Source) -> tuple[str, tuple[Loop, ...]]:
    """Rewrite and compile as the hook does: what hinders that, and the loops."""
    try:
        info = rewrite(tree, source.name, source.path)
        compile(tree, source.path, "exec", dont_inherit=True)
    except Exception as error:
        return f"it cannot be rewritten ({type(error).__name__}: {error})", ()
    return "", tuple(_each_loop(info, source.data.splitlines()))


def _each_loop(info: Instrumented, lines: list[bytes]) -> Iterator[Loop]:
    hindrances = {site.line: ONLY_IN_OUTLINE if site.tight else "" for site in info.sites}
    hindrances.update(info.left_alone)
    for line, hindrance in sorted(hindrances.items()):
        text = lines[line - 1].decode(errors="replace").strip() if line <= len(lines) else ""
        yield Loop(line, text, hindrance)


def _of_the_list(patterns: tuple[str, ...], packages: set[str]) -> Iterator[str]:
    """Modules that the patterns may include, of packages that the program imports, and that may import those."""
    for pattern in patterns:
        parts = itertools.takewhile(lambda part: not set(part) & set("*?["), pattern.split("."))
        prefix = ".".join(parts)
        if prefix.partition(".")[0] in packages:
            yield from _with_all_below(prefix)


def _with_all_below(name: str) -> Iterator[str]:
    spec = find_spec(name)
    if spec is None:
        return
    yield name
    for _, inner, _ in pkgutil.iter_modules(folders_of(spec) or []):
        yield from _with_all_below(f"{name}.{inner}")
