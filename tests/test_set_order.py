"""Sets of objects that hash by their address: two processes in the same state write them alike."""

from __future__ import annotations

import json
import random
import weakref
from typing import Any

import pytest
from conftest import Flor
from test_state import Session


class Node:
    def __init__(self, name: str, *kids: Node) -> None:
        self.name, self.kids, self.above = name, set(kids), weakref.WeakSet[Node]()
        for kid in kids:
            kid.above.add(self)


def tree(draw: random.Random) -> dict[str, Any]:
    """A tree whose nodes lie in memory in another order each time, and what is seen of it."""
    names = [f"{kind}{number}" for kind in "abc" for number in range(12)]
    nodes = {}
    for name in draw.sample(names, len(names)):
        nodes[name] = Node(name)
    for name, parent in zip(names[1:], names, strict=False):
        up = nodes[names[names.index(parent) // 3]]
        up.kids.add(nodes[name])
        nodes[name].above.add(up)
    return {"pending": {nodes[name] for name in names[5:]}, "root": nodes[names[0]]}


def test_sets_of_objects_are_written_alike() -> None:
    """Whatever their addresses; an attribute of one item that is another's makes a difference."""
    draw = random.Random(3)
    streams = [Session(tree(draw)).bytes() for _ in range(6)]
    assert all(stream == streams[0] for stream in streams)
    other = tree(draw)
    next(iter(other["root"].kids)).name = "another"
    assert Session(other).bytes() != streams[0]


def test_alike_items_go_by_where_else_they_are_met() -> None:
    """Two nodes that show the same: the list that comes after the set tells which of them is which."""
    streams = []
    for swapped in (False, True) * 4:
        twins = [Node("twin"), Node("twin")]
        order = twins[::-1] if swapped else twins
        streams.append(Session({"both": set(twins), "first": order[0], "second": [order[1]]}).bytes())
    assert all(stream == streams[0] for stream in streams)


def test_functions_and_tuples_with_objects() -> None:
    """A closure goes by its place and its cells, a tuple by its parts."""

    def closure(number: int) -> Any:
        return lambda: number

    draw = random.Random(1)
    streams = []
    for _ in range(5):
        functions = [closure(number) for number in draw.sample(range(9), 9)]
        pairs = [(Node(name), name) for name in draw.sample("abcdef", 6)]
        streams.append(Session({"calls": set(functions), "pairs": frozenset(pairs)}).bytes())
    assert all(stream == streams[0] for stream in streams)


def test_sets_of_tensors() -> None:
    """Tensors hash by their address: they go by shape and bytes, and equal ones by where else they stand."""
    torch = pytest.importorskip("torch")
    draw = random.Random(2)
    streams = []
    for _ in range(5):
        tensors = {number: torch.full((3,), number // 2) for number in draw.sample(range(8), 8)}
        streams.append(
            Session({"seen": set(tensors.values()), "all": [tensors[n] for n in range(8)]}).bytes()
        )
    assert all(stream == streams[0] for stream in streams)


PROGRAM = """
import random, sys, weakref
random.seed(1)
class Node:
    live = weakref.WeakSet()
    def __init__(self, value):
        self.value, self.kids = value, set()
        Node.live.add(self)
junk = [[] for _ in range(int(sys.argv[1]))]
nodes, pending = {0: Node(0)}, set()
for epoch in range(5):
    more = [object() for _ in range(random.randrange(40) * len(junk))]
    for step in range(4):
        node = Node(4 * epoch + step + 1)
        nodes[random.choice(list(nodes))].kids.add(node)
        nodes[node.value] = node
        pending.add(Node(-node.value))
"""


def test_a_program_with_such_sets_is_verified(flor: Flor) -> None:
    """By hand: 4 nodes and 4 pending ones an epoch, and the first."""
    flor.write("train.py", PROGRAM)
    assert flor("train.py", "3", FLOR_EPSILON="inf").stderr == ""
    probe = "    print('@@', epoch, len(Node.live), sum(node.value for node in pending))\n"
    flor.write("train.py", PROGRAM + probe)
    done = flor("train.py", "3", FLOR_MODE="replay", FLOR_STATS="stats.json")
    sums = [-sum(range(1, 4 * epoch + 5)) for epoch in range(5)]
    assert done.stdout == "".join(f"@@ {n} {8 * n + 9} {sums[n]}\n" for n in range(5))
    assert (done.returncode, done.stderr) == (0, "")
    stats = json.loads((flor.folder / "stats.json").read_text())
    assert (stats["diverged"], stats["verified"] > 0) == (0, True)
