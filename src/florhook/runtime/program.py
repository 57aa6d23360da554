"""What is known of the running program: its instrumented modules, loop sites, marks and code objects."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable
from types import CodeType
from typing import TYPE_CHECKING, Any

from ..hook.rewrite import rewrite
from ..hook.sites import Instrumented, Site
from . import probes

if TYPE_CHECKING:
    from ..hook.diff import SourceDiff


CHILDREN = "<children>"  # the key of the mark that the program started a process of its own


class Program:
    """The user's modules in this process. Ids of sites and marks are of this process; keys hold for any."""

    def __init__(self, replaying: bool = False, ordinary: bool = False) -> None:
        self.replaying = replaying
        self.ordinary = ordinary  # what was added since the record is no hindsight, but part of the program
        self.user_modules: set[str] = set()
        self.child_mark = probes.reserve_marks(1)  # set when the program starts a process of its own
        self.modules: list[Instrumented] = []
        self.sources: dict[str, tuple[str, bytes]] = {}  # module -> path, source
        self.sites: list[Site] = []
        self.marks: list[str] = [CHILDREN]
        self.site_marks: list[int] = []  # the mark of each site
        self.on_module: Callable[[str, str, bytes], None] | None = None
        self.diff: Callable[[str, str, bytes], SourceDiff | None] = lambda *_: None
        self._codes: dict[str, CodeType] = {}  # not indexed yet
        self._all_codes: dict[str, CodeType] = {}
        self._added_lines: dict[str, set[int]] = {}
        self._keys: dict[CodeType, tuple[Any, ...]] = {}
        self._by_key: dict[tuple[Any, ...], CodeType] = {}

    def transform(self, source: bytes, path: str, name: str) -> CodeType:
        """Rewrite a module's source and compile it. SyntaxErrors of the user's are raised as they are."""
        diff = self.diff(name, path, source)
        tree = ast.parse(source, path) if diff is None else diff.tree
        added = [] if diff is None else diff.added
        info = rewrite(
            tree,
            name,
            path,
            replaying=self.replaying,
            added=() if self.ordinary else added,
            first_site=len(self.sites),
            first_mark=probes.reserve_marks(0),
        )
        code = compile(tree, path, "exec", dont_inherit=True)
        self._register(name, path, source, info, code)
        self._added_lines[name] = {
            line for node in added for line in range(node.lineno, (node.end_lineno or 0) + 1)
        }
        module = sys.modules.get(name)
        if module is not None:
            vars(module)["__flor__"] = probes
        return code

    def _register(self, name: str, path: str, source: bytes, info: Instrumented, code: CodeType) -> None:
        first = probes.reserve_marks(len(info.marks))
        places = {key: first + index for index, key in enumerate(info.marks)}
        self.modules.append(info)
        self.sites.extend(info.sites)
        self.marks.extend(info.marks)
        self.site_marks.extend(places[site.key] for site in info.sites)
        self.user_modules.add(name)
        self.sources[name] = (path, source)
        self._codes[name] = self._all_codes[name] = code
        if self.on_module is not None:
            self.on_module(name, path, source)

    def place(self, site: Site) -> str:
        """File and line of a loop, for messages."""
        path, _ = self.sources.get(site.key.partition(":")[0], ("", b""))
        return f"{os.path.basename(path)}:{site.line}"

    # Code objects by place: (module, qualified names from the module down, which of equal ones) --------------

    def code_key(self, code: CodeType) -> tuple[Any, ...] | None:
        self._index()
        return self._keys.get(code)

    def forget_record(self) -> None:
        """From here on, code has the places that it has in the sources of now, whatever was added to them."""
        self._added_lines.clear()
        self._keys.clear()
        self._by_key.clear()
        self._codes = dict(self._all_codes)

    def find_code(self, key: tuple[Any, ...]) -> CodeType:
        if key[0] == "marshal":
            import marshal

            return marshal.loads(key[1])  # type: ignore[no-any-return]
        self._index()
        return self._by_key[tuple(key)]

    def _index(self) -> None:
        while self._codes:
            name, code = self._codes.popitem()
            added = self._added_lines.get(name, set())
            work: list[tuple[CodeType, tuple[Any, ...]]] = [(code, (name,))]
            while work:
                outer, place = work.pop()
                self._keys[outer] = place
                self._by_key[place] = outer
                seen: dict[str, int] = {}
                for inner in outer.co_consts:
                    if (
                        not isinstance(inner, CodeType)
                        or inner.co_firstlineno in added
                        or _is_cells_lambda(inner)
                    ):
                        continue
                    count = seen.get(inner.co_name, 0)
                    seen[inner.co_name] = count + 1
                    work.append((inner, (*place, inner.co_name, count)))


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
