"""The user's classes: data attributes of those that the program defines once, all of those born inside a loop."""

from __future__ import annotations

import abc
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .attributes import getattr_dict
from .base import Kind, Registry

if TYPE_CHECKING:
    from ..restore import Loader
    from ..scan import Scan

METACLASSES = (type, abc.ABCMeta)
OF_THE_CLASS = {"__dict__", "__weakref__", "_abc_impl"}  # made with every class
GIVEN_AT_BIRTH = {"__slots__", "__module__", "__doc__", "__qualname__", "__classcell__"}
OF_ENUMS_AND_TUPLES = {
    "_member_map_",
    "_member_names_",
    "_value2member_map_",
    "_cache",
    "_fields",
    "_field_defaults",
}
OF_MEMBERS = {"_value_", "_name_", "__objclass__", "_sort_order_"}
DEFINITIONS = (
    types.FunctionType,
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
    property,
    staticmethod,
    classmethod,
    types.WrapperDescriptorType,
)


class Class(Kind):
    """Which attributes of a class are state: data. Of a class that no import finds also what its body defines."""

    name, how = "class", "in place"

    def shell(self, obj: type, scan: Scan) -> tuple[Any, ...]:
        from ..scan import is_importable

        own = vars(obj)
        slots = own.get("__slots__", None)
        makes = not is_importable(obj) and type(obj) in METACLASSES
        names = (obj.__name__, obj.__qualname__, obj.__module__, obj.__doc__)
        return (
            *names,
            slots if isinstance(slots, str) else slots and tuple(slots),
            makes,
            type(obj),
            obj.__bases__,
        )

    def create(self, spec: tuple[Any, ...], loader: Loader) -> type:
        from ..restore import CannotRestoreError

        name, qualname, module, doc, slots, makes, metaclass, bases = spec
        if not makes or any(
            "__init_subclass__" in vars(each) for base in bases for each in base.__mro__[:-1]
        ):
            raise CannotRestoreError(f"class {module}.{qualname} was defined inside a loop")
        space = {"__module__": module, "__qualname__": qualname, "__doc__": doc}
        if slots is not None:
            space["__slots__"] = slots
        made: type = metaclass(name, bases, space)
        return made

    def content(self, obj: type, scan: Scan) -> tuple[Any, ...]:
        from ..scan import is_importable

        if not scan.keeps_class(obj):
            return (), (), ()
        data = tuple((name, value) for name, value in vars(obj).items() if is_class_data(name, value, obj))
        return data, () if is_importable(obj) else definitions(obj), tuple(carried(obj))

    def apply(self, obj: type, content: tuple[Any, ...], loader: Loader) -> None:
        data, body, attributes = content
        wanted = dict(data)
        for name, value in list(vars(obj).items()):
            if is_class_data(name, value, obj) and name not in wanted:
                type.__delattr__(obj, name)
        for name, value in {**dict(body), **wanted}.items():
            if vars(obj).get(name, obj) is not value:
                type.__setattr__(obj, name, value)
        now = dict(carriers(obj))
        for name, values in attributes:
            if name in now:
                own = [each for each in now[name] if each not in OF_MEMBERS]
                for each in own:
                    del now[name][each]
                now[name].update(values)


def carriers(cls: type) -> Iterator[tuple[str, dict[str, Any]]]:
    """The methods and enum members of a class, and what they have been given as attributes."""
    for name, value in vars(cls).items():
        method = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
        if isinstance(method, types.FunctionType) and not is_class_data(name, method, cls):
            yield name, vars(method)
    members = vars(cls).get("_member_map_")
    for name, member in members.items() if isinstance(members, dict) else ():
        attributes = getattr_dict(member)
        if attributes is not None:
            yield name, attributes


def carried(cls: type) -> Iterator[tuple[str, tuple[tuple[str, Any], ...]]]:
    """The attributes that are state: by name of the method or member."""
    for name, attributes in carriers(cls):
        found = tuple((each, value) for each, value in attributes.items() if each not in OF_MEMBERS)
        if found:
            yield name, found


def definitions(cls: type) -> tuple[tuple[str, Any], ...]:
    """What the body of a class defines, less what every class is made with."""
    slots = (types.MemberDescriptorType, types.GetSetDescriptorType)
    # What ABCMeta adds comes last in a class that a body made, first in one that is restored.
    names = sorted(vars(cls), key="__abstractmethods__".__eq__)
    return tuple(
        (name, value)
        for name, value in ((name, vars(cls)[name]) for name in names)
        if name not in OF_THE_CLASS | GIVEN_AT_BIRTH
        and not isinstance(value, slots)
        and not is_class_data(name, value, cls)
    )


def is_class_data(name: str, value: Any, owner: type) -> bool:
    """Whether a class attribute is state rather than part of the class's definition."""
    special = name.startswith("_abc_") or (name.startswith("__") and name.endswith("__"))
    if special or name in OF_ENUMS_AND_TUPLES:
        return False
    if isinstance(value, types.FunctionType):
        return value.__qualname__ != f"{owner.__qualname__}.{name}"
    return not isinstance(value, DEFINITIONS)


def register(registry: Registry) -> None:
    registry.add(Class(), type, derived=True)
