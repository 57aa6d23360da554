"""What a replay prints: hindsight lines whole and once, and of the program's own output the run's text."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from typing import Any

import pytest
from conftest import Flor

from florhook.logs.hindsight import Printed, ReplayOutput

RUN = "a\nstep 0.123 s\nb\nc\n"


class Output(ReplayOutput):
    """One that prints into memory."""

    def __init__(
        self, everything: bool = True, already: Printed | None = None, comparable: bool = True
    ) -> None:
        super().__init__(everything, lambda: RUN, lambda: True, already or Printed(), comparable)
        self._out.close()
        self._out = io.BytesIO()  # type: ignore[assignment]

    @property
    def text(self) -> str:
        return self._out.getvalue().decode()  # type: ignore[attr-defined]

    def probe(self, text: str) -> None:
        with self.hindsight:
            self._take(text)


def test_the_runs_own_text_is_printed() -> None:
    """A time of the clock in a line: the line is the run's, and the lines after it are in step again."""
    output = Output()
    for text in ("a", "\n", "step ", "17.5", " s", "\n", "b\n"):
        output._take(text)
    output.probe("@@ 1\n")
    output._take("c\n")
    assert output.text == "a\nstep 0.123 s\nb\n@@ 1\nc\n"
    assert output.difference == ("0.12", "17.5")


def test_a_skipped_part_is_printed_once() -> None:
    """After a jump everything that the run had printed by then, and nothing twice."""
    output = Output()
    output._take("a\n")
    output.restored(len("a\nstep 0.123 s\nb\n"))
    output._take("c\n")
    assert output.text == RUN
    assert output.difference is None


@pytest.mark.parametrize("everything", [True, False])
def test_a_second_attempt_goes_on_where_the_first_ended(everything: bool) -> None:
    """Though its probes print texts of other lengths."""
    first = Output(everything)
    first._take("a\n")
    first.probe("@@ 1.5\n")
    second = Output(everything, already=first.printed)
    second._take("a\n")
    second.probe("@@ 1.123456\n")
    second.probe("@@ 2\n")
    second._take("step 0.123 s\n")
    assert first.text + second.text == ("a\n@@ 1.5\n@@ 2\nstep 0.123 s\n" if everything else "@@ 1.5\n@@ 2\n")


def test_edited_output_is_printed_as_it_comes() -> None:
    """Where the program's own statements print something else now, the record cannot stand in for them."""
    output = Output(comparable=False)
    output._take("A\n")
    assert (output.text, output.difference) == ("A\n", None)


def test_nothing_is_printed_while_an_iterator_is_driven() -> None:
    """Neither by the program nor by a probe in it."""
    output = Output()
    with output.quietly():
        output._take("a\n")
        output.probe("@@\n")
    assert output.text == ""


GRAPH = """
import time, torch
torch.manual_seed(0)
net = torch.nn.Linear(2, 2)
opt = torch.optim.SGD(net.parameters(), 0.1)
for epoch in range(4):
    total = 0
    for k in range(3):
        total = total + net(torch.ones(2)).sum()
        time.sleep(0.005)
    total.backward()
    opt.step()
    opt.zero_grad()
    print("step", epoch, total.item(), time.perf_counter(), "s")
    print("next", epoch)
"""


@pytest.mark.needs_torch
def test_a_restart_shows_in_no_line(flor: Flor) -> None:
    """The loop that leaves a graph behind is run again in full, in a second attempt: all lines are the run's."""
    flor.write("train.py", GRAPH)
    run = flor("train.py", FLOR_EPSILON="inf").stdout
    flor.write("train.py", GRAPH.replace('    print("next"', '    print("@@", epoch)\n    print("next"'))
    done = flor("train.py", FLOR_MODE="replay", FLOR_LOG="all")
    assert "running such loops in full" in done.stderr
    wanted: list[Any] = []
    for line in run.splitlines():
        if line.startswith("next"):
            wanted.append(f"@@ {line[-1]}")
        wanted.append(line)
    assert done.stdout.splitlines() == wanted


