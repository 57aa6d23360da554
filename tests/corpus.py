"""Compares the code of a rewritten file with that of the plain one, code object by code object."""

from __future__ import annotations

import ast
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CellType, CodeType, FunctionType

from florhook.hook.rewrite import RESUME, rewrite
from florhook.runtime.program import _is_cells_lambda

RECORDED = {"loop", "enter", "step", "leave", "begin", "end", "marks"}
REPLAYED = {"open", "segment", "restoring", "has", "value", "items", "done", "completed", "hindsight"}
REPLAYED |= {"executes", "after"}
OURS = {"__flor__"} | RECORDED | REPLAYED
FORMS = {"record": False, "replay": True}
SAME = (
    *("co_name", "co_qualname", "co_flags", "co_firstlineno", "co_varnames", "co_cellvars", "co_freevars"),
    *("co_argcount", "co_posonlyargcount", "co_kwonlyargcount"),
)


@dataclass(frozen=True)
class Judged:
    """What a file came to; `why` says why it was skipped, or by form how its code differs."""

    path: str
    why: str = ""
    differences: tuple[str, ...] = ()
    codes: int = 0


def files(*, packages: bool = True) -> list[Path]:
    """The standard library's files, and those of the packages that are installed for this interpreter."""
    roots = {sysconfig.get_path("stdlib")}
    found = {path for root in roots for path in Path(root).rglob("*.py") if "site-packages" not in path.parts}
    if packages:
        places = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
        found |= {path for place in places for path in Path(place).rglob("*.py")}
    return sorted(found)


def judge(path: Path) -> Judged:
    """Rewrites a file in both forms and compares; what plain Python cannot compile is skipped."""
    try:
        source = path.read_bytes()
        plain, warned = compiled(source, path, None)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OSError) as error:
        return Judged(str(path), f"{type(error).__name__}: {error}")
    found: list[str] = []
    for form in FORMS:
        try:
            code, warned_here = compiled(source, path, form)
        except Exception as error:
            found.append(f"{form}: {type(error).__name__}: {error}")
            continue
        found += [f"{form}: {each}" for each in differences(plain, code)]
        if warned_here != warned:
            found.append(f"{form}: warnings {warned_here}, not {warned}")
    return Judged(str(path), differences=tuple(found), codes=sum(1 for _ in all_codes(plain)))


def compiled(source: bytes, path: Path, form: str | None) -> tuple[CodeType, list[str]]:
    """The code of a file, plain or in one of the forms, and the warnings that come with it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if form is None:
            code = compile(source, str(path), "exec", dont_inherit=True)
        else:
            tree = ast.parse(source, str(path))
            every = {node: f"m:f:@{number}.0" for number, node in enumerate(ast.walk(tree))}
            statements = every if FORMS[form] else None
            info = rewrite(tree, "m", str(path), replaying=FORMS[form], statements=statements)
            for keys in (info.marks, tuple(site.key for site in (*info.sites, *info.statements))):
                if len(set(keys)) < len(keys):
                    raise ValueError(f"two of a name among {sorted(keys)}")
            code = compile(tree, str(path), "exec", dont_inherit=True)
    return code, sorted(f"{each.lineno}: {each.message}" for each in caught)


def all_codes(code: CodeType) -> Iterator[CodeType]:
    work = [code]
    while work:
        inner = work.pop()
        yield inner
        work.extend(codes_in(inner))


def codes_in(code: CodeType) -> list[CodeType]:
    return [const for const in code.co_consts if isinstance(const, CodeType)]


def differences(plain: CodeType, ours: CodeType) -> Iterator[str]:
    work = [(plain, ours)]
    while work:
        one, other = work.pop()
        place = f"{one.co_name}:{one.co_firstlineno}"
        yield from (f"{place}: {each}" for each in differences_of_one(one, other))
        pairs, left = paired(codes_in(one), codes_in(other))
        work.extend(pairs)
        yield from (f"{place}: {each}" for each in left)


def paired(plain: list[CodeType], ours: list[CodeType]) -> tuple[list[tuple[CodeType, CodeType]], list[str]]:
    """The nested code objects in their order, our own lambdas left out, and what has no partner."""
    pairs, left = [], []
    rest = list(ours)
    for one in plain:
        key = (one.co_name, one.co_firstlineno)
        place = next(
            (n for n, other in enumerate(rest) if (other.co_name, other.co_firstlineno) == key), None
        )
        if place is None:
            left.append(f"no code for {one.co_name}:{one.co_firstlineno}")
            continue
        left += [f"code for {each.co_name}" for each in rest[:place] if not _is_cells_lambda(each)]
        pairs.append((one, rest[place]))
        del rest[: place + 1]
    return pairs, left + [f"code for {each.co_name}" for each in rest if not _is_cells_lambda(each)]


def differences_of_one(plain: CodeType, ours: CodeType) -> Iterator[str]:
    for name in SAME:
        before, after = getattr(plain, name, None), getattr(ours, name, None)
        if before != after:
            moved = isinstance(before, tuple) and sorted(before) == sorted(after)
            yield f"{name} {before} {'was put in the order' if moved else 'became'} {after}"
    missing, more = lines_of(plain) - lines_of(ours), lines_of(ours) - lines_of(plain)
    if missing:
        yield f"lines {sorted(missing)} are missing"
    if more:
        yield f"lines {sorted(more)} are more"
    names = set(ours.co_names)
    if set(plain.co_names) - names:
        yield f"names {sorted(set(plain.co_names) - names)} are missing"
    more = {
        name for name in names - set(plain.co_names) - OURS if not re.fullmatch(r"[mht]\d+", name)
    }  # marks, flags, counters of steps
    if more:
        yield f"names {sorted(more)} are more"
    if docstring_of(plain) != docstring_of(ours):
        yield "the docstring"
    if entry_line_of(plain) != entry_line_of(ours):
        yield f"begins on line {entry_line_of(ours)}, not {entry_line_of(plain)}"


def lines_of(code: CodeType) -> set[int]:
    return {line for _, _, line in code.co_lines() if line is not None}


def docstring_of(code: CodeType) -> str | None:
    """Of a function; a module's and a class's is an assignment."""
    if not code.co_flags & CO_OPTIMIZED:
        return None
    return FunctionType(code, {}, None, None, tuple(CellType() for _ in code.co_freevars)).__doc__


def entry_line_of(code: CodeType) -> int | None:
    """Where a debugger stops first in a function."""
    if not code.co_flags & CO_OPTIMIZED:
        return None
    start = 0 if RESUME is None else code.co_code[::2].find(RESUME) * 2 + 2
    return next((line for _, end, line in code.co_lines() if end > start and line is not None), None)


def is_known(difference: str) -> bool:
    """What cannot be otherwise, and is documented in docs/hook.md."""
    form, _, rest = difference.partition(": ")
    if form == "replay" and rest.endswith(" are more"):
        return True  # what comes after an endless loop: a replay's loops have an end
    if form == "replay" and sys.version_info >= (3, 12) and "was put in the order" in rest:
        return True  # variables of comprehensions count from Python 3.12 on, and are not restored
    if sys.version_info < (3, 12) and rest.endswith(" are more"):
        return True  # `while (` with the test on the next line: the line of the keyword
    # the header of a loop over several lines, as a function's first statement
    return sys.version_info < (3, 11) and "begins on line" in rest
