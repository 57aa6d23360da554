"""How long a program's objects live is what a print can see: a replay keeps none longer than the run did."""

from __future__ import annotations

import json

import pytest
from conftest import Flor

PROGRAM = """
import collections, gc, time, weakref

class Node:
    def __init__(self, number):
        self.number = number
        alive.add(self)
        cache[number] = self

class Loud(Node):
    def __del__(self):
        print("gone", self.number)

alive, cache = weakref.WeakSet(), weakref.WeakValueDictionary()
held = [Node(n) for n in range(3)]
boxes = {"a": [Node(10)], "b": {"inner": [Loud(11), Loud(12)]}, "c": {Node(13)}}
queue = collections.deque([[Node(20)], [Node(21)]])
pairs = [(Node(30), [Node(31)])]
kept = {"by": collections.OrderedDict(x=[Node(40)]), "of": collections.defaultdict(list, y=[Node(41)])}
first, third = weakref.ref(boxes["a"][0]), weakref.ref(held[2])

def counter():
    inside = [Node(50)]
    def count(drop=False):
        nonlocal inside
        if drop:
            inside = None
        return inside and len(inside)
    return count

count = counter()
for epoch in range(8):
    time.sleep(0.005)
    total = 0
    for step in range(4):
        time.sleep(0.002)
        total += step
    if epoch == 1:
        held.clear()
    if epoch == 2:
        del boxes["a"]
        pairs.append([Node(60)])
    if epoch == 3:
        boxes["b"] = None
        queue.popleft()
    if epoch == 4:
        pairs = pairs[1:]
        kept["by"].clear()
        count(drop=True)
    if epoch == 5:
        kept.clear()
        boxes["new"] = [Loud(70)]
    if epoch == 6:
        boxes = {}
    print("epoch", epoch, total)
print("end", len(alive))
"""
SEEN = "len(alive), sorted(cache), first() is None, third() is None"
PLACES = {
    "in the middle": ("    if epoch == 3:\n", f"    print('@@', epoch, {SEEN})\n    if epoch == 3:\n"),
    "at once": ("    if epoch == 6:\n", f"    print('@@', epoch, {SEEN})\n    if epoch == 6:\n"),
    "at the end": ('    print("epoch"', f"    print('@@', epoch, {SEEN})\n    print(\"epoch\""),
    "in the inner loop": ("        total += step\n", f"        total += step\n        print('@@', step, {SEEN})\n"),
    "after the loop": ('print("end"', f"print('@@', {SEEN})\nprint(\"end\""),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_what_the_loop_lets_go_is_gone_in_the_replay(place: str, flor: Flor) -> None:
    """Held by lists, dicts, sets, tuples, closures of before the loop; a probe counts what can still be seen."""
    flor.write("train.py", PROGRAM)
    recorded = flor("train.py", FLOR_EPSILON="inf")
    assert (recorded.returncode, recorded.stderr) == (0, "")
    flor.write("train.py", PROGRAM.replace(*PLACES[place]))
    plain = flor.python("train.py")
    wanted = "".join(line for line in plain.stdout.splitlines(True) if line.startswith("@@"))
    stats = flor.home.parent / "stats.json"
    for more in ({}, {"FLOR_SELECT": "epoch=2:7"}, {"FLOR_SELECT": "epoch=::3"}, {"FLOR_LOG": "all"}):
        done = flor("train.py", FLOR_MODE="replay", FLOR_STATS=str(stats), **more)
        assert (done.returncode, done.stderr) == (0, "")
        if "FLOR_LOG" in more:
            assert done.stdout == plain.stdout
        elif not more:
            assert done.stdout == wanted
        else:
            assert set(done.stdout.splitlines()) <= set(wanted.splitlines())
        assert json.loads(stats.read_text())["diverged"] == 0


def test_arrays_can_be_resized_while_a_replay_knows_them(flor: Flor) -> None:
    """NumPy refuses to resize an array that others hold."""
    pytest.importorskip("numpy")
    source = (
        "import time\n"
        "import numpy as np\n"
        "array = np.arange(3)\n"
        "for epoch in range(4):\n"
        "    time.sleep(0.01)\n"
        "    array.resize(4 + epoch)\n"
    )
    flor.write("train.py", source)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    flor.write("train.py", source + "    print('@@', array.tolist())\n")
    done = flor("train.py", FLOR_MODE="replay")
    assert (
        done.stdout
        == "@@ [0, 1, 2, 0]\n@@ [0, 1, 2, 0, 0]\n@@ [0, 1, 2, 0, 0, 0]\n@@ [0, 1, 2, 0, 0, 0, 0]\n"
    )
    assert (done.returncode, done.stderr) == (0, "")
