"""pandas' frames, series, indexes and arrays. Imported only once the program has imported pandas.

What they compute when they are asked is no state: their caches are left out, and empty after a restore.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pandas._config import config
from pandas._libs import arrays, internals, properties
from pandas.api.extensions import ExtensionArray, ExtensionDtype
from pandas.core.base import SelectionMixin
from pandas.core.generic import NDFrame
from pandas.core.groupby.grouper import Grouping
from pandas.core.groupby.ops import BaseGrouper
from pandas.core.internals import managers

from .attributes import getattr_dict
from .base import Registry
from .builtin import Instance, empty_instance
from .settings import Setting, World, add_world
from .special import SPECIAL

if TYPE_CHECKING:
    from ..restore import Loader
    from ..scan import Scan

CACHE, COLUMNS = "_cache", "_item_cache"  # by name of a lazy attribute, and by name of a column (pandas 2)
NOTHING = "_na_value"  # of a type of text
REFERENCES = "_references"  # of an index: who shares its memory
READ_ONLY = "_readonly"  # of an array: false by its class
OF_C = "c."  # before the names of what lies in C, among the slots
# What a manager of blocks finds out from its blocks when it is asked, and has before it was.
UNASKED = {
    "_blknos": None,
    "_blklocs": None,
    "_known_consolidated": False,
    "_is_consolidated": False,
    "_interleaved_dtype": None,
    "_dtypes_cache": None,
}


class PandasObject(Instance):
    """An object of pandas without its caches; what a class keeps in C is among its slots."""

    name = "pandas object"
    fields: tuple[str, ...] = ()  # what lies in C

    def create(self, spec: Any, loader: Loader) -> Any:
        return empty_instance(spec[0])

    def content(self, obj: Any, scan: Scan) -> tuple[Any, ...]:
        items, slots, cls = super().content(obj, scan)
        if items is not None:
            caches = tuple(name for name, value in zip(*items, strict=True) if is_cache(obj, name, value))
            if caches:
                scan.hint(obj, caches)
            items = tuple(
                zip(*(pair for pair in zip(*items, strict=True) if not _is_derived(obj, *pair)), strict=True)
            )
        return items or ((), ()), (*slots, *self._in_c(obj)), cls

    def _in_c(self, obj: Any) -> tuple[tuple[str, Any], ...]:
        return tuple((OF_C + name, getattr(obj, name)) for name in self.fields)

    def apply(self, obj: Any, content: tuple[Any, ...], loader: Loader) -> None:
        super().apply(obj, content, loader)
        attributes = getattr_dict(obj)
        for name in loader.hint() or ():
            if attributes is not None:
                attributes[name] = {}
        self._put_in_c(
            obj, {name.removeprefix(OF_C): value for name, value in content[1] if name.startswith(OF_C)}
        )

    def _put_in_c(self, obj: Any, values: dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(obj, name, value)


def _is_derived(obj: Any, name: str, value: Any) -> bool:
    unset = name == READ_ONLY and value is False  # as it is where nobody has looked at the array
    return unset or is_cache(obj, name, value) or is_accessor(obj, name, value)


def is_cache(obj: Any, name: str, value: Any) -> bool:
    """Whether an attribute holds what the object has computed of itself, and nothing else."""
    if name == COLUMNS:
        return name in getattr(type(obj), "_internal_names_set", ())
    cls: type = type(obj)
    return name == CACHE and type(value) is dict and value.keys() <= lazy_names(cls)


@functools.cache
def lazy_names(cls: type) -> frozenset[str]:
    """The attributes that pandas computes when they are first asked for."""
    lazy = properties.cache_readonly
    return frozenset(
        name for base in cls.__mro__ for name, value in vars(base).items() if isinstance(value, lazy)
    )


def is_accessor(obj: Any, name: str, value: Any) -> bool:
    """Whether it is one of pandas' own, such as `.str`, which pandas 2 keeps once it was used."""
    return name in getattr(type(obj), "_accessors", ()) and type(value).__module__.startswith("pandas.")


class Dtype(PandasObject):
    """A type of pandas' own."""

    name = "pandas dtype"

    def apply(self, obj: Any, content: tuple[Any, ...], loader: Loader) -> None:
        super().apply(obj, content, loader)
        attributes = getattr_dict(obj)
        if attributes is not None and isinstance(attributes.get(NOTHING), float):
            attributes[NOTHING] = np.nan  # types are compared by the identity of what stands for no value


class Index(PandasObject):
    """An index: its values and names."""

    name = "pandas.Index"

    def apply(self, obj: Any, content: tuple[Any, ...], loader: Loader) -> None:
        attributes = vars(obj)
        before = attributes.get(REFERENCES)
        super().apply(obj, content, loader)
        attributes[CACHE] = {}
        if attributes.get(REFERENCES) is not None:
            move_reference(obj, before, attributes[REFERENCES], attributes[REFERENCES].add_index_reference)


