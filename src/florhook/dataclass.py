"""The standard library's dataclasses, as far as they are used here, made at a tenth of the time.

A recording starts with about thirty such classes and a replay with about seventy. `dataclasses` compiles some six
methods for each, nearly a millisecond a class, and imports `inspect`: together that was a third of the start-up. Here
the constructor is compiled when the first object is made, and the other methods are the same functions for all
classes. Checkers of types see the standard library's names.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

NAMES = "__florhook_fields__"  # the names of a class's fields, in order
MISSING = object()


class _Field:
    def __init__(self, default: Any, default_factory: Callable[[], Any] | None, repr: bool) -> None:  # noqa: A002
        self.default, self.default_factory, self.repr = default, default_factory, repr


def _field(
    *,
    default: Any = MISSING,
    default_factory: Callable[[], Any] | None = None,
    repr: bool = True,  # noqa: A002
) -> Any:
    return _Field(default, default_factory, repr)


def _dataclass(cls: type | None = None, /, *, frozen: bool = False, eq: bool = True) -> Any:
    """As `dataclasses.dataclass`; of a class that inherits from no other such class."""
    if cls is None:
        return lambda decorated: _made(decorated, frozen, eq)
    return _made(cls, frozen, eq)


def _made(cls: type, frozen: bool, eq: bool) -> type:
    names = tuple(cls.__dict__.get("__annotations__", {}))  # noqa: RUF063  inspect is what is not imported here
    fields: dict[str, _Field] = {}
    for name in names:
        found = cls.__dict__.get(name, MISSING)
        field = fields[name] = found if isinstance(found, _Field) else _Field(found, None, True)
        if field is found:
            if field.default is MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, field.default)
    methods: dict[str, Any] = {
        NAMES: names,
        "__match_args__": names,
        "__init__": _first_init(cls, fields, frozen),
        "__repr__": _repr_of([name for name in names if fields[name].repr]),
    }
    if frozen:
        methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
    if eq:
        values = _values_of(names)
        methods["__eq__"] = _eq_of(values)
        methods["__hash__"] = (lambda self: hash(values(self))) if frozen else None
    for name, method in methods.items():
        if name not in cls.__dict__ or name in ("__hash__", NAMES):
            setattr(cls, name, method)
    return cls


def _first_init(cls: type, fields: dict[str, _Field], frozen: bool) -> Callable[..., None]:
    """A constructor that puts the compiled one in its place and calls that."""

    def first(self: Any, *args: Any, **kwargs: Any) -> None:
        if cls.__dict__["__init__"] is first:
            cls.__init__ = _compiled_init(cls, fields, frozen)  # type: ignore[misc]
        cls.__dict__["__init__"](self, *args, **kwargs)

    return first


def _compiled_init(cls: type, fields: dict[str, _Field], frozen: bool) -> Callable[..., None]:
    parameters, body = ["self"], []
    names: dict[str, Any] = {"_set": object.__setattr__}
    for name, field in fields.items():
        value = name
        if field.default_factory is not None:
            names[f"_make_{name}"], names["_none"] = field.default_factory, MISSING
            parameters.append(f"{name}=_none")
            value = f"_make_{name}() if {name} is _none else {name}"
        elif field.default is not MISSING:
            names[f"_default_{name}"] = field.default
            parameters.append(f"{name}=_default_{name}")
        else:
            parameters.append(name)
        body.append(f"    _set(self, {name!r}, {value})" if frozen else f"    self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("    self.__post_init__()")
    made: dict[str, Any] = {}
    exec(f"def __init__({', '.join(parameters)}):\n" + "\n".join(body or ["    pass"]), names, made)
    made["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    return made["__init__"]  # type: ignore[no-any-return]


def _values_of(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _eq_of(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, Any], Any]:
    def equal(self: Any, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return equal


def _repr_of(names: list[str]) -> Callable[[Any], str]:
    def shown(self: Any) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({values})"

    return shown


def _refuse_to_set(self: Any, name: str, value: Any) -> None:
    raise AttributeError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise AttributeError(f"cannot delete field {name!r}")


def _replace(obj: Any, /, **changes: Any) -> Any:
    """The same object with other values of some fields."""
    return type(obj)(**{name: getattr(obj, name) for name in getattr(obj, NAMES)} | changes)


def _astuple(obj: Any) -> tuple[Any, ...]:
    """The fields' values themselves: unlike the standard library's, nothing in them is copied or converted."""
    return tuple([getattr(obj, name) for name in getattr(obj, NAMES)])


def _asdict(obj: Any) -> Any:
    """Its fields by name; objects in them, and in lists, tuples and dictionaries of them, likewise."""
    if hasattr(type(obj), NAMES):
        return {name: _asdict(getattr(obj, name)) for name in getattr(obj, NAMES)}
    if isinstance(obj, (list, tuple)):
        return type(obj)([_asdict(item) for item in obj])
    if isinstance(obj, dict):
        return {key: _asdict(value) for key, value in obj.items()}
    return obj


if TYPE_CHECKING:
    from dataclasses import asdict, astuple, dataclass, field, replace
else:
    asdict, astuple, dataclass, field, replace = _asdict, _astuple, _dataclass, _field, _replace

__all__ = ["asdict", "astuple", "dataclass", "field", "replace"]
