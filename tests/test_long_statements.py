"""Statements of loop bodies that take long: a replay skips them, and what it prints is what a plain run prints."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest
from conftest import Flor

from florhook.replay.record import Record
from florhook.runtime.budget import FREE
from florhook.runtime.recorder import NEW_GRAPH
from florhook.store.store import Store

EPSILON = 1 / 15  # the default


def stats_of(flor: Flor, *arguments: str, **environ: str) -> dict[str, Any]:
    """Runs the program, and reads its figures."""
    file = flor.home.parent / "stats.json"
    done = flor(*arguments, FLOR_STATS=str(file), **environ)
    figures: dict[str, Any] = json.loads(file.read_text())
    return {**figures, "done": done}


def recorded(flor: Flor, text: str, **environ: str) -> dict[str, Any]:
    """A recorded program, whose output is that of a plain run."""
    flor.write("train.py", text)
    figures = stats_of(flor, "train.py", **environ)
    plain = flor.python("train.py", stdin=None)
    assert figures["done"].stdout == plain.stdout, figures["done"].stderr
    assert figures["done"].returncode == plain.returncode == 0, plain.stderr
    return figures


def replayed(flor: Flor, edits: dict[str, str], **environ: str) -> dict[str, Any]:
    """The program with lines added before others, replayed: it prints the '@@' lines of a plain run, and is exact."""
    text = (flor.folder / "train.py").read_text()
    edited = text
    for line, probe in edits.items():
        assert edited.count(line) == 1, line
        edited = edited.replace(line, f"{probe}\n{line}")
    (flor.folder / "train.py").write_text(edited)
    plain = flor.python("train.py").stdout
    figures = stats_of(flor, "train.py", FLOR_MODE="replay", **environ)
    wanted = re.findall(r"^@@.*\n", plain, re.MULTILINE)
    assert wanted
    done: subprocess.CompletedProcess[str] = figures["done"]
    assert done.stdout == (plain if environ.get("FLOR_LOG") == "all" else "".join(wanted)), done.stderr
    assert (done.returncode, figures["diverged"]) == (0, 0), done.stderr
    (flor.folder / "train.py").write_text(text)
    return figures


FITS = """
import random
import time

class Model:
    def __init__(self):
        self.weights = []

    def fit(self, k):
        print("fitting", k)
        time.sleep(0.15)
        self.weights.append(random.random() * k)
        return self

random.seed(3)
model = Model()
total = 0.0
for epoch in range(12):
    model.fit(epoch)
    total += sum(model.weights)
    print("epoch", epoch, total)
print("end", total)
"""
AFTER_FIT = {"    total += sum": "    print('@@', epoch, model.weights[-1], total, random.getstate()[1][:3])"}


def test_a_call_that_takes_long_is_skipped_within_the_budget(flor: Flor) -> None:
    """The default budget holds, and a probe behind the call runs few of its twelve executions."""
    figures = recorded(flor, FITS)
    assert figures["overhead_s"] < EPSILON * figures["wall_s"] + FREE
    again = replayed(flor, AFTER_FIT)
    assert again["blocks_skipped"] >= 8
    assert again["iterations_executed"] == 12


def test_what_a_skipped_statement_printed_comes_from_the_record(flor: Flor) -> None:
    """With all output asked for, its lines stand where they stood."""
    recorded(flor, FITS, FLOR_EPSILON="inf")
    assert replayed(flor, AFTER_FIT, FLOR_LOG="all")["blocks_skipped"] == 11
    assert replayed(flor, AFTER_FIT, FLOR_WORKERS="2")["done"].stderr == ""


def test_a_probe_in_what_the_statement_calls_runs_it(flor: Flor) -> None:
    """As with loops: a function that has a probe was run by the statement."""
    recorded(flor, FITS, FLOR_EPSILON="inf")
    probe = {"        return self\n": "        print('@@', k, self.weights[-1])"}
    assert replayed(flor, probe)["blocks_skipped"] == 0


def test_statements_are_shown_as_what_they_are(flor: Flor) -> None:
    """No loop of that place is listed, and lines have the loops around them only."""
    recorded(flor, FITS, FLOR_EPSILON="inf")
    shown = flor("show", "last").stdout
    assert re.search(r"^statement    __main__:, line 18: 11 checkpoints", shown, re.MULTILINE), shown
    assert len(re.findall(r"^loop ", shown, re.MULTILINE)) == 1
    logs = flor("logs", "last", "--json").stdout
    assert "@18" not in logs
    plan = flor("replay", "--plan", "--probe", "train.py:19:total")
    assert "11 of them instead of statements" in plan.stdout, plan.stdout + plan.stderr
    with Store.open(flor.home) as store:
        record = Record(store, store.runs()[-1])
    assert [loop.site.key for loop in record.loops.values()] == ["__main__::0"]
    assert {each.site.key for each in record.statements.values()} == {"__main__::@18.4"}
    assert [each.row.iteration for each in record.statements.values()] == list(range(1, 12))


KINDS = """
import subprocess
import sys
import time

