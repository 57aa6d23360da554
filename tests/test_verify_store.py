"""`florhook verify`: whatever is damaged in a store is found and named, and nothing else is."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from conftest import Flor, unwritable_copy

from florhook.cli import main
from florhook.store import home as homes
from florhook.store import packs
from florhook.store.collect import Request, collect
from florhook.store.recording import Recording
from florhook.store.rows import CheckpointRow, ContextRow, Piece, RunRow
from florhook.store.store import Store
from florhook.store.verify import Verifier

PROGRAM = b"for epoch in range(9):\n    print(epoch)\n"


pytestmark = pytest.mark.usefixtures("own_key")


@pytest.fixture
def verify(home: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Runs the subcommand: its status and what it printed, errors included."""

    def run(*words: str, of: Path = home) -> tuple[int, str]:
        capsys.readouterr()
        try:
            main(["--home", str(of), "verify", *words])
            status = 0
        except SystemExit as ended:
            status = int(ended.code or 0)
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return status, printed.out + printed.err

    return run


def noise(name: str, size: int) -> bytes:
    return hashlib.shake_128(name.encode()).digest(size)


def begin(home: Path, run: str) -> Recording:
    """A run with one loop."""
    recording = Recording.start(home, RunRow(run, "train.py", (), "/w", 1000.0), 64_000_000)
    recording.rows("sources", [("__main__", "/w/train.py", PROGRAM), ("<random>", "", b"[3, [1], null]")])
    recording.rows("contexts", [(*vars(ContextRow(1, -1, -1, "__main__::0", 0, 0.0, 0)).values(),)])
    return recording


def take(recording: Recording, run: str, number: int) -> None:
    """A checkpoint: a stream of 600 bytes, a table, a leaf of its own of 9000 bytes, one that never changes."""
    parts = [noise(f"{run} s{number}", 600), b"table", noise(f"{run} {number}", 9000), noise("shared", 7000)]
    pieces = [Piece(index, memoryview(part), index < 2) for index, part in enumerate(parts)]
    meta = '{"roots": [["x", "", 1, 0], ["frozen", "", 2, 0]], "leaves": null, "iterator": null}'
    meta = meta.replace('["x"', '[["global", "__main__", "x"]').replace(
        '["frozen"', '[["global", "__main__", "frozen"]'
    )
    assert recording.checkpoint(CheckpointRow(1, number, float(number), 0, meta), pieces)


def record(home: Path, run: str = "run-a", count: int = 4) -> None:
    recording = begin(home, run)
    for number in range(count):
        take(recording, run, number)
    assert recording.finish(1001.0, 0, {}, 30)
    assert homes.wait(home, run, 30)


def change(home: Path, sql: str, *values: object) -> None:
    with closing(sqlite3.connect(home / "catalog.sqlite")) as db:
        assert db.execute(sql, values).rowcount > 0
        db.commit()


def chunk(home: Path, content: bytes) -> tuple[Path, int, int]:
    """File, offset and size of a chunk, found by the content that the test wrote: leaves are stored as they are."""
    for path in sorted((home / "packs").iterdir()):
        at = path.read_bytes().find(content)
        if at >= 0:
            return path, at, len(content)
    raise AssertionError("the content is in no pack file")


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 16
    path.write_bytes(data)


# What is whole --------------------------------------------------------------------------------------------


def test_whole_runs_are_ok(home: Path, verify: Callable[..., tuple[int, str]]) -> None:
    """One line for each run with the bytes of its different pieces, each counted once; nothing else."""
    record(home)
    record(home, "run-b", 2)
    # 4 or 2 streams and leaves of its own, the table and the leaf that all checkpoints share: 45.4 and 26.2 KB
    lines = [
        "run-a  train.py: 4 checkpoints, 45.4 KB: ok",
        "run-b  train.py: 2 checkpoints, 26.2 KB: ok",
    ]
    assert verify() == (0, "\n".join(lines) + "\n")
    assert verify("--all") == verify()
    assert verify("run-b") == (0, lines[1] + "\n")
    assert verify("last") == (0, lines[1] + "\n")


