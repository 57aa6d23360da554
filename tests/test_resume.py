"""A run that was killed or that failed is continued, and ends as it would have ended without that."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
from conftest import Flor
from test_record_replay import probe

PLAIN = """
    import hashlib, json, os, random, signal, time
    random.seed(3)

    def perhaps_die(epoch):
        if epoch == 5 and os.path.exists("die"):
            if open("die").read() == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("out of luck")

    def train(weights):
        total = 0.0
        for step in range(20):
            noise = random.gauss(0, 1)
            weights[step % 4] += 0.1 * noise
            total += noise
            time.sleep(0.0005)
        return total

    log = open("log.txt", "w")
    weights, best, history = [0.0] * 4, None, []
    for epoch in range(10):
        total = train(weights)
        if best is None or total > best[0]:
            best = [total, epoch]
        history.append(best)
        print("epoch", epoch, total)
        print("epoch", epoch, total, file=log)
        perhaps_die(epoch)
    print("best", best, [each is best for each in history])
    log.close()
    with open("result.json", "w") as file:
        json.dump([hashlib.sha256(repr(weights).encode()).hexdigest(), history], file)
"""

NUMPY = """
    import os, signal
    import numpy as np
    rng = np.random.default_rng(7)
    np.random.seed(5)
    features = rng.normal(size=(400, 30))
    wanted = features @ rng.normal(size=30)

    class Model:
        def __init__(self):
            self.weights, self.velocity = np.zeros(30), np.zeros(30)
            self.view = self.weights[:10]
        def step(self, batch, rate):
            error = features[batch] @ self.weights - wanted[batch]
            self.velocity = 0.9 * self.velocity + features[batch].T @ error / len(batch)
            self.weights -= rate * self.velocity
            return float((error ** 2).mean())

    def fit(model):
        for epoch in range(9):
            order = np.random.permutation(400)
            losses = []
            for batch in np.split(order, 8):
                losses.append(model.step(batch, 0.05 / (1 + epoch)))
            print(epoch, sum(losses), model.view.sum())
            if epoch == 5 and os.path.exists("die"):
                if open("die").read() == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise ValueError(epoch)

    model = Model()
    fit(model)
    np.save("result.npy", model.weights)
    print(model.weights.tobytes().hex(), model.view.base is model.weights)