class Model:
    def __init__(self, seed):
        self.seed, self.log = seed, {}

def make(seed):
    time.sleep(0.04)
    return Model(seed)

def slow(x):
    time.sleep(0.04)
    return x * 1.5

def run(rounds):
    total, best, count, table = 0.0, None, 0, {}

    def note(x):
        nonlocal count, best
        time.sleep(0.04)
        count, best = count + 1, max(x, best or x)

    for r in range(rounds):
        model = make(r)
        for step in range(2):
            if step:
                total += slow(step + r)
            elif r > 1:
                model.log[r] = slow(
                    r,
                )
        note(total)
        word = subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True).stdout
        first, *rest = (slow(int(c)) for c in word.split())
        try:
            value = slow(1 / (r - 2))
        except ZeroDivisionError as error:
            value = str(error)
            slow(1)
        table[r]: list[int] = [k for k in range(r) if slow(k) or True]
        print("round", r, total, value, rest)
    return count, table

print(run(6))
for tail in range(5):
    held = [tail]; time.sleep(0.04)
    if (n := slow(tail)) > 2:
        held.append(slow(n))
    print("tail", held)
"""
IN_KINDS = {
    "at the end of a round": {
        '        print("round"': "        print('@@', r, model.log, total, best, count, first, rest, value, table)"
    },
    "in the inner loop": {"            if step:": "            print('@@', r, step, model.log, total)"},
    "behind what raises": {"            slow(1)": "            print('@@', r, value, error)"},
    "at module level": {'    print("tail"': "    print('@@', tail, held, n)"},
    "in a closure": {"        count, best =": "        print('@@', count, best, total)"},
    "several": {
        '        print("round"': "        print('@@', r, total)",
        "        note(total)": "        print('@@', total, model.log)",
        '    print("tail"': "    print('@@', n)",
    },
}


def test_all_kinds_of_statements(flor: Flor) -> None:
    """Calls, assignments of all forms, in blocks of all kinds, at module level and with variables of closures."""
    recorded(flor, KINDS, FLOR_EPSILON="inf")
    skipped = {name: replayed(flor, probes)["blocks_skipped"] for name, probes in IN_KINDS.items()}
    assert all(skipped.values()), skipped


TWICE = """
import time

class Net:
    def __init__(self):
        self.w, self.calls = 0.0, []

def fit(net, steps, depth=0):
    time.sleep(0.03)
    for s in range(steps):
        time.sleep(0.003)
        net.w += s * 0.5 + depth
        if depth < 1 and s == 1:
            fit(net, 2, depth + 1)
    net.calls.append((steps, depth))
    return net.w

a, b = Net(), Net()
for epoch in range(6):
    x = fit(a, 3)
    y = fit(b, 4)
    for net in (a, b):
        z = fit(net, 1)
        net.calls.clear()
    print(epoch, x, y, z)
"""


def test_loops_in_statements_keep_their_numbers(flor: Flor) -> None:
    """Two statements run the loops of one function: a replay that skips the first finds those of the second."""
    recorded(flor, TWICE, FLOR_EPSILON="inf")
    assert replayed(flor, {"    y = fit": "    print('@@', x, a.w, a.calls)"})["blocks_skipped"] > 6
    assert replayed(flor, {"    for net in": "    print('@@', x, y, b.w)"})["blocks_skipped"] > 10
    deep = {"    net.calls.append": "    if depth: print('@@', net.w, steps, depth)"}
    assert replayed(flor, deep)["diverged"] == 0


PRINTS = """
import time

