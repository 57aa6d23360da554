"""The store: what is handed over comes back, and what breaks never reaches the training program."""

from __future__ import annotations

import gc
import hashlib
import itertools
import marshal
import os
import resource
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import xxhash
from conftest import unwritable_copy
from hypothesis import given, settings
from hypothesis import strategies as st

from florhook.errors import StoreError
from florhook.store import lean, packs, wire
from florhook.store import recording as recording_module
from florhook.store.recording import Recording
from florhook.store.rows import CheckpointRow, ContextRow, IterationRow, Piece, RunRow, SourceRow
from florhook.store.spawn import writer_environment
from florhook.store.staging import StagingPool
from florhook.store.store import Store, settle

MIB = 1 << 20


pytestmark = pytest.mark.usefixtures("own_key")


@pytest.fixture
def begin(home: Path) -> Iterator[Callable[..., Recording]]:
    """Starts recordings, and closes those that a test leaves open."""
    started: list[Recording] = []

    def start(run_id: str = "run-1", limit_bytes: int = 64 * MIB, program: str = "/w/train.py") -> Recording:
        run = RunRow(run_id, program, ("--lr", "1"), "/w", 1000.0 + len(started), {"python": "3"})
        started.append(Recording.start(home, run, limit_bytes))
        return started[-1]

    yield start
    for recording in started:
        recording.finish(0.0, 0, {}, 5)


def row(iteration: int, ctx: int = 0) -> CheckpointRow:
    return CheckpointRow(ctx, iteration, 1.5 + iteration, 7, '{"w": "x"}')


