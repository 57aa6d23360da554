"""Programs whose lines tell where they are printed, and what reads back what `florhook logs` makes of them."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

from conftest import Flor

# Each line says where it is printed: "epoch=1 step=2 |" and so on, as far as loops with such variables are around it.
# The pauses are longer than what is recorded by iteration and loop at the least.
TELLING = """
import random, sys, time

random.seed(5)

def train(epoch, weights):
    for step, item in enumerate([[0.1], [0.2], [0.3]]):
        time.sleep(0.003)
        weights.append(random.random() * item[0])
        print(f"epoch={epoch} step={step} | loss {weights[-1]:.6f}")
    for silent in range(3):
        weights[-1] += silent

def halve(weights):
    left = 2
    while left > 0:
        time.sleep(0.003)
        weights[0] /= 2
        print(f"left={left} | halved")
        left -= 1

print("| start")
weights = [1.0]
for epoch in range(10, 40, 10):
    print(f"epoch={epoch} | begins", end=" ")
    train(epoch, weights)
    print(f"epoch={epoch} |", end="")
    for dot in range(4):
        print(".", end="")
    print()
    for silent in range(2):
        pass
    print(f"epoch={epoch} | mean {sum(weights) / len(weights):.6f}\\n\\rover\\repoch={epoch} | written")
print("| between")
halve(weights)
for step in range(2):
    time.sleep(0.003)
    print(f"step={step} | {step} of another loop")
print("| end", len(weights))
"""
# Prints that are added later: in a loop that only they make worth a look, in pieces, after other loops, at the end.
PROBES = (
    (
        "        weights[-1] += silent",
        "        weights[-1] += silent",
        "        print(f'epoch={epoch} | silent {silent}')",
    ),
    (
        "        left -= 1",
        "        print(f'left={left} | weight', end=' ')",
        "        print(weights[0])",
        "        left -= 1",
    ),
    (
        '    print(f"epoch={epoch} | mean',
        '    print(f"epoch={epoch} | norm")',
        '    print(f"epoch={epoch} | mean',
    ),
    ('print("| end"', 'print("| last", weights[-1])', 'print("| end"'),
)
PROBED = TELLING
for before, *after in PROBES:
    PROBED = PROBED.replace(before, "\n".join(after))
SAID = re.compile(r"(\w+)=(\d+)")

SIMPLE = """
import time
import florhook

print("lr=0.5")
for epoch in range(1, 3):
    for step in range(2):
        time.sleep(0.003)
        florhook.log("loss", epoch / 4 + step)
    print(f"epoch {epoch}: val acc {100 / epoch}%")
"""
HINDSIGHT = SIMPLE.replace(
    "        florhook.log", '        print("grad norm", epoch * 10 + step)\n        florhook.log'
)


def lines_of(text: str) -> list[str]:
    """What a terminal would have shown, line after line."""
    return [line for line in re.split(r"[\r\n]", text) if line]


def rows_of(flor: Flor, *words: str) -> list[dict[str, Any]]:
    """What `logs --json` shows."""
    done = flor("logs", *words, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def said(text: str) -> dict[str, int]:
    """The loop variables that a line claims."""
    return {name: int(value) for name, value in SAID.findall(text.partition("|")[0])}


def known(row: dict[str, Any]) -> dict[str, Any]:
    """The loop variables that `logs` gives a line."""
    return {name: row[name] for name in ("epoch", "step", "left") if row.get(name) is not None}


def told(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows whose lines say where they are printed."""
    return [row for row in rows if "|" in row["text"]]


def record(flor: Flor, program: str, **changes: str) -> None:
    """Record it, which must go well."""
    flor.write("train.py", program)
    done = flor("train.py", **{"FLOR_EPSILON": "inf", **changes})
    assert (done.returncode, done.stderr) == (0, "")


def replay(flor: Flor, program: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Replay the last run with an edited program."""
    flor.write("train.py", program)
    return flor(*options, "train.py", FLOR_MODE="replay")
