"""Exceptions: arguments, attributes, notes, cause and context. Tracebacks hold frames, which nothing can bring back."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from .attributes import getattr_dict, has_slot, slots_of
from .base import Kind, Registry

if TYPE_CHECKING:
    from ..restore import Loader
    from ..scan import Scan


class Raised(Kind):
    """An exception. It is not made by calling its class, whose `__init__` may want other arguments than `args`."""

    name, how, varies = "exception", "in place", True

    def __init__(self, group: Kind) -> None:
        self.group = group

    def variant(self, obj: Any) -> Kind | None:
        return self.group if hasattr(obj, "exceptions") else self  # the parts of a group cannot be set

    def shell(self, obj: BaseException, scan: Scan) -> type:
        return type(obj)

    def create(self, spec: type, loader: Loader) -> Any:
        new: Any = spec.__new__
        return new(spec)

    def content(self, obj: BaseException, scan: Scan) -> tuple[Any, ...]:
        attributes = tuple((getattr_dict(obj) or {}).items())
        fields = tuple(
            (name, field.__get__(obj)) for name, field in fields_of(type(obj)) if has_slot(field, obj)
        )
        chain = (obj.__cause__, obj.__context__, obj.__suppress_context__)
        return obj.args, attributes, fields, chain, type(obj) if scan.keeps_class(type(obj)) else None

    def apply(self, obj: BaseException, content: tuple[Any, ...], loader: Loader) -> None:
        args, attributes, fields, (cause, context, suppress), _ = content
        obj.args = args
        own = getattr_dict(obj)
        if own is not None:
            own.clear()
            own.update(attributes)
        wanted = dict(fields)
        for name, field in fields_of(type(obj)):
            # Asked for, a field that is not set is None; set to None, it would show.
            if name in wanted and not (has_slot(field, obj) and field.__get__(obj) is wanted[name]):
                field.__set__(obj, wanted[name])
        obj.__cause__, obj.__context__, obj.__suppress_context__ = cause, context, suppress


_FIELDS: dict[type, tuple[tuple[str, Any], ...]] = {}


def fields_of(cls: type) -> tuple[tuple[str, Any], ...]:
    """The fields that an exception's class has in C (`errno`, `filename`, `value`), and its slots."""
    found = _FIELDS.get(cls)
    if found is None:
        in_c = tuple(
            (f"c.{name}", value)
            for base in cls.__mro__
            if base.__module__ == "builtins"
            for name, value in vars(base).items()
            if type(value) is types.MemberDescriptorType and name != "__suppress_context__"
        )
        found = _FIELDS[cls] = (*in_c, *slots_of(cls))
    return found


def register(registry: Registry) -> None:
    registry.add(Raised(registry.reduced), BaseException, derived=True)