KILLED = """
import os, signal, time
for epoch in range(50):
    time.sleep(0.05)
    print(epoch, flush=True)
    if epoch == 30:
        os.kill(os.getpid(), signal.SIGKILL)
for rest in range(3):
    print("never", rest)
"""


def test_a_killed_run_is_known_almost_to_its_end(flor: Flor) -> None:
    """No line that it never reached; at most the last half second is missing."""
    source = "import threading\nthreading.Thread(target=lambda: time.sleep(9), daemon=True).start()" + KILLED
    flor.write("train.py", source)
    assert flor("train.py").returncode == -9
    probed = source.replace("    print(epoch", "    print('@@', epoch)\n    print(epoch").replace(
        "'never'", "'@@'"
    )
    flor.write("train.py", probed.replace('"never"', '"@@ never"'))
    done = flor("train.py", FLOR_MODE="replay")
    lines = done.stdout.splitlines()
    assert lines == [f"@@ {epoch}" for epoch in range(len(lines))]
    assert 18 <= len(lines) <= 31
    assert "the recorded run ended here" in done.stderr


@pytest.mark.parametrize("workers", ["1", "2"])
def test_nobody_reads_on(flor: Flor, workers: str) -> None:
    """`| head`: the replay ends quietly, as by SIGPIPE."""
    source = "for epoch in range(4):\n    for step in range(3000):\n        total = step\n"
    flor.write("train.py", source)
    flor("train.py", FLOR_EPSILON="inf")
    flor.write("train.py", source + "    for line in range(20000):\n        print('@@', epoch, line)\n")
    replay = [sys.executable, "-m", "florhook", "--mode", "replay", "--workers", workers, "train.py"]
    process = subprocess.Popen(
        replay, cwd=flor.folder, env=flor.environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        assert process.stdout.readline() == b"@@ 0 0\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == -signal.SIGPIPE


MUCH = """
    import sys

    def work(n):
        return sum(i * i for i in range(n)) % 97

    for epoch in range(4):
        for step in range(150):
            print("epoch", epoch, "step", step, "é" * {width})
        if {raw}:
            sys.stdout.flush()
            sys.stdout.buffer.write(b"raw %d\\n" % epoch)
            sys.stdout.buffer.flush()
        print("end", epoch, work(epoch + 2000))
"""
ENCODINGS = ("utf-8", "ascii:backslashreplace")  # the latter writes other characters than were printed


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(("width", "raw"), [(1, False), (40, True), (9000, False)])
def test_what_a_buffer_hands_on_later_is_in_the_record_once(
    flor: Flor, width: int, raw: bool, encoding: str
) -> None:
    """Into a pipe Python collects 8 KB before it writes, and then all but the last text."""
    environ = {"PYTHONIOENCODING": encoding, "FLOR_EPSILON": "inf"}
    flor.write("s.py", MUCH.format(width=width, raw=raw))
    plain = flor.python("s.py", **environ)
    assert flor("s.py", **environ).stdout == plain.stdout
    lines = [f"epoch {epoch} step {step}" for epoch in range(4) for step in range(150)]
    logged = flor("logs", "--json", PYTHONIOENCODING="utf-8").stdout
    texts = [json.loads(line)["text"] for line in logged.splitlines()]
    assert [text.rstrip("é ") for text in texts if text.startswith("epoch")] == lines
    probe = "print('@@', epoch)"
    flor.write("s.py", MUCH.format(width=width, raw=raw) + "        " + probe + "\n")
    edited = flor.python("s.py", **environ)
    shown = flor("s.py", FLOR_MODE="replay", FLOR_LOG="all", **environ)
    assert (shown.stdout, shown.returncode) == (edited.stdout, 0)
    assert "where it had printed" not in shown.stderr
