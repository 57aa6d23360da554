"""Several ranks of one launch: one run, recorded apart, replayed in step."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from conftest import Flor

from florhook.ranks import Rank, member_id, of_rank
from florhook.replay.group import Folder, Member
from florhook.replay.joint import join
from florhook.replay.plan import Question
from florhook.runtime.agreement import Agreement
from florhook.store.rows import RunRow
from florhook.store.store import Store

# What torchrun does, as far as a program can tell: it starts the ranks and ends them all if one fails.
LAUNCHER = """
import os, subprocess, sys, time
number = int(sys.argv[1])
ranks = [
    subprocess.Popen(sys.argv[2:], env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank),
                     "WORLD_SIZE": str(number), "LOCAL_WORLD_SIZE": str(number)})
    for rank in range(number)
]
while any(rank.poll() is None for rank in ranks) and not any(rank.returncode for rank in ranks):
    time.sleep(0.01)
failed = [rank.returncode for rank in ranks if rank.returncode]
for rank in ranks:
    rank.kill()
sys.exit(failed[0] if failed else 0)
"""
# The ranks wait for each other as in a collective operation: nobody goes on before all have come.
TOGETHER = """
import os, socket, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

def name():
    return "\\0" + os.environ["MEETING"] + os.environ.get("MASTER_PORT", "")

def connect():
    if rank == 0:
        server = socket.socket(socket.AF_UNIX)
        server.bind(name())
        server.listen()
        return [server.accept()[0].detach() for _ in range(world - 1)]
    mine = socket.socket(socket.AF_UNIX)
    while mine.connect_ex(name()):  # how often it asks is no part of the program's course: it must not `return` here
        time.sleep(0.01)
    return [mine.detach()]

def total(value):
    '''The sum over all ranks. Descriptors are plain numbers, as the state of a real library lies in its C code.'''
    if rank == 0:
        result = sum([float(os.read(peer, 64)) for peer in peers]) + value
        for peer in peers:
            os.write(peer, repr(result).encode().ljust(64))
        return result
    os.write(peers[0], repr(value).encode().ljust(64))
    return float(os.read(peers[0], 64))

peers = connect()
"""
TRAIN = """
import random, time
from together import rank, total

random.seed(rank)
weight, stream, seen = 1.0, None, []
for epoch in range(5):
    for step in range(3):
        weight += total(random.random())
        time.sleep(0.003)  # longer than what a checkpoint may cost at most
    if rank == 0:
        for part in range(2):
            note = weight + part
        with open("best.txt", "w") as file:
            file.write(f"{epoch} {weight}")
    total(0.0)
    seen.append(open("best.txt").read())
    BODY
if rank == 0:
    print("weight", weight, seen[-1])
"""


def launch(flor: Flor, *args: str, ranks: int = 2, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run a program in several ranks under florhook."""
    flor.write("launch.py", LAUNCHER)
    flor.write("together.py", TOGETHER)
    command = [str(ranks), sys.executable, *args]
    return flor.python("launch.py", *command, MEETING=str(flor.folder), **changes)


def both(
    flor: Flor, probe: str, after: str, body: str = "pass", **changes: str
) -> tuple[list[str], list[str], Any]:
    """Record, add a probe, run plainly and replay: the probe's lines of each, sorted, and the replay."""
    source = TRAIN.replace("BODY", body)
    flor.write("train.py", source)
    done = launch(flor, "-m", "florhook", "train.py", FLOR_EPSILON="inf")
    assert (done.returncode, done.stdout.split()[0]) == (0, "weight"), done.stderr
    line = next(line for line in source.splitlines() if after in line)
    margin = line[: len(line) - len(line.lstrip())]
    flor.write("train.py", source.replace(line, f"{line}\n{margin}{probe}", 1))
    plain = launch(flor, "train.py")
    stats = str(flor.home.parent / "stats")
    again = launch(flor, "-m", "florhook", "train.py", FLOR_MODE="replay", FLOR_STATS=stats, **changes)
    assert again.returncode == 0, again.stderr
    lines = [line for line in plain.stdout.splitlines() if "@@" in line]
    return sorted(lines), sorted(again.stdout.splitlines()), again


