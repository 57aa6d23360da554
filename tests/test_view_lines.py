"""The report's margins, replays and live page: what stands beside which line, and what a browser makes of it."""

from __future__ import annotations

import json
import queue
import re
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from browser import DARK, acted, command, needs_browser, with_script
from conftest import Flor, new_flor
from test_view import data_of, get, page_of

from florhook.logs.replays import accounts_of, verdict
from florhook.views.report import data_of as read
from florhook.views.serve import Handler, Server

TRAIN = """
import time
import helper

rate = 0.5
for epoch in range(5):
    loss = 8.0
    for step in range(3):
        loss = loss * rate
        time.sleep(0.003)
        print("step loss", loss)
    helper.report(epoch, loss)
    if epoch == 2:
        print("acc=nan")
    else:
        print("acc=%.2f" % (epoch / 4))
print("done: total {}".format(5))
"""
HELPER = """
def report(epoch, loss):
    message = f"epoch {epoch} loss {loss + epoch}"
    print(message)
    if epoch < 2:
        print(f"twin={loss}")
    else:
        print(f"twin={loss}")
    say("mean", loss / 2)


def say(name, value):
    print(f"my {name}", value, sep=": ")
""" + "".join(f"# line {number}\n" for number in range(13, 201))
PROBED = "    print(f'twice={2 * loss}')\n    helper.report"


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Flor:
    """A run of two files and three replays: with a print, with a probe of two epochs, and one that is not exact."""
    tmp_path = tmp_path_factory.mktemp("lines")
    flor = new_flor(tmp_path)
    flor.write("helper.py", HELPER)
    flor.write("train.py", TRAIN)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    flor.write("train.py", TRAIN.replace("    helper.report", PROBED))
    assert flor("train.py", FLOR_MODE="replay").stdout == "twice=2.0\n" * 5
    flor.write("train.py", TRAIN)
    done = flor("replay", "--probe", "helper.py:3:loss * 3 if epoch < 9", "--select", "epoch=3:")
    assert done.stdout == "epoch=3 loss * 3=3.0\nepoch=4 loss * 3=3.0\n"
    flor.write(
        "train.py", TRAIN.replace("loss * rate", "loss * rate + 1").replace("    helper.report", PROBED)
    )
    assert flor("--force", "train.py", FLOR_MODE="replay").returncode == 4
    flor.write("train.py", TRAIN)
    return flor


@pytest.fixture(scope="module")
def data(replayed: Flor) -> Any:
    return data_of(page_of(replayed))["runs"][0]


def test_each_statement_has_what_it_printed(data: Any) -> None:
    """By hand: 8 halved three times in five epochs; twins cannot be told apart, and a variable has no text."""
    names = [source["name"] for source in data["sources"]]
    found = {
        (names[each["source"]], each["line"], each.get("text", "")): (
            each["prints"],
            {
                curve["name"]: [
                    value
                    for index, value in enumerate(curve["values"])
                    if (curve["at"] if isinstance(curve["at"], int) else curve["at"][index]) == number
                ]
                for curve in data["curves"]
                if number == curve["at"] or (isinstance(curve["at"], list) and number in curve["at"])
            },
        )
        for number, each in enumerate(data["statements"])
    }
    assert found == {
        ("train.py", 10, ""): (15, {"step loss": [4.0, 2.0, 1.0] * 5}),
        ("train.py", 11, "print(f'twice={2 * loss}')"): (5, {"twice": [2.0] * 5}),
        ("train.py", 13, ""): (1, {"acc": [None]}),
        ("train.py", 15, ""): (4, {"acc": [0.0, 0.25, 0.75, 1.0]}),
        ("train.py", 16, ""): (1, {"total": [5]}),
        ("helper.py", 3, "loss * 3 if epoch < 9"): (2, {"loss * 3": [3.0, 3.0]}),
        ("helper.py", 12, ""): (5, {"my mean": [0.5] * 5}),
    }
    assert {curve["name"] for curve in data["curves"] if curve["at"] is None} == {"loss", "twin"}


