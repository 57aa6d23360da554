"""pyarrow's arrays. Imported only once the program has imported pyarrow."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from .base import Kind, Registry, reduce

if TYPE_CHECKING:
    from ..restore import Loader
    from ..scan import Scan


class ArrowArray(Kind):
    """An array of pyarrow's, which never changes: its buffers."""

    name, how = "pyarrow.Array", "by value"

    def shell(self, obj: Any, scan: Scan) -> Any:
        return scan.once(obj, lambda each: taken_apart(each, scan))

    def create(self, spec: Any, loader: Loader) -> Any:
        return put_together(spec, loader)

    def content(self, obj: Any, scan: Scan) -> Any:
        return self.shell(obj, scan)


def taken_apart(part: Any, scan: Scan) -> Any:
    """What pickle makes of it, down to values and bytes, which are leaves."""
    if isinstance(part, pa.ChunkedArray):
        return "chunks", taken_apart(part.type, scan), tuple(taken_apart(each, scan) for each in part.chunks)
    if isinstance(part, pa.Array):
        make, arguments = reduce(part)[:2]
        return "array", make, taken_apart(arguments, scan)
    if isinstance(part, pa.Buffer):
        if not part.is_cpu:
            raise ValueError("an array of pyarrow's lies on a device")
        return "buffer", scan.memory(("arrow", part.address), part.address, part.size)
    if is_array_data(part) and part[2] == 0:  # without gaps no bitmap of them is needed, and pyarrow drops it
        part = (*part[:4], [None, *part[4][1:]], *part[5:])
    if isinstance(part, (tuple, list)):
        return type(part).__name__, tuple(taken_apart(each, scan) for each in part)
    return ("pickled", pickle.dumps(part, 5)) if isinstance(part, pa.DataType) else ("value", part)


def is_array_data(part: Any) -> bool:
    """Whether it is an array's type, length, number of gaps, offset, buffers and more, as pickle has them."""
    return type(part) is tuple and bool(part) and isinstance(part[0], pa.DataType)


def put_together(told: Any, loader: Loader) -> Any:
    what, *rest = told
    if what == "chunks":
        return pa.chunked_array(
            [put_together(each, loader) for each in rest[1]], put_together(rest[0], loader)
        )
    if what == "array":
        return rest[0](*put_together(rest[1], loader))
    if what == "buffer":
        return pa.py_buffer(bytes(loader.bytes_of(rest[0])))
    if what in ("tuple", "list"):
        parts = [put_together(each, loader) for each in rest[0]]
        return tuple(parts) if what == "tuple" else parts
    return pickle.loads(rest[0]) if what == "pickled" else rest[0]


def register(registry: Registry) -> None:
    registry.add(ArrowArray(), pa.Array, pa.ChunkedArray, derived=True)