"""

TORCH = """
    import hashlib, os, signal
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    torch.manual_seed(0)
    torch.set_num_threads(1)

    def main():
        x = torch.randn(256, 16)
        y = (x.sum(1) > 0).long()
        loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
        net = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 2))
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        history = []
        for epoch in range(10):
            net.train()
            total = 0.0
            for inputs, labels in loader:
                loss = nn.functional.cross_entropy(net(inputs), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
            scheduler.step()
            history.append(total)
            print(epoch, total, scheduler.get_last_lr())
            if epoch == 5 and os.path.exists("die"):
                if open("die").read() == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise RuntimeError("boom")
        state = b"".join(each.detach().numpy().tobytes() for each in net.state_dict().values())
        with open("result.txt", "w") as file:
            file.write(hashlib.sha256(state).hexdigest() + repr(history))
        print("weights", hashlib.sha256(state).hexdigest())

    main()
"""


def outcome(flor: Flor) -> dict[str, bytes]:
    """What the program left: every file but its own and the sign for it to die."""
    return {
        path.name: path.read_bytes()
        for path in sorted(flor.folder.iterdir())
        if path.is_file() and path.suffix != ".py" and path.name != "die"
    }


def plainly(flor: Flor, *args: str, **changes: str) -> tuple[str, dict[str, bytes]]:
    """Output and files of an uninterrupted run without florhook, in this folder, which is as before afterwards."""
    before = set(flor.folder.iterdir())
    done = flor.python(*args, **changes)
    assert done.returncode == 0, done.stderr
    files = outcome(flor)
    for path in set(flor.folder.iterdir()) - before:
        if path.is_file():
            path.unlink()
    return done.stdout, files


def fail(flor: Flor, how: str, *args: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """A recorded run that dies."""
    (flor.folder / "die").write_text(how)
    done = flor(*args, **changes)
    (flor.folder / "die").unlink()
    assert done.returncode == (-signal.SIGKILL if how == "kill" else 1), done.stderr
    return done


def resume(flor: Flor, *args: str, **changes: str) -> tuple[str, dict[str, Any]]:
    """Output and figures of a resumed run that ends well; what it said is one line."""
    stats = flor.home.parent / "stats.json"
    done = flor(*args, FLOR_MODE="resume", FLOR_STATS=str(stats), **changes)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("florhook: run ")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stdout, json.loads(stats.read_text())


@pytest.mark.parametrize("epsilon", ["inf", "0.0667"])
@pytest.mark.parametrize("how", ["raise", "kill"])
@pytest.mark.parametrize(
    "program",
    [PLAIN, NUMPY, pytest.param(TORCH, marks=pytest.mark.needs_torch)],
    ids=["plain", "numpy", "torch"],
)
def test_a_run_that_died_ends_as_if_it_had_not(flor: Flor, program: str, how: str, epsilon: str) -> None:
    """The same output and the same files to the last bit, whatever it died of and whatever was checkpointed."""
    flor.write("train.py", program)
    wanted = plainly(flor, "train.py")
    fail(flor, how, "train.py", FLOR_EPSILON=epsilon)
    output, stats = resume(flor, "train.py", FLOR_EPSILON=epsilon)
    assert (output, outcome(flor)) == wanted
    assert stats["mode"] == "resume"
    if epsilon == "inf":
        assert stats["jumps"] > 0
        assert stats["iterations_skipped"] > 0
    runs = flor("runs").stdout.splitlines()
    assert len(runs) == 3
    assert f"from {runs[1].split()[0]}" in flor("show", "last").stdout


@pytest.mark.parametrize("seed", range(3))
def test_a_run_killed_from_outside_at_any_time_goes_on(flor: Flor, seed: int) -> None:
    """Twice: the run that continues is killed, too, and continued."""
    flor.write("train.py", PLAIN.replace("0.0005", "0.002"))
    wanted = plainly(flor, "train.py")
    for mode, lines in (("record", 2 + seed), ("resume", 5 + seed)):
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "florhook", "train.py"],
            cwd=flor.folder,
            env=flor.environ(FLOR_MODE=mode, FLOR_EPSILON="inf"),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        with process, process.stdout as output:  # type: ignore[union-attr]
            for _ in range(lines):
                output.readline()
            time.sleep(random.Random(seed).uniform(0, 0.06))
            process.kill()
    done = flor("train.py", FLOR_MODE="resume", FLOR_EPSILON="inf")
    assert (done.stdout, outcome(flor)) == wanted


TWICE = """
    import os, signal, sys, time

    def work(epoch):
        for step in range(3):
            if os.path.exists("die") and epoch == int(open("die").read()):
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.01)

    HOW
    for epoch in range(8):
        LINE
        work(epoch)
    print("end")
