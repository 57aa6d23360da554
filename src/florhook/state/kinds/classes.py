"""The user's classes: their attributes, methods included, since a program can put others in their place.

What was added since the record is no state: a method that a probe calls.
"""

from __future__ import annotations

import abc
import collections
import operator
import sys
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from .attributes import getattr_dict
from .base import Kind, Registry

if TYPE_CHECKING:
    from ..restore import Loader
    from ..scan import Environment, Scan

OF_ABC: Any = abc  # whose C functions are named nowhere else
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
OF_NAMED_TUPLES = set(vars(collections.namedtuple("Example", ())))
REGISTERED = "<registered>"  # which no method is called
OF_MEMBERS = {"_value_", "_name_", "__objclass__", "_sort_order_"}
DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType)
WRAPPERS = (staticmethod, classmethod)
DEFINITIONS = (types.FunctionType, property, *WRAPPERS, *DESCRIPTORS)


class Class(Kind):
    """Its attributes: data and methods. A class that no import finds is made with them."""

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
            fields_of(obj) if makes else None,
        )

    def create(self, spec: tuple[Any, ...], loader: Loader) -> type:
        from ..restore import CannotRestoreError

        name, qualname, module, doc, slots, makes, metaclass, bases, fields = spec
        if not makes or any(
            "__init_subclass__" in vars(each) for base in bases for each in base.__mro__[:-1]
        ):
            raise CannotRestoreError(f"class {module}.{qualname} was defined inside a loop")
        if fields is not None:
            make: Any = collections.namedtuple
            named = make(name, fields[0], module=module)
            named.__new__.__defaults__ = defaults = fields[1]
            named._field_defaults = dict(
                zip(fields[0][len(fields[0]) - len(defaults) :], defaults, strict=True)
            )
            named.__qualname__, named.__doc__ = qualname, doc
            return cast(type, named)
        space = {"__module__": module, "__qualname__": qualname, "__doc__": doc}
        if slots is not None:
            space["__slots__"] = slots
        made: type = metaclass(name, bases, space)
        return made

    def content(self, obj: type, scan: Scan) -> tuple[Any, ...]:
        from ..scan import is_importable

        if not scan.keeps_class(obj):
            return (), (), ()
        if is_importable(obj):
            return attributes_of(obj, scan.environment), None, tuple(carried(obj))
        data = tuple((name, value) for name, value in vars(obj).items() if is_class_data(name, value, obj))
        return data, definitions(obj), tuple(carried(obj))

    def apply(self, obj: type, content: tuple[Any, ...], loader: Loader) -> None:
        data, body, attributes = content
        wanted = {**dict(body or ()), **dict(data)}
        for name, value in attributes_of(obj, loader.environment):
            # Runs of before methods were state have () for the body, and none among the data.
            if name not in wanted and (body is None or is_class_data(name, value, obj)):
                type.__delattr__(obj, name)
        for name, value in wanted.items():
            if not is_same(vars(obj).get(name, obj), value):
                type.__setattr__(obj, name, value)
        now = dict(carriers(obj))
        register_only(obj, [value for _, value in dict(attributes).get(REGISTERED, ())])
        for name, values in attributes:
            if name in now:
                own = [each for each in now[name] if each not in OF_MEMBERS]
                for each in own:
                    del now[name][each]
                now[name].update(values)


def attributes_of(cls: type, environment: Environment) -> tuple[tuple[str, Any], ...]:
    """Its data and its methods, less those that were added since the record or that nothing can make anew."""
    return tuple(
        (name, value)
        for name, value in vars(cls).items()
        if is_class_data(name, value, cls)
        or (
            is_definition(name, value)
            and not was_added(value, cls.__module__, environment)
            and all(map(runs_in_a_module, functions_of(value)))
        )
    )


def is_same(one: Any, other: Any) -> bool:
    """Properties and the like are made anew by a restore: one of the same functions is as good as another."""
    if one is other or type(one) is not type(other):
        return one is other
    if type(one) in WRAPPERS:
        return one.__func__ is other.__func__
    return type(one) is property and all(map(operator.is_, functions_of(one), functions_of(other)))


