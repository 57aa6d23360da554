"""`--plan`: what a replay would run, and the seconds that it takes, by the times of the run."""

from __future__ import annotations

import re

import pytest
from conftest import Flor

from florhook.replay.estimate import OWN_START, Estimate
from florhook.replay.plan import Question, parse_selection
from florhook.replay.record import Record
from florhook.store.store import Store

PROGRAM = """
import time

time.sleep(0.3)
total = 0
for epoch in range(5):
    for step in range(4):
        if time.sleep(0.05): pass
        total += step
    if time.sleep(0.1): pass
    print(epoch, total)
time.sleep(0.2)
"""
EPOCH, STEPS = 0.3, 0.2  # seconds; of no statement that could be skipped


def estimated(flor: Flor, place: str, selection: str = "") -> Estimate:
    with Store.open(flor.home) as store:
        record = Record(store, store.find("last"))
        return Estimate(
            record,
            Question(frozenset({place}), frozenset({record.mark_ids[place]}), parse_selection(selection)),
        )


@pytest.fixture
def recorded(flor: Flor) -> Flor:
    flor.write("train.py", PROGRAM)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    return flor


def test_seconds_by_hand(recorded: Flor) -> None:
    """A probe in the epochs skips their steps, one in the steps runs them; the program around runs in any case."""
    outer = estimated(recorded, "__main__::0")
    assert [(plan.runs, plan.restores) for plan in outer.loops] == [(((0, 5),), 6)]
    assert outer.loops[0].seconds == pytest.approx(5 * (EPOCH - STEPS) + 6 * 0.005, rel=0.3)
    assert outer.around == pytest.approx(OWN_START + 0.5, rel=0.4)
    inner = estimated(recorded, "__main__::1")
    assert inner.loops[0].seconds == pytest.approx(5 * EPOCH, rel=0.3)
    one = estimated(recorded, "__main__::1", "epoch=3")
    assert one.loops[0].runs == ((3, 4),)
    assert one.loops[0].seconds == pytest.approx(EPOCH, rel=0.4)
    assert one.seconds == one.around + one.loops[0].seconds


def test_statements_that_are_skipped_take_no_time(flor: Flor) -> None:
    """The first of five is run; after each other one is a restore, and loops in it are not counted besides."""
    flor.write(
        "train.py",
        """
        import time
        def wait():
            for step in range(2):
                if time.sleep(0.05): pass
            if time.sleep(0.1): pass
        for epoch in range(5):
            wait()
            x = epoch
        """,
    )
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    plan = estimated(flor, "__main__::0").loops[0]
    assert (plan.runs, plan.restores, plan.skipped) == (((0, 5),), 1 + 1 + 4, 4)
    assert plan.seconds == pytest.approx(0.1 + 6 * 0.005, rel=0.4)


def test_the_plan_is_shown_and_nothing_runs(recorded: Flor) -> None:
    recorded.write(
        "train.py", PROGRAM.replace("        total", "        print('@@', epoch, step)\n        total")
    )
    done = recorded("--plan", "--select", "epoch=1:3", "--workers", "2", "train.py", FLOR_MODE="replay")
    assert (done.returncode, done.stderr) == (0, "")
    assert "@@" not in done.stdout
    assert "train.py:5: 2 of 5 iterations run (1 to 2), 2 checkpoints restored" in done.stdout
    one, two = (float(number) for number in re.findall(r"([\d.]+) s, about", done.stdout))
    assert OWN_START + 0.5 + EPOCH < two < one < OWN_START + 0.5 + 2 * EPOCH + 1.0


def test_plan_belongs_to_replay(recorded: Flor) -> None:
    done = recorded("--plan", "train.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "florhook: --plan goes with replay: florhook replay, or --mode replay\n"
