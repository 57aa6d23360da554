"""Adaptive checkpointing: when is a checkpoint worth its time? (Garcia et al., PVLDB 14(4), 2020, section 5)

For a block with compute time C, materialisation time M, n executions and k checkpoints so far, the paper's joint
invariant: materialise when M/C < n/(k+1) · min(1/(1+c), ε), where c·M is the time of a restore. Over all blocks
together the time spent stays below ε of the time that the program has run.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from ..dataclass import dataclass, field

RESTORE_FACTOR = 1.0  # c: a restore takes about as long as a checkpoint
WITNESSES = 0.25  # the share of the budget that may go to digests alone
FLOOR = 20.0  # with epsilon = inf: how many times its compute time a block may spend on checkpoints
FREE = 0.25  # seconds that the first entries may take before anything is known of the program
SPENT = "the share of the run's time was spent"
NOT_WORTH = "it would cost more than it could save"


@dataclass
class Block:
    """What is known of one block: a loop as a whole (its exit), or its iterations (its boundaries)."""

    executions: int = 0
    checkpoints: int = 0
    compute: float = 0.0  # seconds over all executions
    cost: float = 0.0  # seconds of the last materialisation
    witness_cost: float = 0.0  # seconds of the last digests alone
    refused: Counter[str] = field(default_factory=Counter)  # by reason

    def ran(self, seconds: float, times: int = 1) -> None:
        self.executions += times
        self.compute += seconds

    def figures(self) -> dict[str, Any]:
        """For the record: what the block costs and takes, in seconds, and what became of its executions."""
        return {
            "executions": self.executions,
            "mean_s": self.compute / max(1, self.executions),
            "checkpoints": self.checkpoints,
            "cost_s": self.cost,
            "refused": self.refused,
        }

    @property
    def mean(self) -> float:
        return self.compute / self.executions if self.executions else math.nan


@dataclass
class Budget:
    """The budget of a run. `spent` counts every second that recording kept the program waiting, or its cores busy."""

    epsilon: float
    spent: float = 0.0
    witnessed: float = 0.0  # seconds of it for digests alone
    blocks: dict[tuple[int, str], Block] = field(default_factory=dict)

    def block(self, site: int, kind: str) -> Block:
        """The loop as a whole ("exit") or its iterations ("boundary")."""
        found = self.blocks.get((site, kind))
        if found is None:
            found = self.blocks[site, kind] = Block()
        return found

    def allows(self, block: Block, elapsed: float, typical: float, spacing: float | None = None) -> bool:
        """Whether a checkpoint of this block, now, `elapsed` seconds into the run, is within the budget."""
        return not self.objection(block, elapsed, typical, spacing)

    def objection(
        self,
        block: Block,
        elapsed: float,
        typical: float,
        spacing: float | None = None,
        reserved: float = 0.0,
    ) -> str:
        """Why a checkpoint of this block is not within the budget now; empty if it is.

        `typical` is the expected cost where the block has none of its own yet, in seconds; `spacing` is the time
        since the block's last checkpoint, where the block is an iteration; `reserved` is kept for others.
        """
        cost = block.cost or typical
        if math.isinf(self.epsilon):
            since = block.mean if spacing is None else spacing
            return NOT_WORTH if since * FLOOR < cost else ""
        if self.spent + reserved + cost > self.epsilon * elapsed + FREE * (block.checkpoints == 0):
            return SPENT
        if not block.executions:
            return ""
        share = min(1 / (1 + RESTORE_FACTOR), self.epsilon)
        return "" if cost < block.compute * share / (block.checkpoints + 1) else NOT_WORTH

    def patience(self, block: Block, elapsed: float, typical: float) -> float:
        """How many seconds a checkpoint may take before it is given up: twice what was expected, or what is left."""
        return max(2 * (block.cost or typical), self.epsilon * elapsed - self.spent)

    def took_too_long(self, block: Block, seconds: float) -> None:
        block.cost = 2 * max(seconds, block.cost)

    def allows_witness(self, block: Block, elapsed: float, typical: float, spacing: float) -> bool:
        """Whether digests alone are worth it, where a checkpoint is not."""
        cost = block.witness_cost or typical
        share = WITNESSES * min(self.epsilon, 1.0)
        return cost < share * spacing and self.witnessed + cost < share * elapsed

    def witness(self, block: Block, seconds: float) -> None:
        block.witness_cost = seconds
        self.witnessed += seconds
        self.spent += seconds

    def took(self, block: Block, seconds: float, once: float = 0.0) -> None:
        """`once`: seconds of it that the next checkpoint will not take."""
        block.checkpoints += 1
        block.cost = seconds - once
        self.spent += seconds