def functions_of(definition: Any) -> tuple[Any, ...]:
    if isinstance(definition, property):
        return definition.fget, definition.fset, definition.fdel
    return (definition.__func__ if isinstance(definition, WRAPPERS) else definition,)


def was_added(definition: Any, module: str, environment: Environment) -> bool:
    """Whether it is of the module's own source, but has no place in the recorded one."""
    source = getattr(sys.modules.get(module), "__file__", None)
    codes = [each.__code__ for each in functions_of(definition) if isinstance(each, types.FunctionType)]
    return any(code.co_filename == source and environment.code_key(code) is None for code in codes)


def runs_in_a_module(function: Any) -> bool:
    """Whether a function has a module's globals. Those of a named tuple have a dictionary of their own."""
    if not isinstance(function, types.FunctionType):
        return True
    space = function.__globals__
    return space is vars(sys.modules.get(str(space.get("__name__")), object))


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
    virtual = registered(cls)
    if virtual:
        yield REGISTERED, tuple((str(number), each) for number, each in enumerate(virtual))


def registered(cls: type) -> list[type]:
    """The classes that an abstract one was told to take for its subclasses, in an order that any process has."""
    if not isinstance(cls, abc.ABCMeta):
        return []
    found = [each for each in (reference() for reference in OF_ABC._get_dump(cls)[0]) if each is not None]
    return sorted(found, key=lambda each: (each.__module__, each.__qualname__))


def register_only(cls: type, wanted: list[type]) -> None:
    if registered(cls) != wanted:
        OF_ABC._reset_registry(cls)
        OF_ABC._reset_caches(cls)
        for each in wanted:
            abc.ABCMeta.register(cls, each)  # type: ignore[arg-type]


def fields_of(cls: type) -> tuple[tuple[str, ...], tuple[Any, ...]] | None:
    """The names of a named tuple's fields, and the defaults of the last of them; None for another class.

    Its values ask its `__new__`, which is there only if it is made as `namedtuple` makes them.
    """
    fields, defaults = vars(cls).get("_fields"), vars(cls).get("_field_defaults")
    if cls.__bases__ != (tuple,) or type(fields) is not tuple or type(defaults) is not dict:
        return None
    return fields, tuple(defaults.values())


def definitions(cls: type) -> tuple[tuple[str, Any], ...]:
    """What the body of a class defines, less what every class is made with."""
    slots = (types.MemberDescriptorType, types.GetSetDescriptorType)
    born = OF_THE_CLASS | GIVEN_AT_BIRTH | (set() if fields_of(cls) is None else OF_NAMED_TUPLES)
    # What ABCMeta adds comes last in a class that a body made, first in one that is restored.
    names = sorted(vars(cls), key="__abstractmethods__".__eq__)
    return tuple(
        (name, value)
        for name, value in ((name, vars(cls)[name]) for name in names)
        if name not in born and not isinstance(value, slots) and not is_class_data(name, value, cls)
    )


def is_class_data(name: str, value: Any, owner: type) -> bool:
    """Whether a class attribute is state rather than part of the class's definition."""
    special = name.startswith("_abc_") or (name.startswith("__") and name.endswith("__"))
    if special or name in OF_ENUMS_AND_TUPLES:
        return False
    if isinstance(value, types.FunctionType):
        return value.__qualname__ != f"{owner.__qualname__}.{name}"
    return not isinstance(value, DEFINITIONS)


def is_definition(name: str, value: Any) -> bool:
    """Whether a class attribute is a method or the like, which the program can put another in the place of."""
    ours = isinstance(value, DEFINITIONS) and not isinstance(value, DESCRIPTORS)
    return ours and name not in OF_ENUMS_AND_TUPLES and not name.startswith("_abc_")


def register(registry: Registry) -> None:
    registry.add(Class(), type, derived=True)
