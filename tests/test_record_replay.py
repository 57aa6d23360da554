"""Record, add a print, replay: the replay prints what the probed program prints when it is run plainly."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import Flor

from florhook.store.store import Store


def files_of(folder: Path) -> dict[str, str]:
    """Every file with the hash of its content, bytecode aside."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def probe(flor: Flor, name: str, after: str, *lines: str) -> None:
    """Put lines behind the one line that holds a text, at its indentation."""
    path = flor.folder / name
    text = path.read_text().splitlines()
    (at,) = [index for index, line in enumerate(text) if after in line]
    margin = text[at][: len(text[at]) - len(text[at].lstrip())]
    path.write_text("\n".join(text[: at + 1] + [margin + line for line in lines] + text[at + 1 :]) + "\n")


def record(flor: Flor, *args: str, **changes: str) -> Any:
    """A recorded run, with every boundary checkpointed unless told otherwise."""
    done = flor(*args, **{"FLOR_EPSILON": "inf", "FLOR_STRICT": "1", **changes})
    assert "florhook" not in done.stderr, done.stderr
    return done


def replay(flor: Flor, *args: str, **changes: str) -> tuple[str, dict[str, Any]]:
    """Output and figures of a replay, which has to print what a plain run prints in lines that begin with @@."""
    elsewhere = flor.home.parent / "plain"  # a plain run writes files of its own
    shutil.copytree(flor.folder, elsewhere)
    plain = Flor(elsewhere, flor.home).python(*args)
    shutil.rmtree(elsewhere)
    before = files_of(flor.folder)
    stats = flor.home.parent / "stats.json"
    done = flor(*args, FLOR_MODE="replay", FLOR_STATS=str(stats), **changes)
    assert files_of(flor.folder) == before
    assert done.returncode == plain.returncode, done.stderr
    wanted = [line for line in plain.stdout.splitlines() if line.startswith("@@")]
    assert wanted
    if "FLOR_SELECT" not in changes:
        assert done.stdout.splitlines() == (plain.stdout.splitlines() if "FLOR_LOG" in changes else wanted)
    return done.stdout, json.loads(stats.read_text())


EPOCHS = """
    import random, time
    random.seed(3)
    class Meter:
        calls = 0
        def __init__(self):
            self.values = []
        def add(self, value):
            Meter.calls += 1
            self.values.append(value)

    def train(meter, weights, epoch):
        total = 0.0
        for step in range(20):
            noise = random.gauss(0, 1)
            time.sleep(0.001)
            weights[step % 4] += 0.1 * noise
            total += noise
            meter.add(total)
        return total

    def main():
        meter, weights, best = Meter(), [0.0] * 4, None
        alias = weights
        for epoch in range(6):
            total = train(meter, weights, epoch)
            if best is None or total > best[0]:
                best = (total, epoch)
            print("epoch", epoch, round(total, 6))
        print("best", best, alias is weights, len(meter.values))

    main()
"""


@pytest.mark.parametrize(
    ("after", "lines", "skips"),
    [
        ("total = train(meter", ["print('@@', epoch, weights, alias is weights, Meter.calls, best)"], True),
        ("meter.add(total)", ["print('@@', epoch, step, noise, total)"], False),
        ("Meter.calls += 1", ["print('@@', value, len(self.values), Meter.calls)"], False),
        ('print("best"', ["print('@@', meter.values[-3:], weights, random.random())"], True),
        ("best = (total, epoch)", ["print('@@', best)"], True),
    ],
)
def test_a_probe_prints_what_it_would_have_printed(
    flor: Flor, after: str, lines: list[str], skips: bool
) -> None:
    """In the epoch loop, the step loop, a method, after the loops and in a branch."""
    flor.write("train.py", EPOCHS)
    record(flor, "train.py")
    probe(flor, "train.py", after, *lines)
    _, stats = replay(flor, "train.py")
    assert (stats["iterations_skipped"] > 0) == skips
    assert stats["diverged"] == 0
    replay(flor, "train.py", FLOR_LOG="all")


def test_a_selection_jumps_to_its_iterations(flor: Flor) -> None:
    """With --select only the iterations asked for run, and only their lines are printed."""
    flor.write("train.py", EPOCHS)
    record(flor, "train.py")
    probe(flor, "train.py", "total = train(meter", "print('@@', epoch, weights)")
    everything = flor.python("train.py").stdout.splitlines()
    output, stats = replay(flor, "train.py", FLOR_SELECT="epoch=3:5")
    assert output.splitlines() == [line for line in everything if line.startswith(("@@ 3", "@@ 4"))]
    assert stats["iterations_skipped"] >= 4


