"""What replays printed joins the run: in its order, with its loops, if it is exact; and changes nothing."""

from __future__ import annotations

import os
import sys
import textwrap

import pytest
from conftest import Flor
from telling import PROBED, TELLING, known, lines_of, record, replay, rows_of, said, told


@pytest.mark.parametrize("workers", [1, 3])
def test_hindsight_lines_join_their_run(workers: int, flor: Flor) -> None:
    """In the order of the edited program, which is run plainly to compare; with the loops that they say."""
    record(flor, TELLING)
    done = replay(flor, PROBED, "--workers", str(workers))
    assert (done.returncode, done.stderr) == (0, "")
    rows = rows_of(flor)
    assert [row["text"] for row in rows] == lines_of(flor.python("train.py").stdout)
    hindsight = [row for row in rows if row["source"] == "hindsight"]
    assert "".join(f"{row['text']}\n" for row in hindsight) == done.stdout
    assert len(hindsight) == 3 * (3 + 1) + 2 + 1
    for row in told(rows):
        assert known(row) == said(row["text"]), row
    assert [row["silent"] for row in hindsight if "silent" in row["text"]] == [0, 1, 2] * 3
    assert [row["left"] for row in hindsight if "weight" in row["text"]] == [2, 1]
    table = flor("logs").stdout.splitlines()
    assert sum("  hindsight  " in line for line in table) == len(hindsight)


def test_everything_is_printed(flor: Flor) -> None:
    """With `--log all` too, only what was added is hindsight."""
    record(flor, TELLING)
    done = replay(flor, PROBED, "--log", "all")
    plain = flor.python("train.py").stdout
    assert done.stdout == plain
    rows = rows_of(flor)
    assert [row["text"] for row in rows] == lines_of(plain)
    assert sum(row["source"] == "hindsight" for row in rows) == 3 * (3 + 1) + 2 + 1


def test_the_newest_replay_or_all(flor: Flor) -> None:
    """A replay of a part is shown alone, or with `--replay all` beside the others, or by its id."""
    record(flor, TELLING)
    replay(flor, PROBED)
    replay(flor, PROBED, "--select", "epoch=20")
    newest = [row for row in rows_of(flor) if row["source"] == "hindsight"]
    assert [row["text"] for row in newest] == [
        *(f"epoch=20 | silent {n}" for n in range(3)),
        "epoch=20 | norm",
    ]
    both = [row for row in rows_of(flor, "--replay", "all") if row["source"] == "hindsight"]
    assert len(both) == len(newest) + 3 * (3 + 1) + 2 + 1
    first = next(row["replay"] for row in both if row["replay"] != newest[0]["replay"])
    assert {row["replay"] for row in rows_of(flor, "--replay", first)} == {None, first}
    replay(flor, TELLING)  # prints nothing, and so hides nothing
    assert [row for row in rows_of(flor) if row["source"] == "hindsight"] == newest
    done = flor("logs", "--replay", "nope")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("florhook: 'nope' names 0 replays")


def test_edited_prints(flor: Flor) -> None:
    """Where a print was changed, what it prints now stands in its iteration."""
    record(flor, TELLING)
    edited = TELLING.replace("| loss {weights[-1]:.6f}", "| loss {weights[-1]:.6f} best {max(weights)}")
    done = replay(flor, edited)
    assert done.returncode == 0, done.stderr
    rows = rows_of(flor)
    hindsight = [row for row in rows if row["source"] == "hindsight"]
    assert len(hindsight) == 9
    for row in hindsight:
        assert known(row) == said(row["text"]), row
    epochs = [row["epoch"] for row in rows if "epoch" in row]
    assert epochs == sorted(epochs)


def test_what_is_not_exact_is_not_kept(flor: Flor) -> None:
    """Neither of a replay that diverged, nor of one that was forced."""
    program = """
        weights = [0.0]
        for epoch in range(4):
            weights.append(float(open("data.txt").read()))
            print("epoch", epoch)
        """
    flor.write("data.txt", "1.5")
    record(flor, program)
    flor.write("data.txt", "2.5")
    done = replay(flor, program.replace("print(", "print('@@', weights[-1])\n            print("))
    assert (done.returncode, done.stdout) == (4, "@@ 2.5\n" * 4)
    flor.write("data.txt", "1.5")
    edited = program.replace("[0.0]", "[0.5]").replace("print(", "print('@@', weights)\n            print(")
    assert "@@" in replay(flor, edited, "--force").stdout
    assert [row["source"] for row in rows_of(flor)] == ["recorded"] * 4