def slow(x):
    time.sleep(0.04)
    return x + 1

kept = []
for k in range(6):
    print(slow(k))
    a = slow(k)
    print(slow(a))
    b = slow(a)
    kept.append(b)
"""


def test_statements_are_found_again_behind_edited_ones(flor: Flor) -> None:
    """Prints that take long are changed, removed and added: the others have the states that they had."""
    recorded(flor, PRINTS, FLOR_EPSILON="inf")
    edited = PRINTS.replace("print(slow(k))", "print('@@', slow(k), kept)").replace(
        "    print(slow(a))\n", ""
    )
    edited = edited.replace("    kept.append", "    print('@@', k, a, b)\n    kept.append")
    flor.write("train.py", edited)
    wanted = flor.python("train.py").stdout
    figures = stats_of(flor, "train.py", FLOR_MODE="replay")
    assert figures["done"].stdout == wanted
    assert (figures["diverged"], figures["blocks_skipped"]) == (0, 10)


DIES = """
import os
import time

def slow(x):
    time.sleep(0.04)
    return x + 1

total = 0
for k in range(8):
    total += slow(k)
    print(k, total)
    if k == 5 and os.environ.get("DIES"):
        os._exit(7)
    time.sleep(0.03)
print("end", total)
"""


def test_a_run_that_died_is_replayed_and_continued(flor: Flor) -> None:
    """Checkpoints after statements are no places to go on from, and the run that goes on replays."""
    flor.write("train.py", DIES)
    assert flor("train.py", FLOR_EPSILON="inf", DIES="1").returncode == 7
    (flor.folder / "train.py").write_text(
        DIES.replace("    print(k", "    print('@@', k, total)\n    print(k")
    )
    again = flor("train.py", FLOR_MODE="replay", DIES="1")
    lines = [
        f"@@ {k} {(k + 1) * (k + 2) // 2}\n" for k in range(6)
    ]  # the last iteration may not be in the record
    assert again.stdout in ("".join(lines[:5]), "".join(lines)), again.stderr
    flor.write("train.py", DIES)
    resumed = flor("train.py", FLOR_MODE="resume", FLOR_EPSILON="inf")
    assert resumed.stdout == flor.python("train.py").stdout, resumed.stderr
    assert replayed(flor, {"    print(k": "    print('@@', k, total)"})["done"].stderr == ""


def test_standard_input_is_read_again_or_not_at_all(flor: Flor) -> None:
    """What a skipped `input()` gave is restored."""
    program = "import time\nfor k in range(4):\n    time.sleep(0.03); word = input()\n    x = word * 2\n    print(x)\n"
    flor.write("train.py", program)
    words = "a\nb\nc\nd\n"
    assert flor("train.py", stdin=words, FLOR_EPSILON="inf").stdout == "aa\nbb\ncc\ndd\n"
    flor.write("train.py", program.replace("    print", "    print('@@', word)\n    print"))
    done = flor("train.py", stdin=words, FLOR_MODE="replay")
    assert done.stdout == "@@ a\n@@ b\n@@ c\n@@ d\n", done.stderr


def test_a_tensor_with_a_graph_is_computed_again(flor: Flor) -> None:
    """What a gradient will be asked through is no checkpoint; what has none left is."""
    pytest.importorskip("torch")
    text = """
        import time
        import torch

        torch.manual_seed(0)
        net = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)

        def forward(x):
            time.sleep(0.04)
            return net(x).sum()

        def step():
            time.sleep(0.04)
            optimizer.step()

        for k in range(5):
            loss = forward(torch.rand(2, 3))
            optimizer.zero_grad()
            loss.backward()
            step()
            print(k, loss.item())
    """
    figures = recorded(flor, text, FLOR_EPSILON="inf")
    assert NEW_GRAPH in figures["refused"]
    again = replayed(
        flor, {"    print(k": "    print('@@', k, net.weight.tolist(), net.weight.grad.sum().item())"}
    )
    assert again["blocks_skipped"] >= 3
    assert again["done"].stderr == ""
