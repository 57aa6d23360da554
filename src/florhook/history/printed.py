"""Which statement of a program printed a line: what its calls can print, compared with what was printed. Pure.

The record has the text of a line and the loops around it, not the statement. A call that prints is taken for the texts
that it can give, with anything where a value stands: `print(f"epoch {epoch} loss {loss:.3f}")` for `epoch * loss *`. A
line belongs to the call whose fixed text is the longest that fits, of those in the loops around the line; where two fit
alike, to none. Inner loops around a line may not be known, where their iterations were too short. Calls of other
functions whose argument is such a text with a value (`logger.info`, `tqdm.write`, one of the program's own) count too;
of theirs, the line may have more in front and behind.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterable, Sequence

from ..dataclass import dataclass
from ..errors import UsageError
from ..hook.logpoints import parse_logpoint
from ..hook.sites import Site
from ..logs.values import Number, values_in

ANYTHING = None  # in a text: a value
Text = list[str | None]
LONGEST = 4000  # characters of a line that is looked at
_PERCENT = re.compile(r"%(?:\(\w*\))?[-+ #0]*[\d*]*(?:\.[\d*]+)?([a-zA-Z%])")
_BRACES = re.compile(r"(\{\{|\}\})|\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}")


@dataclass(frozen=True)
class Statement:
    """A call that prints: its place, and the keys of the loops around it in its function, from outside in.

    `pieces` are the fixed texts of one line that it prints, with anything between them; the line begins with the first
    and ends with the last, but for one that is `loose` before and behind, or `open` behind.
    """

    module: str
    line: int
    loops: tuple[str, ...]
    pieces: tuple[str, ...]
    loose: bool = False
    open: bool = False

    @property
    def weight(self) -> int:
        """How many characters are fixed."""
        return sum(len(piece.replace(" ", "")) for piece in self.pieces)

    def fits(self, line: str) -> bool:
        """Whether it can have printed that line."""
        first, *rest = self.pieces
        if self.loose:
            at = line.find(first)
            if at < 0:
                return False
        elif not line.startswith(first):
            return False
        else:
            at = 0
        at += len(first)
        last = rest.pop() if rest and not self.loose and not self.open else None
        for piece in rest:
            found = line.find(piece, at)
            if found < 0:
                return False
            at = found + len(piece)
        if last is not None:
            return line.endswith(last) and len(line) - len(last) >= at
        return self.loose or self.open or at == len(line)


def shown_by(probe: str, line: str) -> list[tuple[str, Number]]:
    """The numbers that a probe of the command line printed, by its expressions: `net.fc.weight.norm()=0.31`."""
    try:
        expressions = parse_logpoint(f"-:1:{probe}").expressions
    except UsageError:
        return []
    found = []
    for expression in expressions:
        _, equals, rest = f" {line}".rpartition(f" {expression}=")
        if equals and (numbers := values_in(f"x={rest}")) and numbers[0][0] == "x":
            found.append((expression, numbers[0][1]))
    return found


class Printers:
    """The calls of a program that print, and which of them a line belongs to."""

    def __init__(self, statements: Iterable[Statement]) -> None:
        self._statements = sorted(statements, key=lambda each: -each.weight)

    def of(self, line: str, sites: Collection[str]) -> tuple[str, int] | None:
        """Module and line of the call that printed a line, with these loops around it, as far as they are known.

        None where that is not clear.
        """
        if len(line) > LONGEST:
            return None
        best: list[Statement] = []
        for statement in self._statements:
            if best and statement.weight < best[0].weight:
                break
            loops = statement.loops
            if (not sites or not loops or any(loop in sites for loop in loops)) and statement.fits(line):
                best.append(statement)
        inside = [statement for statement in best if statement.loops[-1:] and statement.loops[-1] in sites]
        places = {(statement.module, statement.line) for statement in inside or best}
        return places.pop() if len(places) == 1 else None


def printers_in(source: bytes, module: str, sites: Iterable[Site]) -> list[Statement]:
    """The calls of a module that print; none where it cannot be read."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    finder = _Finder(module, {site.line: site.key for site in sites})
    try:
        finder.visit(tree)
    except RecursionError:
        return []
    return finder.found