def until(condition: Callable[[], object], timeout: float = 10.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "this took too long"
        time.sleep(0.01)


def pump(recording: Recording, condition: Callable[[], object]) -> None:
    """Calls the recording, as a training loop would, until the condition holds."""

    def tried() -> object:
        recording.rows("output", [(0, "x")])
        return condition()

    until(tried)


def contents(store: Store, checkpoint: CheckpointRow) -> list[bytes]:
    return [bytes(store.read(digest)) for digest in checkpoint.digests]


# --- what goes in comes out


def test_rows_come_back_as_they_were(home: Path, begin: Callable[..., Recording]) -> None:
    """Each kind of row is read back equal to what was written, a context as it was written last."""
    recording = begin()
    opened = (0, -1, -1, "m:f:0", 0, 0.5, 0, None, None, None, "", "", "{}")
    closed = (0, -1, -1, "m:f:0", 0, 0.5, 0, 2.5, 9, 3, "end", "ff", "{}")
    recording.rows("sources", [("__main__", "/w/train.py", b"print(1)\n"), ("m", "/w/m\udcff.py", b"")])
    recording.rows("contexts", [opened])
    recording.rows("contexts", [closed])
    recording.rows("iterations", [(0, 1, 0.75, 4, "1", "{}"), (0, 0, 0.5, 0, "1", '{"epoch": 0}')])
    recording.rows("output", [(0, "loss 1\n\0"), (8, "caf\u00e9 \udc80")])
    assert recording.finish(1002.0, 3, {"wall_s": 2}, 10)
    with Store.open(home) as store:
        run = store.find("last")
        assert run == RunRow(
            "run-1",
            "/w/train.py",
            ("--lr", "1"),
            "/w",
            1000.0,
            {"python": "3"},
            1002.0,
            3,
            {"wall_s": 2},
            None,
            True,
        )
        assert store.sources(run) == [
            SourceRow("__main__", "/w/train.py", b"print(1)\n"),
            SourceRow("m", "/w/m\udcff.py", b""),
        ]
        assert store.contexts(run) == [ContextRow(*closed)]
        assert store.iterations(run) == [
            IterationRow(0, 0, 0.5, 0, "1", '{"epoch": 0}'),
            IterationRow(0, 1, 0.75, 4, "1", "{}"),
        ]
        assert store.output(run) == [(0, "loss 1\n\0"), (8, "caf\u00e9 \udc80")]


def test_checkpoint_comes_back_with_digests_lengths_and_trust(
    home: Path, begin: Callable[..., Recording]
) -> None:
    """Pieces of every size and shape are read back in order, under their xxh3 digests, signed by the user's key."""
    matrix = memoryview(bytes(range(240)) * 100).cast("B", (100, 240)).cast("B").cast("I")
    parts = [b"", b"tiny", os.urandom(100_000), bytes(matrix), b"stream " * 5000, b"tiny", bytes(5000)[::2]]
    views = [memoryview(part) for part in parts]
    views[3] = matrix
    views[6] = memoryview(bytes(5000))[::2]
    pieces = [Piece(index, view, compress=index == 4) for index, view in enumerate(views)]
    recording = begin()
    assert recording.checkpoint(row(0), pieces)
    assert recording.finish(1.0, 0, {}, 10)
    assert recording.bytes_captured == sum(len(part) for part in parts)
    with Store.open(home) as store:
        (checkpoint,) = store.checkpoints("run-1")
        assert contents(store, checkpoint) == parts
        assert list(checkpoint.digests) == [xxhash.xxh3_128(part).digest() for part in parts]
        assert checkpoint.lengths == tuple(len(part) for part in parts)
        assert (checkpoint.streams, checkpoint.seals) == (
            (4,),
            (hashlib.blake2b(parts[4], digest_size=32).digest(),),
        )
        assert store.trusted("run-1", checkpoint)
        assert store.checkpoint("run-1", 0, 0) == checkpoint
        assert store.checkpoints("run-1", pieces=False) == [row(0)]


def test_changes_after_the_call_are_not_stored(home: Path, begin: Callable[..., Recording]) -> None:
    """Bytes that change right after `checkpoint` came back are stored as they were (no torn snapshot)."""
    recording = begin()
    state = {
        "large": bytearray(3 * MIB),
        "medium": bytearray(5000),
        "small": bytearray(16),
        "stream": bytearray(9000),
    }
    for step in range(12):
        for content in state.values():
            content[:] = bytes([step]) * len(content)
        pieces = [Piece(key, memoryview(content), key == "stream") for key, content in state.items()]
        taken = recording.checkpoint(row(step), pieces)
        for content in state.values():
            content[:] = b"\xff" * len(content)
        assert taken
    assert recording.finish(1.0, 0, {}, 20)
    with Store.open(home) as store:
        for step, checkpoint in enumerate(store.checkpoints("run-1")):
            assert contents(store, checkpoint) == [bytes([step]) * len(content) for content in state.values()]


def test_unchanged_pieces_are_written_once(home: Path, begin: Callable[..., Recording]) -> None:
    """What stays the same costs no room, within a run and in the next one."""
    frozen, moving = os.urandom(MIB), bytearray(os.urandom(MIB))
    for number in range(2):
        recording = begin(f"run-{number}")
        for step in range(6):
            moving[step] ^= 255
            assert recording.checkpoint(
                row(step), [Piece("f", memoryview(frozen)), Piece("m", memoryview(moving))]
            )
            pump(recording, lambda recording=recording: not recording._in_flight)
        assert recording.finish(1.0, 0, {}, 20)
        packed = recording.bytes_written
        assert packed <= (7 if number == 0 else 6) * MIB + 1000
        assert recording.bytes_captured == 12 * MIB
    assert sum(pack.stat().st_size for pack in (home / "packs").iterdir()) <= 13 * MIB + 1000


def test_unchanged_pieces_are_not_copied_again() -> None:
    """What is known is hashed first; a change makes it one that is copied, until it is the same again."""
    content = bytearray(10_000)
    pieces = [Piece("k", memoryview(content))]
    memory = lean.Lean()
    copied = []
    for step in range(7):
        if step == 4:
            content[0] = 1
        draft = memory.select(pieces)
        copied.append(draft.large)
        memory.sent(draft)
        memory.learned(draft.keys, [xxhash.xxh3_128(content).digest()] * len(draft.keys))
    assert copied == [10_000, 0, 0, 0, 10_000, 10_000, 0]


def test_occasions_are_told_apart() -> None:
    """What changes between boundaries, and never before an exit, is copied for the former and hashed for the latter."""
    content = bytearray(10_000)
    pieces = [Piece("k", memoryview(content))]
    memory = lean.Lean()
    copied = []
    for step in range(8):
        content[0] += step % 2 == 0
        draft = memory.select(pieces, "boundary" if step % 2 == 0 else "exit")
        copied.append((draft.large, any(digest != lean.UNKNOWN for digest in draft.digests)))
        memory.sent(draft)
        memory.learned(draft.keys, [xxhash.xxh3_128(content).digest()] * len(draft.keys))
    assert copied == [(10_000, False), (0, True)] * 4


def test_many_small_pieces_and_checkpoints(home: Path, begin: Callable[..., Recording]) -> None:
    """A thousand small checkpoints are taken and committed in seconds."""
    recording = begin()
    began = time.monotonic()
    for step in range(1000):
        assert recording.checkpoint(row(step), [Piece(0, memoryview(step.to_bytes(8, "little")))])
    assert recording.finish(1.0, 0, {}, 30)
    assert time.monotonic() - began < 20
    with Store.open(home) as store:
        found = [contents(store, checkpoint) for checkpoint in store.checkpoints("run-1")]
        assert found == [[step.to_bytes(8, "little")] for step in range(1000)]


def test_files_are_the_users_only(home: Path, begin: Callable[..., Recording]) -> None:
    """Folders have mode 0700 and files 0600, and git ignores all of it."""
    recording = begin()
    assert recording.checkpoint(row(0), [Piece(0, memoryview(bytes(10_000)))])
    assert recording.finish(1.0, 0, {}, 10)
    assert (home / ".gitignore").read_text() == "*\n"
    for path in [home, *home.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_several_runs_at_once(home: Path, begin: Callable[..., Recording]) -> None:
    """Runs recorded into one store at the same time do not disturb each other."""
    recordings = [begin(f"run-{number}") for number in range(4)]
    for step in range(20):
        for number, recording in enumerate(recordings):
            assert recording.checkpoint(row(step), [Piece(0, memoryview(f"{number}.{step}".encode() * 2000))])
    assert [recording.finish(1.0, 0, {}, 30) for recording in recordings] == [True] * 4
    with Store.open(home) as store:
        for number in range(4):
            found = [contents(store, checkpoint) for checkpoint in store.checkpoints(f"run-{number}")]
            assert found == [[f"{number}.{step}".encode() * 2000] for step in range(20)]


def test_find(home: Path, begin: Callable[..., Recording]) -> None:
    """A run is found by id, by unique prefix, or as the last one of a program; else one line says why not."""
    for run_id, program in (("ab1", "/a"), ("ab2", "/b"), ("ab", "/a"), ("c", "/a")):
        begin(run_id, program=program).finish(1.0, 0, {}, 10)
    with Store.open(home) as store:
        assert store.find("ab").id == "ab"
        assert store.find("ab1").id == "ab1"
        assert store.find("last").id == "c"
        assert store.find("last", "/b").id == "ab2"
        for which, program, message in (
            ("a", None, "'a' names 3 runs: ab1, ab2, ab"),
            ("x", None, "no run 'x'"),
            ("last", "/z", "no run of /z"),
        ):
            with pytest.raises(StoreError, match=message):
                store.find(which, program)


# --- the reader's guards


def test_damage_is_found(home: Path, begin: Callable[..., Recording]) -> None:
    """A changed or shortened pack file is told by digest and length, never returned."""
    recording = begin()
    assert recording.checkpoint(
        row(0), [Piece(0, memoryview(os.urandom(10_000))), Piece(1, memoryview(b"a" * 9000), True)]
    )
    assert recording.finish(1.0, 0, {}, 10)
    (pack,) = (home / "packs").iterdir()
    good = pack.read_bytes()
    with Store.open(home) as store:
        (checkpoint,) = store.checkpoints("run-1")
        for damaged in (good[:100], good.replace(good[500:600], bytes(100)), good[:-10] + bytes(10)):
            pack.write_bytes(damaged)
            with pytest.raises(StoreError, match="is damaged"):
                contents(store, checkpoint)
        with pytest.raises(StoreError, match="is not in the store"):
            store.read(bytes(16))


def test_only_this_users_checkpoints_are_trusted(
    home: Path, begin: Callable[..., Recording], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A row that was altered, or signed with another key, is not trusted."""
    recording = begin()
    assert recording.checkpoint(row(0), [Piece(0, memoryview(b"code" * 3000), True)])
    assert recording.finish(1.0, 0, {}, 10)
    key = tmp_path / "config" / "florhook" / "key"
    assert (len(key.read_bytes()), stat.S_IMODE(key.stat().st_mode)) == (32, 0o600)
    with Store.open(home) as store:
        (checkpoint,) = store.checkpoints("run-1")
        assert store.trusted("run-1", checkpoint)
        assert not store.trusted("run-2", checkpoint)
        for changes in (
            {"meta": "{}"},
            {"iteration": 1},
            {"digests": (bytes(16),)},
            {"seals": (bytes(32),)},
            {"mac": b""},
        ):
            assert not store.trusted("run-1", CheckpointRow(**{**checkpoint.__dict__, **changes}))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "other"))
    with Store.open(home) as store:
        assert not store.trusted("run-1", checkpoint)


def test_without_a_key_the_run_is_unsigned(
    home: Path, begin: Callable[..., Recording], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no key can be kept, recording goes on and the run says that it is unsigned."""
    monkeypatch.setenv("XDG_CONFIG_HOME", "/proc/nowhere")
    recording = begin()
    assert recording.checkpoint(row(0), [Piece(0, memoryview(b"code" * 3000), True)])
    assert recording.finish(1.0, 0, {}, 10)
    with Store.open(home) as store:
        assert not store.find("last").signed
        assert not store.trusted("run-1", store.checkpoints("run-1")[0])


def test_newer_format_is_refused(home: Path, begin: Callable[..., Recording]) -> None:
    """A store of a newer florhook is neither read nor written, and both sides say so."""
    assert begin().finish(1.0, 0, {}, 10)
    db = sqlite3.connect(home / "catalog.sqlite")
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreError, match=r"newer florhook \(format 99\); this one reads up to 4"):
        Store.open(home)
    recording = begin("run-2")
    assert not recording.finish(1.0, 0, {}, 10)
    assert recording.failed is not None
    assert "newer florhook (format 99)" in recording.failed


@pytest.mark.parametrize(
    "content", [None, b"", b"this is no database, but long enough to look like one" * 100]
)
def test_what_is_no_store_is_said_to_be_none(home: Path, content: bytes | None) -> None:
    """Opening a missing, an empty or a garbled catalog is a StoreError of one line."""
    home.mkdir()
    if content is not None:
        (home / "catalog.sqlite").write_bytes(content)
    with pytest.raises(StoreError) as caught:
        Store.open(home)
    assert "\n" not in str(caught.value)
    assert str(home) in str(caught.value)


# --- what breaks


def test_writer_killed(home: Path, begin: Callable[..., Recording]) -> None:
    """When the writer is killed, later calls do nothing, `failed` says why, and nothing raises."""
    recording = begin()
    pump(recording, lambda: recording.writer_pid)
    os.kill(recording.writer_pid or 0, signal.SIGKILL)
    pump(recording, lambda: recording.failed)
    assert recording.failed == "the writer process has died"
    assert not recording.checkpoint(row(0), [Piece(0, memoryview(bytes(100)))])
    assert not recording.finish(1.0, 0, {}, 5)


def test_writer_stopped_never_stops_the_training(
    begin: Callable[..., Recording], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a writer that does not run, calls come back at once: checkpoints are skipped, rows kept up to a bound."""
    monkeypatch.setattr(recording_module, "MOST_WAITING", 4 * MIB)
    recording = begin(limit_bytes=8 * MIB)
    pump(recording, lambda: recording.writer_pid)
    pid = recording.writer_pid or 0
    os.kill(pid, signal.SIGSTOP)
    try:
        longest, taken = 0.0, []
        for step in range(100):
            content = os.urandom(MIB)
            began = time.monotonic()
            taken.append(recording.checkpoint(row(step), [Piece(0, memoryview(content))]))
            recording.rows("output", [(0, "x" * 1000)])
            longest = max(longest, time.monotonic() - began)
        assert longest < 0.5
        assert taken[0]
        assert not any(taken[8:])
        assert recording.skipped == "staging memory is full"
        began = time.monotonic()
        assert recording.failed is None
        for _ in range(100):
            recording.rows("output", [(0, "x" * 100_000)])
        assert recording.failed == "the writer does not keep up: too many rows are waiting"
        assert not recording.finish(1.0, 0, {}, 0.2)
        assert time.monotonic() - began < 2
    finally:
        os.kill(pid, signal.SIGCONT)


def test_finish_gives_up_in_time_and_the_writer_goes_on(home: Path, begin: Callable[..., Recording]) -> None:
    """`finish` waits no longer than told; a writer that is only late still commits everything."""
    recording = begin()
    pump(recording, lambda: recording.writer_pid)
    os.kill(recording.writer_pid or 0, signal.SIGSTOP)
    assert recording.checkpoint(row(0), [Piece(0, memoryview(bytes(100_000)))])
    began = time.monotonic()
    assert not recording.finish(5.0, 0, {}, 0.2)
    assert time.monotonic() - began < 1
    os.kill(recording.writer_pid or 0, signal.SIGCONT)
    until(lambda: _opens(home))
    with Store.open(home) as store:
        assert store.wait("run-1", 10)
        assert store.find("last").ended == 5.0
        assert contents(store, store.checkpoints("run-1")[0]) == [bytes(100_000)]


def test_full_disk(home: Path, begin: Callable[..., Recording]) -> None:
    """A write that fails ends the recording with its reason, and what was committed before stays readable."""
    recording = begin()
    first = os.urandom(100_000)
    assert recording.checkpoint(row(0), [Piece(0, memoryview(first))])
    pump(recording, lambda: recording.bytes_written and not recording._in_flight and recording.writer_pid)
    time.sleep(0.3)
    resource.prlimit(recording.writer_pid or 0, resource.RLIMIT_FSIZE, (MIB, MIB))
    for step in range(1, 30):
        recording.checkpoint(row(step), [Piece(0, memoryview(os.urandom(200_000)))])
        time.sleep(0.02)
    pump(recording, lambda: recording.failed)
    assert recording.failed == "the store cannot be written: File too large"
    with Store.open(home) as store:
        assert store.wait("run-1", 10)
        checkpoints = store.checkpoints("run-1")
        assert contents(store, checkpoints[0]) == [first]
        for checkpoint in checkpoints:
            contents(store, checkpoint)


def test_no_staging_memory(begin: Callable[..., Recording], monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that the system refuses ends the recording; a checkpoint above the limit is only skipped."""
    recording = begin(limit_bytes=MIB)
    assert not recording.checkpoint(row(0), [Piece(0, memoryview(bytes(2 * MIB)))])
    assert recording.skipped == f"its {2 * MIB} bytes are more than the staging memory of {MIB}"
    assert recording.checkpoint(row(0), [Piece(0, memoryview(bytes(MIB)))])

    def refuse(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    other = begin("run-2")
    assert not other.checkpoint(row(0), [Piece(0, memoryview(bytes(MIB)))])
    assert other.failed == "No space left on device"


def test_home_that_cannot_be_written(tmp_path: Path) -> None:
    """A folder that cannot be made gives a recording that has failed, not an exception."""
    (tmp_path / "file").write_text("")
    recording = Recording.start(tmp_path / "file" / "store", RunRow("r", "p", (), "/", 0.0), MIB)
    assert recording.failed is not None
    assert recording.failed.startswith(f"cannot write to {tmp_path / 'file' / 'store'}: Not a directory")
    recording.rows("output", [(0, "x")])
    assert not recording.checkpoint(row(0), [])
    assert not recording.finish(0.0, 0, {}, 5)


@pytest.mark.parametrize(
    "rows", [[("wrong", "number", "of", "columns")], [(object(), "x")], [(0, lambda: 0)]]
)
def test_wrong_rows_end_the_recording_only(
    begin: Callable[..., Recording], rows: list[tuple[object, ...]]
) -> None:
    """Even a mistake of our own ends in `failed`, not in the user's program."""
    recording = begin()
    recording.rows("output", rows)
    recording.finish(1.0, 0, {}, 10)
    assert recording.failed


def test_closed_descriptors(begin: Callable[..., Recording]) -> None:
    """A program that closes all descriptors, and opens its own under the same numbers, loses the recording only."""
    recording = begin()
    channel = recording._channel
    assert channel is not None
    number = channel.sock.fileno()
    assert number >= 512
    read, write = os.pipe()
    os.dup2(write, number)
    recording.rows("output", [(0, "x")])
    assert recording.failed is not None
    os.write(number, b"still open")
    assert os.read(read, 100) == b"still open"
    for fd in (read, write, number):
        os.close(fd)


# --- processes, threads and signals


def test_the_writer_is_out_of_sight(begin: Callable[..., Recording]) -> None:
    """The writer is no child of the program, has its own session, is nice, and ignores Ctrl-C and SIGTERM."""
    recording = begin()
    pump(recording, lambda: recording.writer_pid)
    pid = recording.writer_pid or 0
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    assert os.getsid(pid) != os.getsid(0)
    assert os.getpriority(os.PRIO_PROCESS, pid) == 19
    assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
    assert {str(Path(f"/proc/{pid}/fd/{fd}").readlink()) for fd in range(3)} == {"/dev/null"}
    os.kill(pid, signal.SIGINT)
    os.kill(pid, signal.SIGTERM)
    assert recording.finish(1.0, 0, {}, 10)


def test_the_writer_imports_nothing_large() -> None:
    """The writer's modules load neither numpy nor torch nor multiprocessing, and its environment steers no Python."""
    large = {"numpy", "torch", "multiprocessing", "pickle"}
    code = f"import sys, florhook.store.writer; print({large} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n"
    assert writer_environment({"PYTHONPATH": "x", "HOME": "h"}) == {"HOME": "h", "FLOR_INERT": "1"}


def test_forked_child_is_inert(home: Path, begin: Callable[..., Recording]) -> None:
    """After a fork the child records nothing, holds no end of the socket, and the parent goes on."""
    recording = begin()
    assert recording.checkpoint(row(0), [Piece(0, memoryview(bytes(MIB)))])
    pid = os.fork()
    if not pid:
        recording.after_fork_in_child()
        recording.rows("output", [(0, "child")])
        taken = recording.checkpoint(row(1), [Piece(0, memoryview(bytes(MIB)))])
        finished = recording.finish(1.0, 0, {}, 5)
        os._exit(0 if not (taken or finished or recording.failed) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    recording.rows("output", [(0, "parent")])
    assert recording.finish(1.0, 0, {}, 10)
    with Store.open(home) as store:
        assert store.output("run-1") == [(0, "parent")]
        assert len(store.checkpoints("run-1")) == 1


def test_threads_and_signal_handlers(home: Path, begin: Callable[..., Recording]) -> None:
    """Rows from threads and from signal handlers that interrupt a call all arrive, and nothing deadlocks."""
    recording = begin()
    interrupts = 0
    inside = False

    def handler(*_: object) -> None:
        nonlocal interrupts, inside
        interrupts += 1
        recording.rows("output", [(1, "signal")])
        if not inside:  # it may wait for a thread, and so be interrupted itself, again and again
            inside = True
            recording.checkpoint(row(interrupts, ctx=1), [Piece("s", memoryview(bytes(10)))])
            inside = False

    def work() -> None:
        for _ in range(200):
            recording.rows("output", [(0, "thread")])

    old = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        taken = [
            recording.checkpoint(row(step), [Piece(0, memoryview(os.urandom(50_000)))]) for step in range(200)
        ]
        for thread in threads:
            thread.join()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert recording.failed is None
    assert recording.finish(1.0, 0, {}, 20)
    with Store.open(home) as store:
        texts = [text for _, text in store.output("run-1")]
        assert (texts.count("thread"), texts.count("signal")) == (800, interrupts)
        assert sum(checkpoint.ctx == 0 for checkpoint in store.checkpoints("run-1")) == sum(taken)


def test_exceptions_from_signal_handlers(home: Path, begin: Callable[..., Recording]) -> None:
    """KeyboardInterrupt at any moment inside a call leaves a recording that goes on."""

    class Interrupt(BaseException):
        pass

    def handler(*_: object) -> None:
        raise Interrupt

    recording = begin()
    gc.disable()  # an exception in one of other people's gc callbacks (hypothesis has one) reaches nobody
    old = signal.signal(signal.SIGALRM, handler)
    interrupted = 0
    try:
        for step in range(300):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.00002 + step * 0.000001)
                recording.rows("output", [(step, "x" * 100)])
                recording.rows("iterations", [(0, step, 0.0, 0, "", "{}")])
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Interrupt:
                interrupted += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
        gc.enable()
    recording.rows("output", [(1000, "last")])
    assert recording.failed is None
    assert recording.finish(1.0, 0, {}, 20)
    with Store.open(home) as store:
        positions = [position for position, _ in store.output("run-1")]
        assert positions == sorted(set(positions))
        assert len(positions) >= 301 - interrupted
        assert positions[-1] == 1000


def test_a_run_is_live_until_its_writer_has_gone(home: Path, begin: Callable[..., Recording]) -> None:
    """A run is live from the moment `start` is back, and `settle` does not wait for a program that still runs."""
    recording = begin()
    lock = home / "runs" / "run-1.lock"
    assert int(lock.read_text()) == os.getpid()
    pump(recording, lambda: recording.bytes_written or (home / "catalog.sqlite").exists())
    until(lambda: _opens(home))
    with Store.open(home) as store:
        assert store.is_live("run-1")
        assert not store.wait("run-1", 0.05)
        assert settle(home, 0)
        assert recording.finish(1.0, 0, {}, 10)
        assert store.wait("run-1", 10)
        assert not store.is_live("run-1")
    assert not lock.exists()


def _opens(home: Path) -> bool:
    try:
        Store.open(home).close()
    except StoreError:
        return False
    return True


def test_read_only_store(home: Path, begin: Callable[..., Recording]) -> None:
    """A finished store is read from a folder in which nothing can be written."""
    recording = begin()
    assert recording.checkpoint(row(0), [Piece(0, memoryview(b"x" * 9000))])
    assert recording.finish(1.0, 0, {}, 10)
    with Store.open(home) as store:
        assert store.wait("run-1", 10)
    code = (
        "import os, sys\n"
        "from florhook.store.store import Store\n"
        "os.setuid(65534) if os.getuid() == 0 else None\n"
        "store = Store.open(sys.argv[1])\n"
        "print(bytes(store.read(store.checkpoints('run-1')[0].digests[0])) == b'x' * 9000)"
    )
    with unwritable_copy(home) as copy:
        result = subprocess.run(
            [sys.executable, "-c", code, str(copy)], capture_output=True, text=True, check=False
        )
    assert (result.stdout, result.stderr) == ("True\n", "")


# --- the parts


messages = st.lists(
    st.tuples(
        st.sampled_from(["rows", "end"]),
        st.binary(max_size=50),
        st.text(max_size=20),
        st.integers(0, 1 << 60),
    ),
    max_size=4,
)


@given(messages, st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_framing_cut_anywhere_gives_whole_messages_only(sent: list[tuple[object, ...]], step: int) -> None:
    """Of a stream cut at any byte, exactly the messages that are whole come out, however it is divided."""
    stream = b"".join(wire.encode(message) for message in sent)
    ends = [sum(4 + len(marshal.dumps(message, 2)) for message in sent[: n + 1]) for n in range(len(sent))]
    for cut in range(len(stream) + 1):
        joiner = wire.Joiner()
        received = [m for at in range(0, cut, step) for m in joiner.feed(stream[at : min(at + step, cut)])]
        assert received == sent[: sum(end <= cut for end in ends)]


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_garbage_is_no_message(garbage: bytes) -> None:
    """Bytes that are no message are told as such, or wait for more; no other exception leaves the joiner."""
    try:
        for message in wire.Joiner().feed(garbage):
            assert isinstance(message, tuple)
    except wire.WireError:
        pass


def test_channel_carries_descriptors_and_large_messages() -> None:
    """Messages larger than the socket's buffer pass in steps, and descriptors arrive with them in order."""
    left, right = socket.socketpair()
    ours, theirs = wire.Channel(left), wire.Channel(right)
    read, write = os.pipe()
    large = os.urandom(3 * MIB)
    ours.post(("large", large))
    ours.post(("fd",), (write,))
    received: list[wire.Message] = []
    while len(received) < 2:
        ours.flush()
        received += theirs.receive()
    assert received == [("large", large), ("fd",)]
    os.write(theirs.fds[0], b"through")
    assert os.read(read, 10) == b"through"
    os.close(read)
    os.close(theirs.fds[0])
    ours.close()
    assert theirs.receive() == []
    assert theirs.gone
    theirs.close()


@given(st.lists(st.tuples(st.integers(1, 6 * MIB), st.booleans()), max_size=30))
@settings(max_examples=50, deadline=None)
def test_staging_regions_never_overlap_nor_exceed_the_limit(steps: list[tuple[int, bool]]) -> None:
    """Held regions are disjoint, fit their slabs, and the slabs stay within the limit."""
    pool = StagingPool(16 * MIB)
    held = []
    for size, release in steps:
        if release and held:
            pool.release(held.pop(0))
        region = pool.reserve(size)
        if region is not None:
            held.append(region)
            assert len(region.view) == size
        assert sum(slab.size for slab in pool.slabs) <= 16 * MIB
        spans = sorted((r.slab.number, r.offset, r.offset + r.size) for r in held)
        for (slab, _, end), (other, start, _) in itertools.pairwise(spans):
            assert slab != other or end <= start
    while held:
        pool.release(held.pop())
    assert pool.reserve(16 * MIB) is not None
    pool.close()


def test_pack_files_are_rotated_and_cut_after_failure(tmp_path: Path) -> None:
    """A new file begins past the limit; what was not made durable can be cut off."""
    names: list[str] = []
    writer = packs.PackWriter(tmp_path, "r", lambda name: names.append(name) or len(names), largest=1000)
    chunks = [writer.add(bytes([n]) * 16, bytes([n]) * 700, compress=False) for n in range(4)]
    assert [chunk.pack for chunk in chunks] == [1, 1, 2, 2]
    writer.sync()
    writer.add(bytes(16), bytes(500), compress=False)
    writer.add(bytes(16), bytes(500), compress=False)
    writer.flush()
    writer.abandon()
    assert names == ["r-0.pack", "r-1.pack", "r-2.pack"]
    assert [(tmp_path / name).stat().st_size for name in names] == [16 + 1400, 16 + 1400, 0]
    writer.close()
