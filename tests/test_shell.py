"""A prompt at a place of a recorded run shows what a print there would have shown."""

from __future__ import annotations

import subprocess

import pytest
from conftest import Flor
from test_record_replay import files_of, probe, record
from test_resume import NUMPY, PLAIN, TORCH, outcome, plainly


def ask(flor: Flor, text: str, *args: str) -> subprocess.CompletedProcess[str]:
    """What the prompt answers."""
    before = files_of(flor.folder)
    done = flor("shell", *args, stdin=text)
    assert files_of(flor.folder) == before
    return done


@pytest.mark.parametrize("epsilon", ["inf", "0.0667"])
@pytest.mark.parametrize(
    ("program", "after", "shown"),
    [
        (PLAIN, "for epoch in range", "epoch, weights, best, len(history), random.random()"),
        (
            NUMPY,
            "for epoch in range",
            "epoch, model.weights.sum(), model.view.base is model.weights, order[:3]",
        ),
        pytest.param(
            TORCH,
            "for epoch in range",
            "epoch, net[0].weight.sum().item(), history, scheduler.get_last_lr(), torch.rand(1)",
            marks=pytest.mark.needs_torch,
        ),
    ],
    ids=["plain", "numpy", "torch"],
)
def test_the_prompt_stands_at_the_first_line_of_the_iteration(
    flor: Flor, program: str, after: str, shown: str, epsilon: str
) -> None:
    """With the loop variable bound, and the state of that moment, random numbers included."""
    flor.write("train.py", program)
    flor("train.py", FLOR_EPSILON=epsilon)
    done = ask(flor, f"print({shown})\nexit()\nprint('not reached')\n", "last", "--at", "epoch=7")
    assert done.returncode == 0, done.stderr
    left = outcome(flor)
    probe(flor, "train.py", after, f"    if epoch == 7: print('@@', {shown})")
    plain, _ = plainly(flor, "train.py")
    assert left
    wanted = [line[3:] for line in plain.splitlines() if line.startswith("@@")]
    assert done.stdout.splitlines() == wanted
    assert done.stderr.startswith("florhook: run ")
    assert "epoch=7" in done.stderr


NESTED = """
    values = []
    def run(limit):
        total = 0
        for epoch in range(4):
            step = 0
            while step < limit:
                total += epoch * step
                step += 1
            for position in range(3):
                total += position
            for index, word in enumerate(["a", "b", "c"]):
                values.append((word, total))
        return total
    print(run(30))
"""


@pytest.mark.parametrize("epsilon", ["inf", "0.0667"])
@pytest.mark.parametrize(
    ("at", "shown", "wanted"),
    [
        (["--at", "epoch=2,step=10"], "epoch, step, total", "2 10 531"),
        (["--at", "epoch=1,position=2"], "epoch, position, total", "1 2 439"),
        (["--at", "epoch=3", "--at", "index=1"], "epoch, word, values[-1]", "3 b ('a', 2622)"),
    ],
)
def test_inner_loops_and_fast_ones_are_found(
    flor: Flor, at: list[str], shown: str, wanted: str, epsilon: str
) -> None:
    """Also where their iterations were too short to be recorded one by one."""
    flor.write("train.py", NESTED)
    record(flor, "train.py", FLOR_EPSILON=epsilon)
    done = ask(flor, f"print({shown})\n", "last", *at)
    assert (done.returncode, done.stdout) == (0, wanted + "\n"), done.stderr


def test_without_a_moment_it_is_the_newest_state(flor: Flor) -> None:
    """After the last loop of a run that ended; a prefix of its id names it."""
    flor.write("train.py", PLAIN)
    record(flor, "train.py")
    run = flor("runs").stdout.splitlines()[1].split()[0]
    done = ask(flor, "print(epoch, len(history), log.closed)\n", run[:-2])
    assert (done.returncode, done.stdout) == (0, "9 10 False\n"), done.stderr


def test_the_prompt_is_pythons(flor: Flor) -> None:
    """Errors do not end it, functions and comprehensions see the locals, files are written in an overlay."""
    flor.write("train.py", NUMPY)
    record(flor, "train.py")
    text = """
1 / 0
def double():
    return [2 * epoch for _ in range(2)]

print(double())
open('mine.txt', 'w').write('x')
import os; print(os.path.exists('mine.txt'))
"""
    done = ask(flor, text + "\n", "last", "--at", "epoch=3")
    assert done.stdout == "[6, 6]\n1\nTrue\n"
    assert "ZeroDivisionError" in done.stderr
    assert not (flor.folder / "mine.txt").exists()


def test_the_recorded_sources_are_run(flor: Flor) -> None:
    """Whatever has become of the program since."""
    path = flor.write("train.py", PLAIN)
    record(flor, "train.py")
    path.write_text("print('another program')\n")
    done = ask(flor, "print(epoch, len(weights))\n", "last", "--at", "epoch=3")
    assert (done.returncode, done.stdout) == (0, "3 4\n"), done.stderr


def test_what_is_not_there_is_said_in_one_line(flor: Flor) -> None:
    """No store, no run, no variable, no such value, too many words."""
    flor.write("train.py", PLAIN)
    assert flor("shell", "last").returncode == 3
    record(flor, "train.py")
    for args, status, says in (
        (["nothing"], 3, "nothing"),
        (["last", "--at", "epoch=12"], 3, "0 to 9"),
        (["last", "--at", "other=1"], 2, "other"),
        (["last", "--at", "epoch"], 2, "epoch=7"),
        (["last", "--at"], 2, "--at"),
        (["last", "more"], 2, "more"),
    ):
        done = flor("shell", *args)
        assert (done.returncode, done.stdout) == (status, ""), done.stderr
        assert done.stderr.count("\n") == 1
        assert says in done.stderr


def test_a_run_without_a_checkpoint_is_not_run(flor: Flor) -> None:
    """Least of all with its real files."""
    flor.write("train.py", "open('out.txt', 'a').write('x')\n")
    record(flor, "train.py")
    done = ask(flor, "print(1)\n", "last")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1


def test_what_no_checkpoint_holds_is_an_error_at_the_prompt(flor: Flor) -> None:
    """The prompt goes on: nothing is started anew behind its back."""
    (flor.folder / "data.txt").write_text("data")
    flor.write(
        "train.py", "made = []\nfor epoch in range(5):\n    made.append(open('data.txt'))\n    print(epoch)\n"
    )
    record(flor, "train.py")
    done = ask(flor, "print(len(made))\nmade[0].read()\nprint('still here')\n", "--at", "epoch=3")
    assert done.stdout == "3\nstill here\n", done.stderr
    assert "which no checkpoint holds" in done.stderr
