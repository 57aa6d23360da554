"""Which probes can be run by several processes: those that carry nothing from one place to another."""

from __future__ import annotations

import pytest

from florhook.hook.carries import carries
from florhook.hook.diff import compare

PROGRAM = """\
import random

def draw(n):
    return random.random() * n

total = 0
for epoch in range(10):
    total += draw(epoch)
    {inside}
{after}
"""

INDEPENDENT = [
    "print(epoch, total)",
    "norm = abs(total); print(norm)",
    "norms = [abs(x) for x in (total,)]\n    print(max(norms))",
    "most = 0\n    for x in range(epoch):\n        most += x\n    print(most)",
    "if epoch % 2:\n        half = total / 2\n        print(half)",
    "import math\n    print(math.floor(total))",
    "def shown(x, digits=3):\n        return round(x, digits)\n    print(shown(total))",
    "print([y for y in range(3)], {z: 1 for z in 'ab'})",
]
CARRYING = [
    "with open('probe.log', 'a') as log:\n        print(total, file=log)",
    "import pathlib\n    print(pathlib.Path('x').write_text(str(total)))",
    "seen = globals().get('seen', 0) + 1; print(seen)",
    "if epoch == 0:\n        seen = []\n    print(seen)",
    "print(last) if epoch else None; last = total",
    "def shown(x, seen=[]):\n        seen.append(x)\n        return len(seen)\n    print(shown(total))",
    "def shown(x):\n        shown.calls = getattr(shown, 'calls', 0) + 1\n    shown(total)",
    "class Seen:\n        count = 0\n    print(Seen)",
    "count = 0 if not epoch else count + 1; print(count)",
    "if epoch:\n        first = total\n    else:\n        first = 0\n    print(first)",
]


def added(inside: str, after: str = "") -> bool:
    old = PROGRAM.format(inside="pass", after="")
    diff = compare(
        old.encode(), PROGRAM.format(inside=f"pass\n    {inside}", after=after).encode(), "train.py"
    )
    assert diff.added
    return carries(diff.tree, diff.added)


@pytest.mark.parametrize("probe", INDEPENDENT)
def test_probes_that_depend_on_the_program_alone(probe: str) -> None:
    assert not added(probe)


@pytest.mark.parametrize("probe", CARRYING)
def test_probes_that_carry_something(probe: str) -> None:
    assert added(probe)


def test_a_list_that_grows_from_epoch_to_epoch() -> None:
    """It is made before the loop, filled in it and shown after it."""
    old = PROGRAM.format(inside="pass", after="")
    new = old.replace("for epoch", "history = []\nfor epoch", 1).replace(
        "pass", "pass\n    history.append(total)"
    )
    diff = compare(old.encode(), (new + "print(history)\n").encode(), "train.py")
    assert not diff.refusals
    assert carries(diff.tree, diff.added)
    assert not carries(diff.tree, [])