def test_one_step_of_one_epoch_is_reached_by_two_jumps(flor: Flor) -> None:
    """The outer loop is entered at its epoch, the inner at its step: hardly anything is executed."""
    flor.write("train.py", EPOCHS)
    record(flor, "train.py")
    probe(flor, "train.py", "meter.add(total)", "print('@@', epoch, step, total)")
    everything = flor.python("train.py").stdout.splitlines()
    output, stats = replay(flor, "train.py", FLOR_SELECT="epoch=4,step=17:18")
    assert output.splitlines() == [line for line in everything if line.startswith("@@ 4 17 ")]
    assert stats["iterations_executed"] <= 4


WHILE = """
    def run(limit):
        done, last = 0, None
        history = {}
        while done < limit:
            for part in (1, 2, 3):
                history.setdefault(part, []).append(done * part)
                last = part
            else:
                history["else"] = done
            done += 1
            sum(range(100_000))  # long enough for a checkpoint
            if done == 7:
                break
        else:
            print("not reached")
        return done, history, last

    outcome = run(12)
    print(outcome[0], sorted(map(str, outcome[1])))
"""


def test_while_loops_are_jumped_into_and_left_by_break(flor: Flor) -> None:
    """A break, its else and unbound names come out as in the run."""
    flor.write("train.py", WHILE)
    record(flor, "train.py")
    probe(flor, "train.py", "done += 1", "print('@@', done, last, history['else'])")
    replay(flor, "train.py")
    output, stats = replay(flor, "train.py", FLOR_SELECT="done=4:5")
    assert output == "@@ 5 3 4\n"  # the loop variable is 4 when the iteration begins
    assert stats["iterations_executed"] < 7


RAISES = """
    def attempt(values):
        for index, value in enumerate(values):
            try:
                if value == 3:
                    raise ValueError(value)
            except ValueError as problem:
                seen.append(str(problem))
                continue
            finally:
                closed.append(index)
            if value == 5:
                return index
        return None

    seen, closed, found = [], [], []
    for round_ in range(5):
        found.append(attempt([1, 3, round_ + 2, 4]))
    print(found, seen, closed)
    for number in range(3):
        print(10 // (1 - number))
"""


def test_exceptions_and_returns_leave_loops_as_in_the_run(flor: Flor) -> None:
    """The traceback, the exit status and the values after a return from within a loop are the run's."""
    flor.write("train.py", RAISES)
    done = flor("train.py", FLOR_EPSILON="inf", FLOR_STRICT="1")
    assert done.returncode == 1
    assert done.stderr == flor.python("train.py").stderr
    probe(flor, "train.py", "found.append(attempt", "print('@@', round_, found, seen, closed)")
    replay(flor, "train.py")


CLOSURES = """
    def outer():
        count, log = 0, []
        def bump(by):
            nonlocal count
            count += by
            return lambda: (count, by)
        for epoch in range(6):
            log.append(bump(epoch))
            for _ in range(3):
                bump(1)
        return count, [f() for f in log]
    print(outer())
"""


def test_closures_share_their_variables_after_a_jump(flor: Flor) -> None:
    """A function born in an iteration sees the variable that the program goes on to change."""
    flor.write("train.py", CLOSURES)
    record(flor, "train.py")
    probe(flor, "train.py", "log.append(bump(epoch))", "print('@@', epoch, count, [f() for f in log])")
    _, stats = replay(flor, "train.py")
    assert stats["blocks_skipped"] > 0


GENERATOR = """
    import random
    def stream():
        while True:
            yield random.random()
    source = stream()
    kept = []
    for epoch in range(5):
        for step in range(4):
            kept.append(next(source))
        print(epoch, len(kept))
"""


def test_a_generator_that_lives_on_is_never_restored_wrongly(flor: Flor) -> None:
    """Its place cannot be set, so the loops that move it are executed."""
    flor.write("train.py", "import random\nrandom.seed(1)\n" + GENERATOR.replace("\n    ", "\n"))
    record(flor, "train.py")
    probe(flor, "train.py", "print(epoch, len(kept))", "print('@@', epoch, kept[-1], next(iter(kept)))")
    replay(flor, "train.py")


UNSEEDED = """
    import os, random, time
    start, noise = time.time(), os.urandom(4).hex()
    values = []
    for epoch in range(4):
        values.append((random.random(), noise, start))
    with open("values.txt", "w") as file:
        file.write(repr(values))
"""


