"""Workers on other machines: what is sent, which machines are refused, and that they print what local workers do."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import Flor, new_flor
from test_pool import PROBED, SLOW, SLOW_PROBED, TWO_PHASES, marked

from florhook.dataclass import replace
from florhook.replay.dispatch import command
from florhook.replay.executors import Cluster
from florhook.replay.relay import Frame, What, challenge, frames, introduce
from florhook.replay.steward import Job, digest_of, unfit, versions_here

# A cluster whose machines are processes of this one.
CLUSTER = """
import json
import os
import subprocess
import sys

from florhook import cli
from florhook.replay import executors

WORK = "import json, sys; from florhook.replay.steward import work; work(json.load(sys.stdin))"


class Task:
    def __init__(self, job):
        job = {**job, **json.loads(os.environ.get("CHANGED", "{}"))}
        self.process = subprocess.Popen([sys.executable, "-c", WORK], stdin=subprocess.PIPE, start_new_session=True)
        self.process.stdin.write(json.dumps(job).encode())
        self.process.stdin.close()

    def problem(self):
        return None if self.process.poll() is None else "a task has failed"

    def cancel(self):
        self.process.kill()


class Processes:
    hands_on_variables = False

    def __init__(self, cluster, folder):
        pass

    def submit(self, job):
        return Task(dict(job))

    def close(self):
        pass


executors.EXECUTORS["ray"] = Processes
cli.main()
"""


def needs(module: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"{module} is not installed")


def elsewhere(flor: Flor, *options: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """A replay by workers of the cluster above."""
    settings = {"FLOR_MODE": "replay", "FLOR_EXECUTOR": "ray", "FLOR_CLUSTER": "local", "FLOR_WORKERS": "3"}
    return flor.python("cluster.py", *options, "train.py", **{**settings, **changes})


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Flor:
    """A run of two phases, with the prints that its replays are asked for."""
    return record(tmp_path_factory.mktemp("recorded"), TWO_PHASES, PROBED)


def record(folder: Path, before: str, after: str) -> Flor:
    flor = new_flor(folder)
    flor.write("train.py", before)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    flor.write("train.py", after)
    flor.write("cluster.py", CLUSTER)
    return flor


# What is sent ---------------------------------------------------------------------------------------------------


def test_frames_are_put_together_from_any_pieces() -> None:
    sent = [Frame(What.SAYS, 0, b"{}\n"), Frame(What.PRINTS, 7, b"@@"), Frame(What.ENDED, -9, b"")]
    data = b"".join(frame.encoded() for frame in sent)
    for size in (1, 2, 5, len(data)):
        buffer, got = bytearray(), []
        for at in range(0, len(data), size):
            buffer += data[at : at + size]
            got += list(frames(buffer))
        assert got == sent
        assert not buffer


@pytest.mark.parametrize(("secret", "number"), [("right", 5), ("wrong", None)])
def test_only_who_has_the_secret_is_heard(secret: str, number: int | None) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        caller = threading.Thread(target=introduce, args=(theirs, secret, 5))
        caller.start()
        assert challenge(ours, "right") == number
        caller.join()


@pytest.mark.parametrize(
    ("text", "cluster"),
    [
        (None, Cluster()),
        ("local", Cluster("local", "127.0.0.1")),
        ("ray://head:10001,num_gpus=0.5", Cluster("ray://head:10001", None, {"num_gpus": 0.5})),
        ("partition=gpu,timeout_min=120", Cluster(None, None, {"partition": "gpu", "timeout_min": 120})),
        ("auto,host=10.0.0.5", Cluster("auto", "10.0.0.5")),
    ],
)
def test_what_says_which_cluster(text: str | None, cluster: Cluster) -> None:
    assert Cluster.parsed(text) == cluster


def test_how_a_worker_is_started_elsewhere() -> None:
    """The script of ours may lie in another folder there."""
    main = "florhook/__main__.py"
    assert command(["python", "-m", "florhook", "train.py"], main) == ["-m", "florhook", "train.py"]
    words = ["python", "-X", "dev", "bin/florhook", "train.py"]
    assert command(words, "bin/florhook") == ["-X", "dev", "-m", "florhook", "train.py"]
    assert command(["python", "train.py", "a/florhook"], "train.py") == ["train.py", "a/florhook"]


# Which machines are refused -------------------------------------------------------------------------------------


def test_unfit_machines(tmp_path: Path) -> None:
    """One reason each: versions, folder, program, store."""
    (tmp_path / "catalog.sqlite").touch()
    (tmp_path / "train.py").write_text("print(1)")
    sources = {"train.py": digest_of(str(tmp_path / "train.py"))}
    folder = str(tmp_path)
    job = Job([], 0, "", 0, [], folder, folder, {}, {}, {}, versions_here(), sources, force=False)
    assert unfit(job) is None
    older = {**versions_here(), "torch": "1.0"}
    reason = unfit(replace(job, versions=older))
    assert reason is not None
    assert reason.startswith("torch is ")
    assert reason.endswith(", and 1.0 where the replay was started")
    assert unfit(replace(job, versions=older, force=True)) is None
    assert unfit(replace(job, cwd=f"{folder}/none")) == f"the working folder {folder}/none is missing"
    assert unfit(replace(job, sources={"other.py": "00"})) == "other.py is missing"
    assert unfit(replace(job, sources={"train.py": "00"})) == "train.py is another version"
    assert "shared folder" in str(unfit(replace(job, home=f"{folder}/none")))
    assert unfit(replace(job, home="s3://bucket/flor")) is None


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"cwd": "/nowhere"}, "the working folder /nowhere is missing"),
        ({"versions": {"Python": "2.7.18"}}, "and 2.7.18 where the replay was started"),
        ({"port": 1}, "a task has failed"),
    ],
    ids=["folder", "Python", "unreachable"],
)
def test_a_machine_that_cannot_do_it_is_named_in_one_line(
    recorded: Flor, changed: dict[str, Any], reason: str
) -> None:
    done = elsewhere(recorded, CHANGED=json.dumps(changed))
    ours = [line for line in done.stderr.splitlines() if line.startswith("florhook:")]
    assert (done.returncode, done.stdout, len(ours)) == (3, "", 1), done.stderr
    assert ours[0].endswith(reason)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"FLOR_EXECUTOR": "cloud"}, "FLOR_EXECUTOR must be one of local, ray, slurm"),
        ({"FLOR_CLUSTER": "a,b"}, "not 'b'"),
        ({"FLOR_WORKERS": "auto"}, "needs the number of workers"),
    ],
)
def test_wrong_usage(recorded: Flor, changes: dict[str, str], reason: str) -> None:
    done = elsewhere(recorded, **changes)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr


# What they print ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_elsewhere_print_what_the_program_prints(recorded: Flor, workers: int) -> None:
    wanted = marked(recorded.python("train.py").stdout)
    done = elsewhere(recorded, FLOR_WORKERS=str(workers), FLOR_STATS="stats.json")
    assert (done.returncode, done.stdout, done.stderr) == (0, wanted, "")
    stats = json.loads((recorded.folder / "stats.json").read_text())
    assert (stats["workers"], stats["diverged"]) == (workers, 0)
    assert stats["verified"] > 0


def test_the_store_may_be_at_a_url(flor: Flor, tmp_path: Path) -> None:
    """The other machine has a cache of its own."""
    home = f"file://{tmp_path}/bucket"
    here, there = {"XDG_CACHE_HOME": str(tmp_path / "here")}, {"XDG_CACHE_HOME": str(tmp_path / "there")}
    flor.write("train.py", TWO_PHASES)
    flor.write("cluster.py", CLUSTER)
    assert flor("train.py", FLOR_EPSILON="inf", FLOR_HOME=home, **here).returncode == 0
    assert flor("push", FLOR_HOME=home, **here).returncode == 0
    flor.write("train.py", PROBED)
    changed = json.dumps({"given": {**there, "FLOR_KEY": str(tmp_path / "key")}})
    key = {"FLOR_KEY": str(tmp_path / "key")}
    done = elsewhere(flor, "--trust", FLOR_HOME=home, CHANGED=changed, **here, **key)
    assert (done.returncode, done.stdout) == (0, marked(flor.python("train.py").stdout)), done.stderr
    assert (tmp_path / "there" / "florhook").is_dir()


def test_a_library_for_a_cluster_that_is_missing_is_named(recorded: Flor) -> None:
    recorded.write("broken/ray.py", "raise ImportError('no ray here')")
    path = os.pathsep.join([str(recorded.folder / "broken"), recorded.environ()["PYTHONPATH"]])
    done = recorded(*("--mode", "replay", "--executor", "ray", "--workers", "2", "train.py"), PYTHONPATH=path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'florhook[ray]'" in done.stderr


@needs("submitit")
def test_slurms_jobs_by_submitit(recorded: Flor) -> None:
    """By its local executor, which takes the same jobs."""
    options = ("--executor", "slurm", "--cluster", "local", "--workers", "2", "train.py")
    done = recorded("--mode", "replay", *options)
    assert (done.returncode, done.stdout) == (0, marked(recorded.python("train.py").stdout))
    assert (
        "florhook" not in done.stderr
    )  # a job that is called off at its start shows a traceback of submitit's


@needs("ray")
@pytest.mark.slow
def test_rays_tasks(recorded: Flor) -> None:
    options = ("--executor", "ray", "--cluster", "local", "--workers", "2", "train.py")
    done = recorded("--mode", "replay", *options)
    assert (done.returncode, done.stdout) == (0, marked(recorded.python("train.py").stdout)), done.stderr


# How they end ---------------------------------------------------------------------------------------------------


def workers_of(flor: Flor) -> list[psutil.Process]:
    """The processes that run the program in its folder, but for the one that was started."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd", "environ"]):
        told = process.info
        if told["cwd"] == str(flor.folder) and "FLORHOOK_TASK" in (told["environ"] or {}):
            found.append(process)
    return found


