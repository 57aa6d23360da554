"""Trackers of experiments in a replay: nothing is sent, nothing of the user's changes, the answers are the run's."""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import Flor

from florhook.runtime.trackers import WANDB, Answers, answering, environment, row


def needs(module: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"{module} is not installed")


class MlflowServer(BaseHTTPRequestHandler):
    """As much of MLflow's REST interface as the programs here ask for; ids that no client could guess."""

    requests: list[str]

    def do_GET(self) -> None:
        self.requests.append(self.path)
        name = self.path.partition("?")[0].rpartition("2.0/mlflow/")[2]
        experiment = {"experiment_id": "4711", "name": "trial", "lifecycle_stage": "active"}
        self._answer({"experiment": experiment} if name.startswith("experiments/") else {"run": self._run()})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.requests.append(self.path)
        self._answer({"run": self._run()} if self.path.endswith("runs/create") else {})

    def _run(self) -> dict[str, Any]:
        made = sum(path.endswith("runs/create") for path in self.requests)
        info = {"run_id": f"{made:032x}", "run_name": f"bird-{made}", "experiment_id": "4711"}
        times = {
            "status": "RUNNING",
            "start_time": 1,
            "artifact_uri": "file:///none",
            "lifecycle_stage": "active",
        }
        return {"info": {**info, **times}, "data": {}}

    def _answer(self, content: object) -> None:
        text = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def serving() -> Iterator[tuple[str, list[str]]]:
    """A server's address, and the paths that it was asked for."""
    handler = type("Handler", (MlflowServer,), {"requests": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", handler.requests
        server.shutdown()


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def probed(text: str, before: str, *prints: str) -> str:
    """A program with prints before the line that begins so."""
    (line,) = (each for each in text.splitlines() if each.strip() == before)
    indent = line[: len(line) - len(line.lstrip())]
    return text.replace(line, "\n".join([*(indent + each for each in prints), line]))


def test_answers_are_given_in_their_order() -> None:
    """Each once, and a read again; what lies before the place of a jump is left out."""
    rows = [row(3.0, "b", 30), row(1.0, "a", 10), row(2.0, "a", 20), row(4.0, "a", 40)]
    answers = Answers(rows)
    assert answers.take("a") == 10
    answers.jumped(3.5)
    assert answers.take("a") == 40
    assert answers.take("a") is None
    assert answers.take("a", again=True) == 40
    assert answers.take("b") is None
    assert answers.take("b", again=True) == 30
    assert answers.take("c", again=True) is None


def test_a_disabled_tracker_stays_disabled(tmp_path: Path) -> None:
    assert environment(tmp_path, {"WANDB_MODE": "disabled"}, ["wandb"])["WANDB_MODE"] == "disabled"
    assert environment(tmp_path, {"WANDB_MODE": "online"}, ["wandb"])["WANDB_MODE"] == "offline"


def test_what_a_program_asks_of_wandb_is_made_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever mode, folder and run it names: an offline run in the scratch folder, with the names of the run's."""
    asked = []

    def init(
        project: str = "",
        dir: str = "",  # noqa: A002
        id: str = "",  # noqa: A002
        mode: str = "",
        resume: str = "",
    ) -> SimpleNamespace:
        asked.append((project, dir, id, mode, resume))
        return SimpleNamespace(_settings=SimpleNamespace(run_id=id, run_name=None, mode=mode))

    monkeypatch.setitem(sys.modules, WANDB, SimpleNamespace(init=init))
    was = {"run_id": "abc", "run_name": "happy-sun-3", "mode": "online"}
    answering(Answers([row(1.0, "wandb", was)]), tmp_path / "scratch")[WANDB](WANDB)
    run = sys.modules[WANDB].init("trial", "/home", mode="online", resume="must")
    assert asked == [("trial", str(tmp_path / "scratch"), "abc", "offline", "")]
    assert vars(run._settings) == was
    sys.modules[WANDB].init(mode="disabled")
    assert asked[1] == ("", str(tmp_path / "scratch"), "", "disabled", "")


LOGGED_TO_MLFLOW = """
import os

import mlflow

mlflow.set_tracking_uri(os.environ["SERVER"])
mlflow.set_experiment("trial")
total = 0
for fold in range(4):
    with mlflow.start_run() as run:
        name = run.info.run_name
        for step in range(3):
            total += step
            mlflow.log_metric("total", total)
        client = mlflow.MlflowClient()
        client.set_tag(run.info.run_id, "fold", str(fold))
    print(name, run.info.run_id, total)
"""


@needs("mlflow")
def test_mlflow_is_answered_from_the_record(flor: Flor) -> None:
    """The ids and names are those that the server gave in the run; no request reaches it, and it need not be there."""
    flor.write("train.py", LOGGED_TO_MLFLOW)
    probe = "print('@@', fold, name, run.info.run_id, mlflow.get_tracking_uri() == os.environ['SERVER'])"
    with serving() as (address, requests):
        done = flor("train.py", FLOR_EPSILON="inf", SERVER=address)
        assert done.returncode == 0, done.stderr
        assert f"bird-4 {4:032x} 12" in done.stdout.splitlines()
        assert len(requests) > 20
        asked = len(requests)
        flor.write("train.py", probed(LOGGED_TO_MLFLOW, "print(name, run.info.run_id, total)", probe))
        options = ("--select", "fold=2:3", "--log", "all", "train.py")
        done = flor(*options, FLOR_MODE="replay", SERVER=address)
        lines = [line for line in done.stdout.splitlines() if line.startswith(("@@", "bird-3"))]
        assert done.returncode == 0, done.stderr
        assert lines == [f"@@ 2 bird-3 {3:032x} True", f"bird-3 {3:032x} 9"]
        assert len(requests) == asked
    done = flor("train.py", FLOR_MODE="replay", SERVER=address)
    wanted = [f"@@ {fold} bird-{fold + 1} {fold + 1:032x} True" for fold in range(4)]
    assert (done.returncode, done.stdout.splitlines()) == (0, wanted), done.stderr
    assert "not exact" not in done.stderr


LOGGED_TO_WANDB = """
import os

import wandb

run = wandb.init(project="trial", mode=os.environ["MODE"], config={"lr": 0.5})
print("run", run.id)
best = 0.0
for epoch in range(4):
    best += run.config.lr
    wandb.log({"best": best})
    with open(f"{wandb.run.id}-{epoch}.txt", "w") as file:
        file.write(str(best))
print("end", run.step, run.project, os.path.exists(f"{wandb.run.id}-0.txt"))
run.finish()
"""


@needs("wandb")
def test_wandb_stays_offline_with_the_runs_id(flor: Flor) -> None:
    """Though the program asks for an online run: no connection, the recorded id, no file of the user's changes."""
    flor.write("train.py", LOGGED_TO_WANDB)
    quiet = {"WANDB_API_KEY": "0" * 40, "WANDB_SILENT": "true"}
    with serving() as (address, requests):
        done = flor("train.py", FLOR_EPSILON="inf", MODE="offline", WANDB_BASE_URL=address, **quiet)
        assert done.returncode == 0, done.stderr
        name, asked = (
            done.stdout.split()[1],
            len(requests),
        )  # wandb's telemetry, which offline runs of theirs send
        assert (flor.folder / f"{name}-3.txt").read_text() == "2.0"
        flor.write(
            "train.py",
            probed(LOGGED_TO_WANDB, 'wandb.log({"best": best})', "print('@@', epoch, wandb.run.id, best)"),
        )
        before = files_below(flor.folder)
        done = flor("train.py", FLOR_MODE="replay", MODE="online", WANDB_BASE_URL=address, **quiet)
        wanted = [f"@@ {epoch} {name} {(epoch + 1) / 2}" for epoch in range(4)]
        assert (done.returncode, done.stdout.splitlines()) == (0, wanted), done.stderr
        assert "not exact" not in done.stderr
        assert files_below(flor.folder) == before
        done = flor(
            "--select", "epoch=3:", "--log", "all", "train.py", FLOR_MODE="replay", MODE="online", **quiet
        )
        assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "end 4 trial True"), done.stderr
        assert len(requests) == asked


WRITTEN_FOR_TENSORBOARD = """
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.compat.proto.event_pb2 import Event

writer = EventFileWriter("curves")
loss = 8.0
for epoch in range(4):
    loss /= 2
    value = Summary.Value(tag="loss", simple_value=loss)
    writer.add_event(Event(step=epoch, summary=Summary(value=[value])))
    writer.flush()
writer.close()
print("end", loss)
"""


@needs("tensorboard")
def test_tensorboard_writes_into_the_scratch_folder(flor: Flor) -> None:
    flor.write("train.py", WRITTEN_FOR_TENSORBOARD)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    flor.write("train.py", probed(WRITTEN_FOR_TENSORBOARD, "writer.flush()", "print('@@', epoch, loss)"))
    before = files_below(flor.folder)
    assert len(before) == 2, "the program and one file of events"
    done = flor("train.py", FLOR_MODE="replay")
    wanted = ["@@ 0 4.0", "@@ 1 2.0", "@@ 2 1.0", "@@ 3 0.5"]
    assert (done.returncode, done.stdout.splitlines()) == (0, wanted), done.stderr
    assert files_below(flor.folder) == before


def test_a_program_without_trackers_sees_the_variables_that_it_had(flor: Flor) -> None:
    seen = "[name for name in sorted(os.environ) if not name.startswith('FLOR')]"
    source = f"import os\nfor epoch in range(2):\n    print({seen})\n"
    flor.write("train.py", source)
    recorded = flor("train.py", FLOR_EPSILON="inf").stdout.splitlines()
    flor.write("train.py", f"{source}    print('@@', {seen})\n")
    done = flor("train.py", FLOR_MODE="replay")
    assert "differs" not in done.stderr
    assert [line.removeprefix("@@ ") for line in done.stdout.splitlines()] == recorded


def test_a_writer_of_event_files_is_no_state(flor: Flor) -> None:
    """What waits in its thread, and its file's name, are its process's: replays jump, and are exact."""
    pytest.importorskip("torch")
    pytest.importorskip("tensorboard")
    source = """
import time, torch
from torch.utils.tensorboard import SummaryWriter
torch.manual_seed(0)
writer = SummaryWriter("runs/a")
weight = torch.zeros(3)
for epoch in range(4):
    for step in range(5):
        weight += torch.rand(3)
        time.sleep(0.004)
    for name in ("loss", "lr", "kl", "clip"):
        writer.add_scalar(name, weight.sum().item(), epoch)
    print("epoch", epoch)
writer.close()
"""
    flor.write("train.py", source)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    flor.write(
        "train.py", source.replace("    print(", "    print('@@', epoch, weight.tolist())\n    print(")
    )
    wanted = [line for line in flor.python("train.py").stdout.splitlines() if line.startswith("@@")]
    stats = flor.home.parent / "stats.json"
    done = flor("train.py", FLOR_MODE="replay", FLOR_STATS=str(stats), timeout=60)
    assert (done.returncode, done.stdout.splitlines()) == (0, wanted)
    assert "not exact" not in done.stderr
    assert json.loads(stats.read_text())["blocks_skipped"] == 8  # both inner loops of each epoch
