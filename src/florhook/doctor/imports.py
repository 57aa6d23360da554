"""Which modules a source names in its imports: read, not run."""

from __future__ import annotations

import ast
from collections.abc import Iterator

IMPORTERS = ("import_module", "__import__")


def imported_names(tree: ast.Module, package: str) -> Iterator[tuple[str, bool]]:
    """The full names, and whether each is surely a module: `from a import b` may name a module or something in one.

    `package` is the one that relative imports start from. Imports in functions count, those for type checkers do not.
    """
    work: list[ast.AST] = [tree]
    while work:
        node = work.pop()
        if isinstance(node, ast.If) and _is_for_type_checkers(node.test):
            work.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, True) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from _from(node, package)
        elif isinstance(node, ast.Call):
            yield from _called(node)
        work.extend(ast.iter_child_nodes(node))


def _from(node: ast.ImportFrom, package: str) -> Iterator[tuple[str, bool]]:
    base = node.module or ""
    if node.level:
        parents = package.split(".")
        parents = parents[: len(parents) - node.level + 1]
        base = ".".join(filter(None, [*parents, base]))
    if base:
        yield base, True
        yield from ((f"{base}.{alias.name}", False) for alias in node.names if alias.name != "*")


def _called(node: ast.Call) -> Iterator[tuple[str, bool]]:
    """`importlib.import_module("name")` with the name written out."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    first = node.args[0] if node.args else None
    text = first.value if isinstance(first, ast.Constant) else None
    if name in IMPORTERS and isinstance(text, str) and text and not text.startswith("."):
        yield text, True


def _is_for_type_checkers(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    return name == "TYPE_CHECKING"
