"""Retention: limits are kept, what is left is what is worth most, nothing that is committed is ever lost."""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest
import xxhash
from conftest import ROOT, Flor, unwritable_copy
from hypothesis import given
from hypothesis import strategies as st

from florhook.dataclass import replace
from florhook.errors import RefusedError, StoreError
from florhook.store import home as homes
from florhook.store import packs
from florhook.store.coding import encode
from florhook.store.collect import LEFT_OVER_S, Report, Request, collect, plan
from florhook.store.pins import pin, unpin
from florhook.store.recording import Recording
from florhook.store.rows import CheckpointRow, ContextRow, Piece, RunRow, SourceRow
from florhook.store.store import WHOLE, Store
from florhook.store.thin import Kept, order

KB, MB = 1000, 1000_000
KILLS = int(os.environ.get("FLOR_KILLS", "6"))


pytestmark = pytest.mark.usefixtures("own_key")


def noise(name: str, size: int = 20 * KB) -> bytes:
    """Bytes that are known from their name and cannot be compressed."""
    return hashlib.shake_128(name.encode()).digest(size)


def begin(home: Path, run: str = "a", max_bytes: int | None = None) -> Recording:
    """A run with one loop outside all others, number 1, and a source."""
    recording = Recording.start(home, RunRow(run, "train.py", (), "/w", 1000.0), 64 * MB, max_bytes)
    recording.rows("sources", [(*vars(SourceRow("__main__", "/w/train.py", b"print(1)\n")).values(),)])
    recording.rows("contexts", [(*vars(ContextRow(1, -1, -1, "__main__::0", 0, 0.0, 0)).values(),)])
    return recording


def take(recording: Recording, number: int, *parts: bytes) -> bool:
    """A checkpoint at the boundary before iteration `number`, taken at second `number`."""
    pieces = [Piece(index, memoryview(part), compress=index == 0) for index, part in enumerate(parts)]
    return recording.checkpoint(CheckpointRow(1, number, float(number), 0, "{}"), pieces)


def end(home: Path, recording: Recording, run: str = "a") -> None:
    """The run ends, and its writer too."""
    assert recording.finish(1001.0, 0, {}, 30)
    assert homes.wait(home, run, 30)


def record(home: Path, run: str, count: int, shared: bytes = b"") -> None:
    """A run that ended: checkpoint n holds what `state` says, and what it shares with others."""
    recording = begin(home, run)
    for number in range(count):
        assert take(recording, number, *state(run, number), shared)
    end(home, recording, run)


def state(run: str, number: int) -> list[bytes]:
    return [noise(f"{run} stream {number}", 500), noise(f"{run} leaf {number}"), noise(f"{run} frozen")]


def used(home: Path) -> int:
    return sum(path.stat().st_size for path in (home / "packs").iterdir())


def check(home: Path, run: str, shared: bytes = b"") -> list[int]:
    """Which checkpoints a run has; all of them read back, signed."""
    with Store.open(home) as store:
        found = store.checkpoints(run)
        for checkpoint in found:
            contents = [bytes(store.read(digest)) for digest in checkpoint.digests]
            assert contents == [*state(run, checkpoint.iteration), shared]
            assert store.trusted(run, checkpoint)
        assert [source.source for source in store.sources(run)] == [b"print(1)\n"]
        return [checkpoint.iteration for checkpoint in found]


