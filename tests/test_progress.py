"""The progress of a replay: what it says, and that it never mixes with what the program prints."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import Flor

from florhook.cli import split
from florhook.replay.display import Bar, Display, Lines, display_for
from florhook.replay.progress import Progress, duration
from florhook.settings import from_sources

PROGRAM = """
import os
import sys
import time

for epoch in range(6):
    if time.sleep(float(os.environ.get("PAUSE", "0.25"))) is None:  # by itself, it would be skipped
        print("epoch", epoch, file=sys.stderr)
"""
EDITED = PROGRAM + '    print("seen", epoch, sys.stderr.isatty())\n'
PATIENCE = 60.0  # seconds


def test_what_it_says_by_hand() -> None:
    """Ten iterations at one in two seconds, of which the first four are told at the sixth second."""
    progress = Progress(began=100.0, workers=1)
    assert progress.text(101.0) == "0 iterations"
    progress.planned, progress.estimate = 10, 25.0
    assert progress.text(105.0) == "0 of 10 iterations, about 20 s left"
    progress.ran(0, 1, 110.0)
    assert progress.left(110.0) == 15.0
    progress.ran(0, 4, 116.0)
    assert progress.left(116.0) == 12.0
    assert progress.share == 0.4
    assert progress.plain(116.0, 200) == (
        "florhook: replay [##########              ] 4 of 10 iterations, about 12 s left"
    )
    assert progress.plain(116.0, 20) == "florhook: replay [##"


def test_several_workers_and_more_than_planned() -> None:
    """Each tells its own count; what goes on longer than was thought is not said to be over."""
    progress = Progress(0.0, workers=2, planned=4, estimate=8.0)
    progress.ran(0, 1, 2.0)
    progress.ran(1, 2, 4.0)
    assert progress.text(4.0) == "3 of 4 iterations, 2 workers, about 1 s left"
    progress.ran(0, 3, 5.0)
    assert progress.text(5.0) == "5 of 5 iterations, 2 workers, about 0 s left"
    assert progress.share == 1.0


def test_durations() -> None:
    """As a person reads them."""
    assert [duration(each) for each in (0.4, 59.4, 60, 200, 3599, 7500)] == [
        *("0 s", "59 s", "1 min 0 s", "3 min 20 s", "59 min 59 s", "2 h 5 min"),
    ]


def test_rich_draws_the_same() -> None:
    """In one line, that fits."""
    pytest.importorskip("rich")
    progress = Progress(0.0, planned=4, estimate=8.0, by_worker={0: 2})
    line = re.sub(r"\x1b\[[0-9;]*m", "", progress.rich(1.0, 90))
    assert re.fullmatch(r"florhook: replay \S+ *2 of 4 iterations, about 7 s left *", line)
    for width in (1, 10, 40):
        assert len(re.sub(r"\x1b\[[0-9;]*m", "", progress.rich(1.0, width))) <= width


def test_plain_lines(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where stderr is no terminal: none before its time, then one at a time; the plan is asked for once."""
    asked = []

    def plan() -> tuple[int, float, float]:
        asked.append(True)
        return 8, 2.0, 40.0

    lines = display_for(False, plan)
    assert type(lines) is Lines
    with lines.attempt(2):
        time.sleep(0.3)
    assert (capfd.readouterr().err, asked) == ("", [])
    monkeypatch.setattr(Lines, "tick", 0.1)
    monkeypatch.setattr(Lines, "later", 0.1)
    with lines.attempt(2):
        lines.ran(0, 1)
        time.sleep(0.5)
    said = capfd.readouterr().err.splitlines()
    assert 1 <= len(said) <= 5
    assert set(said) <= {
        f"florhook: replay: 1 of 8 iterations, 2 workers, about {left} s left" for left in (21, 22)
    }
    assert asked == [True]