def test_wrong_words_are_refused(home: Path, verify: Callable[..., tuple[int, str]]) -> None:
    """Wrong usage is 2, a run or store that is not there 3; one line each."""
    assert verify() == (3, f"florhook: there is no store in {home}: No such file or directory\n")
    record(home)
    assert verify("run-a", "run-b")[0] == 2
    assert verify("run-a", "--all")[0] == 2
    assert verify("--deep")[0] == 2
    status, said = verify("nothing")
    assert (status, said.count("\n")) == (3, 1)


def test_compacted_and_thinned_stores_are_ok(home: Path, verify: Callable[..., tuple[int, str]]) -> None:
    """Differences to other chunks are undone as they are read; thinned checkpoints are no damage."""
    recording = begin(home, "run-a")
    base = bytearray(noise("base", 40_000))
    for number in range(5):
        base[number] ^= 255
        pieces = [Piece("s", memoryview(noise(f"s{number}", 600)), True), Piece("w", memoryview(bytes(base)))]
        assert recording.checkpoint(CheckpointRow(1, number, float(number), 0, "{}"), pieces)
    assert recording.finish(1001.0, 0, {}, 30)
    assert homes.wait(home, "run-a", 30)
    collect(Request(home, None, (), True))
    with closing(sqlite3.connect(home / "catalog.sqlite")) as db:
        assert db.execute("SELECT count(*) FROM deltas").fetchone()[0] >= 3
    assert verify() == (0, "run-a  train.py: 5 checkpoints, 203.0 KB: ok\n")
    collect(Request(home, 50_000, (), False))
    status, said = verify()
    assert (status, said.count("\n"), said.endswith(": ok\n")) == (0, 1, True)
    # the first chunk is what the others are differences to
    with closing(sqlite3.connect(home / "catalog.sqlite")) as db:
        found = db.execute(
            "SELECT name, offset FROM chunks JOIN packs ON id = pack WHERE digest IN (SELECT base FROM deltas)"
        ).fetchone()
    if found is not None:
        flip(home / "packs" / found[0], found[1] + 20)
        assert verify()[0] == 1