def snapshot(home: Path) -> dict[str, tuple[bytes, int]]:
    """Every file of a store with its time."""
    files = (path for path in sorted(home.rglob("*")) if path.is_file())
    return {str(path.relative_to(home)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


# Which checkpoints go -------------------------------------------------------------------------------------


def kept(
    ctx: int,
    iteration: int,
    taken: float,
    parent: tuple[int, int] = (-1, -1),
    depth: int = 0,
    pinned: bool = False,
) -> Kept:
    return Kept(0, ctx, iteration, *parent, depth, taken, False, pinned, ())


def test_what_is_left_lies_evenly() -> None:
    """However many are dropped, no gap is more than twice as long as if the rest had been spread by a ruler."""
    times = sorted(random.Random(3).sample(range(1000), 100))
    rows = [kept(1, number, time) for number, time in enumerate(times, 1)]
    left = list(rows)
    for (dropped,) in order(rows):
        left.remove(dropped)
        gaps = [later.taken - row.taken for row, later in itertools.pairwise(left)]
        span = times[-1] - times[0]
        most = max(later - earlier for earlier, later in itertools.pairwise(times))
        assert max(gaps) <= max(2 * span / len(gaps), most)
    assert left == [rows[0], rows[-1]]


def test_an_exit_goes_with_the_boundary_that_shares_its_bytes() -> None:
    """Epochs are dropped as a whole: the inner loop's exit, and the boundary that comes right after it."""
    rows = [kept(1, 0, 0.0)]
    for epoch in range(5):
        rows += [kept(10 + epoch, -1, epoch + 0.8, (1, epoch), 1), kept(1, epoch + 1, epoch + 0.9)]
    rows.append(kept(1, -1, 5.0))
    dropped = [{(row.ctx, row.iteration) for row in group} for group in order(rows)]
    assert all({(10 + epoch, -1), (1, epoch + 1)} in dropped for epoch in range(5))
    assert len(dropped) == 5


def test_places_in_inner_loops_go_first() -> None:
    """Nobody gets to them but by the boundaries around; among themselves they stay evenly spread."""
    rows = [kept(1, epoch, 100.0 * epoch) for epoch in range(6)]
    rows += [
        kept(10 + epoch, 1 + k, 100.0 * epoch + 10 * k, (1, epoch), 1)
        for epoch in range(5)
        for k in range(1, 10)
    ]
    gone = [group[0] for group in order(rows)]
    assert [row.depth for row in gone] == [1] * 44 + [0] * 4  # but for the first and the last of each kind
    left = sorted(row.taken for row in rows if row not in gone[:25])
    assert max(later - earlier for earlier, later in itertools.pairwise(left)) <= 30


def test_pinned_ones_and_entries_of_main_loops_stay() -> None:
    """Neither is ever dropped, nor are the first and the last."""
    rows = [kept(1, number, number) for number in range(1, 9)]
    rows += [
        kept(2, 0, 10.0),
        kept(2, 1, 11.0, pinned=True),
        kept(3, 0, 12.0, (2, 1), 1),
        kept(2, 2, 13.0),
    ]
    rows += [kept(4, 1, 12.5, (2, 1), 1)]
    gone = {(row.ctx, row.iteration) for group in order(rows) for row in group}
    assert gone == {*((1, number) for number in range(2, 9)), (3, 0)}


# Recording within a limit ---------------------------------------------------------------------------------


def test_the_limit_is_kept_while_a_run_is_recorded(home: Path) -> None:
    """The pack files are never larger than asked for; the first and the last are there, the others lie evenly."""
    limit = 500 * KB  # of 80 checkpoints of 20 KB
    recording = begin(home, max_bytes=limit)
    most = 0
    for number in range(80):
        assert take(recording, number, *state("a", number), b"")
        deadline = time.monotonic() + 20
        while recording.bytes_written < 20 * KB * (number + 1) and time.monotonic() < deadline:
            time.sleep(0.002)
            recording.rows("output", [(number, "")])  # hears the writer
        most = max(most, used(home))
    end(home, recording)
    assert recording.failed is None
    assert recording.note is None
    assert 300 * KB < most <= limit
    assert used(home) <= limit
    found = check(home, "a")
    assert (found[0], found[-1]) == (0, 79)
    gaps = [later - number for number, later in itertools.pairwise(found)]
    assert len(found) >= 10
    assert max(gaps) <= 4 * 79 / len(gaps)


def test_old_runs_make_room_for_a_new_one(home: Path) -> None:
    """A store that is full of earlier runs is no reason to keep nothing of this one: they are thinned, not removed."""
    for run in "bc":
        record(home, run, 20)
    recording = begin(home, "a", max_bytes=600 * KB)
    for number in range(20):
        assert take(recording, number, *state("a", number), b"")
    end(home, recording)
    assert used(home) <= 600 * KB
    counts = {run: check(home, run) for run in "abc"}
    assert all((found[0], found[-1]) == (0, 19) for found in counts.values())
    assert min(map(len, counts.values())) >= 4


def test_runs_that_are_being_recorded_are_let_be(home: Path) -> None:
    """Neither a limit nor `gc` touches a run that another process records."""
    other = begin(home, "b")
    for number in range(10):
        assert take(other, number, *state("b", number), b"")
    while not (home / "packs").exists() or used(home) < 100 * KB:
        time.sleep(0.01)
    recording = begin(home, "a", max_bytes=100 * KB)
    for number in range(10):
        assert take(recording, number, *state("a", number), b"")
    end(home, recording)
    report = collect(Request(home, max_bytes=1))
    assert set(report.thinned) <= {"a"}
    assert take(other, 10, *state("b", 10), b"")
    end(home, other, "b")
    assert check(home, "b") == list(range(11))
    assert check(home, "a") == [0, 9]
    assert "more than --max-bytes 100000" in (recording.note or "")


def test_a_checkpoint_larger_than_the_limit(home: Path) -> None:
    """It is said, once, and recording goes on: the first and the newest are kept."""
    recording = begin(home, max_bytes=30 * KB)
    notes = []
    for number in range(6):
        assert take(recording, number, *state("a", number), b"")
        time.sleep(0.1)
        recording.rows("output", [(number, "")])
        notes.append(recording.note)
        recording.note = None
    end(home, recording)
    notes.append(recording.note)
    (said,) = filter(None, notes)
    assert "more than --max-bytes 30000" in said
    assert check(home, "a") == [0, 5]
    assert used(home) < 70 * KB


def test_what_was_removed_is_stored_again_when_it_comes_back(home: Path) -> None:
    """Both processes forget what was removed: a state that returns is written anew."""
    recording = begin(home, max_bytes=120 * KB)
    for number in range(60):
        parts = [
            noise(f"a stream {number}", 500),
            noise(f"leaf {number % 7}"),
            noise(f"small {number % 5}", 90),
        ]
        assert take(recording, number, *parts)
        time.sleep(0.02)
    end(home, recording)
    with Store.open(home) as store:
        found = store.checkpoints("a")
        assert len(found) >= 3
        for row in found:
            number = row.iteration
            assert bytes(store.read(row.digests[1])) == noise(f"leaf {number % 7}")
            assert bytes(store.read(row.digests[2])) == noise(f"small {number % 5}", 90)


PROGRAM = """
import random
weights = [0.0] * 300
for epoch in range(40):
    for step in range(4):
        weights = [w + random.random() for w in weights]
    {probe}
print("end", sum(weights))
"""
PROBE = 'print("probe", epoch, weights[7])'


def test_a_thinned_run_replays_to_the_truth(flor: Flor) -> None:
    """What was dropped is executed again: the probes print what they would have printed."""
    flor.write("train.py", "import random\nrandom.seed(5)\n" + PROGRAM.format(probe="pass"))
    done = flor("train.py", FLOR_EPSILON="inf", FLOR_MAX_BYTES="0.1M", FLOR_STATS="s.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert used(flor.home) <= 100 * KB
    with Store.open(flor.home) as store:
        (run,) = store.runs()
        left = len(store.checkpoints(run))
        assert 4 <= left < run.stats["checkpoints"]
    flor.write("train.py", "import random\nrandom.seed(5)\n" + PROGRAM.format(probe=PROBE))
    plain = [line for line in flor.python("train.py").stdout.splitlines(True) if line.startswith("probe")]
    for words in ([], ["--max-bytes", "40K", "--compact"]):
        if words:
            done = flor("gc", *words)
            assert (done.returncode, done.stderr) == (0, "")
            assert used(flor.home) <= 40 * KB
        replay = flor("train.py", FLOR_MODE="replay")
        assert (replay.returncode, replay.stderr) == (0, "")
        assert replay.stdout == "".join(plain)


def test_a_limit_that_cannot_be_kept_is_said_on_stderr(flor: Flor) -> None:
    """Once, and the program runs on; nonsense is refused before it runs."""
    flor.write("train.py", "for epoch in range(30):\n    x = list(range(epoch, 900))\nprint(sum(x))\n")
    done = flor("--max-bytes", "1K", "train.py", FLOR_EPSILON="inf")
    assert (done.returncode, done.stdout) == (0, f"{sum(range(29, 900))}\n")
    assert done.stderr.startswith("florhook: the store takes ")
    assert done.stderr.count("\n") == 1
    done = flor("train.py", FLOR_MAX_BYTES="lots")
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr == "florhook: FLOR_MAX_BYTES must be a number of bytes such as 500M or 20G, not 'lots'\n"
    )


def test_chunks_that_go_while_a_replay_runs(flor: Flor) -> None:
    """A replay that finds a checkpoint's bytes gone says so, and executes instead."""
    flor.write("train.py", "import random\nrandom.seed(5)\n" + PROGRAM.format(probe="pass"))
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    with sqlite3.connect(flor.home / "catalog.sqlite") as db:  # the rows are read before the bytes are
        db.execute("DELETE FROM chunks WHERE digest IN (SELECT substr(digests, 1, 16) FROM checkpoints)")
    db.close()
    flor.write("train.py", "import random\nrandom.seed(5)\n" + PROGRAM.format(probe=PROBE))
    plain = flor.python("train.py").stdout.partition("end")[0]
    replay = flor("train.py", FLOR_MODE="replay")
    assert (replay.returncode, replay.stdout) == (0, plain)
    assert "a checkpoint cannot be used" in replay.stderr
    assert "not any more" in replay.stderr
    assert "Traceback" not in replay.stderr


# gc -------------------------------------------------------------------------------------------------------


def test_gc_keeps_to_the_limit(home: Path) -> None:
    """The store gets as small as asked for; the run that holds most loses most."""
    record(home, "a", 30)
    record(home, "b", 10)
    report = collect(Request(home, max_bytes=400 * KB))
    assert report.before > 800 * KB
    assert report.after == used(home) <= 400 * KB
    found = {run: check(home, run) for run in "ab"}
    assert report.thinned["a"] == (30 - len(found["a"]), 30)
    assert (found["a"][0], found["a"][-1], found["b"][0], found["b"][-1]) == (0, 29, 0, 9)
    assert abs(len(found["a"]) - len(found["b"])) <= 2
    assert collect(Request(home, max_bytes=400 * KB)).freed == 0


def test_deleting_a_run_frees_what_only_it_had(home: Path) -> None:
    """Chunks that another run refers to stay, whoever wrote them."""
    shared = noise("shared", 200 * KB)
    record(home, "a", 5, shared)
    record(home, "b", 5, shared)
    size = used(home)
    report = collect(Request(home, delete=("a",)))
    only_a = 6 * 20 * KB + 5 * 500
    assert report.freed == size - used(home) == pytest.approx(only_a, abs=3 * KB)
    assert check(home, "b", shared) == list(range(5))
    with Store.open(home) as store:
        assert [run.id for run in store.runs()] == ["b"]
    collect(Request(home, delete=("b",)))
    assert list((home / "packs").iterdir()) == []


def test_a_dry_run_changes_nothing_and_tells_what_would_be(home: Path, flor: Flor) -> None:
    """Not a byte, and not a file more; what is done afterwards is what was told."""
    for run in "ab":
        record(home, run, 12)
    for request in (Request(home), Request(home, delete=("a",)), Request(home, max_bytes=200 * KB)):
        before = snapshot(home)
        told = plan(request)
        assert snapshot(home) == before
    done = flor("gc", "--dry-run", "--delete", "b", FLOR_HOME=str(home))
    assert snapshot(home) == before
    assert done.stdout.splitlines()[0] == "b: would be deleted"
    report = collect(request)
    assert report.after == pytest.approx(told.after, abs=100)  # of two files one was made
    assert replace(report, after=told.after) == told


def test_what_crashes_leave_behind_is_collected(home: Path) -> None:
    """Pack files and tails that no row names, old locks, folders of old replays; what is young stays."""
    record(home, "a", 3)
    (pack,) = (home / "packs").iterdir()
    whole = pack.read_bytes()
    with pack.open("ab") as file:
        file.write(noise("torn", 3000))
    (home / "packs" / "dead-0.pack").write_bytes(noise("orphan", 5000))
    old = time.time() - LEFT_OVER_S - 10
    left = ["runs/dead.lock", "runs/dead.ranks", "replays/old/root/files/x", "rewritten/old"]
    young = ["runs/young.lock", "replays/new/root/files/x", "replays/half/root/files/x", "rewritten/new"]
    for name in (*left, *young, "cut/old/x", "replays/half/journal"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(b"123")
    changing = (each for folder in ("replays", "runs", "rewritten") for each in (home / folder).rglob("*"))
    for path in (*changing, home / "cut/old/x"):
        if not any(home / name == path for name in young):
            os.utime(path, (old, old))
    report = collect(Request(home))
    assert report.freed == 3000 + 5000 + 4 * 3
    assert pack.read_bytes() == whole
    names = {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}
    assert names >= {*young, "cut/old/x", "replays/half/journal"}
    assert not names & {*left, "packs/dead-0.pack"}
    assert not (home / "replays/old").exists()
    assert check(home, "a") == [0, 1, 2]


def test_pins(home: Path) -> None:
    """What is pinned is neither thinned nor deleted, until it is let go."""
    for run in "ab":
        record(home, run, 12)
    pin(home, [("a", 1, 7), ("b", *WHOLE)])
    collect(Request(home, max_bytes=1))
    assert (check(home, "a"), check(home, "b")) == ([0, 7, 11], list(range(12)))
    for run in "ab":
        with pytest.raises(RefusedError, match="is pinned"):
            collect(Request(home, delete=(run,)))
    unpin(home, ["a", "b"])
    collect(Request(home, max_bytes=1))
    assert (check(home, "a"), check(home, "b")) == ([0, 11], [0, 11])


def test_pins_by_loop_variable(flor: Flor) -> None:
    """`pin RUN --at epoch=7` keeps the checkpoint from which that epoch is reached."""
    flor.write("train.py", "for epoch in range(1, 13):\n    x = [epoch] * 9\n    print(sum(x))\n")
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    with Store.open(flor.home) as store:
        taken = {row.iteration for row in store.checkpoints(store.find("last"))}
    done = flor("pin", "last", "--at", "epoch=7")
    assert (done.returncode, done.stderr) == (0, "")
    assert "pinned       1 checkpoints" in flor("show", "last").stdout
    assert flor("gc", "--max-bytes", "1").returncode == 0
    with Store.open(flor.home) as store:
        left = {row.iteration for row in store.checkpoints(store.find("last"))}
    assert left == {0, max(taken & set(range(7))), -1}  # epoch 7 is iteration 6
    assert flor("gc", "--delete", "last").returncode == 3
    assert flor("unpin", "last").returncode == 0
    assert flor("gc", "--delete", "last").returncode == 0
    assert "no run" in flor("show", "last").stderr


def test_wrong_use_and_unusable_stores_give_one_line(flor: Flor, home: Path) -> None:
    """Exit code 2 or 3, one line, no traceback."""
    record(home, "a", 3)
    for words, code in (
        (["gc", "--max-bytes", "much"], 2),
        (["gc", "--max-bytes"], 2),
        (["gc", "--fast"], 2),
        (["gc", "a"], 2),
        (["--max-bytes", "-1", "gc"], 2),
        (["gc", "--delete", "zz"], 3),
        (["pin", "a", "b"], 2),
        (["pin", "zz"], 3),
        (["--home", "nowhere", "gc"], 3),
        (["--home", "nowhere", "gc", "--dry-run"], 3),
    ):
        done = flor(*words, FLOR_HOME=str(home))
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), words
        assert done.stderr.startswith("florhook: ")


def test_gc_of_a_read_only_store(home: Path) -> None:
    """One line; a dry run works."""
    record(home, "a", 3)
    code = (
        "import os, sys\n"
        "from florhook import cli\n"
        "import florhook.views.retention\n"
        "os.setuid(65534) if os.getuid() == 0 else None\n"
        "cli.main()"
    )
    with unwritable_copy(home) as copy:
        environment = {**os.environ, "FLOR_HOME": str(copy), "PYTHONPATH": str(ROOT / "src")}
        for words, expected in (["gc"], (3, 1)), (["gc", "--dry-run"], (0, 0)):
            command = [sys.executable, "-c", code, *words]
            done = subprocess.run(command, capture_output=True, text=True, env=environment)
            assert (done.returncode, done.stderr.count("\n")) == expected, done.stderr


def test_a_store_of_an_older_format(home: Path) -> None:
    """It is planned for without a change, and brought up to date by what changes it."""
    record(home, "a", 12)
    with sqlite3.connect(home / "catalog.sqlite") as db:
        for table in ("pins", "deltas", "removals", "logged"):
            db.execute(f"DROP TABLE {table}")
        db.execute("DELETE FROM format WHERE number > 2")
        db.execute("PRAGMA user_version = 2")
    db.close()
    assert check(home, "a") == list(range(12))
    told = plan(Request(home, max_bytes=100 * KB))
    assert check(home, "a") == list(range(12))
    assert collect(Request(home, max_bytes=100 * KB)).thinned == told.thinned
    assert used(home) <= 100 * KB


# Compaction -----------------------------------------------------------------------------------------------


@given(st.data())
def test_codings_are_undone(data: st.DataObject) -> None:
    """Whatever the bytes, and whatever they are a difference to."""
    unit = data.draw(st.binary(min_size=1, max_size=40))
    content = (unit * 50)[: data.draw(st.integers(0, 1500))]
    base = bytes(byte ^ data.draw(st.integers(0, 3)) for byte in content[:20]) + content[20:]
    other = data.draw(st.sampled_from([None, base]))
    stored, codec = encode(content, other)
    assert len(stored) <= len(content)
    digest = xxhash.xxh3_128_digest(content)
    fd = os.memfd_create("pack")
    try:
        os.write(fd, stored)
        row = packs.ChunkRow(digest, len(content), 1, 0, len(stored), codec)
        assert bytes(packs.read_chunk(fd, row, lambda: base)) == content
    finally:
        os.close(fd)


def weights(count: int, size: int = 20_000) -> Iterator[bytes]:
    """Floats that change a little from step to step, as in training."""
    rng = random.Random(7)
    values = array("f", (rng.gauss(0, 0.1) for _ in range(size)))
    for _ in range(count):
        yield values.tobytes()
        values = array("f", (value * (1 + 1e-4 * rng.random()) for value in values))


def test_compaction_makes_slowly_changing_floats_smaller(home: Path) -> None:
    """By a third at least, bit for bit the same, also when some is dropped; a second time changes nothing."""
    states = list(weights(9))
    recording = begin(home)
    for number, content in enumerate(states):
        assert take(recording, number, noise(f"s{number}", 100), content)
    end(home, recording)
    size = used(home)
    with Store.open(home) as old:  # a reader that was there before
        report = collect(Request(home, compact=True))
        assert report.after == used(home) < size * 2 / 3
        for store in (old, Store.open(home)):
            found = [bytes(store.read(row.digests[1])) for row in store.checkpoints("a")]
            assert found == states
            assert all(store.trusted("a", row) for row in store.checkpoints("a"))
        store.close()
    assert collect(Request(home, compact=True)) == Report(before=report.after, after=report.after)
    collect(Request(home, max_bytes=report.after // 2))
    with Store.open(home) as store:
        left = store.checkpoints("a")
        assert 2 <= len(left) < 9
        assert [bytes(store.read(row.digests[1])) for row in left] == [states[row.iteration] for row in left]


# Nothing is lost ------------------------------------------------------------------------------------------

GC = """
import sys
from pathlib import Path
from florhook.store.collect import Request, collect
print("ready", flush=True)
for number in range(int(sys.argv[3])):
    collect(Request(Path(sys.argv[1]), max_bytes=int(sys.argv[2]) or None, compact=True))
    print(number, flush=True)
"""


def gc_process(home: Path, max_bytes: int = 0, times: int = 1) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", GC, str(home), str(max_bytes), str(times)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_killed_at_any_moment(tmp_path: Path, home: Path) -> None:
    """Every checkpoint that is in the catalog reads back, and the next gc finishes what one left half done."""
    rng = random.Random(int(os.environ.get("FLOR_SEED", "1")))
    for number in range(KILLS):
        record(home, f"r{number}", 10)
        process = gc_process(home, max_bytes=0 if number % 2 else 300 * KB)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(rng.uniform(0.0, 0.2))
        process.kill()
        process.communicate()
        for run in range(number + 1):
            found = check(home, f"r{run}")
            assert (found[0], found[-1]) == (0, 9)
    collect(Request(home))
    with Store.open(home) as store:
        rows = store.connection.execute(
            "SELECT name, sum(size) + ? FROM chunks JOIN packs ON id = pack GROUP BY id", (16,)
        )
        live = dict(rows.fetchall())
    sizes = {path.name: path.stat().st_size for path in (home / "packs").iterdir()}
    assert sizes.keys() == live.keys()
    assert all(sizes[name] * 7 / 8 < live[name] <= sizes[name] for name in live)


RECORD = """
import itertools, sys, time
sys.path.insert(0, sys.argv[3])
from pathlib import Path
from test_gc import KB, begin, state, take
recording = begin(Path(sys.argv[1]), sys.argv[2], max_bytes=400 * KB)
for number in itertools.count():
    if not take(recording, number, *state(sys.argv[2], number), b"") and recording.failed:
        break
    print(recording.bytes_written, recording.writer_pid or 0, flush=True)
    time.sleep(0.002)
print(recording.failed, flush=True)
"""


def test_writer_killed_while_it_keeps_the_limit(home: Path) -> None:
    """What is in the catalog reads back, and what is there without being needed is collected."""
    rng = random.Random(int(os.environ.get("FLOR_SEED", "1")))
    for number in range(KILLS // 2):
        command = [sys.executable, "-c", RECORD, str(home), f"r{number}", str(ROOT / "tests")]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for line in process.stdout:  # until there is too much for the limit
            written, pid = map(int, line.split())
            if written > 500 * KB:
                break
        time.sleep(rng.uniform(0.0, 0.3))
        os.kill(pid, signal.SIGKILL)
        out, _ = process.communicate(timeout=60)
        assert out.splitlines()[-1] == "the writer process has died"
        for run in range(number + 1):
            assert check(home, f"r{run}")[:1] == [0]
    assert collect(Request(home, max_bytes=400 * KB)).after == used(home)
    assert all(check(home, f"r{run}")[:1] == [0] for run in range(KILLS // 2))


def test_recording_while_gc_runs(home: Path) -> None:
    """Runs that share chunks with those that gc thins and deletes keep all that they committed.

    What counted on chunks of a run that is deleted before it was committed is lost; what comes later is not.
    """
    shared = noise("shared", 50 * KB)
    process = None
    for number in range(4):
        record(home, f"old{number}", 6, shared)
        process = gc_process(home, max_bytes=200 * KB, times=5)
        recording = begin(home, f"new{number}", max_bytes=2 * MB if number % 2 else None)
        for step in range(30):
            assert take(recording, step, *state(f"new{number}", step), shared)
            time.sleep(0.01)
            if step == 10:
                collect(Request(home, delete=(f"old{number}",)))
        end(home, recording, f"new{number}")
        assert process.wait(60) == 0
        assert process.stdout is not None
        process.stdout.close()
        assert check(home, f"new{number}", shared)[-1] == 29
    with Store.open(home) as store:
        assert [run.id for run in store.runs()] == [f"new{number}" for number in range(4)]


def test_chunks_of_others_that_are_removed_before_a_commit(home: Path) -> None:
    """A run that counts on chunks of one that is being deleted stores them itself from the next checkpoint on."""
    shared = noise("shared", 50 * KB)
    record(home, "a", 2, shared)
    recording = begin(home, "b")
    assert take(recording, 0, *state("b", 0), noise("other"))
    collect(Request(home, delete=("a",)))
    for number in range(1, 6):
        assert take(recording, number, *state("b", number), shared)
        time.sleep(0.15)
        recording.rows("output", [(number, "")])
    end(home, recording, "b")
    with Store.open(home) as store:
        found = [row for row in store.checkpoints("b") if row.iteration]
        assert [row.iteration for row in found][-1] == 5
        assert len(found) >= 4
        assert all(bytes(store.read(row.digests[3])) == shared for row in found)


def test_a_reader_sees_what_was_moved_and_is_told_what_is_gone(home: Path) -> None:
    """A store that was open before reads moved chunks from their new place; a removed one is an error."""
    record(home, "a", 9)
    with Store.open(home) as store:
        rows = store.checkpoints("a")
        collect(Request(home, max_bytes=120 * KB))
        left = {row.iteration for row in store.checkpoints("a")}
        assert 2 <= len(left) < 9
        for row in rows:
            if row.iteration in left:
                assert bytes(store.read(row.digests[1])) == state("a", row.iteration)[1]
            else:
                with pytest.raises(StoreError, match="not any more"):
                    store.read(row.digests[1])
