"""A recording under load: whatever happens to disk, memory, writer or store, the program ends as plainly."""

from __future__ import annotations

import hashlib
import os
import pty
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from random_kills import RECORD, Ended, Place, Series, damage, slowed, writer_of

from florhook.store import memory
from florhook.store.recording import Recording
from florhook.store.rows import CheckpointRow, Piece, RunRow
from florhook.store.store import Store

MIB = 1 << 20
PROMPT = 20.0  # seconds within which an event of two seconds is over on a busy machine

# Stands still in the middle until the test has done something.
PROGRAM = """
    import os, sys, time
    state = {"large": bytearray(200_000), "step": 0}
    with open("log.txt", "w") as log:
        for step in range(16):
            for place in range(step, 200_000, 100):
                state["large"][place] = (state["large"][place] + step + place) % 251
            state["step"] += 1
            print(step, state["step"], sum(state["large"]), file=log)
            print(step, state["step"], sum(state["large"]), flush=True)
            if step == 5:
                open("there", "w").close()
                while not os.path.exists("go"):
                    time.sleep(0.01)
            time.sleep(0.01)
    sys.exit(3)
"""


@dataclass(frozen=True)
class Trial:
    """A program in two folders, to be run plainly and recorded."""

    plainly: Place
    recorded: Place

    def check(self, plain: Ended, done: Ended, said: str | None) -> None:
        """The same result and files, and one line with those words, or none."""
        assert done.theirs == plain.theirs, str(done)
        logs = [place.folder / "log.txt" for place in (self.plainly, self.recorded)]
        assert logs[0].exists() == logs[1].exists()
        if logs[0].exists():
            assert logs[0].read_text() == logs[1].read_text()
        assert len(done.ours) == (said is not None), done.ours
        assert (said or "") in "".join(done.ours)


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Trial]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def make(program: str, store: Path | None = None) -> Trial:
        places = Place(tmp_path / "plain"), Place(tmp_path / "run", store)
        for place in places:
            place.folder.mkdir()
            (place.folder / "train.py").write_text(textwrap.dedent(program))
        return Trial(*places)

    return make


@contextmanager
def mounted(folder: Path, size: int, *options: str) -> Iterator[Path]:
    """A disk of that many bytes."""
    folder.mkdir()
    chosen = ",".join([f"size={size}", *options])
    command = ["mount", "-t", "tmpfs", "-o", chosen, "none", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], capture_output=True)


# --- events in the middle of a run -----------------------------------------------------------------------------------


def run_with(event: Callable[[int], object], trial: Trial, **settings: str) -> tuple[Ended, Ended]:
    """The program plainly, and recorded with something that happens to the writer or its store in the middle."""
    (trial.plainly.folder / "go").touch()
    plain = Ended.of(trial.plainly.start(), trial.plainly)
    process = trial.recorded.start(*RECORD, **settings)
    while not (trial.recorded.folder / "there").exists():
        assert process.poll() is None
        time.sleep(0.01)
    event(found(trial.recorded.home))
    began = time.monotonic()
    (trial.recorded.folder / "go").touch()
    done = Ended.of(process, trial.recorded)
    assert time.monotonic() - began < PROMPT
    return plain, done