def test_accounts_tell_what_replays_did(replayed: Flor, data: Any) -> None:
    """All five epochs were run and their steps skipped; then the last two; the third replay computed other losses."""
    first, second, third = accounts_of(replayed.home, data["id"])
    assert [verdict(each) for each in (first, second, third)] == ["verified", "verified", "diverged"]
    assert [each["exit_code"] for each in (first, second, third)] == [0, 0, 4]
    assert [each["verdict"] for each in data["replays"]] == ["diverged", "verified", "verified"]
    (probe,) = first["probes"]
    path = str(replayed.folder / "train.py")
    assert probe == {
        "module": "__main__",
        "path": path,
        "line": 11,
        "text": "print(f'twice={2 * loss}')",
        "before": 11,
    }
    (loop,) = first["plan"]["loops"]
    assert (loop["path"], loop["line"], loop["known"], loop["runs"]) == (path, 5, 5, [[0, 5]])
    assert second["plan"]["loops"][0]["runs"] == [[3, 5]]
    assert second["select"] == "epoch=3:"
    figures = first["figures"]
    assert (figures["iterations_executed"], figures["iterations_skipped"], figures["blocks_skipped"]) == (
        5,
        15,
        5,
    )
    assert all(0 < each["wall_s"] < 60 and each["plan"]["seconds"] > 0 for each in (first, second))
    assert third["differences"]
    assert third["forced"] == ["train.py:8: " + third["forced"][0].partition(": ")[2]]


def test_show_tells_of_replays(replayed: Flor) -> None:
    shown = replayed("show").stdout
    told = shown[shown.index("replay  ") :]
    assert told.count("replay  ") == 3
    assert ": train.py:11\n" in told
    assert ", 5 iterations executed, 15 skipped, " in told
    assert "; verified: " in told
    assert "differs: " in told


def test_a_replay_goes_well_where_the_store_takes_nothing(flor: Flor) -> None:
    flor.write("train.py", "for epoch in range(2):\n    print(epoch)\n")
    assert flor("train.py").returncode == 0
    (flor.home / "logs").write_text("in the way")
    done = flor("--log", "all", "train.py", FLOR_MODE="replay")
    assert (done.returncode, done.stdout) == (0, "0\n1\n")
    assert "florhook: this replay is not kept for florhook logs and show: " in done.stderr
    assert flor("show").returncode == flor("view").returncode == 0


def test_what_is_no_account_is_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "run"
    folder.mkdir(parents=True)
    for name, text in (("a", ""), ("b", "[]"), ("c", '{"replay": "c", "ended": 1.0}'), ("d", "\xff{")):
        (folder / f"{name}.json").write_text(text)
    assert accounts_of(tmp_path, "run") == []


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({"verified": 2, "diverged": 0, "unverified": 0}, "verified"),
        ({"verified": 2, "diverged": 0, "unverified": 1}, "verified in part"),
        ({"verified": 2, "diverged": 1, "unverified": 1}, "diverged"),
        ({"verified": 0, "diverged": 0, "unverified": 1}, "not verified"),
        ({"verified": 0, "diverged": 0, "unverified": 0}, "nothing to verify"),
        ({}, "not verified"),  # the worker was killed
    ],
)
def test_verdicts(figures: dict[str, int], said: str) -> None:
    assert verdict({"figures": figures}) == said


def test_where_the_recorder_spent_time(data: Any) -> None:
    """The parts are those of `show`, and add up."""
    stall = data["stall"]
    assert [name for name, _ in stall["parts"]] == ["walk", "wait", "digest", "memory", "copy", "other"]
    assert sum(took for _, took in stall["parts"]) == pytest.approx(stall["stall_s"], abs=1e-3)


@needs_browser
@pytest.mark.parametrize("options", [("1200,900",), ("390,800", DARK)], ids=["wide", "phone"])
def test_margins_in_a_browser(replayed: Flor, tmp_path: Path, options: tuple[str, ...]) -> None:
    """Values stand at their lines and are shown by keys; replays tell what came of them; colours can be told apart."""
    size, *rest = options
    result = acted(page_of(replayed), "view_lines.js", tmp_path, f"--window-size={size}", *rest)
    assert result["dark"] == (DARK in rest)
    assert result["train"] == [
        "10: step loss 1 ×15",
        "+: hindsight twice 2 ×5",
        "13: acc – ×1",
        "15: acc 1 ×4",
        "16: total 5 ×1",
    ]
    assert result["helper"] == ["+: hindsight loss * 3 3 ×2", "12: my mean 0.5 ×5"]
    assert result["label"] == "step loss of line 10: last 1, 15 values"
    assert result["expanded"] == ["true", "false"]
    assert result["popup"][:3] == ["epoch=0 step=0|4", "epoch=0 step=1|2", "epoch=0 step=2|1"]
    assert len(result["popup"]) == 15
    assert result["tagged"].startswith("twice, train.py:11 hindsight, replay 20")
    assert result["closed"]
    assert result["folded"] == ["⋯ 182 lines from 19", "true", 200]
    assert result["went"] == ["10", "+", "13", "10"]
    assert result["unnamed"] == []
    assert result["replays"] == ["diverged", "verified", "verified"]
    assert result["facts"]["executed"] == "5 iterations"
    assert result["facts"]["skipped"] == "15 iterations, 5 loops as a whole"
    assert result["facts"]["loop, train.py:5"].startswith("planned: 5 of 5 iterations, ")
    assert result["strip"] == [["3", "2"]]
    assert result["contrast"]["text"] >= 4.5  # WCAG 2.1, 1.4.3
    assert result["contrast"]["lines"] >= 3.0  # 1.4.11
    assert result["cursor"] == ["epoch=0: 0", "epoch=1: 0.25", "epoch=4: 1"]
    assert result["bar"] == pytest.approx(1.0, abs=0.05)
    assert result["wide"]


