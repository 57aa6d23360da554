"""NumPy's arrays, views included, and random states. Imported only once the program has imported numpy."""

from __future__ import annotations

import ctypes
import pickle
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

try:
    from numpy.lib.array_utils import byte_bounds
except ImportError:  # before NumPy 2
    byte_bounds = getattr(np, "byte_bounds")  # noqa: B009

from .attributes import getattr_dict
from .base import Kind, Opaque, Registry
from .builtin import found_at_home
from .opaque import UNKNOWN
from .settings import Setting, World, add_world
from .special import SPECIAL

if TYPE_CHECKING:
    from ..restore import Loader
    from ..scan import Scan


class NdArray(Kind):
    """An array that owns its memory, or a view, which is a place in the memory of its base."""

    name, how, varies = "numpy.ndarray", "in place", True

    def variant(self, obj: Any) -> Kind:
        if obj.base is None:
            return self
        return MAPPED if is_mapped(obj) else (self if has_known_memory(obj) else NOBODYS)

    def same(self, obj: Any) -> Any:
        # No weak reference: `ndarray.resize` refuses an array that has one. An array in C's order with memory of its
        # own can be resized in place to any other.
        if obj.base is None and obj.flags.c_contiguous:
            return obj.dtype.str
        return obj.dtype.str, obj.shape, obj.strides, address_of(obj), id(obj.base)

    def shell(self, obj: Any, scan: Scan) -> Any:
        base = owner_of(obj)
        geometry = (type(obj), obj.dtype, obj.shape, obj.strides)
        home = None if type(obj) is np.ndarray else scan.home_of(obj)  # numpy.ma.masked
        return *geometry, home, base, 0 if base is None else offset_in(obj, base)

    def waits(self, spec: Any) -> bool:
        # A view is a place in memory that its base has only once it has its recorded size.
        return isinstance(spec[5], np.ndarray)

    def create(self, spec: Any, loader: Loader) -> Any:
        cls, dtype, shape, strides, home, base, offset = spec
        dtype = the_one_of(dtype)
        if home is not None:
            return found_at_home(*home)
        if base is not None:
            return view_of(base, dtype, shape, strides, offset).view(cls)
        if dtype.char == "T":  # text of any length lies in memory that no stride leads to
            return np.empty(shape, dtype)
        # Memory of its own, in the recorded order of axes (Fortran's, or permuted).
        model = np.lib.stride_tricks.as_strided(np.empty(1, dtype), shape, strides)
        return np.empty_like(model.view(cls), order="K")

    def content(self, obj: Any, scan: Scan) -> Any:
        base = owner_of(obj)
        attributes = None if type(obj) is np.ndarray else tuple((getattr_dict(obj) or {}).items())
        geometry = (obj.dtype, obj.shape, obj.flags.writeable, attributes)
        if base is not None:
            tell_what_shows(obj, base, scan)
            return (*geometry, base, offset_in(obj, base), None)
        if obj.dtype.hasobject:
            return (*geometry, None, 0, fields_of(obj.view(np.ndarray)))
        address = obj.__array_interface__["data"][0]
        return (*geometry, None, 0, scan.memory(("array", address), address, obj.nbytes))

    def glance(self, obj: Any) -> str:
        return f"{obj.dtype} {obj.shape} {obj.strides}"  # arrays have no hash: they stand in what a set holds

    def apply(self, obj: Any, content: Any, loader: Loader) -> None:
        dtype, shape, writeable, attributes, base, _, data = content
        if base is None:
            if obj.dtype != dtype or obj.shape != shape:
                reshape_in_place(obj, dtype, shape)
            self._fill(obj, data, loader)
        own = None if attributes is None else getattr_dict(obj)
        if own is not None:
            own.clear()
            own.update(attributes)
        if obj.flags.writeable != writeable:
            obj.flags.writeable = writeable

    @staticmethod
    def _fill(obj: Any, data: Any, loader: Loader) -> None:
        if not obj.dtype.hasobject:
            if obj.nbytes:
                loader.copy_to(obj.__array_interface__["data"][0], obj.nbytes, data)
            return
        if not obj.flags.writeable:
            obj.flags.writeable = True
        put_fields(obj.view(np.ndarray), data)


def the_one_of(dtype: Any) -> Any:
    """NumPy's own object for a type, where it has one, which a pickle copies.

    Of an array with a copy, `np.asarray` with that type makes another array.
    """
    own = np.dtype(dtype.char)
    return own if own == dtype and not dtype.metadata else dtype


def fields_of(array: Any) -> Any:
    """The items of an array of objects; those of a structured one field by field, fields without objects as bytes."""
    if not array.dtype.hasobject:
        return array.tobytes()
    if array.dtype.names:
        return tuple(fields_of(array[name]) for name in array.dtype.names)
    return tuple(array.ravel().tolist())