def test_processes_of_the_program(flor: Flor) -> None:
    """What its children print in hindsight is kept too, forked and spawned."""
    program = """
        import multiprocessing as mp, sys, time

        def work(number):
            square = number * number
            sys.stdout.flush()

        if __name__ == "__main__":
            context = mp.get_context(sys.argv[1])
            for epoch in range(2):
                child = context.Process(target=work, args=(epoch + 5,))
                child.start()
                child.join()
                print("epoch", epoch)
        """
    for method in ("fork", "spawn"):
        flor.write("train.py", program)
        flor("train.py", method, FLOR_EPSILON="inf")
        probe = "print('square', square)\n            sys.stdout.flush()"
        flor.write("train.py", program.replace("sys.stdout.flush()", probe))
        done = flor("train.py", method, FLOR_MODE="replay")
        assert done.stdout == "square 25\nsquare 36\n", done.stderr
        rows = [row for row in rows_of(flor) if row["source"] == "hindsight"]
        assert [row["text"] for row in rows] == ["square 25", "square 36"]
        if method == "fork":
            assert [row["epoch"] for row in rows] == [0, 1]


def test_what_cannot_be_kept_changes_nothing(flor: Flor) -> None:
    """A replay prints the same where its lines cannot be stored, and says so."""
    record(flor, TELLING)
    (flor.home / "logs").write_text("in the way")
    done = replay(flor, PROBED)
    wanted = [line for line in flor.python("train.py").stdout.splitlines() if "| silent" in line]
    assert done.returncode == 0
    assert [line for line in done.stdout.splitlines() if "| silent" in line] == wanted
    assert done.stderr.startswith("florhook: this replay is not kept for florhook logs and show: ")
    assert len(rows_of(flor)) > 9


def test_a_run_that_is_deleted_takes_its_lines_along(flor: Flor) -> None:
    record(flor, TELLING)
    replay(flor, PROBED)
    record(flor, "print('other')\n")
    first, second = (line.split()[0] for line in flor("runs").stdout.splitlines()[1:])
    assert os.listdir(flor.home / "logs") == [first]
    assert flor("gc", "--delete", first).returncode == 0
    assert os.listdir(flor.home / "logs") == []
    assert [row["text"] for row in rows_of(flor, second)] == ["other"]


def test_ranks(flor: Flor) -> None:
    """All ranks of a run are shown, each line with its rank."""
    launcher = flor.write(
        "launch.py",
        """
        import os, subprocess, sys
        both = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        own = [{"RANK": rank, "LOCAL_RANK": rank} for rank in "01"]
        ranks = [subprocess.Popen(sys.argv[1:], env={**os.environ, **both, **each}) for each in own]
        sys.exit(max([rank.wait() for rank in ranks]))
        """,
    )
    program = "import os\nfor epoch in range(2):\n    print(f'epoch={epoch} rank', os.environ['RANK'])\n"
    flor.write("train.py", program)
    command = (str(launcher), sys.executable, "-m", "florhook", "train.py")
    assert flor.python(*command, FLOR_EPSILON="inf").returncode == 0
    flor.write("train.py", program + "    print('twice', 2 * int(os.environ['RANK']))\n")
    done = flor.python(*command, FLOR_MODE="replay")
    assert done.returncode == 0, done.stderr
    rows = rows_of(flor)
    assert [(row["rank"], row["epoch"], row["text"]) for row in rows] == [
        (rank, epoch, text)
        for rank in range(2)
        for epoch in range(2)
        for text in (f"epoch={epoch} rank {rank}", f"twice {2 * rank}")
    ]
    assert flor("logs", "twice").stdout.splitlines()[0].split() == ["epoch", "name", "value", "rank"]


BESIDE = {
    "a handler of logging": """
        import logging, sys
        log = logging.getLogger("train")
        log.setLevel(logging.INFO)
        log.addHandler(logging.StreamHandler(sys.stdout))
        file = logging.FileHandler("run.log")
        log.addHandler(file)
        say = log.info
        for epoch in range(4):
            for step in range(3):
                say(f"{epoch} {step}")
    """,
    "an object in the place of stdout": """
        import sys
        class Both:
            def __init__(self):
                self.out, self.file, self.lines = sys.stdout, open("run.log", "w"), 0
            def write(self, text):
                self.out.write(text)
                self.file.write(text)
                self.lines += text.count("\\n")
            def flush(self):
                self.out.flush()
                self.file.flush()
        both = sys.stdout = Both()
        say = print
        for epoch in range(4):
            for step in range(3):
                say(f"{epoch} {step}")
    """,
}


@pytest.mark.parametrize("kind", BESIDE)
def test_log_files_of_the_program_are_as_in_the_run(flor: Flor, kind: str) -> None:
    """A line that was added goes to the terminal, and leaves the log that the program keeps beside it as it was."""
    source = textwrap.dedent(BESIDE[kind])
    flor.write("train.py", source)
    flor("train.py", FLOR_EPSILON="inf")
    read = "print('@@', sorted(open('run.log').read().split('\\n'))[-1])\n"
    flor.write(
        "train.py",
        source + "    say(f'@@ {epoch}')\n" + ("both.flush()\n" if "stdout" in kind else "") + read,
    )
    done = flor("train.py", FLOR_MODE="replay")
    assert done.stdout == "".join(f"@@ {epoch}\n" for epoch in range(4)) + "@@ 3 2\n"
    assert (done.returncode, done.stderr) == (0, "")
