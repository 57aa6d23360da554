"""The budget: the paper's joint invariant, and the bound that it promises."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florhook.runtime.budget import FLOOR, FREE, NOT_WORTH, RESTORE_FACTOR, SPENT, Block, Budget
from florhook.runtime.contention import felt
from florhook.runtime.program import Program
from florhook.state.scan import Root, Scan, TooLongError

LONG = 1e9  # seconds into the run: the share of all blocks together never says no


def test_the_joint_invariant_by_hand() -> None:
    """M/C < n/(k+1) · min(1/(1+c), ε), with C = 10 s, ε = 0.1: M must be below n/(k+1) seconds."""
    budget = Budget(0.1)
    block = Block(executions=1, checkpoints=0, compute=10.0)
    for n, k, cost, worth in [
        (1, 0, 0.99, True),
        (1, 0, 1.0, False),
        (4, 1, 1.99, True),
        (4, 1, 2.01, False),
        (4, 3, 1.01, False),
    ]:
        block.executions, block.checkpoints, block.compute, block.cost = n, k, 10.0 * n, cost
        assert budget.allows(block, LONG, typical=99.0) is worth, (n, k, cost)


def test_a_restore_must_be_worth_more_than_running_again() -> None:
    """However much may be spent (ε = 5), M + R = (1+c)·M stays below n·C/(k+1)."""
    budget = Budget(5.0)
    block = Block(executions=1, compute=1.0, cost=1 / (1 + RESTORE_FACTOR) - 0.01)
    assert budget.allows(block, LONG, 1.0)
    block.cost += 0.02
    assert not budget.allows(block, LONG, 1.0)


def test_what_is_typical_stands_in_for_a_cost_that_is_not_known() -> None:
    """A block without a checkpoint goes by the others' cost; then by its own."""
    budget = Budget(0.1)
    block = Block(executions=1, compute=10.0)
    assert budget.allows(block, LONG, typical=0.5)
    assert not budget.allows(block, LONG, typical=2.0)
    budget.took(block, 0.2)
    assert (block.checkpoints, block.cost, budget.spent) == (1, 0.2, 0.2)
    assert budget.allows(block, LONG, typical=2.0)


def test_the_share_of_all_blocks_together() -> None:
    """Nothing is taken that would bring the sum above ε of the time so far; a first one may be early."""
    budget = Budget(0.1, spent=1.0)
    block = Block(executions=100, checkpoints=1, compute=100.0, cost=0.5)
    assert not budget.allows(block, 14.9, 0.0)
    assert budget.allows(block, 15.1, 0.0)
    block.checkpoints = 0
    assert budget.allows(block, 15.0 - FREE / 0.1 + 0.1, 0.0)
    assert not budget.allows(block, 15.0 - FREE / 0.1 - 0.1, 0.0)


def test_a_block_that_never_ran_is_given_the_benefit() -> None:
    """At a loop's first entry nothing is known but the budget."""
    assert Budget(0.1).allows(Block(), 100.0, 1.0)
    assert not Budget(0.1).allows(Block(), 1.0, 1.0)


def test_everything_is_taken_with_an_infinite_budget() -> None:
    """Every boundary whose spacing is within FLOOR of its cost."""
    budget = Budget(math.inf, spent=1e9)
    block = Block(executions=10, checkpoints=10, compute=1.0, cost=1.0)
    assert budget.allows(block, 0.0, 1.0, spacing=1.01 / FLOOR)
    assert not budget.allows(block, 0.0, 1.0, spacing=0.99 / FLOOR)
    assert budget.allows(block, 0.0, 1.0) is (0.1 * FLOOR > 1.0)
    assert budget.allows(Block(), 0.0, 1.0), "the mean of nothing is no reason to refuse"


def test_blocks_are_told_apart() -> None:
    """By site and by kind."""
    budget = Budget(0.1)
    budget.block(1, "exit").ran(2.0)
    budget.block(1, "exit").ran(4.0)
    assert budget.block(1, "exit").mean == 3.0
    assert budget.block(1, "boundary").executions == 0
    assert math.isnan(budget.block(2, "exit").mean)