def test_a_run_that_goes_on_is_read_as_far_as_it_is(
    home: Path, verify: Callable[..., tuple[int, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """What is committed is read, and that there will be more is said."""
    recording = begin(home, "run-a")
    take(recording, "run-a", 0)
    status, said = verify_until(verify, "1 checkpoints")
    assert (status, said) == (0, "run-a  train.py: 1 checkpoints, 16.6 KB: ok, still being recorded\n")
    recording.finish(0.0, 0, {}, 30)


def verify_until(verify: Callable[..., tuple[int, str]], text: str) -> tuple[int, str]:
    for _ in range(200):
        status, said = verify()
        if text in said:
            return status, said
        time.sleep(0.05)
    raise AssertionError(said)


def test_a_store_that_nobody_may_write_to(home: Path, verify: Callable[..., tuple[int, str]]) -> None:
    """Verifying changes no file."""
    record(home)
    with unwritable_copy(home) as copy:
        before = {path: path.stat().st_mtime_ns for path in copy.rglob("*")}
        assert verify(of=copy) == (0, "run-a  train.py: 4 checkpoints, 45.4 KB: ok\n")
        assert {path: path.stat().st_mtime_ns for path in before if path != copy} == {
            path: time for path, time in before.items() if path != copy
        }


# What is damaged ------------------------------------------------------------------------------------------


def test_a_bit_in_a_leaf(home: Path, verify: Callable[..., tuple[int, str]]) -> None:
    """The one checkpoint that has it is named, by loop, iteration and variable; the run beside it is whole."""
    record(home)
    record(home, "run-b")
    path, offset, size = chunk(home, noise("run-a 2", 9000))
    flip(path, offset + size - 1)
    status, said = verify()
    lines = said.splitlines()
    assert (status, len(lines)) == (1, 4)
    assert lines[0] == "run-a  train.py: 4 checkpoints, 36.4 KB: 1 damaged"
    assert lines[1].startswith(
        "  checkpoint after iteration 1 of the loop at train.py:1: piece 3 of 4 (a value of x): "
    )
    assert lines[1].endswith(f" in {path.name} has other bytes than were written")
    assert "executes that loop instead" in lines[2]
    assert lines[3] == "run-b  train.py: 4 checkpoints, 52.6 KB: ok".replace("52.6", "45.4")
    assert verify("run-b")[0] == 0


def test_a_bit_in_what_all_share(home: Path, verify: Callable[..., tuple[int, str]]) -> None:
    """Every checkpoint of every run that refers to it is damaged."""
    record(home)
    record(home, "run-b", 2)
    path, offset, _ = chunk(home, noise("shared", 7000))
    flip(path, offset)
    status, said = verify()
    assert status == 1
    assert said.count("piece 4 of 4 (a value of frozen)") == 6
    assert "4 damaged" in said
    assert "2 damaged" in said


@pytest.mark.parametrize("place", range(0, 100, 7))
def test_any_bit_of_a_pack(place: int, home: Path, verify: Callable[..., tuple[int, str]]) -> None:
    """Wherever a bit flips, it is found: all bytes of a fresh pack file belong to some chunk, or to its head."""
    record(home, count=2)
    (path,) = (home / "packs").iterdir()
    flip(path, place * path.stat().st_size // 100)
    assert verify()[0] == 1


def test_a_pack_that_was_cut(home: Path, verify: Callable[..., tuple[int, str]]) -> None:
    """What lay in the part that is gone is missing, what lay before is not; the file is named too."""
    record(home)
    path, offset, _ = chunk(home, noise("run-a 3", 9000))
    end = path.stat().st_size
    os.truncate(path, offset + 10)
    status, said = verify()
    assert status == 1
    assert "4 checkpoints, 36.4 KB: 1 damaged\n" in said
    assert "checkpoint after iteration 2 of the loop at train.py:1: piece 3 of 4 (a value of x)" in said
    assert "lies past the end of its file" in said
    assert f"damaged: {path.name} ends at byte {offset + 10} instead of {end}; 1 chunks are lost\n" in said


def test_a_pack_that_is_gone(home: Path, verify: Callable[..., tuple[int, str]]) -> None:
    """All that the run had in it is lost, its sources too; a run with a pack of its own is whole."""
    record(home)
    recording = begin(home, "run-b")
    pieces = [Piece("s", memoryview(noise("other", 600)), True)]
    assert recording.checkpoint(CheckpointRow(1, 0, 0.0, 0, "{}"), pieces)
    assert recording.finish(1001.0, 0, {}, 30)
    assert homes.wait(home, "run-b", 30)
    (home / "packs" / "run-b-0.pack").unlink()
    status, said = verify()
    lines = said.splitlines()
    assert status == 1
    assert lines[0] == "run-a  train.py: 4 checkpoints, 45.4 KB: ok"
    assert lines[1] == "run-b  train.py: 1 checkpoints, 0 B: 1 damaged"
    assert "checkpoint before the loop at train.py:1: piece 1 of 1 (its objects)" in lines[2]
    assert lines[-1].startswith("damaged: run-b-0.pack: No such file or directory; 1 chunks are lost")
    (home / "packs" / "run-a-0.pack").unlink()
    status, said = verify()
    assert "  the source of __main__: " in said
    assert "  the record of random: " in said
    assert "cannot be replayed or resumed" in said


@pytest.mark.parametrize(
    "column", ["taken = taken + 1", "out = 9", "meta = '{}'", "iteration = 17", "lengths = zeroblob(32)",
               "seals = zeroblob(64)", "mac = zeroblob(32)", "digests = zeroblob(48)", "streams = zeroblob(3)",
               "lengths = 5", "meta = x'ff'"],
)  # fmt: skip
def test_an_altered_row(column: str, home: Path, verify: Callable[..., tuple[int, str]]) -> None:
    """Whatever column of one checkpoint is changed, its MAC does not hold any more."""
    record(home)
    change(home, f"UPDATE checkpoints SET {column} WHERE iteration = 2")
    status, said = verify()
    assert status == 1
    assert "1 damaged\n" in said
    assert "its row in the catalog is not what was written" in said


def test_a_source_that_is_gone(home: Path, verify: Callable[..., tuple[int, str]]) -> None:
    """Without it the run cannot be replayed, which is said; its checkpoints are whole."""
    record(home)
    change(home, "DELETE FROM chunks WHERE digest = (SELECT digest FROM sources WHERE module = '__main__')")
    status, said = verify()
    assert status == 1
    assert said.startswith("run-a  train.py: 4 checkpoints, 45.4 KB: 1 damaged\n  the source of __main__: ")
    assert "cannot be replayed or resumed" in said


def test_a_run_whose_row_is_no_json(home: Path, verify: Callable[..., tuple[int, str]]) -> None:
    """One line, and no traceback."""
    record(home)
    change(home, "UPDATE runs SET meta = '{'")
    status, said = verify()
    assert (status, said.count("\n")) == (3, 1)
    assert "is damaged" in said


def test_a_catalog_with_torn_pages(
    home: Path, tmp_path: Path, verify: Callable[..., tuple[int, str]]
) -> None:
    """SQLite's own check finds it, or the file cannot be opened: never a traceback, never an ok."""
    record(home, count=9)
    size = (home / "catalog.sqlite").stat().st_size
    for page in range(1, size // 4096):
        copy = Path(shutil.copytree(home, tmp_path / f"copy-{page}"))
        with open(copy / "catalog.sqlite", "r+b") as file:
            file.seek(4096 * page)
            file.write(noise("page", 4096))
        status, _ = verify(of=copy)
        assert status in (1, 3)


def test_another_users_key(
    home: Path, tmp_path: Path, verify: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their runs are whole though their MACs cannot be checked, which is said; their seals are."""
    record(home)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "others"))
    told = "run-a  train.py: 4 checkpoints, 45.4 KB: ok, signed with another key than yours\n"
    assert verify() == (0, told)
    record(home, "run-b", 2)
    assert verify() == (0, told + "run-b  train.py: 2 checkpoints, 26.2 KB: ok\n")
    change(home, "UPDATE checkpoints SET seals = zeroblob(64) WHERE iteration = 1 AND run = 1")
    status, said = verify()
    assert status == 1
    assert "piece 1 of 4 (its objects): is not what was sealed when it was written" in said


def test_an_unsigned_run(
    home: Path, tmp_path: Path, verify: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no key could be made, content is checked all the same."""
    (tmp_path / "no-folder").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-folder"))
    record(home)
    assert verify() == (0, "run-a  train.py: 4 checkpoints, 45.4 KB: ok, not signed\n")
    path, offset, _ = chunk(home, noise("run-a 2", 9000))
    flip(path, offset)
    assert verify()[0] == 1


def test_what_no_run_refers_to_is_told(home: Path, verify: Callable[..., tuple[int, str]]) -> None:
    """Chunks without a run, gaps in pack files and unknown files are no damage."""
    record(home)
    change(home, "DELETE FROM checkpoints WHERE iteration = 3")
    (home / "packs" / "gone-0.pack").write_bytes(packs.MAGIC)
    with open(home / "packs" / "run-a-0.pack", "ab") as file:
        file.write(bytes(2500))
    status, said = verify()
    assert status == 0
    assert "run-a  train.py: 3 checkpoints, 35.8 KB: ok\n" in said
    assert "2 chunks, " in said
    assert "2.5 KB of pack files belong to no chunk" in said
    assert "gone-0.pack is no pack file of the catalog" in said


# What goes on meanwhile -----------------------------------------------------------------------------------


def test_what_retention_removes_meanwhile_is_no_damage(home: Path) -> None:
    """Checkpoints and runs that go after their rows were read are not reported."""
    record(home)
    record(home, "run-b")

    class Interrupted(Store):
        def checkpoints(self, run: RunRow | str, pieces: bool = True) -> list[CheckpointRow]:
            rows = super().checkpoints(run, pieces)
            collect(Request(home, 30_000, ("run-b",), False))
            return rows

    with Interrupted.open(home) as store:
        first, second = store.runs()
        report = Verifier(store).run(first)
        assert (report.damages, report.deleted) == ([], False)
        gone = Verifier(store).run(second)
        assert (gone.damages, gone.deleted) == ([], True)


# Recorded programs ----------------------------------------------------------------------------------------

STEPS = """
import random, time
random.seed(1)
weights = [bytearray(2000) for _ in range(3)]
for epoch in range(4):
    for step in range(3):
        weights[step][epoch] = random.randrange(1, 255)
        time.sleep(0.004)
    print(epoch, sum(weights[1]))
print("end", sum(weights[2]))
"""


@pytest.fixture
def packs_of(flor: Flor) -> Callable[[], list[Path]]:
    return lambda: sorted((flor.home / "packs").iterdir())


def test_what_is_said_of_replays_is_true(flor: Flor, packs_of: Callable[[], list[Path]]) -> None:
    """A replay over damaged checkpoints prints what a plain run of the edited program prints for the probe."""
    flor.write("train.py", STEPS)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    assert flor("verify").returncode == 0
    (path,) = packs_of()
    for part in (3, 5, 7):
        flip(path, part * path.stat().st_size // 10)
    done = flor("verify")
    assert done.returncode == 1
    assert "executes that loop instead, with the same result" in done.stdout
    edited = STEPS.replace("    print(epoch", "    print('@@', list(weights[0]).count(0))\n    print(epoch")
    flor.write("train.py", edited)
    plain = [line for line in flor.python("train.py").stdout.splitlines() if line.startswith("@@")]
    replayed = flor("train.py", FLOR_MODE="replay")
    assert (replayed.returncode, replayed.stdout.splitlines()) == (0, plain)


def test_a_run_of_two_ranks(flor: Flor, packs_of: Callable[[], list[Path]]) -> None:
    """Each rank has a line; the run's id stands for all of its ranks, a rank's for that one."""
    flor.write("train.py", STEPS.replace("seed(1)", "seed(__import__('os').environ['RANK'])"))
    flor.write(
        "launch.py",
        """
        import os, subprocess, sys
        world = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        ranks = [subprocess.Popen([sys.executable, "-m", "florhook", "train.py"],
                                  env={**os.environ, **world, "RANK": str(n), "LOCAL_RANK": str(n)}) for n in (0, 1)]
        sys.exit(max(rank.wait() for rank in ranks))
        """,
    )
    assert flor.python("launch.py", FLOR_EPSILON="inf").returncode == 0
    done = flor("verify")
    assert done.returncode == 0
    names = sorted(line.split()[0] for line in done.stdout.splitlines() if line.endswith(": ok"))
    assert len(names) == 2
    assert names[1] == f"{names[0]}.1"
    damaged = next(path for path in packs_of() if ".1-" in path.name)
    flip(damaged, damaged.stat().st_size // 2)
    assert flor("verify", names[1]).returncode == 1
    both = flor("verify", names[0])
    assert both.returncode == 1
    assert sum(line.endswith(": ok") for line in both.stdout.splitlines()) == 1
