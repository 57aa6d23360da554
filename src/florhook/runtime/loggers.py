"""What the program hands to libraries that log: `logging`, TensorBoard, Weights & Biases, MLflow and tqdm.

Right after a library's import its functions are made to tell (`hook/tell.py`). No code of the program's runs because
of it: a value is taken where it is a plain number or one of NumPy's or torch's, and a message of `logging` where a
handler has made it, or where what it is made of is plain.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import math
import os
import sys
from collections.abc import Callable, Collection, Iterator
from types import FrameType
from typing import Any

from ..dataclass import dataclass
from . import compiled, probes

PLAIN = (bool, int, float, str, type(None))
MOST_TEXT = 10_000  # characters of a message
SHOWN = ("postfix", "text")  # what a progress bar shows until it shows something else
LOGGING, LOGGED = "logging", "logged"  # a record is about to be handled, and has been


@dataclass(frozen=True)
class Function:
    """One that is to tell: its name in its module, and the arguments of the calls at its begin and its end."""

    path: str
    begin: str
    end: str = ""


def _writer(library: str) -> list[Function]:
    return [
        Function("SummaryWriter.add_scalar", f"'scalar', '{library}', tag, scalar_value, global_step"),
        Function("SummaryWriter.add_scalars", f"'scalars', '{library}', main_tag, tag_scalar_dict, global_step"),
    ]  # fmt: skip


FUNCTIONS = {
    "logging": [Function("Logger.callHandlers", f"'{LOGGING}', record", f"'{LOGGED}', record")],
    "torch.utils.tensorboard.writer": _writer("tensorboard"),
    "tensorboardX.writer": _writer("tensorboardX"),
    "wandb.sdk.wandb_run": [Function("Run.log", "'values', 'wandb', data, step")],
    "mlflow.tracking.fluent": [
        Function("log_metric", "'scalar', 'mlflow', key, value, step"),
        Function("log_metrics", "'values', 'mlflow', metrics, step"),
    ],
    "tqdm.std": [
        Function("tqdm.set_postfix", "'postfix', 'tqdm', ordered_dict, kwargs"),
        Function("tqdm.set_postfix_str", "'text', 'tqdm', s"),
    ],
}


def patches() -> dict[str, Callable[[], None]]:
    """By module: what is to be done once it has been imported."""
    return {name: functools.partial(_make_tell, name, functions) for name, functions in FUNCTIONS.items()}


def _make_tell(name: str, functions: list[Function]) -> None:
    from ..hook.tell import function_of, telling

    module: Any = sys.modules[name]
    with open(module.__file__, encoding="utf-8") as file:
        lines = file.readlines()
    for each in functions:
        function = function_of(module, each.path)
        code = None if function is None else telling(function, lines, probes, each.begin, each.end)
        if function is not None and code is not None:
            function.__code__ = code


@dataclass(frozen=True)
class Said:
    """What was handed to a library.

    `via` is the library, `head` stands before the text where lines are shown, `place` is the file and line of who said
    it. `named` is a JSON list of names and numbers; "" where they are to be found in the text.
    """

    via: str
    head: str
    place: str
    text: str
    named: str


def said(kind: str, arguments: tuple[Any, ...], frame: FrameType, users: Collection[str]) -> Said | None:
    """The same, or None where nothing of it can be told; `frame` is the library's function."""
    if kind == LOGGED:
        (record,) = arguments
        where = f"{os.path.basename(record.pathname)}:{record.lineno}"
        text = _message(record)
        return None if not text else Said("logging", f"{record.levelname} {record.name}", where, text, "")
    via, *rest = arguments
    place = _place(frame, users)
    if kind == "text":
        return Said(via, "", place, rest[0][:MOST_TEXT], "") if type(rest[0]) is str and rest[0] else None
    pairs, step = _pairs(kind, rest)
    text = ", ".join(f"{name}={value}" for name, value in pairs)
    named = [(name, number) for name, value in pairs if (number := _number(value)) is not None]
    behind = f" (step {step})" if type(step) is int else ""
    return Said(via, "", place, text + behind, json.dumps(named)) if pairs else None


def _message(record: Any) -> str | None:
    """The message of a record of `logging`. Making it may run code of the program's: that is left to the handlers."""
    made = vars(record).get("message")
    if type(made) is str:
        return made[:MOST_TEXT]
    return _filled(record.msg, record.args)[:MOST_TEXT] if type(record.msg) is str else None


def _filled(text: str, arguments: Any) -> str:
    """A message with its arguments, where these are plain."""
    if type(arguments) not in (tuple, dict) or not arguments:
        return text
    values = arguments if type(arguments) is tuple else arguments.values()
    if all(type(value) in PLAIN for value in values):
        with contextlib.suppress(TypeError, ValueError, KeyError):
            return str(text % arguments)
    return text


def _place(frame: FrameType, users: Collection[str]) -> str:
    """The innermost line of the program's own that led to a call, or else who called."""
    outer = caller = frame.f_back
    while outer is not None and outer.f_globals.get("__name__") not in users:
        outer = outer.f_back
    found = outer or caller or frame
    return f"{os.path.basename(found.f_code.co_filename)}:{found.f_lineno}"


def _pairs(kind: str, arguments: list[Any]) -> tuple[list[tuple[str, Any]], Any]:
    """Names and plain values, and the step that the program gave."""
    if kind == "scalar":
        name, value, step = arguments
        return list(_flat("", {name: value})), step
    if kind == "scalars":
        name, values, step = arguments
        return list(_flat(f"{name}/", values)), step
    if kind == "postfix":
        ordered, named = arguments
        values = dict(sorted(named.items()))
        return list(itertools.chain(_flat("", ordered), _flat("", values))), None
    values, step = arguments
    return list(_flat("", values)), step


def _flat(front: str, values: Any) -> Iterator[tuple[str, Any]]:
    """Of a dict the plain values; of those in dicts inside it, with a point between the names."""
    if not issubclass(type(values), dict):  # asking the object might call the program's `__class__`
        return
    for name, value in dict.items(values):
        if type(name) is not str:
            continue
        if issubclass(type(value), dict):
            yield from _flat(f"{front}{name}.", value)
        elif (shown := _plain(value)) is not None:
            yield front + name, shown


def _plain(value: Any) -> int | float | str | None:
    """A number or a text, where it is one without any code of the program's; None for all else."""
    kind = type(value)
    if kind in (int, float, str):
        return value  # type: ignore[no-any-return]
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and kind.__module__ == "numpy" and getattr(value, "size", 0) == 1:
        found = value.item()
    elif torch is not None and hasattr(torch, "Tensor") and kind in (torch.Tensor, torch.nn.Parameter):
        if compiled.follower() or value.is_meta or value.numel() != 1:
            return None
        found = value.item()
    else:
        return None
    return found if type(found) in (int, float) else None


def _number(value: int | float | str) -> int | float | None:
    if type(value) is not str:
        return value  # type: ignore[return-value]
    try:
        found = float(value)
    except ValueError:
        return None
    return int(found) if math.isfinite(found) and value.strip().lstrip("+-").isdecimal() else found