@settings(max_examples=150, deadline=None)
@given(
    epsilon=st.sampled_from([0.01, 0.0667, 0.5]),
    costs=st.lists(st.floats(1e-4, 5.0), min_size=20, max_size=200),
    blocks=st.lists(st.floats(1e-4, 2.0), min_size=1, max_size=4),
    seed=st.randoms(use_true_random=False),
)
def test_the_overhead_is_bounded(
    epsilon: float, costs: list[float], blocks: list[float], seed: object
) -> None:
    """Whatever blocks cost and take, all checkpoints but the last of each block that surprised cost ε of the run.

    A cost is known only once it was paid, so each block may be wrong by what its cost grew in one step.
    """
    budget, now, slack = Budget(epsilon), 0.0, 0.0
    for step, cost in enumerate(costs):
        site = step % len(blocks)
        block = budget.block(site, "boundary")
        block.ran(blocks[site])
        now += blocks[site]
        expected = block.cost or 0.01
        if budget.allows(block, now, typical=0.01, spacing=blocks[site]):
            slack = max(slack, cost - expected, 0.0)
            budget.took(block, cost)
            now += cost
    assert budget.spent <= epsilon * now + slack + FREE * 1.0001


@settings(max_examples=100, deadline=None)
@given(cost=st.floats(1e-3, 1.0), compute=st.floats(1e-3, 1.0), epsilon=st.sampled_from([0.02, 0.0667, 0.3]))
def test_a_steady_block_is_spread_evenly(cost: float, compute: float, epsilon: float) -> None:
    """With constant M and C, about one in M/(C·ε) executions has a checkpoint, and never more than ε allows."""
    budget, now = Budget(epsilon), 0.0
    block = budget.block(0, "boundary")
    for _ in range(2000):
        block.ran(compute)
        now += compute
        if budget.allows(block, now, cost):
            budget.took(block, cost)
            now += cost
    most = block.compute * min(epsilon, 1 / (1 + RESTORE_FACTOR)) / cost
    assert most * 0.85 - 2 <= block.checkpoints <= min(most, 2000) + 1 or block.checkpoints == 2000


@pytest.mark.parametrize("cost", [0.5, 1000.0])
def test_what_is_never_worth_it_is_never_taken(cost: float) -> None:
    """A loop of microseconds with a state of gigabytes."""
    budget = Budget(0.0667)
    block = budget.block(0, "boundary")
    for step in range(1000):
        block.ran(1e-6)
        assert not budget.allows(block, 100.0 + step * 1e-6, cost)


def test_a_walk_is_given_up_when_it_takes_too_long() -> None:
    """Nobody knows beforehand how large a state has grown: what is left of the budget, or twice the last cost."""
    budget = Budget(0.05)
    block = budget.block(1, "boundary")
    assert budget.patience(block, elapsed=100.0, typical=0.002) == pytest.approx(5.0)
    budget.took(block, 4.99)
    assert budget.patience(block, elapsed=100.0, typical=0.002) == pytest.approx(9.98)
    other = budget.block(2, "boundary")
    assert budget.patience(other, elapsed=100.0, typical=0.002) == pytest.approx(0.01)
    budget.took_too_long(other, 0.01)
    assert other.cost == pytest.approx(0.02)
    with pytest.raises(TooLongError, match="objects"):
        Scan(Program(), [Root(("r",), [[] for _ in range(100_000)])], seconds=0.001)


@pytest.mark.parametrize(
    ("allowed", "idle", "share"),
    [(2.0, 2.0, 0.0), (1.0, 7.5, 0.0), (0.25, 7.5, 0.75), (3.0, 0.4, 0.6), (-0.1, 0.0, 1.0)],
)
def test_the_writers_work_is_felt_where_no_core_is_free(allowed: float, idle: float, share: float) -> None:
    """By the cores that the process may still use, and by those that stand idle, whichever are fewer."""
    assert felt(allowed, idle) == pytest.approx(share)


def test_contention_of_a_process_on_one_core() -> None:
    """Pinned to one core, a process that computes leaves nothing for a writer."""
    code = (
        "import os, time\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from florhook.runtime.contention import Contention\n"
        "felt = Contention()\n"
        "until = time.process_time() + 0.3\n"
        "while time.process_time() < until: pass\n"
        "began, used = felt._before[:2]\n"
        "share = felt.share()\n"
        "print(share >= (felt._before[1] - used) / (felt._before[0] - began) - 1e-6)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("True"), done.stdout


def test_reasons() -> None:
    """What the budget says no for: the sum of all that was spent, or this block's own balance."""
    budget = Budget(0.1)
    block = Block(executions=1, compute=10.0, cost=2.0)
    assert budget.objection(block, LONG, 0.0) == NOT_WORTH
    block.cost = 0.5
    assert budget.objection(block, LONG, 0.0) == ""
    budget.spent, block.checkpoints = 0.6, 1
    assert budget.objection(block, 10.9, 0.0) == SPENT