def figures(flor: Flor, rank: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(of_rank(flor.home.parent / "stats", rank).read_text())
    return found


def test_all_ranks_make_one_run(flor: Flor) -> None:
    """`runs` has one line for it; each rank's part stands in the store under a name of its own."""
    flor.write("train.py", TRAIN.replace("BODY", "pass"))
    plain = launch(flor, "train.py")
    done = launch(flor, "-m", "florhook", "train.py", FLOR_EPSILON="inf")
    assert (done.returncode, done.stdout, done.stderr) == (0, plain.stdout, "")
    listed = flor("runs").stdout.splitlines()
    assert len(listed) == 2
    assert re.search(r" 2$", listed[1].rstrip())
    with Store.open(flor.home) as store:
        head = store.find("last")
        assert sorted(run.id for run in store.runs()) == [head.id, f"{head.id}.1"]
        assert store.find(f"{head.id}.1").rank == 1
        assert store.find(head.id[:-1]).id == head.id  # a prefix means the run, not one of its parts
    shown = flor("show").stdout
    assert "2; this is rank 0" in shown
    assert re.search(rf"rank 1 +{head.id}\.1: exit 0, \d+ iterations, \d+ checkpoints, ", shown)
    assert not list((flor.home / "runs").glob("*.ranks"))


def test_what_one_rank_is_asked_for_all_execute(flor: Flor) -> None:
    """A probe that only rank 0 comes to: both go to that epoch, and what rank 0 writes there rank 1 reads."""
    probe = r"print(f'@@ {epoch} {weight} {seen[-1:]}\n', end='', flush=True)"
    wanted, got, _ = both(flor, probe, "note = weight", FLOR_SELECT="epoch=3")
    assert got == [line for line in wanted if line.startswith("@@ 3 ")]
    assert len(got) == 2
    for rank in (0, 1):
        # to epoch 3, over its steps, and to the end
        assert figures(flor, rank)["jumps"] == 3
        assert figures(flor, rank)["iterations_skipped"] == 3 + 3 + 1
    assert sum(figures(flor, rank)["diverged"] + figures(flor, rank)["unverified"] for rank in (0, 1)) == 0


def test_a_checkpoint_that_one_rank_cannot_use_is_left_out_by_all(flor: Flor) -> None:
    """Rank 1 draws from a generator that no checkpoint holds: both start again, and nothing is printed twice."""
    body = (
        "stream = stream or (iter(range(100)) if rank == 0 else (i for i in range(100)))\n"
        "    seen.append(str(next(stream)) if epoch in (0, 4) else '')"
    )
    probe = r"print(f'@@ {rank} {epoch} {weight} {seen}\n', end='', flush=True)"
    wanted, got, done = both(flor, probe, "total(0.0)", body, FLOR_SELECT="epoch=3")
    assert got == [line for line in wanted if line.split()[2] == "3"]
    assert "generator" in done.stderr
    assert figures(flor, 0)["iterations_skipped"] == figures(flor, 1)["iterations_skipped"]


def test_a_replay_has_the_ranks_of_the_run(flor: Flor) -> None:
    """Alone, or with more ranks, it is refused; so is what cannot be done with ranks yet."""
    flor.write("train.py", TRAIN.replace("BODY", "pass"))
    launch(flor, "-m", "florhook", "train.py")
    alone = flor("train.py", FLOR_MODE="replay", RANK="", MEETING="x")
    assert alone.returncode == 3
    assert "had 2 ranks, and this launch has 1" in alone.stderr
    more = launch(flor, "-m", "florhook", "train.py", ranks=3, FLOR_MODE="replay")
    assert "had 2 ranks, and this launch has 3" in more.stderr
    resumed = launch(flor, "-m", "florhook", "--at", "epoch=2", "train.py", FLOR_MODE="resume")
    assert resumed.returncode == 3
    assert "not resumed yet" in resumed.stderr
    shell = flor("shell", "last", "--at", "epoch=2")
    assert (shell.returncode, "not entered by shell yet" in shell.stderr) == (3, True)


def test_a_rank_is_what_a_launcher_numbered() -> None:
    """Not what runs alone, nor what a rank itself starts; the launch is the same for all its ranks."""
    ranks = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    assert Rank.of({}, "train.py") is None
    assert Rank.of({**ranks, "WORLD_SIZE": "1"}, "train.py") is None
    assert Rank.of({**ranks, "RANK": "x"}, "train.py") is None
    assert Rank.of({**ranks, "FLOR_OWNER": "run:1"}, "train.py") is None
    one, other = Rank.of({**ranks, "RANK": "0"}, "train.py"), Rank.of(ranks, "train.py")
    assert one is not None
    assert other is not None
    assert (one.number, other.number, other.world) == (0, 1, 2)
    assert one.launch == other.launch
    assert (one.run_id, other.run_id) == (one.launch, f"{one.launch}.1")
    for changed in (
        Rank.of(ranks, "other.py"),
        Rank.of({**ranks, "TORCHELASTIC_RESTART_COUNT": "1"}, "train.py"),
    ):
        assert changed is not None
        assert changed.launch != one.launch
    assert member_id("a", 0) == "a"


class FakeRecord:
    """The loops of a rank: {path of a loop: (checkpoints, exit, iterations, asked for)}."""

    def __init__(self, **loops: tuple[set[int], str, int, set[int]]) -> None:
        from test_plan import loop

        self.run = RunRow("r", "p", (), "/", 0.0, {"world": 2})
        self.loops = {}
        for number, (name, (kept, how, known, _)) in enumerate(loops.items()):
            made = loop(iterations=known, checkpoints=tuple(kept), exit=how, parent=-1)
            self.loops[number] = made
            object.__setattr__(made.row, "site", name)
        self.asked = {name: asked for name, (_, _, _, asked) in loops.items()}

    def question(self) -> Any:
        class Asks(Question):
            def wants(_, loop: Any, iteration: int) -> bool:  # noqa: N805
                return iteration in self.asked[loop.row.site]

        return Asks(frozenset(), frozenset())


def test_ranks_plan_the_same() -> None:
    """The checkpoints that both have, the iterations that either is asked for; what only one went through is run."""
    own = FakeRecord(
        main=({0, 2, 3, -1}, "end", 5, {1}),
        alone=({0, -1}, "end", 4, set()),
        shorter=({0, 1}, "end", 3, set()),
    )
    other = FakeRecord(main=({0, 3, 4, -1}, "end", 5, {4}), shorter=({0, 1}, "break", 2, set()))
    join(own, [(other, other.question())])  # type: ignore[arg-type,list-item]
    main, alone, shorter = own.loops.values()
    assert set(main.checkpoints) == {0, 3, -1}
    assert set(main.witnesses) == {2}
    assert main.asked == {4}
    assert not alone.checkpoints
    assert not shorter.checkpoints
    assert set(shorter.witnesses) == {0, 1}


def test_a_run_on_several_machines_is_executed() -> None:
    """Only this machine's records are here: nobody knows what the others can skip."""
    own = FakeRecord(main=({0, 2, -1}, "end", 5, set()))
    own.run.meta["world"] = 4
    join(own, [(FakeRecord(), Question(frozenset(), frozenset()))])  # type: ignore[arg-type,list-item]
    assert not own.loops[0].checkpoints


def test_ranks_meet(tmp_path: Path) -> None:
    """Nobody is let go before all have come; who comes for another reason is told."""
    members = [Member(Folder(tmp_path, rank, 2, 0, []), lambda _: None) for rank in (0, 1)]
    order: list[str] = []

    def second() -> None:
        order.append("second comes")
        assert members[1].meet("jump to 3")
        assert not members[1].meet("jump to 5")

    thread = threading.Timer(0.2, second)
    thread.start()
    assert members[0].meet("jump to 3")
    order.append("first goes on")
    assert not members[0].meet("jump to 4")
    thread.join()
    assert order == ["second comes", "first goes on"]


def test_rank_0_decides_one_occasion_ahead(tmp_path: Path) -> None:
    """The others do as it said before; what it did not say is not done."""
    leader, other = Agreement(tmp_path / "x.ranks", True), Agreement(tmp_path / "x.ranks", False)
    assert leader.settle(True, "loop", 1, 2, True)
    assert not other.settle(False, "loop", 1, 2, True)  # the first time each decides for itself
    assert leader.settle(False, "loop", 2, 3, False)
    assert other.settle(False, "loop", 2, 3, False)
    assert not leader.settle(True, "loop", 3, 4, False)
    assert not other.settle(True, "loop", 3, 4, False)
    assert other.settle(False, "loop", 4, 5, False)
    leader.close()
    assert not os.listdir(tmp_path)


DDP = """
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
data = torch.randn(24, 6)
net = DistributedDataParallel(nn.Sequential(nn.Linear(6, 12), nn.Dropout(0.2), nn.Linear(12, 1)))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for epoch in range(6):
    for batch in data.split(8):
        loss = net(batch).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.all_reduce(loss.detach())
    if rank == 0:
        print(f"epoch {epoch} {loss.item()}\\n", end="", flush=True)
dist.destroy_process_group()
"""


LAUNCHERS = {
    "torch.distributed": ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
    # on a machine without devices this means as many processes over gloo
    "accelerate": ("-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"),
}


@pytest.mark.needs_torch
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_torchrun(launcher: str, flor: Flor) -> None:
    """Distributed training: recorded as it is, and each rank's probe prints what it would have."""
    pytest.importorskip(launcher)
    torchrun = LAUNCHERS[launcher]
    flor.write("train.py", DDP)
    calm = {"OMP_NUM_THREADS": "1"}
    plain = flor.python(*torchrun, "train.py", **calm)
    done = flor.python(*torchrun, "-m", "florhook", "train.py", FLOR_EPSILON="inf", **calm)
    assert (done.returncode, done.stdout) == (0, plain.stdout)
    probe = "    print(f'@@ {rank} {epoch} {loss.item()} {batch.sum().item()}\\n', end='', flush=True)\n"
    flor.write("train.py", DDP.replace("    if rank == 0", f"{probe}    if rank == 0"))
    plain = flor.python(*torchrun, "train.py", **calm)
    stats = {"FLOR_STATS": str(flor.home.parent / "stats")}
    again = flor.python(*torchrun, "-m", "florhook", "train.py", FLOR_MODE="replay", **calm, **stats)
    wanted = [line for line in plain.stdout.splitlines() if line.startswith("@@")]
    assert sorted(again.stdout.splitlines()) == sorted(wanted)
    assert len(wanted) == 12
    for rank in (0, 1):
        assert figures(flor, rank)["iterations_skipped"] == 18
        assert figures(flor, rank)["diverged"] == 0