def until(condition: Any) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Flor:
    return record(tmp_path_factory.mktemp("slow"), SLOW, SLOW_PROBED)


def start_slow(flor: Flor) -> subprocess.Popen[str]:
    """A replay of which something has been printed."""
    settings = {"FLOR_MODE": "replay", "FLOR_EXECUTOR": "ray", "FLOR_CLUSTER": "local", "FLOR_WORKERS": "2"}
    process = subprocess.Popen(
        [sys.executable, "cluster.py", "train.py"],
        cwd=flor.folder,
        env=flor.environ(**settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "@@ 0 0\n"
    return process


@pytest.mark.parametrize("machine", [False, True], ids=["worker", "machine"])
def test_what_dies_has_its_item_done_again(slow: Flor, machine: bool) -> None:
    """Whether only the worker dies, or all that runs on its machine."""
    process = start_slow(slow)
    until(lambda: len(workers_of(slow)) == 2)
    worker = workers_of(slow)[0]
    (psutil.Process(worker.ppid()) if machine else worker).kill()
    rest, errors = process.communicate(timeout=60)
    sums = [0, 1, 3, 6, 10, 15, 21, 28, 36]
    assert rest.splitlines() == [f"@@ {k + 1} {total}" for k, total in enumerate(sums)]
    assert (process.returncode, errors) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_the_replay(slow: Flor, number: int) -> None:
    process = start_slow(slow)
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (-number, "")
    until(lambda: not workers_of(slow))