def found(home: Path) -> int:
    """The writer, which may be late."""
    deadline = time.monotonic() + PROMPT
    while (pid := writer_of(home)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return pid


def test_writer_killed(trial: Callable[..., Trial]) -> None:
    """What was committed before stays readable."""
    each = trial(PROGRAM)
    plain, done = run_with(lambda pid: os.kill(pid, signal.SIGKILL), each)
    each.check(plain, done, "recording stopped (the writer process has died)")
    assert list(damage(each.recorded.home, plain.stdout)) == []


@pytest.mark.parametrize("epsilon", ["0.0667", "inf"])
def test_writer_stopped(epsilon: str, trial: Callable[..., Trial]) -> None:
    """The program ends without its writer, which commits all of it when it may run again."""
    each = trial(PROGRAM)
    stopped: list[int] = []

    def stop(pid: int) -> None:
        stopped.append(pid)
        os.kill(pid, signal.SIGSTOP)

    try:
        plain, done = run_with(stop, each, epsilon=epsilon)
    finally:
        os.kill(stopped[0], signal.SIGCONT)
    each.check(plain, done, "the record is not complete yet: its writer goes on alone")
    assert list(damage(each.recorded.home, plain.stdout)) == []
    with Store.open(each.recorded.home) as store:
        run = store.find("last")
        assert (run.exit_code, run.lost) == (3, None)
        assert "".join(text for _, text in store.output(run)) == plain.stdout


def test_store_removed(trial: Callable[..., Trial]) -> None:
    """A record that nobody will find is said to be gone."""
    each = trial(PROGRAM)
    plain, done = run_with(lambda _: shutil.rmtree(each.recorded.home), each)
    each.check(plain, done, "catalog.sqlite is not there any more")


def test_store_behind_a_link_that_leads_nowhere(tmp_path: Path, trial: Callable[..., Trial]) -> None:
    """The same, where all files are still there; and again, where it is so from the start."""
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to("target")
    each = trial(PROGRAM, tmp_path / "link")
    plain, done = run_with(lambda _: (tmp_path / "target").rename(tmp_path / "elsewhere"), each)
    each.check(plain, done, "catalog.sqlite is not there any more")
    each.check(plain, Ended.of(each.recorded.start(*RECORD), each.recorded), "cannot write to")
    assert list(damage(tmp_path / "elsewhere", plain.stdout)) == []


def test_store_on_a_mount_that_goes(tmp_path: Path, trial: Callable[..., Trial]) -> None:
    """The writer's files are open, and lead nowhere."""
    with mounted(tmp_path / "disk", 50 * MIB) as disk:
        each = trial(PROGRAM, disk / "store")
        plain, done = run_with(lambda _: subprocess.run(["umount", "-l", str(disk)], check=True), each)
    each.check(plain, done, "catalog.sqlite is not there any more")


def test_store_on_a_disk_that_is_full(tmp_path: Path, trial: Callable[..., Trial]) -> None:
    """What was committed before stays readable, without any room."""
    with mounted(tmp_path / "disk", 50 * MIB) as disk:
        each = trial(PROGRAM, disk / "store")
        plain, done = run_with(lambda _: fill(disk / "rest"), each, epsilon="inf")
        each.check(plain, done, "the store cannot be written: ")
        assert "No space left on device" in done.stderr or "full" in done.stderr
        assert list(damage(each.recorded.home, plain.stdout)) == []


def test_store_on_a_disk_that_is_full_from_the_start(tmp_path: Path, trial: Callable[..., Trial]) -> None:
    """Nothing that the attempt has opened stays open."""
    with mounted(tmp_path / "disk", 9 * MIB) as disk:
        each = trial(ODD.replace("pass", "print(os.open('/', os.O_RDONLY))"), disk / "store")
        plain = Ended.of(each.plainly.start(), each.plainly)
        each.check(plain, Ended.of(each.recorded.start(*RECORD), each.recorded), None)
        fill(disk / "rest")
        each.check(plain, Ended.of(each.recorded.start(*RECORD), each.recorded), "recording stopped (")


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for piece in (MIB, 1):
            with pytest.raises(OSError, match="No space left"):
                while True:
                    file.write(bytes(piece))


def test_store_on_a_read_only_disk(tmp_path: Path, trial: Callable[..., Trial]) -> None:
    """It is said at the start."""
    with mounted(tmp_path / "disk", MIB, "ro") as disk:
        each = trial(PROGRAM, disk / "store")
        for place in (each.plainly, each.recorded):
            (place.folder / "go").touch()
        plain = Ended.of(each.plainly.start(), each.plainly)
        each.check(plain, Ended.of(each.recorded.start(*RECORD), each.recorded), "Read-only file system")


# The memory that recording may take, a quarter of what is allowed, holds two or three of its states, which all differ.
LARGE = """
    import os, resource, time
    large = bytearray(20_000_000)
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 240_000_000, resource.RLIM_INFINITY))
    for step in range(20):
        large[step * 1000 : step * 1000 + 4] = b"step"
        if step == 5:
            open("there", "w").close()
            while not os.path.exists("go"):
                time.sleep(0.01)
        print(step, large.count(b"step"), flush=True)
"""


def test_disk_slower_than_the_training(trial: Callable[..., Trial]) -> None:
    """Checkpoints are left out, and the program does not wait for them."""
    each = trial(LARGE)
    with ExitStack() as stack:
        plain, done = run_with(lambda pid: stack.enter_context(slowed(pid, 0.05)), each)
    assert "staging memory is full" in done.stderr or "goes on alone" in done.stderr
    each.check(plain, done, "")
    assert list(damage(each.recorded.home, plain.stdout)) == []
    with Store.open(each.recorded.home) as store:
        assert len(store.checkpoints(store.find("last"))) > 2


# --- memory ----------------------------------------------------------------------------------------------------------

# Needs 60 MB more than it has when the loop begins, and may take 80 MB.
SHORT = """
    import resource
    large = bytearray(20_000_000)
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 80_000_000, resource.RLIM_INFINITY))
    for step in range(6):
        large[step] = step
        copies = [bytes(large) for _ in range(3)]
        print(step, [sum(copy[:10]) for copy in copies])
        del copies
"""


def test_memory_nearly_exhausted(trial: Callable[..., Trial]) -> None:
    """What the program needs is left to it: checkpoints that do not fit in a quarter of the rest are left out."""
    each = trial(SHORT)
    plain = Ended.of(each.plainly.start(), each.plainly)
    assert plain.status == 0, plain.stderr
    done = Ended.of(each.recorded.start(*RECORD), each.recorded)
    each.check(plain, done, "bytes are more than the staging memory of")


GROUPS = {
    "second": ("0::/job/step", "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    "first": (
        "3:cpu:/x\n4:hugetlb,memory:/job/step\n0::/",
        "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
    ),
}  # fmt: skip


@pytest.mark.parametrize("version", GROUPS)
def test_limits_of_control_groups(version: str, tmp_path: Path) -> None:
    """Each group above counts, less what it only keeps of files; one without a limit does not, nor what is not seen."""
    lines, root, limit, usage, cached = GROUPS[version]
    (tmp_path / "cgroup").write_text(lines + "\n")
    for path, most, used in (("job", "1000", "700"), (".", "5000", "1000"), ("job/other", "10", "5")):
        folder = tmp_path / root / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / limit).write_text(most + "\n")
        (folder / usage).write_text(used + "\n")
    (tmp_path / root / "job" / "memory.stat").write_text(f"anon 5\n{cached} 200\nunevictable 9\n")
    assert sorted(memory._in_groups(tmp_path / "cgroup", tmp_path)) == [500, 4000]
    (tmp_path / root / limit).write_text("max\n")
    assert list(memory._in_groups(tmp_path / "cgroup", tmp_path)) == [500]


