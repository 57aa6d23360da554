"""The store after kill -9 of either process at random moments: it opens, and every committed checkpoint reads back.

FLOR_KILLS=1000 makes it a long test.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from florhook.errors import StoreError
from florhook.store.store import Store, settle

KILLS = int(os.environ.get("FLOR_KILLS", "13"))  # of each process
SEED = int(os.environ.get("FLOR_SEED", "1"))

# Step n writes a state that is known from n alone, and says so on stdout once it was handed over.
PROGRAM = """
import hashlib, sys, time
from florhook.store.recording import Recording
from florhook.store.rows import CheckpointRow, Piece, RunRow

def state(n):
    return [hashlib.shake_128(f"{n}.{k}".encode()).digest(size) for k, size in enumerate((30, 3000, 40_000, 300_000))]

recording = Recording.start(sys.argv[1], RunRow(sys.argv[2], "/w/train.py", (), "/w", time.time()), 64 << 20)
for n in range(100_000):
    pieces = [Piece(k, memoryview(part), k == 1) for k, part in enumerate(state(n))]
    pieces.append(Piece("frozen", memoryview(bytes(20_000))))
    recording.rows("output", [(n, f"{n}\\n")])
    taken = recording.checkpoint(CheckpointRow(0, n, 0.0, n, "{}"), pieces)
    if recording.failed:
        break
    if taken:
        print(n, recording.writer_pid, flush=True)
print("over", recording.failed, flush=True)
"""


def state(n: int) -> list[bytes]:
    return [
        hashlib.shake_128(f"{n}.{k}".encode()).digest(size)
        for k, size in enumerate((30, 3000, 40_000, 300_000))
    ]


pytestmark = pytest.mark.usefixtures("own_key")


def check(home: Path, run_id: str) -> list[int]:
    """Reads everything that the store says it has of the run."""
    with Store.open(home) as store:
        found = []
        for checkpoint in store.checkpoints(run_id):
            expected = [*state(checkpoint.iteration), bytes(20_000)]
            assert [bytes(store.read(digest)) for digest in checkpoint.digests] == expected
            assert store.trusted(run_id, checkpoint)
            found.append(checkpoint.iteration)
        positions = [position for position, _ in store.output(run_id)]
        assert positions == list(range(len(positions)))
        return found


def start(home: Path, run_id: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(home), run_id], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("number", range(KILLS))
def test_training_killed(tmp_path: Path, number: int) -> None:
    """All that was handed over before the training process was killed is committed by its writer."""
    home, run_id = tmp_path / "store", f"run-{number}"
    process = start(home, run_id)
    time.sleep(random.Random(SEED * 1000 + number).uniform(0.05, 0.8))
    process.kill()
    out, _ = process.communicate()
    assert settle(home, 30)
    handed_over = [int(line.split()[0]) for line in out.splitlines()]
    try:
        found = check(home, run_id)
    except StoreError:
        assert not handed_over
        return
    # a message that did not fit the socket may be lost, and those after it; never one in the middle
    assert found == handed_over[: len(found)] or found[: len(handed_over)] == handed_over
    assert len(found) >= len(handed_over) - 200
    with Store.open(home) as store:
        run = store.find(run_id)
        assert run.ended is None
        assert abs((run.lost or 0) - time.time()) < 60


@pytest.mark.parametrize("number", range(KILLS))
def test_writer_killed(tmp_path: Path, number: int) -> None:
    """After the writer was killed the program goes on, and the store opens with all that was committed."""
    home, run_id = tmp_path / "store", f"run-{number}"
    process = start(home, run_id)
    assert process.stdout is not None
    pid = next((int(words[1]) for line in process.stdout if (words := line.split())[1] != "None"), 0)
    time.sleep(random.Random(SEED * 1000 + 500 + number).uniform(0.0, 0.5))
    os.kill(pid, signal.SIGKILL)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out.splitlines()[-1]) == (0, "over the writer process has died")
    found: list[int] = []
    try:
        found = check(home, run_id)
    except StoreError as error:  # killed while it made the store
        if "is empty" not in str(error) and "no store" not in str(error):
            raise
    assert found == sorted(found)
    again = f"again-{number}"
    second = start(home, again)
    assert second.stdout is not None
    second.stdout.readline()
    second.kill()
    second.communicate()
    assert settle(home, 30)
    check(home, again)
    assert check(home, run_id) == found
