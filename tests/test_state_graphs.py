"""State: random graphs with tensors, arrays and memory that they share come back node by node."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("numpy")

import graphs
import test_state


def session_of(heap: graphs.Heap) -> tuple[dict[str, Any], test_state.Session]:
    state = {"nodes": heap.nodes, "classes": graphs.CLASSES}
    session = test_state.Session.__new__(test_state.Session)
    session.here = test_state.Here(graphs.__name__)
    session.enter(state)
    return state, session


def check(seed: int, size: int, before: int, between: int, after: int) -> None:
    """Record a history; restore into a process at the entry, and into the one that went on; compare with a third."""
    recorded, replayed, reference = (graphs.Heap(seed, size) for _ in range(3))
    for heap in (recorded, replayed, reference):
        heap.play(before)
    (first, one), (second, two) = session_of(recorded), session_of(replayed)
    alive = list(enumerate(two.live))
    recorded.play(between)
    reference.play(between)
    kept, wanted = one.capture(), one.bytes()
    recorded.play(after)
    for state, session in ((second, two), (first, one)):
        session.restore(kept)
        graphs.Lockstep(reference.nodes, state["nodes"])
        same = session.bytes() == wanted
        assert same, "the same state is written as the same bytes"
    assert replayed.nodes is second["nodes"]
    assert all(two.live[number] is node for number, node in alive)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(0, 2**32), st.integers(1, 14), st.integers(0, 30), st.integers(0, 40), st.integers(0, 20)
)  # fmt: skip
def test_graphs_with_memory_come_back(seed: int, size: int, before: int, between: int, after: int) -> None:
    """Identity, order, bytes, geometry, and who shares memory with whom, at which place."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's about sparse layouts
        check(seed, size, before, between, after)


def check_forward(seed: int, size: int, moves: tuple[int, int, int, int]) -> None:
    """A replay that jumps, executes, and jumps again; meanwhile it holds nothing of what it knows by number."""
    recorded, replayed, reference = (graphs.Heap(seed, size) for _ in range(3))
    before, first, executed, rest = moves
    for heap in (recorded, replayed, reference):
        heap.play(before)
    (state, one), (second, two) = session_of(recorded), session_of(replayed)
    for heap in (recorded, reference):
        heap.play(first)
    early = one.capture()
    at_early = recorded.random.getstate()
    recorded.play(executed + rest)
    reference.play(executed + rest)
    late, wanted = one.capture(), one.bytes()
    two.restore(early)
    two.live.release()
    replayed.random.setstate(at_early)
    replayed.play(executed)
    two.restore(late)
    graphs.Lockstep(reference.nodes, second["nodes"])
    same = two.bytes() == wanted
    assert same
    assert state["nodes"] is recorded.nodes


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(0, 2**32), st.integers(1, 14),
    st.tuples(st.integers(0, 20), st.integers(0, 12), st.integers(0, 12), st.integers(0, 12)),
)  # fmt: skip
def test_graphs_come_back_though_nobody_holds_them(
    seed: int, size: int, moves: tuple[int, int, int, int]
) -> None:
    """What is gone at the second jump is not missed, and what is there is found again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_forward(seed, size, moves)