"""


@pytest.mark.parametrize(
    ("opening", "line"),
    [
        ('log = open("log.txt", "w")', 'print("epoch", epoch, file=log)'),
        ('log = open("log.txt", "w")', 'print("epoch", epoch, file=log, flush=True)'),
        ('open("log.txt", "w").close()', 'with open("log.txt", "a") as log: log.write(f"epoch {epoch}\\n")'),
        ("pass", 'with open("log.txt", "a") as log: log.write(f"epoch {epoch}\\n")'),
    ],
    ids=["open", "flushed", "again", "appended"],
)
def test_a_file_is_continued_twice(flor: Flor, opening: str, line: str) -> None:
    """A line that lies in the file just before the point belongs to it, whichever run wrote it."""
    flor.write("train.py", TWICE.replace("HOW", opening).replace("LINE", line))
    wanted = plainly(flor, "train.py")
    for mode, epoch in (("record", 2), ("resume", 5)):
        (flor.folder / "die").write_text(str(epoch))
        done = flor("train.py", FLOR_MODE=mode, FLOR_EPSILON="inf")
        assert done.returncode == -signal.SIGKILL, done.stderr
    (flor.folder / "die").unlink()
    output, _ = resume(flor, "train.py", FLOR_EPSILON="inf")
    assert (output, outcome(flor)) == wanted
    assert wanted[1]["log.txt"].decode().split() == [w for n in range(8) for w in ("epoch", str(n))]


HEAVY = """
    import os, signal, time
    import numpy as np

    def command(process):
        try:
            return open(f"/proc/{process}/cmdline").read()
        except OSError:
            return ""

    def runs():
        import sqlite3
        try:
            with sqlite3.connect(f"file:{os.environ['FLOR_HOME']}/catalog.sqlite?mode=ro", uri=True) as catalog:
                return catalog.execute("SELECT count(*) FROM runs").fetchone()[0]
        except sqlite3.Error:
            return 0

    def die():
        while not runs():
            time.sleep(0.01)  # a writer that had not come so far would leave no run to continue
        processes = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
        writers = [p for p in processes if "store.writer" in (c := command(p)) and os.environ["FLOR_HOME"] in c]
        [os.kill(process, signal.SIGKILL) for process in (*writers, os.getpid())]

    state = np.zeros(3_000_000)
    for epoch in range(8):
        for step in range(4):
            state += epoch * step + 1
        print(epoch, state.sum())
        if epoch == 5 and os.path.exists("die"):
            die()
    state.tofile("result.bin")
"""


def test_a_checkpoint_that_was_being_written_is_not_used(flor: Flor) -> None:
    """The writer dies with the run: what it had not committed is as if it had not been."""
    flor.write("train.py", HEAVY)
    wanted = plainly(flor, "train.py")
    fail(flor, "kill", "train.py", FLOR_EPSILON="inf")
    output, _ = resume(flor, "train.py", FLOR_EPSILON="inf")
    assert (output, outcome(flor)) == wanted


def test_a_resumed_run_is_resumed(flor: Flor) -> None:
    """It failed again, later: the third run goes on from the second, and nothing of the others is lost."""
    flor.write("train.py", PLAIN.replace("epoch == 5", "epoch in (3, 7)"))
    wanted = plainly(flor, "train.py")
    fail(flor, "raise", "train.py", FLOR_EPSILON="inf")
    (flor.folder / "die").write_text("kill")
    text = (flor.folder / "train.py").read_text()
    assert "epoch in (3, 7)" in text
    again = flor("train.py", FLOR_MODE="resume", FLOR_EPSILON="inf")
    assert again.returncode == -signal.SIGKILL or "epoch 3" in again.stdout
    (flor.folder / "die").unlink()
    output, _ = resume(flor, "train.py", FLOR_EPSILON="inf")
    assert (output, outcome(flor)) == wanted
    ids = [line.split()[0] for line in flor("runs").stdout.splitlines()[1:]]
    assert len(ids) == 3
    for run, parent in zip(ids[1:], ids, strict=False):
        assert f"from {parent}" in flor("show", run).stdout


@pytest.mark.parametrize(
    "program",
    [PLAIN, NUMPY, pytest.param(TORCH, marks=pytest.mark.needs_torch)],
    ids=["plain", "numpy", "torch"],
)
def test_a_resumed_run_is_replayed(flor: Flor, program: str) -> None:
    """Its record is complete: epochs before and after the point, loops skipped, everything verified."""
    flor.write("train.py", program)
    fail(flor, "raise", "train.py", FLOR_EPSILON="inf")
    resume(flor, "train.py", FLOR_EPSILON="inf")
    line = {
        PLAIN: ("history.append(best)", "print('@@', epoch, weights, best)"),
        NUMPY: ("losses.append(", "print('@@', epoch, losses[-1], model.weights.sum(), model.view[3])"),
        TORCH: (
            "scheduler.step()",
            "print('@@', epoch, net[0].weight.sum().item(), optimizer.param_groups[0]['lr'])",
        ),
    }[program]
    left = outcome(flor)
    probe(flor, "train.py", *line)
    plain, _ = plainly(flor, "train.py")
    for path, data in left.items():
        (flor.folder / path).write_bytes(data)
    stats = flor.home.parent / "stats.json"
    done = flor("train.py", FLOR_MODE="replay", FLOR_STATS=str(stats))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [each for each in plain.splitlines() if each.startswith("@@")]
    figures = json.loads(stats.read_text())
    assert figures["diverged"] == 0
    assert figures["jumps"] > 0
    some = flor("train.py", FLOR_MODE="replay", FLOR_SELECT="epoch=7:9")
    assert some.stdout == "".join(
        f"{each}\n" for each in plain.splitlines() if each.startswith(("@@ 7", "@@ 8"))
    )
    everything = flor("train.py", FLOR_MODE="replay", FLOR_LOG="all")
    assert everything.stdout == plain


BRANCH = """
    rate = 0.5
    weights = [1.0, -2.0]
    print("start")
    for epoch in range(8):
        for index in range(2):
            weights[index] -= rate * weights[index] * (1 - 0.1 * epoch)
        print(epoch, weights)
        __import__("time").sleep(0.004)  # longer than a checkpoint may cost at most
    print("end", weights)
