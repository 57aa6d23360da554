"""Promises about scripts/bench: quick runs of it give tables and JSON that agree, and noise decides nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
from benchmarks import figures, runs


def run_bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT / "scripts"), str(ROOT / "src")])
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("subject", "part", "name", "count"),
    [
        ("record", "loops", "loops: wall clock", 7),
        ("stall", "walk", "the walk of 100 objects", 1),
    ],
)
def test_a_quick_run_gives_a_table_and_json(
    tmp_path: Path, subject: str, part: str, name: str, count: int
) -> None:
    """A line for each figure; the exit code counts those beyond their limits."""
    done = run_bench(subject, "--quick", "--only", part, "--anyway", "--threads", "1", "--out", str(tmp_path))
    (path,) = tmp_path.iterdir()
    assert path.name == f"{subject}-{part}-quick-{sys.version_info[0]}.{sys.version_info[1]}.json"
    content = json.loads(path.read_text())
    found = content["figures"]
    _, *lines, foot = done.stdout.splitlines()
    assert [line.partition("  ")[0] for line in lines] == [figure["name"] for figure in found]
    assert (len(found), found[0]["name"]) == (count, name)
    assert "QUICK" in foot
    assert "1 threads" in foot
    assert content["threads"] == 1
    assert done.returncode == sum(line.endswith("BEYOND THE LIMIT") for line in lines), done.stderr


@pytest.mark.slow
def test_the_cost_of_a_recording_is_made_of_what_it_says(tmp_path: Path) -> None:
    """Wall clock and accounted cost can be computed again from the raw values in the JSON."""
    run_bench("record", "--quick", "--only", "loops", "--pairs", "2", "--anyway", "--out", str(tmp_path))
    (path,) = tmp_path.iterdir()
    wall, accounted, _, start, missed, *_ = json.loads(path.read_text())["figures"]
    plain = sum(wall["plain_s"]) / 2  # the median of two
    for index in range(2):
        more = wall["hooked_s"][index] / wall["plain_s"][index] - 1
        assert wall["each"][index] == pytest.approx(100 * more, rel=0.002, abs=0.1)
        parts = ("stall_s", "hook_s", "end_s", "writer_cpu_s")
        seconds = sum(accounted[part][index] for part in parts)
        assert seconds > 0
        cost = 100 * seconds / plain + start["each"][index]
        assert accounted["each"][index] == pytest.approx(cost, rel=0.01)
    assert missed["name"].endswith("of 2")


def test_an_unknown_part_is_refused() -> None:
    """With what there is, and at once."""
    done = run_bench("record", "--only", "nothing")
    assert done.returncode == 2
    assert "record has no nothing, but small, medium" in done.stderr


def test_a_figure_knows_its_limit() -> None:
    """The median counts; a noisy figure is neither kept nor beyond."""
    kept = figures.compared("a", (1.0, 2.0, 4.0), (1.1, 2.1, 9.0), limit=1.1)
    assert kept.each == pytest.approx((1.1, 1.05, 2.25))
    assert (kept.verdict, kept.is_beyond) == ("kept", False)
    beyond = figures.Figure("b", (5.0,), "ms", 4.9)
    assert (beyond.verdict, beyond.is_beyond, beyond.spread) == ("BEYOND THE LIMIT", True, 0.0)
    noisy = figures.Figure("c", (5.0,), "ms", 4.9, decides=False)
    assert (noisy.verdict, noisy.is_beyond) == ("too noisy to tell", False)
    assert figures.Figure("d", (5.0,), "ms").verdict == ""


def test_a_busy_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless one measures anyway, and the figures are marked."""
    monkeypatch.setattr(figures.psutil, "cpu_percent", lambda _: 40.0)
    with pytest.raises(figures.BusyError, match="40 %"):
        figures.refuse_when_busy(anyway=False)
    assert figures.refuse_when_busy(anyway=True) == 40.0


def test_a_print_is_put_before_the_one_line_that_begins_so() -> None:
    """At its depth; a program that has no such line, or two, is a mistake."""
    source = "for x in y:\n    total += x\nprint(total)\n"
    assert runs.with_line(source, "total +=", "print(x)") == (
        "for x in y:\n    print(x)\n    total += x\nprint(total)\n"
    )
    with pytest.raises(ValueError, match="values to unpack"):
        runs.with_line(source, "absent", "print(x)")


def test_memory_is_that_of_the_program(tmp_path: Path) -> None:
    """Not that of whoever started it: a program that allocates 100 MiB has that much more than one that does not."""
    bench = runs.Bench(tmp_path, threads=1)
    little = bench.plain("-c", "pass")
    much = bench.plain("-c", "x = bytearray(100 << 20)")
    assert little.peak < 60
    assert 95 < much.peak - little.peak < 110
    with pytest.raises(runs.FailedError, match="no such thing"):
        bench.plain("-c", "raise SystemExit('no such thing')")