def test_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing is shown, and workers are not asked."""
    assert type(display_for(True, lambda: (1, 1.0, 1.0))) is Display
    assert not Display().wanted


# In a terminal


@dataclass(frozen=True)
class Shown:
    """What came out of a terminal, what was on it in the end, and how the process ended."""

    raw: str
    screen: list[str]
    status: int
    piped: str = ""


def screen_of(raw: str) -> list[str]:
    """The lines of a terminal that knows the carriage return and `erase to the end of the line`."""
    lines, column = [""], 0
    for part in re.split(r"(\r|\n|\x1b\[[0-9;?]*[A-Za-z])", raw):
        if part == "\n":
            lines.append("")  # it comes behind a carriage return
            column = 0
        elif part == "\r":
            column = 0
        elif part == "\x1b[K":
            lines[-1] = lines[-1][:column]
        elif part.startswith("\x1b"):
            assert part.endswith("m"), part  # colours; the cursor is neither moved nor hidden
        else:
            lines[-1] = lines[-1][:column] + part + lines[-1][column + len(part) :]
            column += len(part)
    return [line.rstrip() for line in lines]


def in_a_terminal(
    flor: Flor, *words: str, piped: bool = False, columns: int = 100, interrupt: str = "", **changes: str
) -> Shown:
    """Run florhook in one; `interrupt`: press Ctrl-C once this pattern was shown. `piped`: stdout is no part of it."""
    ours, theirs = os.pipe()
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(flor.folder)
        if piped:
            os.dup2(theirs, 1)
        environ = {**flor.environ(**changes), "TERM": "xterm", "COLUMNS": ""}
        environ.pop(
            "PYTHONUNBUFFERED", None
        )  # by which a line is written in pieces, among those of other workers
        os.execve(sys.executable, [sys.executable, "-m", "florhook", *words], environ)
    os.close(theirs)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    before = termios.tcgetattr(terminal)
    raw, deadline = b"", time.monotonic() + PATIENCE
    with contextlib.suppress(OSError):  # EIO: the other side is closed
        while select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raw += os.read(terminal, 4096)
            if interrupt and re.search(interrupt.encode(), raw):
                os.write(terminal, b"\x03")
                interrupt = ""
    assert time.monotonic() < deadline, raw
    status = os.waitpid(pid, 0)[1]
    with contextlib.suppress(termios.error):
        assert termios.tcgetattr(terminal) == before
    with open(ours, "rb") as file:
        out = file.read().decode()
    os.close(terminal)
    text = raw.decode()
    return Shown(text, screen_of(text), os.waitstatus_to_exitcode(status), out)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Flor:
    root = tmp_path_factory.mktemp("progress")
    flor = Flor(root / "program", root / "store")
    flor.write("train.py", PROGRAM)
    done = flor("train.py", FLOR_EPSILON="inf")
    assert done.returncode == 0, done.stderr
    flor.write("train.py", EDITED)
    return flor


def without_rich(folder: Path) -> dict[str, str]:
    """A folder for PYTHONPATH in which it cannot be imported."""
    (folder / "rich.py").write_text("raise ImportError\n")
    return {"PYTHONPATH": os.pathsep.join([str(folder), str(Path(__file__).parent.parent / "src")])}


SEEN = [f"seen {epoch} True" for epoch in range(6)]
TOLD = [f"epoch {epoch}" for epoch in range(6)]
BOTH = [line for pair in zip(TOLD, SEEN, strict=True) for line in pair]


@pytest.mark.parametrize("rich", [True, False])
def test_the_bar_gives_way(rich: bool, recorded: Flor, tmp_path: Path) -> None:
    """It was there, and what is left on the screen is what the program wrote, in its order, to a terminal."""
    if rich:
        pytest.importorskip("rich")
    changes = {} if rich else without_rich(tmp_path)
    shown = in_a_terminal(recorded, "replay", **changes)
    assert shown.status == 0, shown.raw
    assert shown.screen == [*BOTH, ""]
    counts = [int(count) for count in re.findall(r"(\d+) of 6 iterations", shown.raw)]
    assert counts == sorted(counts)
    assert max(counts) >= 2
    assert ("[####" in shown.raw) != rich
    assert "s left" in shown.raw


def test_only_stderr_is_the_terminal(recorded: Flor) -> None:
    """What is piped is untouched, and no bar is drawn, since `tee` and `head` write to the same terminal."""
    shown = in_a_terminal(recorded, "replay", piped=True, columns=0)
    assert shown.piped.splitlines() == SEEN
    assert shown.screen == [*TOLD, ""]
    assert "iterations" not in shown.raw


def test_several_workers(recorded: Flor) -> None:
    """The supervisor itself prints what they have written: in order, and with the line out of the way."""
    shown = in_a_terminal(recorded, "replay", "--workers", "2", PAUSE="0.6")
    assert shown.status == 0
    assert [line for line in shown.screen if line.startswith("seen")] == SEEN
    assert sorted(line for line in shown.screen if line.startswith("epoch")) == TOLD
    assert not [line for line in shown.screen if "iterations" in line]
    assert "of 6 iterations, 2 workers" in shown.raw


def test_ctrl_c(recorded: Flor) -> None:
    """The line is gone, the terminal's modes are as they were, and the status is that of an interrupted program."""
    shown = in_a_terminal(recorded, "replay", interrupt="[2-5] of 6 iterations")
    assert shown.status == -signal.SIGINT
    assert shown.screen[-2:] == ["KeyboardInterrupt", ""]
    assert not [line for line in shown.screen if "iterations" in line]


def test_no_terminal_and_no_buffers(recorded: Flor) -> None:
    """Nothing of it for a short replay; with python's -u, each line is there at once, as plainly."""
    command = [sys.executable, "-m", "florhook", "replay"]
    with subprocess.Popen(
        command, cwd=recorded.folder, env=recorded.environ(PYTHONUNBUFFERED="1"),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "seen 0 False\n"
        assert process.poll() is None
        out, err = process.communicate(timeout=PATIENCE)
    assert out.splitlines() == [f"seen {epoch} False" for epoch in range(1, 6)]
    assert err.splitlines() == TOLD


def test_how_to_be_quiet(tmp_path: Path) -> None:
    """By an option, or a variable that says yes."""
    assert from_sources({}, split(["-q"])[0], tmp_path).quiet
    assert from_sources({}, split(["--quiet"])[0], tmp_path).quiet
    assert from_sources({"FLOR_QUIET": "1"}, {}, tmp_path).quiet
    assert not from_sources({"FLOR_QUIET": "0"}, {}, tmp_path).quiet


def test_a_bar_is_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for those that know no escape sequences."""
    monkeypatch.setattr(os, "isatty", lambda descriptor: True)
    monkeypatch.setenv("TERM", "dumb")
    assert type(display_for(False, lambda: (1, 1.0, 1.0))) is Lines
    monkeypatch.setenv("TERM", "xterm")
    assert type(display_for(False, lambda: (1, 1.0, 1.0))) is Bar