class Manager(PandasObject):
    """What a frame or series consists of: blocks of columns, and the axes."""

    name = "pandas block manager"
    fields = ("blocks", "axes")

    def _in_c(self, obj: Any) -> tuple[tuple[str, Any], ...]:
        return super()._in_c(obj) if isinstance(obj, internals.BlockManager) else ()

    def _put_in_c(self, obj: Any, values: dict[str, Any]) -> None:
        super()._put_in_c(obj, values)
        for name, value in UNASKED.items():
            if values and hasattr(type(obj), name):
                setattr(obj, name, value)


class Block(PandasObject):
    """Columns of one type: their values, and where they stand."""

    name = "pandas block"
    fields = ("_mgr_locs", "values", "refs")

    def shell(self, obj: Any, scan: Scan) -> Any:
        return type(obj), obj.ndim

    def create(self, spec: Any, loader: Loader) -> Any:
        cls, ndim = spec
        return cls.__new__(cls, np.empty((0,) * ndim), internals.BlockPlacement(0), ndim)

    def _put_in_c(self, obj: Any, values: dict[str, Any]) -> None:
        before = obj.refs
        super()._put_in_c(obj, values)
        move_reference(obj, before, obj.refs, obj.refs.add_reference)


def move_reference(obj: Any, before: Any, now: Any, add: Callable[[Any], object]) -> None:
    """A block or index shares memory with the others that `now` knows.

    Those that no checkpoint holds (a library's) stay known: a write must not reach them.
    """
    if before is not None and before is not now:
        before.referenced_blocks = [each for each in before.referenced_blocks if each() is not obj]
    if not any(each() is obj for each in now.referenced_blocks):
        add(obj)


class References(PandasObject):
    """Who shares a block's memory, so that a write copies it first: these say so when they are restored."""

    name, alike = "pandas block references", True

    def content(self, obj: Any, scan: Scan) -> tuple[Any, ...]:
        return ()

    def apply(self, obj: Any, content: tuple[Any, ...], loader: Loader) -> None:
        pass


class BackedArray(PandasObject):
    """An array of pandas' over one of NumPy's: categories, dates, periods, strings."""

    name = "pandas array"
    fields = ("_ndarray", "_dtype")

    def _put_in_c(self, obj: Any, values: dict[str, Any]) -> None:
        arrays.NDArrayBacked.__setstate__(obj, (values["_ndarray"], values["_dtype"], {}))


def _reduce_placement(obj: Any) -> Any:
    if not obj.is_slice_like:
        return _placed_at, (obj.as_array.tobytes(),)
    where = obj.as_slice
    return _placed, (where.start, where.stop, where.step)


def _placed(*where: Any) -> Any:
    return internals.BlockPlacement(slice(*where))


def _placed_at(places: bytes) -> Any:
    return internals.BlockPlacement(np.frombuffer(places, np.intp).copy())


def _reduce_period(obj: Any) -> Any:
    return _period, (obj.ordinal, obj.freqstr)


def _period(ordinal: int, frequency: str) -> Any:
    return pd.Period(ordinal=ordinal, freq=frequency)


def _options() -> tuple[tuple[str, Any], ...]:
    """Those that are not as pandas has them by itself."""
    values = ((name, known.defval, config.get_option(name)) for name, known in config._registered_options.items()
              if name not in config._deprecated_options)  # fmt: skip
    return tuple(
        sorted(
            ((name, value) for name, default, value in values if value != default), key=lambda pair: pair[0]
        )
    )


def _set_options(options: tuple[tuple[str, Any], ...]) -> None:
    usual = {name: config._registered_options[name].defval for name, _ in _options()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, value in {**usual, **dict(options)}.items():
            config.set_option(name, value)


def register(registry: Registry) -> None:
    add_world(World("pandas", [Setting("options", _options, _set_options)]))
    bases = (NDFrame, ExtensionArray, SelectionMixin, BaseGrouper, Grouping)
    registry.add(PandasObject(), *bases, derived=True)
    registry.add(Dtype(), ExtensionDtype, derived=True)
    registry.alias(registry.reduced, pd.PeriodDtype)  # what it is made from lies in C
    registry.add(BackedArray(), arrays.NDArrayBacked, derived=True)
    registry.add(Index(), pd.Index, derived=True)
    registry.plain(pd.Timestamp, pd.Timedelta, type(pd.NaT), type(pd.NA), pd.Period)
    SPECIAL[pd.Period] = _reduce_period
    if not hasattr(internals, "BlockValuesRefs"):  # before pandas 2
        return
    registry.add(Manager(), managers.BaseBlockManager, derived=True)
    registry.add(Block(), getattr(internals, "SharedBlock", internals.Block), derived=True)
    registry.add(References(), internals.BlockValuesRefs)
    SPECIAL[internals.BlockPlacement] = _reduce_placement
    registry.plain(internals.BlockPlacement)