"""


def test_an_edited_program_branches_off(flor: Flor) -> None:
    """--at takes up a run that ended well, with another rate from there on, as a run that names its parent."""
    path = flor.write("train.py", BRANCH)
    first = flor("train.py", FLOR_EPSILON="inf")
    path.write_text(path.read_text().replace("rate * weights[index] *", "(rate / 2) * weights[index] *"))
    changed = "    if epoch == 5:\n        print('half')\n    for index"
    path.write_text(path.read_text().replace("    for index", changed))
    done = flor("--at", "epoch=5", "train.py", FLOR_MODE="resume", FLOR_EPSILON="inf")
    assert done.returncode == 0, done.stderr
    before = first.stdout.splitlines()
    after = done.stdout.splitlines()
    assert after[:6] == before[:6]
    assert after[6] == "half"
    weights = json.loads(before[5].partition(" ")[2])
    for epoch in range(5, 8):
        weights = [each - 0.25 * each * (1 - 0.1 * epoch) for each in weights]
        assert after[epoch + 2] == f"{epoch} {weights}"
    shown = flor("show", "last").stdout
    assert "before iteration 5" in shown
    # What it recorded is its own source: a print is hindsight of it, the branch is no edit.
    probe(flor, "train.py", "print(epoch, weights)", "print('@@', epoch, weights[0])")
    replayed = flor("train.py", FLOR_MODE="replay", FLOR_SELECT="epoch=6:8")
    assert replayed.returncode == 0, replayed.stderr
    wanted = [f"@@ {line[0]} {json.loads(line.partition(' ')[2])[0]}" for line in after[8:10]]
    assert replayed.stdout.splitlines() == wanted


def test_an_edit_before_the_point_is_named(flor: Flor) -> None:
    """The rate that was restored is the recorded one, and the line says so."""
    path = flor.write("train.py", BRANCH)
    first = flor("train.py", FLOR_EPSILON="inf")
    path.write_text(path.read_text().replace("rate = 0.5", "rate = 0.1"))
    done = flor("--at", "epoch=5", "train.py", FLOR_MODE="resume", FLOR_EPSILON="inf")
    assert (done.returncode, done.stdout) == (0, first.stdout)
    assert f"{path}:1:" in done.stderr


TWO_INSIDE = """
    weight = 1.0
    for epoch in range(4):
        for index in range(2):
            weight *= float("0.5")
            __import__("time").sleep(0.002)  # shorter loops have no rows
        for step in range(2):
            weight += float("1.0")
            __import__("time").sleep(0.002)
        print(epoch, weight)