# --- limits, and programs that take away what is not theirs ----------------------------------------------------------

LIMITS = {
    "descriptors": (resource.RLIMIT_NOFILE, 20, None),
    "very few descriptors": (resource.RLIMIT_NOFILE, 7, "Too many open files"),
    "size of files": (resource.RLIMIT_FSIZE, 10_000, "recording stopped ("),
}


@pytest.mark.parametrize("name", LIMITS)
def test_limits(name: str, trial: Callable[..., Trial]) -> None:
    """What the system refuses to the recording, the program does not feel."""
    which, most, said = LIMITS[name]
    each = trial(ODD)

    def before() -> None:
        resource.setrlimit(which, (most, most))

    plain = Ended.of(each.plainly.start(before=before), each.plainly)
    assert plain.status == 0, plain.stderr
    each.check(plain, Ended.of(each.recorded.start(*RECORD, before=before), each.recorded), said)


ODD = """
    import os, sys, time
    large, kept = bytearray(100_000), []
    for step in range(12):
        large[step] = step
        if step == 6:
            pass
        time.sleep(0.02)
        print(step, sum(large), flush=True)
    for each in kept:
        os.fstat(each)
    print("the end", flush=True)
"""
DAEMON = "os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); os.closerange(3, 65536)"
EVENTS = {
    "closes all descriptors, and has many of its own": (
        "os.closerange(3, 65536); kept += [os.open('/', os.O_RDONLY) for _ in range(600)]; print(kept[0])",
        "recording stopped (the program closed the recorder's socket)",
    ),
    "allows itself no more descriptors": (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4)); print(os.open('/', os.O_RDONLY))",
        None,
    ),
    "goes on as a daemon": (DAEMON, None),
    "removes its working folder, and the store": (
        "import shutil; shutil.rmtree(os.getcwd())",
        "catalog.sqlite is not there any more",
    ),
    "ends when it is told to": (
        "import signal; signal.signal(15, lambda *_: sys.exit(5)); os.kill(os.getpid(), 15)",
        None,
    ),
    "dies when it is told to": ("os.kill(os.getpid(), 15)", None),
}