def put_fields(array: Any, data: Any) -> None:
    if not array.dtype.hasobject:
        array[...] = np.frombuffer(data, array.dtype).reshape(array.shape)
    elif array.dtype.names:
        for name, each in zip(array.dtype.names, data, strict=True):
            put_fields(array[name], each)
    else:
        # Assigning items one by one, or all as a list, would take arrays and lists among them apart.
        array[...] = np.fromiter(data, dtype=object, count=len(data)).reshape(array.shape)


class Mapped(Opaque):
    """An array over a mapped file or shared memory: one that is only read is what the file is."""

    name = "mapped numpy.ndarray"

    def content(self, obj: Any, scan: Scan) -> None:
        if obj.flags.writeable:
            scan.note_external(obj, UNKNOWN)


MAPPED = Mapped()


class Nobodys(Opaque):
    """An array over memory that nobody names, with gaps or overlaps: what lies there cannot be told."""

    name = "nobody's numpy.ndarray"

    def content(self, obj: Any, scan: Scan) -> None:
        scan.note_external(obj, UNKNOWN)


NOBODYS = Nobodys()


def has_known_memory(obj: Any) -> bool:
    return obj.flags.c_contiguous or obj.flags.f_contiguous or owner_of(obj) is not None


def is_mapped(array: Any) -> bool:
    base = array.base
    while isinstance(base, (np.ndarray, memoryview)):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return type(base).__module__ in ("mmap", "_ctypes") or isinstance(base, ctypes.Array)


class Generator(Kind):
    """Its bit generator, which another at its address may have had: it has no weak reference that could tell."""

    name, how, alike = "numpy.random.Generator", "in place", True

    def shell(self, obj: Any, scan: Scan) -> Any:
        return obj.bit_generator

    def create(self, spec: Any, loader: Loader) -> Any:
        return np.random.Generator(spec)

    def content(self, obj: Any, scan: Scan) -> Any:
        return obj.bit_generator

    def apply(self, obj: Any, content: Any, loader: Loader) -> None:
        if obj.bit_generator is not content:
            obj.__init__(content)


class SeedSequence(Kind):
    """What it was made from, and how many children it has."""

    name, how, alike = "numpy.random.SeedSequence", "in place", True

    def create(self, spec: Any, loader: Loader) -> Any:
        return np.random.SeedSequence(0)

    def content(self, obj: Any, scan: Scan) -> Any:
        return freeze({str(number): part for number, part in enumerate(obj.__reduce__()[2])})

    def apply(self, obj: Any, content: Any, loader: Loader) -> None:
        obj.__setstate_cython__(tuple(thaw(content).values()))


class BitGenerator(Kind):
    """Its state, and the seed sequence that its children come from."""

    name, how, alike = "numpy.random.BitGenerator", "in place", True

    def shell(self, obj: Any, scan: Scan) -> type:
        return type(obj)

    def create(self, spec: type, loader: Loader) -> Any:
        return spec()

    def content(self, obj: Any, scan: Scan) -> Any:
        return freeze(obj.state), seeds_of(obj)

    def apply(self, obj: Any, content: Any, loader: Loader) -> None:
        state, seeds = content
        if seeds is not seeds_of(obj):
            obj.__setstate__((thaw(state), seeds))
        obj.state = thaw(state)


def seeds_of(obj: Any) -> Any:
    return getattr(obj, "seed_seq", None) if hasattr(obj, "seed_seq") else getattr(obj, "_seed_seq", None)


class RandomState(Kind):
    """Its bit generator, which others may draw from too, and a normal deviate kept over.

    Of `numpy.random`'s own only the state: it was seeded by the system, in each process otherwise.
    """

    name, how, alike = "numpy.random.RandomState", "in place", True

    def shell(self, obj: Any, scan: Scan) -> Any:
        return obj._bit_generator

    def create(self, spec: Any, loader: Loader) -> Any:
        return np.random.RandomState(spec)

    def content(self, obj: Any, scan: Scan) -> Any:
        state = obj.get_state(legacy=False)
        if obj is np.random.mtrand._rand:
            return None, freeze(state)
        return obj._bit_generator, (state["has_gauss"], state["gauss"])

    def apply(self, obj: Any, content: Any, loader: Loader) -> None:
        bits, rest = content
        if bits is None:
            obj.set_state(thaw(rest))
            return
        if obj._bit_generator is not bits:
            obj.__init__(bits)
        obj.set_state({**bits.state, "has_gauss": rest[0], "gauss": rest[1]})


def freeze(state: Any) -> Any:
    """A state dict as nested tuples, arrays as bytes."""
    if isinstance(state, dict):
        return ("dict", tuple((key, freeze(value)) for key, value in state.items()))
    if isinstance(state, np.ndarray):
        return ("array", state.dtype.str, state.shape, state.tobytes())
    return ("value", state)