"""


def test_it_goes_on_after_a_loop(flor: Flor) -> None:
    """The newest checkpoint is at a loop's exit, where the program is on no line of its own.

    By hand, up to epoch 2: 1, 2.25, 2.5625, 2.640625; then a quarter as recorded, and 10 twice.
    """
    path = flor.write("train.py", TWO_INSIDE)
    first = flor("train.py", FLOR_EPSILON="inf").stdout.splitlines()
    assert first == ["0 2.25", "1 2.5625", "2 2.640625", "3 2.66015625"]
    text = path.read_text().replace('"0.5"', '"0.1"')
    path.write_text(text.replace('1.0"', '10.0"').replace("weight = 1.0", "weight = 3.0"))
    done = flor("--at", "epoch=2,step=0", "train.py", FLOR_MODE="resume", FLOR_EPSILON="inf")
    assert done.returncode == 0, done.stderr
    assert "after" in flor("show", "last").stdout
    assert done.stdout.splitlines() == [*first[:2], "2 20.640625", "3 20.20640625"]
    assert f"{path}:1:" in done.stderr  # the weight is as recorded; edits inside the epochs count from now on
    assert f"{path}:4:" not in done.stderr
    assert f"{path}:7:" not in done.stderr


def test_other_loops_around_are_matched(flor: Flor) -> None:
    """More epochs and a loop before: the alignment of the sources finds the loops again."""
    path = flor.write("train.py", BRANCH)
    first = flor("train.py", FLOR_EPSILON="inf")
    text = path.read_text().replace("range(8)", "range(10)")
    path.write_text(text.replace("for epoch", "for word in ():\n    print(word)\nfor epoch", 1))
    done = flor("--at", "epoch=6", "train.py", FLOR_MODE="resume", FLOR_EPSILON="inf")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:9] == first.stdout.splitlines()[:9]
    assert len(lines) == 12


def test_a_loop_that_is_no_more_is_named(flor: Flor) -> None:
    """The inner loop became one statement: its checkpoints are left out, with file and line."""
    path = flor.write("train.py", BRANCH)
    first = flor("train.py", FLOR_EPSILON="inf")
    old = "    for index in range(2):\n        weights[index] -= rate * weights[index] * (1 - 0.1 * epoch)\n"
    new = "    weights = [each / 2 for each in weights]\n"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    done = flor("--at", "epoch=5", "train.py", FLOR_MODE="resume", FLOR_EPSILON="inf")
    assert done.returncode == 0, done.stderr
    before, after = first.stdout.splitlines(), done.stdout.splitlines()
    assert after[:6] == before[:6]
    weights = json.loads(before[5].partition(" ")[2])
    assert after[6] == f"5 {[each / 2 for each in weights]}"
    assert f"{path}: the recorded loop of line 5 cannot be matched" in done.stderr


UNSEEDED = """
    import os, random, time
    start, noise = time.time(), os.urandom(4).hex()
    values = []
    for epoch in range(6):
        for step in range(3):
            values.append((random.random(), noise, start))
        print(epoch, values[-1])
        if epoch == 3 and os.path.exists("die"):
            raise RuntimeError
    with open("values.txt", "w") as file:
        file.write(repr(values))
"""


def test_an_unseeded_run_goes_on_as_itself(flor: Flor) -> None:
    """What it drew and read before the point is as it was; only what comes after is new."""
    flor.write("train.py", UNSEEDED)
    first = fail(flor, "raise", "train.py", FLOR_EPSILON="inf")
    output, _ = resume(flor, "train.py", FLOR_EPSILON="inf")
    assert output.startswith(first.stdout)
    assert len({line.split(", ", 1)[1] for line in output.splitlines()}) == 1


APPENDS = """
    import os
    log = open("log.txt", "a")
    log.write("begin\\n")
    for epoch in range(6):
        log.write(f"epoch {epoch}\\n")
        log.flush()
        with open("epochs.txt", "a") as file:
            file.write(f"{epoch}\\n")
        for step in range(3):
            if epoch == 3 and step == 2 and os.path.exists("die"):
                raise RuntimeError
    log.close()
