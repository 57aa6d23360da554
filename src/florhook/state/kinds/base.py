"""What a kind of object is, and the registry that finds the kind of a type."""

from __future__ import annotations

import copyreg
import functools
import types
import weakref
from typing import TYPE_CHECKING, Any

from .drawn import TAKEN_APART
from .opaque import fingerprint, is_resource

if TYPE_CHECKING:
    from ..restore import Loader
    from ..scan import Scan

HEAP_TYPE = 1 << 9
POINTER = 8


class Kind:
    """How objects of some types are captured and restored.

    `content(obj, scan)` gives the state as plain tuples, in which other objects appear as themselves (the scan
    turns them into references). `apply(obj, content, loader)` puts it into the live object. `shell(obj, scan)`
    describes the empty object in plain values and `create(spec, loader)` makes it.
    """

    name = "opaque"
    how = "opaque"  # "in place" | "by value" | "re-driven" | "opaque"
    moves = False  # an iterator, which is brought to a place by running it
    late = 0  # when it is applied: 1 after 0, since what is hashed asks its items' contents; then 2; settings last
    varies = False  # whether objects of one type are of several kinds, which `variant` tells
    alike = (
        False  # whether all of an object is restored in place, so that another of its type can stand for it
    )
    reads = False  # whether making one reads what it is made from, which must have its content by then

    def variant(self, obj: Any) -> Kind | None:
        """The kind of this very object; None for a value."""
        return self

    def key(self, obj: Any) -> Any:
        """What identifies the object while it lives."""
        return id(obj)

    def same(self, obj: Any) -> Any:
        """What an object at the address of one that is gone must share with it to be taken for it.

        None where only a weak reference can tell, since not everything of the object is restored in place.
        """
        return True if self.alike else None

    def waits(self, spec: Any) -> bool:
        """Whether making one from this shell reads what it is made from, which must have its content by then."""
        return self.reads

    def shell(self, obj: Any, scan: Scan) -> Any:
        return None

    def create(self, spec: Any, loader: Loader) -> Any:
        raise NotImplementedError(self.name)

    def content(self, obj: Any, scan: Scan) -> Any:
        return None

    def glance(self, obj: Any) -> str:
        """What can be seen of one at once, that no attribute shows: it tells the items of a set apart."""
        return ""

    def prepare(self, obj: Any, content: Any, loader: Loader) -> None:
        """Applied before anything else: what others' contents must find in its final shape."""

    def apply(self, obj: Any, content: Any, loader: Loader) -> None:
        """Put the content into the live object."""


class Opaque(Kind):
    """What cannot be captured: a live one stays as it is, a new one becomes a placeholder."""

    def content(self, obj: Any, scan: Scan) -> None:
        mark = fingerprint(obj)
        if mark is not None:
            scan.note_external(obj, mark)

    def shell(self, obj: Any, scan: Scan) -> str:
        return f"{type(obj).__module__}.{type(obj).__qualname__}"

    def create(self, spec: str, loader: Loader) -> Any:
        return loader.missing(spec)


class Reduced(Kind):
    """An object that is not written in Python but that pickle can take apart: made anew from its parts."""

    name, how, late, reads = "reduced", "by value", 2, True

    def shell(self, obj: Any, scan: Scan) -> Any:
        return scan.once(obj, reduce)[:2]  # another time it might name other objects

    def create(self, spec: Any, loader: Loader) -> Any:
        make, arguments = spec
        return make(*arguments)

    def content(self, obj: Any, scan: Scan) -> Any:
        make, arguments, state, items, pairs, setter = (*scan.once(obj, reduce), None, None, None, None)[:6]
        return make, arguments, flat(state), tuple(items or ()), tuple(pairs or ()), setter

    def apply(self, obj: Any, content: Any, loader: Loader) -> None:
        finish(obj, *content[2:])


def flat(state: Any) -> Any:
    """A state as pickle has it, its dicts as tuples: a dict would be an object with contents of its own."""
    if type(state) is dict:
        return ("dict", tuple(state.items()))
    if type(state) is tuple and len(state) == 2 and {type(part) for part in state} <= {dict, type(None)}:
        return ("slots", flat(state[0]), flat(state[1]))
    return ("state", state)


def unflat(state: Any) -> Any:
    if state[0] == "dict":
        return dict(state[1])
    return (unflat(state[1]), unflat(state[2])) if state[0] == "slots" else state[1]


def finish(obj: Any, flat_state: Any, items: Any, pairs: Any, setter: Any) -> Any:
    """Give an object that was made the rest of what pickle took it apart into."""
    state = unflat(flat_state)
    if state is not None:
        if setter is not None:
            setter(obj, state)
        elif hasattr(type(obj), "__setstate__"):  # a `__getattr__` may ask what is not there yet
            obj.__setstate__(state)
        else:
            attributes, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
            vars(obj).update(attributes or {})
            for name, value in (slots or {}).items():
                setattr(obj, name, value)
    for item in items:
        obj.append(item)
    for key, value in pairs:
        obj[key] = value
    return obj


def rebuild(make: Any, arguments: Any, *rest: Any) -> Any:
    """Make a value with a state of its own."""
    return finish(make(*arguments), *rest)


