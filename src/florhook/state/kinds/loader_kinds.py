"""torch's DataLoader with worker processes. Imported only once the program has imported torch's loaders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils.data import dataloader

from .base import Opaque, Registry

if TYPE_CHECKING:
    from ..scan import Scan


class WorkersIterator(Opaque):
    """Its state lies in the worker processes. The one that a loop iterates over is driven to its place.

    Elsewhere (a DataLoader with persistent workers keeps its own) it is left as it is while it has not moved; where it
    has, a placeholder stands for it.
    """

    how, moves = "re-driven", True

    def same(self, obj: Any) -> Any:
        return tuple(worker.pid for worker in obj._workers), obj._base_seed, obj._rcvd_idx, obj._num_yielded

    def content(self, obj: Any, scan: Scan) -> Any:
        if not scan.outlines:
            return None
        # What has arrived but was not asked for depends on the clock.
        return obj._rcvd_idx, obj._num_yielded, obj._base_seed, obj._dataset, obj._sampler_iter


def register(registry: Registry) -> None:
    registry.alias(WorkersIterator(), dataloader._MultiProcessingDataLoaderIter)