"""


def test_files_appended_to_go_on_where_they_were(flor: Flor) -> None:
    """One that is open is cut to what it held at the point; one that is opened each time too."""
    flor.write("train.py", APPENDS)
    (flor.folder / "log.txt").write_text("older\n")
    fail(flor, "raise", "train.py", FLOR_EPSILON="inf")
    done = flor("train.py", FLOR_MODE="resume", FLOR_EPSILON="inf")
    assert done.returncode == 0, done.stderr
    assert outcome(flor)["log.txt"].decode() == "older\nbegin\n" + "".join(f"epoch {n}\n" for n in range(6))
    assert outcome(flor)["epochs.txt"].decode() == "".join(f"{n}\n" for n in range(6))


LOGGING = """
    import logging, os
    logging.basicConfig(filename="log.txt", filemode=MODE, format="%(message)s", level=logging.INFO)
    logging.info("begin")
    for epoch in range(6):
        if epoch == 3 and os.path.exists("die"):
            raise RuntimeError
        logging.info("epoch %d", epoch)
    logging.info("end")
"""


@pytest.mark.parametrize("mode", ["'a'", "'w'"])
def test_a_log_that_no_checkpoint_sees_loses_nothing(flor: Flor, mode: str) -> None:
    """The handler of the root logger lies in no module of the program: its file goes on behind what is there."""
    flor.write("train.py", LOGGING.replace("MODE", mode))
    wanted = plainly(flor, "train.py")
    fail(flor, "raise", "train.py", FLOR_EPSILON="inf")
    done = flor("train.py", FLOR_MODE="resume", FLOR_EPSILON="inf")
    assert (done.returncode, outcome(flor)) == (0, wanted[1]), done.stderr


FROM_EPOCH = """
    import os, time
    for epoch in range(6):
        time.sleep(0.05)  # the record keeps up on a busy machine too
        with open("epochs.txt", "a") as file:
            file.write(f"{epoch}\\n")
        print(epoch)
"""


def test_no_line_is_appended_twice(flor: Flor) -> None:
    """What the run had appended after the place where it is taken up again is cut; what was cut is kept."""
    flor.write("train.py", FROM_EPOCH)
    flor("train.py", FLOR_EPSILON="inf")
    done = flor("--at", "epoch=3", "train.py", FLOR_MODE="resume", FLOR_EPSILON="inf")
    assert done.stdout == "".join(f"{n}\n" for n in range(6))
    assert outcome(flor)["epochs.txt"].decode() == done.stdout
    (kept,) = (path for path in (flor.home / "cut").rglob("epochs.txt"))
    assert kept.read_text() == "3\n4\n5\n"


CLEANUP = """
    import os
    done = []
    try:
        for epoch in range(6):
            done.append(epoch)
            print(epoch)
            if epoch == 3 and os.path.exists("die"):
                raise RuntimeError
    finally:
        for part in ("a", "b"):
            print("cleanup", part)
    print(done)
"""


def test_loops_of_the_cleanup_are_no_place_to_go_on(flor: Flor) -> None:
    """The newest checkpoint lies behind the exception; the run goes on before it."""
    flor.write("train.py", CLEANUP)
    wanted = plainly(flor, "train.py")
    fail(flor, "raise", "train.py", FLOR_EPSILON="inf")
    done = flor("train.py", FLOR_MODE="resume", FLOR_EPSILON="inf")
    assert (done.stdout, outcome(flor)) == wanted, done.stderr
    assert done.returncode == 0


PLACEHOLDER = """
    import os, threading
    class Pool:
        pass
    made, values = [], []
    for epoch in range(6):
        made.append(open("data.txt"))
        values.append(epoch)
        print(epoch, values)
        if epoch == 3 and os.path.exists("die"):
            raise RuntimeError
    print([file.read() for file in made])