class Missing:
    """Stands for a new object that could not be captured; says so when the program touches it.

    `touched` is asked whether a use counts: while a restore is still going on, a placeholder may be put into sets.
    """

    __slots__ = ("__weakref__", "_florhook")

    def __init__(self, kind: str, touched: Any) -> None:
        object.__setattr__(self, "_florhook", (kind, touched))

    def _refuse(self, *_: Any, **__: Any) -> Any:
        kind, touched = object.__getattribute__(self, "_florhook")
        touched(f"the program uses an object of type {kind}, which no checkpoint holds")

    def __hash__(self) -> int:
        self._refuse()
        return id(self)

    def __eq__(self, other: object) -> bool:
        self._refuse()
        return self is other

    def __getattr__(self, name: str) -> Any:
        return self._refuse()

    # `isinstance` asks for it once the type alone did not answer.
    __class__ = property(_refuse)


_USES = """
    call iter next reversed len length_hint getitem setitem delitem contains enter exit aenter aexit aiter anext await
    setattr delattr repr str bytes format bool int float complex index round trunc floor ceil lt le gt ge neg pos abs
    invert reduce reduce_ex copy deepcopy dir fspath
    add sub mul matmul truediv floordiv mod divmod pow lshift rshift and or xor
    radd rsub rmul rmatmul rtruediv rfloordiv rmod rdivmod rpow rlshift rrshift rand ror rxor
    iadd isub imul imatmul itruediv ifloordiv imod ipow ilshift irshift iand ior ixor
"""
for _use in _USES.split():
    setattr(Missing, f"__{_use}__", Missing._refuse)


class Registry:
    """Finds the kind of a type: registered itself, by a class that it derives from, or by what can be asked of it.

    None stands for values that pickle holds by itself (numbers, strings, tuples, ...).
    """

    def __init__(self) -> None:
        self.exact: dict[type, Kind | None] = {Missing: Opaque()}
        self.derived: list[tuple[type, Kind]] = []
        self.found: dict[type, Kind | None] = {}
        self.opaque = Opaque()
        self.reduced = Reduced()
        self.by_name: dict[str, Kind] = {"opaque": self.opaque, "reduced": self.reduced}

    def add(self, kind: Kind, *types: type, derived: bool = False) -> None:
        self.by_name[kind.name] = kind
        for each in types:
            self.exact[each] = kind
            if derived:
                self.derived.insert(0, (each, kind))
        self.found.clear()

    def alias(self, kind: Kind, *types: type) -> None:
        """A kind that is made as another of its name is."""
        self.exact.update(dict.fromkeys(types, kind))
        self.found.clear()

    def plain(self, *types: type) -> None:
        for each in types:
            self.exact[each] = None

    def of(self, obj: Any) -> Kind | None:
        cls = type(obj)
        try:
            return self.found[cls]
        except KeyError:
            kind = self.found[cls] = self._find(cls, obj)
            return kind

    def _find(self, cls: type, obj: Any) -> Kind | None:
        if cls in self.exact:
            return self.exact[cls]
        if is_resource(cls):
            return self.opaque
        for base, kind in self.derived:
            if issubclass(cls, base):
                return kind
        if is_value_class(cls):
            return None
        if is_python_class(cls):
            return self.by_name["instance"]
        try:
            reduced = reduce(obj)
        except Exception:
            return self.opaque
        return None if isinstance(reduced, str) else self.reduced


@functools.cache
def is_python_class(cls: type) -> bool:
    """Whether all of an instance's state lies in its `__dict__` and slots (and `object`'s header)."""
    while cls is not object:
        base = cls.__base__
        if not cls.__flags__ & HEAP_TYPE or base is None:
            return False
        own = vars(cls)
        slots = sum(type(value).__name__ == "member_descriptor" for value in own.values())
        allowed = POINTER * (slots + ("__dict__" in own) + ("__weakref__" in own))
        if cls.__basicsize__ - base.__basicsize__ > allowed or cls.__itemsize__ != base.__itemsize__:
            return False
        cls = base
    return True


def is_value_class(cls: type) -> bool:
    """Classes whose instances are values, pickled as such: enum members, paths, numbers, named tuples."""
    if hasattr(cls, "__members__") or issubclass(cls, (tuple, frozenset, str, int, float, bytes)):
        return True
    return str(cls.__module__).partition(".")[0] in {
        "pathlib",
        "datetime",
        "decimal",
        "fractions",
        "uuid",
        "typing",
        "re",
    }


def reduce(obj: Any) -> Any:
    """What pickle makes of an object: its global name or (callable, arguments, state, ...)."""
    function = copyreg.dispatch_table.get(type(obj)) or TAKEN_APART.get(type(obj))
    reduced = function(obj) if function else obj.__reduce_ex__(5)
    complete = isinstance(reduced, str) or tuple(reduced)[2:3] not in ((), (None,))
    if complete or isinstance(obj, BaseException):  # to ask an exception for its dict makes one
        return reduced
    # Some types written in C, such as dates, forget what a class derived from them adds.
    attributes = getattr(obj, "__dict__", None) if type(obj).__flags__ & HEAP_TYPE else None
    own = any(
        isinstance(getattr(type(obj), name), types.FunctionType) for name in ("__reduce__", "__reduce_ex__")
    )
    if type(attributes) is not dict or not attributes or own:
        return reduced
    parts: list[Any] = [*reduced]
    return (*parts[:2], dict(attributes), *parts[3:])


def live_reference(obj: Any) -> weakref.ref[Any] | None:
    """A weak reference, where the type has them."""
    try:
        return weakref.ref(obj)
    except TypeError:
        return None
