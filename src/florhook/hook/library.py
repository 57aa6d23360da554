"""What a module sets on what it imports (`torch.nn.functional.relu = mine`): no variable of its own leads to it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

# A module as `sys.modules` knows it, and attributes from there: ("torch", "backends", "flag")
Path = tuple[str, ...]
ASSIGNMENTS = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete, ast.Expr)
SETTERS = ("setattr", "delattr")
OURS = "sys"  # its streams and hooks are handled as such


class LibraryAttributes:
    """Collects them, statement by statement; which of the imports are libraries is known only when they are there."""

    def __init__(self) -> None:
        self._imported: dict[str, set[Path]] = {}  # by variable
        self._set: set[Path] = set()  # the first part is a variable

    def see(self, node: ast.stmt, once: bool) -> None:
        """`once`: a statement of the module, in no loop; whatever is replayed executes it."""
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for name, path in _imports(node):
                self._imported.setdefault(name, set()).add(path)
        elif not once and isinstance(node, ASSIGNMENTS):
            self._set.update(_set_by(node))

    def paths(self) -> tuple[Path, ...]:
        return tuple(
            sorted(
                {
                    (*start, *attributes)
                    for variable, *attributes in self._set
                    for start in self._imported.get(variable, ())
                    if start[0] != OURS
                }
            )
        )


def _imports(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Path]]:
    """What variable it binds to what. Relative imports are of the program's own modules."""
    for each in node.names:
        if isinstance(node, ast.ImportFrom):
            if node.module is not None and not node.level:
                yield each.asname or each.name, (node.module, each.name)
        elif each.asname is not None:
            yield each.asname, (each.name,)
        else:
            first = each.name.partition(".")[0]
            yield first, (first,)


def _set_by(node: ast.stmt) -> Iterator[Path]:
    if isinstance(node, ast.Expr):
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in SETTERS:
            match call.args:
                case [holder, ast.Constant(value=str(name)), *_]:
                    yield from _path(holder, name)
        return
    targets = node.targets if isinstance(node, (ast.Assign, ast.Delete)) else [node.target]  # type: ignore[attr-defined]
    while targets:
        target, *targets = targets
        if isinstance(target, (ast.Tuple, ast.List)):
            targets += target.elts
        elif isinstance(target, ast.Starred):
            targets.append(target.value)
        elif isinstance(target, ast.Attribute):
            yield from _path(target.value, target.attr)


def _path(holder: ast.expr, name: str) -> Iterator[Path]:
    """The path of an attribute that a chain of names holds; none where something is called or indexed on the way."""
    parts = [name]
    while isinstance(holder, ast.Attribute):
        parts.append(holder.attr)
        holder = holder.value
    if isinstance(holder, ast.Name):
        yield (holder.id, *reversed(parts))
