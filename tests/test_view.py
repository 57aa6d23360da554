"""The page of `florhook view`: what it holds, how it is served, and what a browser makes of it."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import acted, needs_browser
from conftest import Flor, new_flor

PROGRAM = """
import sys, time
rate = float(sys.argv[1])
text = "</script><script>document.title = 'broken'</script>"
for epoch in range(5):
    loss = 8.0
    for step in range(3):
        loss = loss * rate
        time.sleep(0.003)
    print(f"epoch {epoch} loss {loss + epoch}")
    if epoch == 2:
        print("acc=nan")
    else:
        print(f"acc={epoch / 4}")
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Flor:
    """Two runs; of the second a replay has printed more."""
    tmp_path = tmp_path_factory.mktemp("view")
    flor = new_flor(tmp_path)
    flor.write("train.py", PROGRAM)
    for rate in ("0.5", "1.0"):
        assert flor("train.py", rate, FLOR_EPSILON="inf").returncode == 0
    flor.write("train.py", PROGRAM.replace("    print(f", "    print(f'twice={2 * loss}')\n    print(f", 1))
    assert flor("train.py", "1.0", FLOR_MODE="replay").returncode == 0
    return flor


def run_ids(flor: Flor) -> list[str]:
    return [line.split()[0] for line in flor("runs").stdout.splitlines() if line[:2] == "20"]


def page_of(flor: Flor, *which: str) -> str:
    done = flor("view", *which, "-o", "report.html")
    assert (done.returncode, done.stdout, done.stderr) == (0, "report.html\n", "")
    return (flor.folder / "report.html").read_text()


def data_of(page: str) -> Any:
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1]
    )  # type: ignore[index]


def test_holds_the_curves_of_all_runs(recorded: Flor) -> None:
    """By hand: three steps of 0.5 make 8 to 1, those of 1.0 leave it; the epoch is added."""
    first, second = run_ids(recorded)
    data = data_of(page_of(recorded, first, second))
    assert [run["id"] for run in data["runs"]] == [first, second]
    curves = [{(c["name"], c["hindsight"]): c for c in run["curves"]} for run in data["runs"]]
    assert set(curves[0]) == {("loss", False), ("acc", False)}
    assert set(curves[1]) == {("loss", False), ("acc", False), ("twice", True)}
    assert curves[0]["loss", False]["values"] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert curves[1]["loss", False]["values"] == [8.0, 9.0, 10.0, 11.0, 12.0]
    assert curves[0]["acc", False]["values"] == [0.0, 0.25, None, 0.75, 1.0]
    assert curves[1]["twice", True]["values"] == [16.0] * 5
    assert curves[0]["loss", False]["steps"] == [0, 1, 2, 3, 4]
    assert curves[0]["loss", False]["places"] == [f"epoch={epoch}" for epoch in range(5)]
    # The epochs and the loops of steps in them; five boundaries and exits, and the end of the epochs.
    assert [bar[2] for bar in data["runs"][0]["loops"]].count(0) == 5
    assert [bar[2] for bar in data["runs"][0]["loops"]].count(1) == 5
    seconds, checkpoints = data["runs"][0]["seconds"], data["runs"][0]["checkpoints"]
    assert [each for each in checkpoints if not (0 <= each[0] <= seconds and each[1] > 0)] == []
    assert data["runs"][0]["sources"][0]["text"] == PROGRAM.lstrip("\n")


def test_is_one_file_that_asks_no_network(recorded: Flor) -> None:
    page = page_of(recorded)
    assert not re.search(r"https?://|\bsrc=|<link|@import", page.replace(json.dumps(data_of(page)), ""))
    assert page.count("</script>") == 2


@pytest.mark.parametrize(
    ("args", "status", "said"),
    [
        (["nosuch"], 3, "no run 'nosuch'"),
        (["--what"], 2, "view has no option --what"),
        (["-o"], 2, "--output needs a value"),
        (["-o", "no/such/folder.html"], 2, "cannot write no/such/folder.html: No such file"),
        (["--serve", "--port", "x"], 2, "--port must be a number"),
    ],
)
def test_wrong_arguments_in_one_line(recorded: Flor, args: list[str], status: int, said: str) -> None:
    done = recorded("view", *args)
    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


# Served ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def served(flor: Flor) -> Iterator[str]:
    command = [sys.executable, "-m", "florhook", "view", *run_ids(flor), "--serve"]
    with subprocess.Popen(
        command,
        cwd=flor.folder,
        env=flor.environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 0


def get(url: str, **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def test_is_served_on_loopback_to_who_has_the_token(recorded: Flor) -> None:
    with served(recorded) as url:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{20,}/", url)
        status, page = get(url)
        assert (status, data_of(page)["live"]) == (200, True)
        status, text = get(url + "data")
        assert (status, len(json.loads(text)["runs"])) == (200, 2)
        root = url[: url.rindex("/", 0, -1) + 1]
        assert get(root)[0] == 404
        assert get(root + "A" * 22 + "/data")[0] == 404
        assert get(url + "more")[0] == 404
        assert get(url, Host="evil.example")[0] == 404


# In a browser ----------------------------------------------------------------------------------------------------


@needs_browser
@pytest.mark.parametrize("size", ["1200,900", "390,800"])
def test_in_a_browser(recorded: Flor, tmp_path: Path, size: str) -> None:
    """Curves are drawn, hovered, toggled, zoomed and filtered; on a phone nothing is wider than the screen."""
    first, second = run_ids(recorded)
    page = page_of(recorded, first, second)
    result = acted(page, "view_actions.js", tmp_path, f"--window-size={size}")
    assert result["title"] == "florhook"
    assert result["names"] == ["loss", "acc", "twice"]
    assert result["rows"] == 3
    assert result["last"] == "5 · 12"
    assert result["ink"] > 500
    assert result["hover"] == "epoch=2: 3 · epoch=2: 10"
    assert result["one"] == "epoch=1: 2"
    assert result["extent"] == [0, 4]
    assert result["none"] == ""
    assert result["zoomed"] == [1, 3]
    assert result["reset"] == result["all"] == [0, 4]
    assert result["closer"] == [0.4, 3.6]
    assert result["timed"]
    assert result["filtered"] == ["twice"]
    assert result["wide"]
    assert result["milliseconds"] < 200  # of one frame with 200,000 points, also on a busy machine