def test_an_unseeded_run_is_replayed_as_it_was(flor: Flor) -> None:
    """What the code before the main loop drew and read is as recorded from its entry on."""
    flor.write("train.py", UNSEEDED)
    record(flor, "train.py")
    probe(flor, "train.py", "values.append(", "print(values[-1])")
    done = flor("train.py", FLOR_MODE="replay")
    assert done.returncode == 0
    assert f"[{', '.join(done.stdout.splitlines())}]" == (flor.folder / "values.txt").read_text()


def test_files_written_by_the_program_stay_as_they_are(flor: Flor) -> None:
    """A replay finds its own files in its overlay; the user's are not touched, not even those it deletes."""
    flor.write(
        "train.py",
        """
        import json, os, shutil
        shutil.rmtree("out", ignore_errors=True)
        os.makedirs("out")
        for epoch in range(4):
            with open(f"out/{epoch}.json", "w") as file:
                json.dump({"epoch": epoch}, file)
            with open("out/log.txt", "a") as file:
                file.write(f"{epoch}\\n")
        print(sorted(os.listdir("out")))
        """,
    )
    record(flor, "train.py")
    (flor.folder / "out" / "mine.txt").write_text("precious")
    probe(flor, "train.py", 'with open(f"out/', "    print('@@', epoch)")
    before = files_of(flor.folder)
    done = flor("train.py", FLOR_MODE="replay")
    assert done.stdout == "@@ 0\n@@ 1\n@@ 2\n@@ 3\n"
    assert files_of(flor.folder) == before


def test_an_edit_that_is_no_probe_is_refused_with_file_and_line(flor: Flor) -> None:
    """A changed constant is a new experiment; --force replays all the same."""
    flor.write("train.py", EPOCHS)
    record(flor, "train.py")
    path = flor.folder / "train.py"
    path.write_text(path.read_text().replace("0.1 * noise", "0.2 * noise"))
    done = flor("train.py", FLOR_MODE="replay")
    line = next(i for i, text in enumerate(path.read_text().splitlines(), 1) if "0.2 * noise" in text)
    assert done.returncode == 3
    assert f"train.py:{line}:" in done.stderr
    assert done.stdout == ""
    assert flor("--force", "train.py", FLOR_MODE="replay").returncode in (0, 4)


@pytest.mark.parametrize(
    ("args", "changes", "status", "says"),
    [
        (["--nonsense", "train.py"], {}, 2, "--nonsense"),
        (["--epsilon", "x", "train.py"], {}, 2, "--epsilon"),
        (["train.py"], {"FLOR_EPSILON": "-1"}, 2, "FLOR_EPSILON"),
        (["train.py"], {"FLOR_MODE": "sideways"}, 2, "FLOR_MODE"),
        (["train.py"], {"FLOR_WORKERS": "0"}, 2, "FLOR_WORKERS"),
        (["train.py"], {"FLOR_LOG": "some"}, 2, "FLOR_LOG"),
        (["--select", "epoch", "train.py"], {"FLOR_MODE": "replay"}, 2, "--select"),
        (["train.py"], {"FLOR_MODE": "replay"}, 3, "no store"),
        (["show", "last"], {}, 3, "no store"),
        (["--home"], {}, 2, "--home"),
        (["--plan", "train.py"], {}, 2, "--plan"),
        ([], {}, 2, "no program"),
    ],
)
def test_bad_input_gets_one_clear_line(
    flor: Flor, args: list[str], changes: dict[str, str], status: int, says: str
) -> None:
    """One line on stderr that names the flag, variable or file, and the status of the contract."""
    flor.write("train.py", "print('never')\n")
    done = flor(*args, **changes)
    assert done.returncode == status
    assert done.stdout == ""
    assert done.stderr.startswith("florhook: ")
    assert done.stderr.count("\n") == 1
    assert says in done.stderr


def test_other_arguments_and_other_programs_are_refused(flor: Flor) -> None:
    """A replay is of one program with its arguments."""
    flor.write("train.py", "for i in range(3): print(i)\n")
    flor.write("other.py", "for i in range(3): print(i)\n")
    record(flor, "train.py", "--lr", "1")
    done = flor("train.py", "--lr", "2", FLOR_MODE="replay")
    assert (done.returncode, done.stdout) == (3, "")
    assert "--lr 1" in done.stderr
    run_id = flor("runs").stdout.splitlines()[1].split()[0]
    done = flor("--run", run_id, "other.py", FLOR_MODE="replay")
    assert (done.returncode, done.stdout) == (3, "")
    assert "train.py" in done.stderr
    assert flor("other.py", FLOR_MODE="replay").returncode == 3