"""


def test_what_no_checkpoint_holds_is_run_again(flor: Flor) -> None:
    """A file opened inside the loop is touched after the point: started anew, and nothing is printed twice."""
    (flor.folder / "data.txt").write_text("data")
    flor.write("train.py", PLACEHOLDER)
    wanted = plainly(flor, "train.py")
    fail(flor, "raise", "train.py", FLOR_EPSILON="inf")
    done = flor("train.py", FLOR_MODE="resume", FLOR_EPSILON="inf")
    assert (done.stdout, outcome(flor)) == wanted, done.stderr
    assert done.returncode == 0


def test_without_a_checkpoint_it_starts_from_the_beginning(flor: Flor) -> None:
    """It says so, and is a run that names its parent."""
    flor.write(
        "train.py", "import os\nprint('hello')\nif os.path.exists('die'): raise ValueError\nprint('end')\n"
    )
    wanted = plainly(flor, "train.py")
    fail(flor, "raise", "train.py")
    done = flor("train.py", FLOR_MODE="resume")
    assert (done.returncode, done.stdout) == (0, wanted[0])
    assert "from the beginning" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_exit_of_a_resumed_run_is_the_programs(flor: Flor) -> None:
    """Its status, its traceback, its end by a signal."""
    flor.write("train.py", PLAIN.replace("raise RuntimeError", "raise SystemExit(7) if 0 else RuntimeError"))
    fail(flor, "raise", "train.py", FLOR_EPSILON="inf")
    (flor.folder / "die").write_text("raise")
    again = flor("train.py", FLOR_MODE="resume", FLOR_EPSILON="inf")
    assert again.returncode == 1
    assert again.stderr.rstrip().endswith("RuntimeError: out of luck")
    assert again.stderr.count("florhook") == 1
    (flor.folder / "die").write_text("kill")
    assert flor("train.py", FLOR_MODE="resume", FLOR_EPSILON="inf").returncode == -signal.SIGKILL


def test_a_terminated_run_is_resumed(flor: Flor) -> None:
    """SIGTERM is a death like any other."""
    text = PLAIN.replace("signal.SIGKILL", "signal.SIGTERM")
    flor.write("train.py", text)
    wanted = plainly(flor, "train.py")
    (flor.folder / "die").write_text("kill")
    assert flor("train.py", FLOR_EPSILON="inf").returncode == -signal.SIGTERM
    (flor.folder / "die").unlink()
    output, _ = resume(flor, "train.py", FLOR_EPSILON="inf")
    assert (output, outcome(flor)) == wanted


def test_what_cannot_be_resumed_is_refused_in_one_line(flor: Flor) -> None:
    """No run, a run that ended well, other arguments, an edit, a moment that never was."""

    def refused(*args: str, status: int = 3) -> str:
        done = flor(*args, FLOR_MODE="resume")
        assert (done.returncode, done.stdout) == (status, ""), done.stderr
        assert done.stderr.startswith("florhook: ")
        assert done.stderr.count("\n") == 1
        return done.stderr

    path = flor.write("train.py", PLAIN)
    refused("train.py")
    flor("train.py", FLOR_EPSILON="inf")
    assert "ended well" in refused("train.py")
    assert "0 to 9" in refused("--at", "epoch=12", "train.py")
    assert "epoch, step" in refused("--at", "nothing=1", "train.py", status=2)
    refused("--at", "epoch", "train.py", status=2)
    assert "--run" not in refused("--run", "x", "train.py")
    fail(flor, "raise", "train.py", "--lr", "1", FLOR_EPSILON="inf")
    assert "--lr 1" in refused("train.py", "--lr", "2")
    path.write_text(path.read_text().replace("0.1 * noise", "0.2 * noise"))
    assert "train.py:" in refused("train.py", "--lr", "1")


def test_nothing_of_the_parent_is_changed(flor: Flor) -> None:
    """The failed run shows as before, and can be replayed as before."""
    flor.write("train.py", PLAIN)
    fail(flor, "raise", "train.py", FLOR_EPSILON="inf")
    shown = flor("show", "last").stdout
    parent = shown.split()[1]
    resume(flor, "train.py", FLOR_EPSILON="inf")
    assert flor("show", parent).stdout == shown


def test_the_environment_resumes_a_plain_python(flor: Flor) -> None:
    """With the sitecustomize folder on PYTHONPATH nothing else is needed."""
    flor.write("train.py", PLAIN)
    wanted = plainly(flor, "train.py")
    fail(flor, "kill", "train.py", FLOR_EPSILON="inf")
    folder = flor("sitedir").stdout.strip()
    path = os.pathsep.join([folder, flor.environ()["PYTHONPATH"]])
    done = flor.python("train.py", PYTHONPATH=path, FLOR_MODE="resume", FLOR_EPSILON="inf")
    assert (done.stdout, outcome(flor)) == wanted, done.stderr