class _Finder(ast.NodeVisitor):
    """Goes through a module with the loop around in mind."""

    def __init__(self, module: str, loops: dict[int, str]) -> None:
        self._module, self._loops = module, loops
        self._around: tuple[str, ...] = ()
        self.found: list[Statement] = []

    def _inside(self, around: tuple[str, ...], nodes: Sequence[ast.AST]) -> None:
        before, self._around = self._around, around
        for node in nodes:
            self.visit(node)
        self._around = before

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, nodes: Sequence[ast.AST]) -> None:
        site = self._loops.get(node.lineno)
        self._inside(self._around if site is None else (*self._around, site), nodes)
        self._inside(self._around, node.orelse)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        self._loop(node, node.body)

    visit_AsyncFor = visit_For  # noqa: N815  the names are ast's

    def visit_While(self, node: ast.While) -> None:
        self._loop(node, [node.test, *node.body])

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._inside((), node.body)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815
    visit_ClassDef = visit_FunctionDef  # noqa: N815

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        options = {each.arg: each.value for each in node.keywords if each.arg}
        where = options.get("file")
        if where is not None and ast.unparse(where) != "sys.stdout":
            return
        is_print = isinstance(node.func, ast.Name) and node.func.id == "print"
        if is_print:
            text = _joined([_text(each) for each in node.args], options.get("sep"))
            end = options.get("end")
            self._add(node, text, open_=end is not None and "\n" not in _text(end))
        elif _name(node.func) == "log" and len(node.args) == 2 and _is_text(node.args[0]):  # florhook.log
            self._add(node, [*_text(node.args[0]), "=", ANYTHING])
        elif node.args:
            text = _given(node.args)
            if ANYTHING in text:
                self._add(node, text, loose=True)

    def _add(self, node: ast.Call, text: Text, loose: bool = False, open_: bool = False) -> None:
        for line in _lines(text):
            pieces = _pieces(line)
            if any(char.isalpha() for piece in pieces for char in piece):
                self.found.append(Statement(self._module, node.lineno, self._around, pieces, loose, open_))


def _name(function: ast.expr) -> str:
    return getattr(function, "attr", "") or getattr(function, "id", "")


def _given(arguments: Sequence[ast.expr]) -> Text:
    """The text that a call is given, if it is one; logging puts further arguments into it."""
    first = arguments[0]
    if len(arguments) > 1 and isinstance(first, ast.Constant) and isinstance(first.value, str):
        return _percent(first.value)
    return _text(first)


def _percent(form: str) -> Text:
    return _cut(_PERCENT, form, lambda match: "%" if match[1] == "%" else ANYTHING)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _joined(texts: list[Text], sep: ast.expr | None) -> Text:
    between: Text = [" "] if sep is None else _text(sep)
    found: Text = []
    for number, text in enumerate(texts):
        found += [*(between if number else []), *text]
    return found


def _lines(text: Text) -> list[Text]:
    """Split where a fixed part has an end of a line; a value is taken to have none."""
    lines: list[Text] = [[]]
    for part in text:
        first, *rest = [part] if part is ANYTHING else part.split("\n")
        lines[-1].append(first)
        lines += [[each] for each in rest]
    return lines


def _pieces(text: Text) -> tuple[str, ...]:
    """The fixed parts: two of them next to each other are one."""
    pieces = [""]
    for part in text:
        if part is ANYTHING:
            pieces.append("")
        else:
            pieces[-1] += part
    return tuple(pieces)


def _text(node: ast.expr) -> Text:
    """What an expression looks like when it is printed."""
    match node:
        case ast.Constant(value=value):
            return [str(value)]
        case ast.JoinedStr(values=values):
            return [part for each in values for part in _text(each)]
        case ast.BinOp(left=ast.Constant(value=str(form)), op=ast.Mod()):
            return _percent(form)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = [*_text(left), *_text(right)]
            return parts if any(_is_string(each) for each in (left, right)) else [ANYTHING]
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(form)), attr="format")):
            return _cut(_BRACES, form, lambda match: match[1][0] if match[1] else ANYTHING)
        case ast.Dict(keys=keys) if keys and all(isinstance(key, ast.Constant) for key in keys):
            names = [repr(key.value) for key in keys if isinstance(key, ast.Constant)]
            inner = [part for name in names for part in (", ", f"{name}: ", ANYTHING)]
            return ["{", *inner[1:], "}"]
    return [ANYTHING]


def _is_string(node: ast.expr) -> bool:
    """Whether adding it makes a text, not a number."""
    return (
        isinstance(node, ast.JoinedStr)
        or _is_text(node)
        or (isinstance(node, ast.BinOp) and any(_is_string(each) for each in (node.left, node.right)))
    )


def _cut(form: re.Pattern[str], text: str, part: Callable[[re.Match[str]], str | None]) -> Text:
    found: Text = []
    at = 0
    for match in form.finditer(text):
        found += [text[at : match.start()], part(match)]
        at = match.end()
    return [*found, text[at:]]
