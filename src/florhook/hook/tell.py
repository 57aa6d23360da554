"""Makes a function of a library tell what it is called with. Pure.

The function object stays; its code gets calls of a module's `heard`, which lies among its constants:

    def add_scalar(self, tag, scalar_value, global_step=None):        def add_scalar(self, tag, scalar_value, global_step=None):
        "doc"                                                   ->        "doc"
        ...                                                               <module>.heard("tensorboard", tag, scalar_value, global_step)
                                                                          ...

With an end, the rest stands in a `try` whose `finally` tells once more. So whoever imported the function by its name has
it too, decorators stay around it, and signature, pickling, source, lines and tracebacks are as they were.

Things that don't work: wrapping it, which puts a frame of ours into each traceback and into what `logging` prints as
"Call stack"; a global name for the module, which is not there before the program starts.
"""  # noqa: E501  two columns

from __future__ import annotations
import __future__

import ast
import itertools
import re
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any

from .quiet import without_syntax_warnings

TELLER = "florhook tells"  # the constant in whose place the module comes
MOST_LINES = 8  # that the last statement goes on after the last line of its code


def function_of(module: Any, path: str) -> FunctionType | None:
    """The function that a class or module has under a dotted name, behind its decorators."""
    found = module
    for name in path.split("."):
        found = vars(found).get(name) if hasattr(found, "__dict__") else None
    while hasattr(found, "__dict__") and "__wrapped__" in vars(found):
        found = vars(found)["__wrapped__"]
    return found if type(found) is FunctionType else None


def telling(
    function: FunctionType, lines: Sequence[str], teller: object, begin: str, end: str = ""
) -> CodeType | None:
    """Code that tells, or None where `lines`, the file's, are not what the function runs.

    `begin` and `end` are the arguments of the calls, as they would stand in the function: `'logging', record`.
    """
    with without_syntax_warnings():
        for imports in _imports(lines):
            tree, plain = _parsed(function, lines, imports)
            if tree is not None and plain is not None and _same(plain, function.__code__):
                return _told(tree, plain, teller, begin, end)
    return None


def _told(tree: ast.Module, plain: CodeType, teller: object, begin: str, end: str) -> CodeType | None:
    called = {node.id for node in ast.walk(_call(begin)) if isinstance(node, ast.Name)}
    if not called <= set(plain.co_varnames[: _parameters(plain)]):
        return None
    definition = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    _put_in(definition, begin, end)
    code = _compiled(tree, plain)
    if code is None or code.co_freevars != plain.co_freevars:
        return None
    return code.replace(co_consts=tuple(teller if each == TELLER else each for each in code.co_consts))


def _imports(lines: Sequence[str]) -> Iterator[str]:
    """One line with what a module imports: nothing, the statements that are not indented, all.

    Python 3.11 and 3.12 compile a call of what was imported by the module in another way. Whether an indented statement
    is the module's is not told without reading all of it, which takes long; the right guess gives the same code.
    """
    text = "".join(lines)
    yield ""
    yield _joined(text, "")
    yield _joined(text, "[ \\t]*")


def _joined(text: str, indentation: str) -> str:
    """The `import` statements of a text, those in a bracket of several lines too."""
    pattern = rf"^{indentation}((?:from[ \t]+[\w.]+[ \t]+)?import[ \t]+(?:\([^)]*\)|[\w., \t]+))"
    names = []
    for match in re.finditer(pattern, text, re.MULTILINE):
        try:
            (statement,) = ast.parse(match[1].strip()).body
        except (SyntaxError, ValueError):  # of a docstring
            continue
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            names += [each.asname or each.name.partition(".")[0] for each in statement.names]
    names = [name for name in dict.fromkeys(names) if name != "*"]
    return f"import {', '.join(names)}\n" if names else ""


def _parsed(
    function: FunctionType, lines: Sequence[str], imports: str
) -> tuple[ast.Module | None, CodeType | None]:
    """The tree of the function alone, at its place in the file, and what the compiler makes of it."""
    code = function.__code__
    first = code.co_firstlineno
    last = max(line for _, _, line in code.co_lines() if line is not None)
    outer = function.__qualname__.rpartition(".")[0].rpartition(".")[2]  # names with two underscores need it
    indented = first <= len(lines) and lines[first - 1][:1].isspace()
    front = [imports, f"class {outer}:\n" if indented and outer.isidentifier() else ""]
    for end in range(last, last + MOST_LINES):
        try:
            tree = ast.parse("".join([*front, *lines[first - 1 : end]]))
        except SyntaxError:
            continue
        ast.increment_lineno(tree, first - 1 - sum(map(bool, front)))
        return tree, _compiled(tree, code)
    return None, None


def _compiled(tree: ast.Module, like: CodeType) -> CodeType | None:
    flags = like.co_flags & __future__.annotations.compiler_flag
    for code in _inside(compile(tree, like.co_filename, "exec", flags, dont_inherit=True)):
        if (code.co_name, code.co_firstlineno) == (like.co_name, like.co_firstlineno):
            return code
    return None


def _inside(code: CodeType) -> Iterator[CodeType]:
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return itertools.chain(inner, *map(_inside, inner))


def _same(one: CodeType, other: CodeType) -> bool:
    """Whether it is the same code: the file has not changed, and no other tool has been here."""
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars")
    )


def _parameters(code: CodeType) -> int:
    stars = bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    return code.co_argcount + code.co_kwonlyargcount + stars


def _call(arguments: str) -> ast.Expr:
    statement = ast.parse(f"{TELLER!r}.heard({arguments})").body[0]
    assert isinstance(statement, ast.Expr)
    return statement


def _put_in(definition: ast.FunctionDef, begin: str, end: str) -> None:
    """On lines that run anyway, the first and the last of the body."""
    has_docstring = ast.get_docstring(definition, clean=False) is not None
    front, rest = definition.body[:has_docstring], definition.body[has_docstring:]
    before = _placed(_call(begin), rest[0])
    if not end:
        definition.body = [*front, before, *rest]
        return
    after = _placed(_call(end), rest[-1])
    around = ast.copy_location(ast.Try(body=rest, handlers=[], orelse=[], finalbody=[after]), rest[0])
    definition.body = [*front, before, around]


def _placed(statement: ast.Expr, like: ast.stmt) -> ast.Expr:
    for node in ast.walk(statement):
        if isinstance(node, (ast.expr, ast.stmt)):
            node.lineno = node.end_lineno = like.lineno
            node.col_offset = node.end_col_offset = like.col_offset
    return statement
