"""`train.py:57:loss.item(), acc if epoch > 3`: a probe named on the command line, as a debugger's logpoint."""

from __future__ import annotations

import ast
import re

from ..dataclass import dataclass
from ..errors import UsageError

FORM = "a probe is FILE:LINE:EXPRESSION, or FILE:LINE:EXPRESSION if CONDITION"


@dataclass(frozen=True)
class Logpoint:
    """What is shown before a line of a file runs; `condition` is empty where it always is."""

    file: str
    line: int
    expressions: tuple[str, ...]
    condition: str = ""

    @property
    def said(self) -> str:
        """What is shown, and when."""
        return ", ".join(self.expressions) + (f" if {self.condition}" if self.condition else "")

    @property
    def code(self) -> str:
        """The statement that shows it. What goes wrong in an expression is told, and changes nothing."""
        pairs = ", ".join(f"({text!r}, {text})" for text in self.expressions)
        show = f"__flor__.show({pairs})"
        if self.condition:
            show = f"if {self.condition}: {show}"
        place = f"{self.file}:{self.line}"
        return f"try:\n    {show}\nexcept (Exception, SystemExit):\n    __flor__.cannot_show({place!r})"


@dataclass(frozen=True)
class Search:
    """`--until`: an expression, and where it is asked for if not after each iteration."""

    text: str
    file: str = ""
    line: int = 0

    @property
    def said(self) -> str:
        """What is asked."""
        return self.text

    @property
    def code(self) -> str:
        """The statement that asks; a name that is not bound yet is no answer."""
        return f"try:\n    if {self.text}: __flor__.found({self.text!r})\nexcept NameError:\n    pass"


def parse_logpoint(text: str) -> Logpoint:
    match = re.fullmatch(r"(.+?):(\d+):(.*\S.*)", text, re.DOTALL)
    if match is None:
        raise UsageError(f"--probe: {text!r}: {FORM}")
    what = match[3].strip()
    shown = _expression(what)
    if shown is not None:
        return Logpoint(match[1], int(match[2]), _parts(what, shown))
    for cut in re.finditer(r"\sif\s", what):
        before, condition = what[: cut.start()].strip(), what[cut.end() :].strip()
        shown = _expression(before)
        if shown is not None and _expression(condition) is not None:
            return Logpoint(match[1], int(match[2]), _parts(before, shown), condition)
    raise UsageError(f"--probe: {what!r} is no expression of Python's; {FORM}")


def parse_search(text: str) -> Search:
    """An expression alone, or FILE:LINE:EXPRESSION."""
    what = text.strip()
    if _expression(what) is not None:
        return Search(what)
    match = re.fullmatch(r"(.+?):(\d+):(.*\S.*)", text, re.DOTALL)
    if match is None or _expression(match[3].strip()) is None:
        raise UsageError(f"--until: {text!r} is no expression of Python's, nor FILE:LINE:EXPRESSION")
    return Search(match[3].strip(), match[1], int(match[2]))


def _expression(text: str) -> ast.expr | None:
    """None too for what must not stand here: it would bind names, or hand over control."""
    if "\n" in text:
        return None
    try:
        found = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    forbidden = (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)
    return None if any(isinstance(node, forbidden) for node in ast.walk(found)) else found


def _parts(text: str, shown: ast.expr) -> tuple[str, ...]:
    """Several expressions, if they are listed without parentheses."""
    if isinstance(shown, ast.Tuple) and shown.elts and shown.elts[0].col_offset == shown.col_offset:
        return tuple(ast.get_source_segment(text, part) or ast.unparse(part) for part in shown.elts)
    return (text,)
