"""SciPy's trees of neighbours. Imported after scipy.spatial only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.spatial import cKDTree

from .base import Kind, Registry, flat, unflat

if TYPE_CHECKING:
    from ..restore import Loader
    from ..scan import Scan

# A node is nine words: where it splits, what it holds, two addresses, and the places of the nodes that lie there.
WORDS, ADDRESSES = 9, slice(5, 7)


class Tree(Kind):
    """A tree of neighbours: its points and nodes, less the addresses of nodes, which it finds by their places."""

    name, how, late, reads = "scipy.spatial.cKDTree", "by value", 2, True

    def shell(self, obj: Any, scan: Scan) -> Any:
        return type(obj), scan.once(obj, state_of)

    def create(self, spec: Any, loader: Loader) -> Any:
        cls, (state, attributes) = spec
        tree = cls.__new__(cls)
        tree.__setstate__(state)
        if attributes is not None:
            vars(tree).update(unflat(attributes))
        return tree

    def content(self, obj: Any, scan: Scan) -> Any:
        return scan.once(obj, state_of)


def state_of(tree: Any) -> tuple[Any, Any]:
    nodes, *rest = tree.__getstate__()
    size = WORDS * np.dtype(np.intp).itemsize
    if nodes.nbytes and nodes.nbytes % size == 0:
        nodes = nodes.copy()
        nodes.view(np.intp).reshape(-1, WORDS)[:, ADDRESSES] = 0
    return (nodes, *rest), flat(vars(tree)) if hasattr(tree, "__dict__") else None


def register(registry: Registry) -> None:
    registry.add(Tree(), cKDTree, derived=True)