def thaw(frozen: Any) -> Any:
    if frozen[0] == "dict":
        return {key: thaw(value) for key, value in frozen[1]}
    if frozen[0] == "array":
        return np.frombuffer(frozen[3], frozen[1]).reshape(frozen[2]).copy()
    return frozen[1]


def owner_of(obj: Any) -> Any:
    """The object in whose memory a view lies; None for an array with memory of its own (or that nobody names)."""
    base, array = obj.base, None
    while True:
        if isinstance(base, np.ndarray):
            array = base
        # `as_strided` puts an object of its own between a view and the array.
        passes = array is base or hasattr(base, "__array_interface__")
        under = getattr(base, "base", None) if passes else None
        if under is None:
            break
        base = under
    if isinstance(base, (np.ndarray, bytearray)):
        return base
    if hasattr(base, "untyped_storage"):
        return base.untyped_storage()  # a tensor's place in it may still change
    if isinstance(base, memoryview) and isinstance(base.obj, (bytearray, np.ndarray)):
        return base.obj
    # The array that lies over something else, such as the bytes that it was unpickled from, is as good as an owner.
    return array if array is not None and (array.flags.c_contiguous or array.flags.f_contiguous) else None


HELD_BY_SCAN = 4  # references of the walk to a base: two in what it keeps, a variable, an argument


def tell_what_shows(view: Any, base: Any, scan: Scan) -> None:
    if isinstance(base, np.ndarray) and base is view.base:  # else others hold it for this view
        first = address_of(base)
        low, high = byte_bounds(view) if view.size else (first, first)
        scan.shows(("array", first), [(low - first, high - first)], base, sys.getrefcount, HELD_BY_SCAN)


def address_of(obj: Any) -> int:
    if hasattr(obj, "data_ptr"):
        return int(obj.data_ptr())
    array = obj if isinstance(obj, np.ndarray) else np.frombuffer(obj, np.uint8)
    return int(array.__array_interface__["data"][0])


def offset_in(obj: Any, base: Any) -> int:
    return address_of(obj) - address_of(base) if obj.size else 0  # nothing lies nowhere


def view_of(base: Any, dtype: Any, shape: Any, strides: Any, offset: int) -> Any:
    if hasattr(base, "data_ptr"):
        import torch

        base = torch.empty(0, dtype=torch.uint8, device="cpu").set_(base).numpy()
    if isinstance(base, np.ndarray) and not base.flags.c_contiguous:
        base = base.T  # memory in Fortran's order
    return np.ndarray(shape, dtype, base, offset, strides)


def reshape_in_place(obj: Any, dtype: Any, shape: Any) -> None:
    if obj.dtype != dtype:
        from ..restore import CannotRestoreError

        raise CannotRestoreError("an array changed its dtype in place")
    obj.resize(shape, refcheck=False)


def _reduce_dtype(obj: Any) -> Any:
    # A structured one has a dict in its state, which would be an object with contents of its own.
    return pickle.loads, (pickle.dumps(obj, 5),)


def _print_options() -> tuple[tuple[str, Any], ...]:
    return tuple(np.get_printoptions().items())


NUMPY = World(
    "numpy",
    [
        Setting("errors", lambda: tuple(np.geterr().items()), lambda state: np.seterr(**dict(state))),
        Setting("error callback", np.geterrcall, np.seterrcall),
        Setting("print options", _print_options, lambda state: np.set_printoptions(**dict(state))),
    ],
)


class Ufunc(Opaque):
    """One that no import finds, of `numpy.frompyfunc` or inside `numpy.vectorize`: it has no state."""

    name, varies = "numpy.ufunc", True

    def variant(self, obj: Any) -> Kind | None:
        return None if obj.__name__.isidentifier() else self  # NumPy calls those "f (vectorized)"

    def content(self, obj: Any, scan: Scan) -> None:
        pass


def register(registry: Registry) -> None:
    add_world(NUMPY)
    registry.add(Ufunc(), np.ufunc)
    registry.add(NdArray(), np.ndarray, derived=True)
    registry.add(MAPPED)
    registry.add(Generator(), np.random.Generator)
    registry.add(RandomState(), np.random.RandomState)
    bit_generators = [getattr(np.random, n) for n in ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")]
    registry.add(BitGenerator(), *bit_generators)
    registry.add(SeedSequence(), np.random.SeedSequence)
    registry.add(NOBODYS)
    dtypes: set[Any] = {np.dtype, *{type(np.dtype(code)) for code in "?bhilqBHILQefdgFDGSUVOMm"}}
    SPECIAL.update(dict.fromkeys(dtypes, _reduce_dtype))
    registry.plain(np.dtype, *{type(np.dtype(code)) for code in "?bhilqBHILQefdgFDGSUVOMm"})
    registry.plain(*(getattr(np, name) for name in ("bool_", "object_", "str_", "bytes_", "void")))
    registry.plain(*{np.dtype(code).type for code in "?bhilqBHILQefdgFDGMm"})