@pytest.mark.parametrize("name", EVENTS)
def test_programs_that_take_away_what_is_not_theirs(name: str, trial: Callable[..., Trial]) -> None:
    """Descriptors, folders, processes: all is as plainly."""
    event, said = EVENTS[name]
    each = trial(ODD.replace("pass", event))
    plain, done = (
        _ended(place, *options) for place, options in ((each.plainly, ()), (each.recorded, RECORD))
    )
    each.check(plain, done, said)
    if each.recorded.home.exists():
        assert list(damage(each.recorded.home, done.stdout)) == []


def _ended(place: Place, *options: str) -> Ended:
    """A daemon goes on after its first process has ended."""
    process = place.start(*options)
    process.wait()
    deadline = time.monotonic() + PROMPT
    while process.returncode == 0 and "the end" not in place.streams[0].read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return Ended.of(process, place)


def test_the_terminal_goes(trial: Callable[..., Trial]) -> None:
    """Its SIGHUP ends the program as plainly; the writer has a session of its own, and commits."""
    each = trial(ODD.replace("range(12)", "range(3000)"))
    for place, options in ((each.plainly, ()), (each.recorded, RECORD)):
        process, terminal = pty.fork()
        if not process:
            os.chdir(place.folder)
            os.environ.update(FLOR_HOME=str(place.home), FLOR_EPSILON="inf", FLOR_MODE="record")
            os.execv(sys.executable, [sys.executable, *options, "train.py"])
        printed = b""
        while b"\n9 " not in printed:
            printed += os.read(terminal, 1000)
        os.close(terminal)
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGHUP
    stdout = "".join(f"{step} {step * (step + 1) // 2}\n" for step in range(3000))
    assert list(damage(each.recorded.home, stdout)) == []
    with Store.open(each.recorded.home) as store:
        assert len(store.checkpoints(store.find("last"))) > 3


# --- many at once ----------------------------------------------------------------------------------------------------


def state(run: int, step: int) -> bytes:
    return hashlib.shake_128(f"{run}.{step}".encode()).digest(50_000)


def test_a_reader_keeps_nobody_waiting(tmp_path: Path) -> None:
    """A writer that ends while somebody reads the catalog does not wait for that, and no other one for it."""
    recordings = [
        Recording.start(tmp_path, RunRow(f"run-{n}", "/w/train.py", (), "/w", time.time()), MIB)
        for n in (1, 2)
    ]
    for recording in recordings:
        while not recording.writer_cpu_s:  # until it has committed something
            recording.rows("sources", [("m", "/w/m.py", b"x")])
            time.sleep(0.02)
    with closing(sqlite3.connect(tmp_path / "catalog.sqlite", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM runs").fetchall()
        for recording in recordings:
            recording.rows("output", [(0, "x")])
            assert recording.finish(1.0, 0, {}, 30), recording.failed


@pytest.mark.slow
def test_64_runs_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They share one store: each of the writers commits all that it was given."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    home = tmp_path / "store"
    recordings = [
        Recording.start(home, RunRow(f"run-{number}", "/w/train.py", (), "/w", time.time()), MIB)
        for number in range(64)
    ]
    for step in range(4):
        for number, recording in enumerate(recordings):
            recording.rows("output", [(step, f"{number}.{step}\n")])
            piece = Piece("state", memoryview(state(number, step)))
            assert recording.checkpoint(CheckpointRow(0, step, 0.0, 0, "{}"), [piece])
    done = [recording.finish(1.0, 0, {}, 60) for recording in recordings]
    assert [recording.failed for recording in recordings] == [None] * 64
    assert all(done)
    with Store.open(home) as store:
        assert len(store.runs()) == 64
        for number in range(64):
            assert "".join(text for _, text in store.output(f"run-{number}")) == "".join(
                f"{number}.{step}\n" for step in range(4)
            )
            for step, checkpoint in enumerate(store.checkpoints(f"run-{number}")):
                assert store.read(checkpoint.digests[0]) == state(number, step)
            assert step == 3


# --- kills -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["bytes", "nested loops"])
def test_kills(workload: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`kill -9` of training, writer or both; `scripts/kill-test` does it as often as one likes."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    series = Series(workload, tmp_path)
    for seed in (1, 7):
        assert series.kill(random.Random(seed)) == []