# While a run goes on ---------------------------------------------------------------------------------------------

LIVE = """
import os, time
for epoch in range(5):
    time.sleep(0.05)
    print(f"loss {2 ** epoch}")
    while epoch == 1 and not os.path.exists("go"):
        time.sleep(0.01)
print("rest=1")
"""


class Acting(Handler):
    """Serves the page with a script in it, which can let the program go on and hand over what it found."""

    go: Path
    found: queue.Queue[str] = queue.Queue()

    def do_GET(self) -> None:  # noqa: N802  the name is http.server's
        if self.path.endswith("/go"):
            self.go.touch()
            self._answer("text/plain", "")
        else:
            super().do_GET()

    def do_POST(self) -> None:  # noqa: N802
        self.found.put(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self._answer("text/plain", "")

    def _answer(self, kind: str, text: str, version: str = "") -> None:
        super()._answer(kind, with_script(text, "view_live.js") if "html" in kind else text, version)


@needs_browser
def test_a_live_page_stays_as_it_was_left(flor: Flor, tmp_path: Path) -> None:
    """Values come, by hand 1, 2, 4, 8 and 16; zoom, toggles, filter, focus and what is open stay."""
    flor.write("train.py", LIVE)
    program = subprocess.Popen(
        [sys.executable, "-m", "florhook", "--epsilon", "inf", "train.py"],
        cwd=flor.folder,
        env=flor.environ(),
        stdout=subprocess.DEVNULL,
    )
    Acting.go = flor.folder / "go"
    until = time.monotonic() + 30
    while time.monotonic() < until and not (flor.home / "catalog.sqlite").exists():
        time.sleep(0.05)
    run = wait_for_run(flor)
    with Server(flor.home, [run]) as server:
        server.RequestHandlerClass = Acting
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with subprocess.Popen([*command(tmp_path), server.url], stderr=subprocess.DEVNULL) as browser:
            try:
                result = json.loads(Acting.found.get(timeout=60))
            finally:
                browser.terminate()
                program.kill()
                program.wait()
                server.shutdown()
    assert (result["before"], result["after"]) == (2, 5)
    assert result["status"] == "running"
    assert (result["range"], result["times"]) == ([0.5, 1.5], [0, 0.25])
    assert (result["log"], result["off"], result["still"]) == ("true", False, True)
    assert (result["focused"], result["open"], result["popup"]) == (True, True, 5)
    assert result["label"] == "loss of line 4: last 16, 5 values"
    assert result["filtered"] == ["loss"]
    assert result["last"] == "rest1×1"
    assert result["same"]


def wait_for_run(flor: Flor) -> str:
    """The id of the only run, once two of its values are in the store."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        (run,) = [line.split()[0] for line in flor("runs").stdout.splitlines()[1:]] or [""]
        if run and [len(curve["values"]) for curve in read(flor.home, [run])["runs"][0]["curves"]] == [2]:
            return run
    raise AssertionError("nothing came into the store")


def test_a_page_that_has_it_all_is_told_so(replayed: Flor) -> None:
    """By the ETag of what it has; RFC 9110, section 13.1.2."""
    with Server(replayed.home, ["last"]) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with urllib.request.urlopen(server.url + "data", timeout=30) as answer:
            version = answer.headers["ETag"]
        assert re.fullmatch('"[0-9a-f]{16}"', version)
        assert get(server.url + "data", **{"If-None-Match": version})[0] == 304
        assert get(server.url + "data", **{"If-None-Match": '"other"'})[0] == 200
        server.shutdown()
