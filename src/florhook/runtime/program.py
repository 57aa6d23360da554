"""What is known of the running program: its instrumented modules, loop sites, marks and code objects."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from types import CodeType
from typing import TYPE_CHECKING, Any

from ..hook.kept import KeptModules, Unwarned
from ..hook.quiet import without_syntax_warnings
from ..hook.sites import PROBE, WHILE, Instrumented, Site, place_of_statement
from ..uncollected import no_collections
from . import compiled, probes

if TYPE_CHECKING:
    import ast

    from ..hook.diff import SourceDiff

PARSE_AGAIN = 50  # times
MARK_BITS = 8  # of a bitmask, for each mark


class Program:
    """The user's modules in this process. Ids of sites and marks are of this process; keys hold for any."""

    def __init__(self, replaying: bool = False, ordinary: bool = False) -> None:
        self.replaying = replaying
        self.ordinary = ordinary  # what was added since the record is no hindsight, but part of the program
        self.user_modules: set[str] = set()
        self.child_mark = probes.reserve_marks(
            2
        )  # set when the program starts a process of its own, or loaders do
        self.modules: list[Instrumented] = []
        self.sources: dict[str, tuple[str, bytes]] = {}  # module -> path, source
        self.sites: list[Site] = []
        self.marks: list[str] = [probes.CHILDREN, probes.LOADERS]
        self.site_marks: list[int] = []  # the mark of each site
        self.statements: dict[int, Site] = {}  # that may take long; ids of their own, in contexts -1 - id
        self.loops_of: dict[int, int] = {}  # of each, the site of its loop
        self.flag_of: dict[int, int] = {}  # of each, whose flag it shares
        self.statements_in: dict[int, list[int]] = {}  # and the other way around
        self.wanted: frozenset[str] = frozenset()  # replaying: keys of those that need not be run
        self.leaves: set[int] = set()  # ids of the sites in which no other loop can run
        self._inside: dict[int, list[int]] = {}  # by mark of a function or loop, those of the loops in it
        self._with_inside: dict[int, int] = {}
        self.on_module: Callable[[str, str, bytes], None] | None = None
        self.is_pythons: Callable[[str, str], bool] = lambda *_: False
        self.text: Callable[[str, bytes], bytes] = lambda _, source: (
            source
        )  # what to run instead of a module's file
        self.diff: Callable[[str, str, bytes], SourceDiff | None] = lambda *_: None
        self.hides: Callable[[str], bool] = lambda _: (
            False
        )  # names in `__main__` that are no state of the program
        self.kept: KeptModules | None = None  # what earlier runs rewrote
        self._renew_lock()
        _programs.add(self)
        self._codes: dict[str, CodeType] = {}  # not indexed yet
        self._all_codes: dict[str, CodeType] = {}
        self._added_lines: dict[str, set[int]] = {}
        self._keys: dict[CodeType, tuple[Any, ...]] = {}
        self._by_key: dict[tuple[Any, ...], CodeType] = {}
        self._plain: dict[str, dict[tuple[Any, ...], CodeType]] = {}  # by module and place, as it was written
        self._recorded: dict[str, ast.Module] = {}  # by module that was edited since
        self._as_recorded: dict[str, dict[tuple[Any, ...], CodeType]] = {}  # of these, by module and place

    def _renew_lock(self) -> None:
        """For the ids of sites and marks, since threads import at once. Another may hold it while the process forks."""
        self._lock = threading.Lock()

    def transform(self, source: bytes, path: str, name: str) -> CodeType:
        """Rewrite a module's source and compile it. SyntaxErrors of the user's are raised as they are."""
        if self.is_pythons(name, path):
            return compile(source, path, "exec", dont_inherit=True)
        source = self.text(name, source)
        quiet: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        while True:
            firsts = self._next_ids()
            with quiet:
                info, code, lines = self._rewritten(source, path, name, *firsts)
            with self._lock:
                if firsts == self._next_ids():
                    self._added_lines[name] = lines
                    self._register(name, path, source, info, code)
                    break
            quiet = without_syntax_warnings()  # another thread's import took the ids: once more, with others
        module = sys.modules.get(name)
        if module is not None:
            vars(module)["__flor__"] = probes
        return code

    def recorded_lines(self, line: int) -> set[int]:
        """Which lines a line of now was in the record, by what was added above it in each of the modules."""
        return {line - sum(each < line for each in lines) for lines in self._added_lines.values()}

    def _next_ids(self) -> tuple[int, int, int]:
        """Of sites, marks and statements."""
        return len(self.sites), probes.reserve_marks(0), probes.reserve_flags(0)

    def _rewritten(
        self, source: bytes, path: str, name: str, *firsts: int
    ) -> tuple[Instrumented, CodeType, set[int]]:
        """What the rewriting gave, its code, and the lines that were added since the record."""
        diff = self.diff(name, path, source)
        kept = self.kept if diff is None else None
        if kept is None:
            return self._rewritten_now(diff, source, path, name, *firsts)
        statements = sorted(self._wanted_in(name).items())
        entry = kept.name(source, path, name, firsts, self.replaying, statements)
        found = kept.get(entry)
        if found is not None:
            return (*found, set())
        with Unwarned() as unwarned:
            info, code, lines = self._rewritten_now(None, source, path, name, *firsts)
        if unwarned.sure:
            kept.put(entry, info, code)
        return info, code, lines

    def _rewritten_now(
        self, diff: SourceDiff | None, source: bytes, path: str, name: str, *firsts: int
    ) -> tuple[Instrumented, CodeType, set[int]]:
        with no_collections():  # a tree is many objects, none of them garbage
            try:
                return self._rewritten_with(True, diff, source, path, name, *firsts)
            except SyntaxError:
                if not self.replaying:
                    raise
                # A replay puts a block around each loop, and Python limits how deeply they are nested.
                return self._rewritten_with(False, self.diff(name, path, source), source, path, name, *firsts)

    def _rewritten_with(
        self,
        loops: bool,
        diff: SourceDiff | None,
        source: bytes,
        path: str,
        name: str,
        first_site: int,
        first_mark: int,
        first_statement: int,
    ) -> tuple[Instrumented, CodeType, set[int]]:
        from ..hook.rewrite import (
            rewrite,
        )  # not where all modules were kept: with `ast` that takes milliseconds

        tree = _parsed(source, path) if diff is None else diff.tree
        added = [] if diff is None else diff.added
        info = rewrite(
            tree,
            name,
            path,
            replaying=self.replaying,
            added=() if self.ordinary else added,
            first_site=first_site,
            first_mark=first_mark,
            loops=loops,
            statements=self._long_ones(name, tree, diff) if self.replaying else None,
            first_statement=first_statement,
        )
        if diff is not None and added and not self.ordinary:
            self._recorded[name] = diff.old_tree
        lines = {line for node in added for line in _lines_of(node)}
        return info, self._compiled(tree, path, name), lines

    def _long_ones(self, name: str, tree: ast.Module, diff: SourceDiff | None) -> Mapping[ast.AST, str]:
        """The statements of a module that need not be run, with the keys that they have in the record."""
        wanted = self._wanted_in(name)
        if not wanted:
            return {}
        import ast

        from ..hook.rewrite import SIMPLE

        pairs = {node: node for node in ast.walk(tree)} if diff is None else diff.pairs
        found: dict[ast.AST, str] = {}
        for node, recorded in pairs.items():
            if isinstance(node, SIMPLE) and isinstance(recorded, SIMPLE):
                key = wanted.get((recorded.lineno, recorded.col_offset))
                if key is not None:
                    found[node] = key
        return found

    def _wanted_in(self, name: str) -> dict[tuple[int, int], str]:
        keys = (key for key in self.wanted if key.partition(":")[0] == name)
        return {place: key for key in keys if (place := place_of_statement(key)) is not None}

    def _compiled(self, tree: ast.Module, path: str, name: str) -> CodeType:
        """The code of a module whose tree was rewritten."""
        return compile(tree, path, "exec", dont_inherit=True)

    def _register(self, name: str, path: str, source: bytes, info: Instrumented, code: CodeType) -> None:
        first = probes.reserve_marks(len(info.marks))
        places = {key: first + index for index, key in enumerate(info.marks)}
        self.modules.append(info)
        if self.replaying:
            compiled.add_sites(range(len(self.sites), len(self.sites) + len(info.sites)))
        else:
            whiles = (number for number, site in enumerate(info.sites, len(self.sites)) if site.kind == WHILE)
            probes.reserve_ticks(whiles)
        self.sites.extend(info.sites)
        self.marks.extend(info.marks)
        self.site_marks.extend(places[site.key] for site in info.sites)
        self._register_insides(info, places)
        self._register_statements(info)
        self.user_modules.add(name)
        self.sources[name] = (path, source)
        self._codes[name] = self._all_codes[name] = code
        if self.on_module is not None:
            self.on_module(name, path, source)

    def _register_insides(self, info: Instrumented, places: dict[str, int]) -> None:
        outer = {site.key: site.outer for site in info.sites}
        first = len(self.sites) - len(info.sites)
        holders = set(outer.values())
        self.leaves.update(
            first + index for index, site in enumerate(info.sites) if site.tight and site.key not in holders
        )
        for key in outer:
            around = outer[key]
            while around:
                self._inside.setdefault(places[around], []).append(places[key])
                around = outer[around]
            function = places.get(key.rpartition(":")[0])
            if function is not None:
                self._inside.setdefault(function, []).append(places[key])
        self._with_inside.clear()

    def _register_statements(self, info: Instrumented) -> None:
        first_site = len(self.sites) - len(info.sites)
        loops = {site.key: first_site + index for index, site in enumerate(info.sites)}
        first = probes.reserve_flags(len(info.statements))
        for number, statement in enumerate(info.statements, first):
            self.statements[number] = statement
            self.loops_of[number] = loops[statement.outer]
            self.flag_of[number] = info.flags[number - first] if info.flags else number
            self.statements_in.setdefault(loops[statement.outer], []).append(number)

    def with_loops_inside(self, marks: int) -> int:
        """A bitmask of marks with those of all loops that may have run inside."""
        found = self._with_inside.get(marks)
        if found is None:
            found, data = marks, marks.to_bytes((marks.bit_length() + 7) // 8, "little")
            for mark, flag in enumerate(data):
                for inner in self._inside.get(mark, ()) if flag else ():
                    found |= 1 << MARK_BITS * inner
            self._with_inside[marks] = found
        return found

    def marks_in(self, code: CodeType) -> int:
        """A bitmask of the marks that the code sets: that of the function."""
        if PROBE not in code.co_names:
            return 0
        numbers = [int(name[1:]) for name in code.co_names if name[:1] == "m" and name[1:].isdecimal()]
        return sum(1 << MARK_BITS * number for number in numbers if number < len(probes.marks))

    def site(self, number: int) -> Site:
        """A loop by its id, or a statement by -1 - its id."""
        return self.sites[number] if number >= 0 else self.statements[-1 - number]

    def place(self, site: Site) -> str:
        """File and line of a loop or statement, for messages."""
        path, _ = self.sources.get(site.key.partition(":")[0], ("", b""))
        return f"{os.path.basename(path)}:{site.line}"

    # Code objects by place: (module, qualified names from the module down, which of equal ones) --------------

    def code_key(self, code: CodeType) -> tuple[Any, ...] | None:
        self._index()
        return self._keys.get(code)

    def free_variables(self, code: CodeType) -> tuple[str, ...]:
        """What a function uses of those around it; not what only statements use that were added since the record."""
        return (self._recorded_code(code) or code).co_freevars

    def variables(self, code: CodeType) -> Collection[str] | None:
        """A function's own variables but those of statements that were added since the record; None: all."""
        recorded = self._recorded_code(code)
        return (
            None
            if recorded is None
            else {*recorded.co_varnames, *recorded.co_cellvars, *recorded.co_freevars}
        )

    def _recorded_code(self, code: CodeType) -> CodeType | None:
        """What a function was in the record; None where its module is the same, or was not recorded."""
        if not self._recorded:
            return None
        key = self.code_key(code)
        name = "" if key is None else key[0]
        if name in self._recorded and name not in self._as_recorded:
            with without_syntax_warnings():
                whole = self._compiled(self._recorded[name], "", name)
            self._as_recorded[name] = dict(places_in(whole, name, set()))
        return self._as_recorded.get(name, {}).get(key or ())

    def forget_record(self) -> None:
        """From here on, code has the places that it has in the sources of now, whatever was added to them."""
        self._recorded.clear()
        self._added_lines.clear()
        self._keys.clear()
        self._by_key.clear()
        self._plain.clear()
        self._codes = dict(self._all_codes)

    def find_code(self, key: tuple[Any, ...]) -> CodeType:
        if key[0] == "marshal":
            import marshal

            return marshal.loads(key[1])  # type: ignore[no-any-return]
        self._index()
        return self._by_key[tuple(key)]

    def plain_code(self, code: CodeType) -> CodeType | None:
        """A function's code as its author wrote it, where `code` is what became of it."""
        key = self.code_key(code)
        if key is None or key[0] not in self.sources:
            return None
        name = key[0]
        if name not in self._plain:
            path, source = self.sources[name]
            with without_syntax_warnings():
                plain = compile(source, path, "exec", dont_inherit=True)
            self._plain[name] = dict(self.places(name, plain))
        return self._plain[name].get(key)

    def whole(self, name: str) -> CodeType:
        """The code of a module that was rewritten."""
        return self._all_codes[name]

    def _index(self) -> None:
        while self._codes:
            name, code = self._codes.popitem()
            for place, inner in self.places(name, code):
                self._keys[inner] = place
                self._by_key[place] = inner

    def places(self, name: str, code: CodeType) -> Iterator[tuple[tuple[Any, ...], CodeType]]:
        """The code objects of a module by place. What was added since the record has none, nor has what we put in."""
        return places_in(code, name, self._added_lines.get(name, set()))


def _lines_of(stmt: ast.stmt) -> range:
    """Its lines, from its first decorator on: there the code of a decorated function begins."""
    first = min(node.lineno for node in (stmt, *getattr(stmt, "decorator_list", ())))
    return range(first, (stmt.end_lineno or 0) + 1)


def places_in(
    code: CodeType, name: str, added: Collection[int]
) -> Iterator[tuple[tuple[Any, ...], CodeType]]:
    """The code objects of a module by place, without those that begin in `added` lines."""
    work: list[tuple[CodeType, tuple[Any, ...]]] = [(code, (name,))]
    while work:
        outer, place = work.pop()
        yield place, outer
        seen: dict[str, int] = {}
        for inner in outer.co_consts:
            if not isinstance(inner, CodeType) or inner.co_firstlineno in added or _is_cells_lambda(inner):
                continue
            count = seen.get(inner.co_name, 0)
            seen[inner.co_name] = count + 1
            work.append((inner, (*place, inner.co_name, count)))


_programs: weakref.WeakSet[Program] = weakref.WeakSet()


def _renew_locks() -> None:
    for program in _programs:
        program._renew_lock()


os.register_at_fork(after_in_child=_renew_locks)


def _is_cells_lambda(code: CodeType) -> bool:
    """Our own `lambda: (a, b)` beside a loop: nothing but loads of its closure."""
    return (
        code.co_name == "<lambda>" and not code.co_argcount and code.co_code[-2:] != b"" and _only_loads(code)
    )


def _only_loads(code: CodeType) -> bool:
    import dis

    names = {instruction.opname for instruction in dis.get_instructions(code)}
    return bool(code.co_freevars) and names <= {
        "COPY_FREE_VARS", "RESUME", "LOAD_DEREF", "BUILD_TUPLE", "RETURN_VALUE", "CACHE",
    }  # fmt: skip


def _parsed(source: bytes, path: str) -> ast.Module:
    """The syntax tree of a module; once more where another thread parsed at the same time.

    Some versions of CPython (3.11) count the depth of trees in one place for all threads, and raise SystemError where
    that does not come out even.
    """
    import ast

    for _ in range(PARSE_AGAIN):
        try:
            return ast.parse(source, path)
        except SystemError:
            continue
    return ast.parse(source, path)
