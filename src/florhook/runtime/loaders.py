"""torch's DataLoader: passing over batches costs no loading where only the sampler decides what comes next.

In this process, a DataLoader over a map-style data set asks its sampler for indices and then fetches. What a fetch
changes (random states, counters of the data set) is state that a checkpoint holds. So batches can be passed over by
asking the sampler alone. Worker processes have states of their own, and an iterable data set is its own sampler: these
are loaded.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator
from typing import Any

TRANSPARENT = (enumerate, zip)  # they do not look at what they pass on


@contextlib.contextmanager
def without_loading(iterator: Any) -> Iterator[None]:
    """Inside, `next(iterator)` passes over a batch and gives something else instead, where that is possible."""
    found = list(_fetching(iterator)) if "torch.utils.data.dataloader" in sys.modules else []
    for each in found:
        vars(each)["_next_data"] = each._next_index
    try:
        yield
    finally:
        for each in found:
            vars(each).pop("_next_data", None)


def _fetching(iterator: Any) -> Iterator[Any]:
    """The DataLoaders' iterators from which an iterator draws directly."""
    module: Any = sys.modules["torch.utils.data.dataloader"]
    if type(iterator) is module._SingleProcessDataLoaderIter:
        if iterator._dataset_kind == module._DatasetKind.Map:
            yield iterator
    elif type(iterator) in TRANSPARENT or _is_progress_bar(iterator):
        for inner in gc.get_referents(iterator):
            if hasattr(type(inner), "__next__"):
                yield from _fetching(inner)
            elif type(inner) is tuple:  # a zip keeps its iterators in one
                for each in inner:
                    yield from _fetching(each)


def _is_progress_bar(iterator: Any) -> bool:
    """The generator of a tqdm, once it has begun."""
    code = getattr(iterator, "gi_code", None)
    return code is not None and code is getattr(_tqdm_iter(), "__code__", None)


def _tqdm_iter() -> Any:
    module = sys.modules.get("tqdm.std")
    return module.tqdm.__iter__ if module is not None else None