def test_runs_and_show_tell_what_there_is(flor: Flor) -> None:
    """Program, arguments, exit, iterations, checkpoints, bytes and overhead stand in both."""
    flor.write("train.py", EPOCHS + "\n    raise SystemExit(5)\n")
    record(flor, "train.py", "--epochs", "6")
    table = flor("runs").stdout.splitlines()
    assert len(table) == 2
    for word in ("train.py", "--epochs 6", " 5 ", "%"):
        assert word in table[1]
    shown = flor("show", "last").stdout
    assert "__main__:train:0: 6 executions, 120 iterations" in shown
    assert "__main__:main:0: 1 executions, 6 iterations" in shown


def test_show_explains_what_recording_cost(flor: Flor) -> None:
    """The parts of the stall, what the budget took at each loop, and why it refused the rest."""
    flor.write(
        "train.py",
        """
        import time

        state = bytearray(50_000_000)
        for epoch in range(8):
            state[0] = epoch
            time.sleep(0.02)
        """,
    )
    assert flor("train.py", FLOR_STATS="stats.json").returncode == 0
    stats = json.loads((flor.folder / "stats.json").read_text())
    parts = stats["stall"]
    assert set(parts) == {"walk", "digest", "memory", "copy", "wait"}
    assert 0 < parts["memory"] < sum(parts.values()) <= stats["stall_s"]
    boundary, exits = (
        next(block for block in stats["blocks"] if block["kind"] == kind) for kind in ("boundary", "exit")
    )
    assert 0.02 <= boundary["mean_s"] < 0.2
    assert boundary["checkpoints"] >= 1, "the entry"
    assert 0 < sum(boundary["refused"].values()) <= 8
    assert exits["executions"] == 1
    shown = flor("show", "last").stdout
    assert f"boundaries: {boundary['checkpoints']} checkpoints" in shown
    for reason, count in boundary["refused"].items():
        assert f"{count} refused because {reason}" in shown
    assert re.search(
        r"^stall +\d\.\d{3} s: walk .*, wait .*, digest .*, memory .*, copy .*, other ", shown, re.MULTILINE
    )


def test_a_store_that_cannot_be_written_does_not_stop_the_program(flor: Flor) -> None:
    """One line says that nothing is recorded; output, status and files are the program's."""
    flor.write("train.py", EPOCHS)
    flor.home.write_text("a file in the way")
    done = flor("train.py")
    plain = flor.python("train.py")
    assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout)
    assert done.stderr.startswith("florhook: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.needs_torch
def test_a_graph_that_lives_on_is_executed_not_restored(flor: Flor) -> None:
    """A loss summed over an inner loop and differentiated after it gets the gradients of the run."""
    flor.write(
        "train.py",
        """
        import torch
        torch.manual_seed(0)
        w = torch.nn.Parameter(torch.ones(3))
        opt = torch.optim.SGD([w], lr=0.1)
        for epoch in range(4):
            total = 0
            for task in range(3):
                total = total + ((w * torch.randn(3)).sum() - task) ** 2
            opt.zero_grad()
            total.backward()
            opt.step()
            print(epoch, total.item())
        """,
    )
    record(flor, "train.py")
    probe(flor, "train.py", "opt.step()", "print('@@', epoch, w.grad.tolist(), total)")
    replay(flor, "train.py")


KILLED = """
    import os, signal, time
    values = []
    for epoch in range(10):
        time.sleep(0.1)
        total = 0
        for step in range(5):
            total += len(str(step)) + epoch
            if epoch == 6 and step == 3:
                time.sleep(1)
                os.kill(os.getpid(), signal.SIGKILL)
        values.append(total)
"""


def test_a_killed_run_is_replayed_as_far_as_it_went(flor: Flor) -> None:
    """After kill -9 the committed checkpoints are there, and the replay ends where the run did."""
    flor.write("train.py", KILLED)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == -9
    assert "no goodbye" in flor("runs").stdout
    probe(flor, "train.py", "values.append(total)", "print('@@', epoch, values)")
    done = flor("train.py", FLOR_MODE="replay")
    totals = [5 + 5 * epoch for epoch in range(6)]
    assert done.stdout == "".join(f"@@ {epoch} {totals[: epoch + 1]}\n" for epoch in range(6))
    assert done.returncode == 0
    assert "killed" in done.stderr


def test_a_loop_without_numbers_is_selected_by_iteration(flor: Flor) -> None:
    """`name=1:3` takes the second and third of a loop over texts; an unknown variable is wrong usage."""
    flor.write("train.py", "for name in ('a', 'b', 'c', 'd'):\n    text = name.upper()\n    print(text)\n")
    record(flor, "train.py")
    probe(flor, "train.py", "print(text)", "print('@@', text)")
    output, _ = replay(flor, "train.py", FLOR_SELECT="name=1:3")
    assert output == "@@ B\n@@ C\n"
    done = flor("train.py", FLOR_MODE="replay", FLOR_SELECT="nothing=1:3")
    assert (done.returncode, done.stdout) == (2, "")
    assert "nothing" in done.stderr


def test_every_loop_in_the_record_has_a_number(flor: Flor) -> None:
    """Rows of open loops are sent now and then, those of a loop that nothing was kept of as well."""
    flor.write(
        "train.py",
        """
        import socket, time
        held = []
        for epoch in range(2):
            held.append(socket.socket())
            for step in range(3):
                held.append(socket.socket())
                time.sleep(0.3)
        """,
    )
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    with Store.open(flor.home) as store:
        rows = store.contexts(store.find("last"))
    numbers = {row.ctx for row in rows}
    assert min(numbers) > 0
    assert {row.parent for row in rows} <= numbers | {-1}


# Interrupts ----------------------------------------------------------------------------------------------------

WAITING = """
    import os, signal, time
    for epoch in range(3):
        time.sleep(float(os.environ.get("WAIT", "0")))
        print(epoch)
"""


def test_a_replayed_program_handles_interrupts_as_the_run_did(flor: Flor) -> None:
    """It sees the same handler."""
    flor.write("train.py", WAITING)
    record(flor, "train.py")
    probe(flor, "train.py", "time.sleep", "print('@@', signal.getsignal(signal.SIGINT))")
    out, _ = replay(flor, "train.py")
    assert out.splitlines() == ["@@ <built-in function default_int_handler>"] * 3


def test_ctrl_c_ends_a_replay(flor: Flor) -> None:
    """At once, by the signal, as it ends the program."""
    flor.write("train.py", WAITING)
    record(flor, "train.py")
    probe(flor, "train.py", "in range(3)", "    print('@@', epoch, flush=True)")
    probe(flor, "train.py", "time.sleep", "print('@@ waited')")  # else the rest of the iteration is left out
    process = subprocess.Popen(
        [sys.executable, "-m", "florhook", "train.py"],
        cwd=flor.folder,
        env=flor.environ(FLOR_MODE="replay", WAIT="60"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"@@ 0\n"
        time.sleep(
            0.5
        )  # a signal right before time.sleep() begins to wait does not wake it, in plain Python either
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT
    assert b"KeyboardInterrupt" in errors


DELETED = """
    import weakref
    class Big:
        def __init__(self, name):
            self.name = name
        def __del__(self):
            print("gone", self.name)
    def preprocess(name):
        raw = Big(name)
        watch = weakref.ref(raw)
        for part in [raw, raw]:
            len(part.name)
        del raw, part
        print(watch() is None)
        def inner():
            return kept
        kept = Big(name + ".kept")
        extra = locals()
        for _ in range(2):
            inner()
        print(sorted(extra), extra["kept"] is kept)
        extra.clear()
        del kept
        print("end of", name)
    for epoch in range(3):
        preprocess(f"epoch {epoch}")
"""


@pytest.mark.parametrize("epsilon", ["inf", "0.0667"])
def test_what_the_program_deletes_is_gone_at_once(flor: Flor, epsilon: str) -> None:
    """Looking at a function's variables leaves nothing behind that holds them, and its own `locals()` are its own."""
    flor.write("train.py", DELETED)
    plain = flor.python("train.py")
    assert plain.stdout.count("gone") == 6
    assert record(flor, "train.py", FLOR_EPSILON=epsilon).stdout == plain.stdout


def test_a_package_begins_before_its_main_module(flor: Flor) -> None:
    """What `__init__` of a package prints and draws is part of a run by `-m`."""
    (flor.folder / "pack").mkdir()
    flor.write("pack/__init__.py", "import random\nfirst = random.random()\nprint('init', first)\n")
    flor.write(
        "pack/__main__.py", "import pack\nfor epoch in range(3):\n    total = epoch\nprint(pack.first)\n"
    )
    recorded = record(flor, "-m", "pack")
    first = recorded.stdout.split()[1]
    probe(flor, "pack/__main__.py", "total = epoch", "print('@@', epoch, pack.first)")
    probe(flor, "pack/__init__.py", "first = ", "print('@@ init', first)")
    done = flor("-m", "pack", FLOR_MODE="replay")
    assert done.stdout.splitlines() == [f"@@ init {first}", *(f"@@ {n} {first}" for n in range(3))]
    assert done.returncode == 0
    done = flor("-m", "pack", FLOR_MODE="replay", FLOR_LOG="all")
    assert done.stdout.splitlines()[1] == f"init {first}"


def test_a_statement_that_the_run_never_came_to_is_named(flor: Flor) -> None:
    """Silence has a reason: it may stand in a function that only a started program calls."""
    flor.write("train.py", "def unused():\n    pass\nfor epoch in range(3):\n    total = epoch\n")
    record(flor, "train.py")
    probe(flor, "train.py", "    pass", "print('@@')")
    done = flor("train.py", FLOR_MODE="replay")
    assert (done.returncode, done.stdout) == (0, "")
    assert "train.py:3: the run did not come to what was added" in done.stderr


INTERRUPTED = """
import os
import signal
import sys
import time

total = 0
for epoch in range(12):
    total += epoch
    time.sleep(0.01)
    if epoch == 7 and os.environ.get("FLOR_MODE") != "replay":
        {ends}
print(total)
"""


@pytest.mark.parametrize(
    "ends", ["os.kill(os.getpid(), signal.SIGINT)", "sys.exit(3)", "raise RuntimeError('x')"]
)
def test_iterations_that_never_were_are_not_shown(flor: Flor, ends: str) -> None:
    """A run that ended inside its main loop is replayed as far as it went, even where nothing ends it again."""
    flor.write("train.py", INTERRUPTED.format(ends=ends))
    assert flor("train.py", FLOR_EPSILON="inf").returncode != 0
    flor.write(
        "train.py",
        INTERRUPTED.format(ends=ends).replace("    time", "    print('@@', epoch, total)\n    time"),
    )
    done = flor("train.py", FLOR_MODE="replay")
    assert done.stdout == "".join(f"@@ {epoch} {sum(range(epoch + 1))}\n" for epoch in range(8)), done.stderr


def test_a_table_of_which_only_the_head_is_read(flor: Flor) -> None:
    flor.write("train.py", EPOCHS)
    record(flor, "train.py")
    command = f"{sys.executable} -m florhook show last | head -1"
    done = subprocess.run(
        command, shell=True, cwd=flor.folder, env=flor.environ(), capture_output=True, text=True
    )
    assert done.stdout.startswith("run ")
    assert done.stderr == ""


def test_a_syntax_error_in_the_edited_program(flor: Flor) -> None:
    flor.write("train.py", EPOCHS)
    record(flor, "train.py")
    flor.write("train.py", EPOCHS + "\n    print(\n")
    for options in ([], ["--plan"]):
        done = flor(*options, "train.py", FLOR_MODE="replay")
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.startswith("florhook: ")
        assert done.stderr.count("\n") == 1
        assert "train.py:" in done.stderr


@pytest.mark.parametrize("where", ["train.py", "pack/train.py", "pack/__main__.py"])
def test_the_globals_of_a_module_that_is_run_by_name_are_state(flor: Flor, where: str) -> None:
    """Loops at its top level, functions that count in its globals, and the clock that it sees."""
    source = """
        import time
        count, seen = 0, []

        def step(k):
            global count
            count += 1
            seen.append(k * count)

        started = time.time()
        for epoch in range(5):
            for k in range(20):
                step(k)
                time.sleep(0.0005)
            last = seen[-1]
            print(epoch, last)
        print(started <= time.time() < started + 60)
    """
    (flor.folder / "pack").mkdir()
    flor.write("pack/__init__.py", "")
    flor.write(where, source)
    name = where.removesuffix(".py").replace("/", ".").removesuffix(".__main__")
    record(flor, "-m", name)
    probe(flor, where, "last = seen", "print('@@', epoch, count, len(seen), last)")
    output, stats = replay(flor, "-m", name)
    assert output == "".join(f"@@ {n} {20 * n + 20} {20 * n + 20} {19 * (20 * n + 20)}\n" for n in range(5))
    assert stats["iterations_skipped"] >= 80
    assert stats["diverged"] == 0
