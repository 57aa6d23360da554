"""kill -9 at random instants of a recorded run, and the question whether the store has kept all that it says it has."""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from florhook.errors import FlorError
from florhook.store.store import Store, settle
from florhook.store.verify import SIGNED, Verifier, verify_files

PATIENCE = 60.0  # seconds for a writer to come, or to finish
TOGETHER = 5  # kills in one store
EARLY = 0.2  # the share of kills before the program has printed anything

WORKLOADS = {
    "bytes": """
        import hashlib, random, sys, time
        source = random.Random(5)
        state = {"step": 0, "large": bytearray(3_000_000), "kept": bytes(500_000), "losses": []}
        for step in range(25):
            state["step"] += 1
            at = source.randrange(2_000_000)
            state["large"][at : at + 500_000] = source.randbytes(500_000)
            state["losses"].append(hashlib.md5(state["large"]).hexdigest())
            print(step, state["losses"][-1], flush=True)
            time.sleep(0.01)
        sys.exit(4)
    """,
    "nested loops": """
        import random, time
        source = random.Random(5)
        class Model:
            def __init__(self):
                self.weights, self.seen = [0.0] * 200, {}
            def train(self, epoch):
                for batch in range(6):
                    for place in range(0, 200, 7):
                        self.weights[place] += source.gauss(0, 1)
                    self.seen[epoch, batch] = sum(self.weights)
                    time.sleep(0.004)
                return self.seen[epoch, batch]
        model = Model()
        for epoch in range(12):
            print("epoch", epoch, model.train(epoch), flush=True)
            k = 0
            while k < 3:
                k += 1
                print("checked", k, len(model.seen))
        raise ValueError("at the end")
    """,
    "torch": """
        import time, torch
        torch.manual_seed(0)
        torch.set_num_threads(1)
        net = torch.nn.Sequential(torch.nn.Linear(40, 400), torch.nn.ReLU(), torch.nn.Linear(400, 1))
        optimizer = torch.optim.Adam(net.parameters())
        for epoch in range(30):
            for batch in range(3):
                x = torch.randn(64, 40)
                loss = ((net(x) - x.sum(1, keepdim=True)) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(epoch, loss.item(), flush=True)
            time.sleep(0.01)
    """,
}  # fmt: skip
RECORD = ("-m", "florhook")
BOTH = "both"
VICTIMS = ("training", "writer", BOTH)


def workloads() -> list[str]:
    """Those that can run here."""
    return [name for name in WORKLOADS if name != "torch" or importlib.util.find_spec("torch")]


@dataclass(frozen=True)
class Place:
    """A folder with one program, and its store."""

    folder: Path
    store: Path | None = None

    @property
    def home(self) -> Path:
        return self.store or self.folder / ".florhook"

    @property
    def streams(self) -> tuple[Path, Path]:
        """What the program that was started last writes to stdout and stderr."""
        return self.folder.with_suffix(".stdout"), self.folder.with_suffix(".stderr")

    def start(
        self,
        *options: str,
        epsilon: str = "inf",
        mode: str = "record",
        before: Callable[[], None] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Starts the program; `before` is called in its process."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith("FLOR_")}
        settings = {"FLOR_HOME": str(self.home), "FLOR_EPSILON": epsilon, "FLOR_MODE": mode}
        command, environ = [sys.executable, *options, "train.py"], {**ours, **settings}
        with self.streams[0].open("wb") as stdout, self.streams[1].open("wb") as stderr:
            return subprocess.Popen(
                command, cwd=self.folder, env=environ, preexec_fn=before,
                stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
            )  # fmt: skip


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    stdout: str
    stderr: str
    status: int

    @classmethod
    def of(cls, process: subprocess.Popen[bytes], place: Place) -> Ended:
        """Waits for it; what it says of its folder is the same in all folders."""
        process.wait(2 * PATIENCE)
        stdout, stderr = (stream.read_text() for stream in place.streams)
        return cls(stdout, stderr.replace(str(place.folder), "FOLDER"), process.returncode)

    def __str__(self) -> str:
        return f"{len(self.stdout)} characters, ending in {self.stdout[-60:]!r}, status {self.status}: {self.stderr}"

    @property
    def ours(self) -> list[str]:
        """Florhook's lines."""
        return [line for line in self.stderr.splitlines() if line.startswith("florhook:")]

    @property
    def theirs(self) -> str:
        """What the program shows."""
        rest = [line for line in self.stderr.splitlines() if not line.startswith("florhook:")]
        return "\n".join([self.stdout, *rest, str(self.status)])


def writer_of(home: Path) -> int | None:
    """The writer of a store in which one run is being recorded."""
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if os.fsencode(home) in words and b"-S" in words[:3]:
                return int(process.name)
    return None


class Series:
    """Kills of one workload, some of them in one store after another."""

    def __init__(self, workload: str, folder: Path) -> None:
        lines = WORKLOADS[workload].strip("\n").splitlines()
        self.source = "\n".join(line.removeprefix(" " * 8) for line in lines) + "\n"
        self.folder = folder
        self.kills = 0
        plain = self._fresh("plain")
        self.plain = Ended.of(plain.start(), plain)
        process = plain.start(*RECORD)
        began = time.monotonic()
        _await_output(process, plain)
        self.silent = time.monotonic() - began
        Ended.of(process, plain)
        self.seconds = time.monotonic() - began  # of which it is silent at first

    def _fresh(self, name: str) -> Place:
        place = Place(self.folder / name)
        shutil.rmtree(place.folder, ignore_errors=True)
        place.folder.mkdir(parents=True)
        (place.folder / "train.py").write_text(self.source)
        return place

    def kill(self, chance: random.Random) -> list[str]:
        """Records the program, kills somebody, and says what is wrong after that."""
        name = f"store-{self.kills // TOGETHER}"
        place = Place(self.folder / name) if self.kills % TOGETHER else self._fresh(name)
        self.kills += 1
        victim, early = chance.choice(VICTIMS), chance.random() < EARLY
        instant = chance.uniform(0, self.silent if early else self.seconds - self.silent)
        process = place.start(*RECORD, epsilon=chance.choice(["inf", "0.0667"]))
        if not early:
            _await_output(process, place)
        time.sleep(instant)
        _kill(victim, process, place.home)
        ended = Ended.of(process, place)
        wrong = list(self._wrong_after(victim, ended, place))
        if self.kills % TOGETHER == 0 and not wrong:
            shutil.rmtree(place.folder)
        return [
            f"{place.folder}: {victim} killed {'early, ' * early}after {instant:.3f} s: {each}"
            for each in wrong
        ]

    def _wrong_after(self, victim: str, ended: Ended, place: Place) -> Iterator[str]:
        if victim == "writer":
            if ended.theirs != self.plain.theirs:
                yield f"another result: {ended}"
            if len(ended.ours) > 1:
                yield f"more than one line: {ended.ours}"
        yield from damage(place.home, self.plain.stdout)
        resumed = Ended.of(place.start(*RECORD, mode="resume"), place)
        nothing = "no store" in resumed.stderr or "no run" in resumed.stderr or "ended well" in resumed.stderr
        if not (self._is_as_plain(resumed) or (resumed.status == 3 and nothing)):
            yield f"resumed to another result: {resumed}"

    def _is_as_plain(self, resumed: Ended) -> bool:
        return (resumed.stdout, resumed.status) == (self.plain.stdout, self.plain.status)


def _await_output(process: subprocess.Popen[bytes], place: Place) -> None:
    while process.poll() is None and not place.streams[0].stat().st_size:
        time.sleep(0.002)


def _kill(victim: str, process: subprocess.Popen[bytes], home: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    writer = writer_of(home) if victim != "training" else None
    while victim == "writer" and writer is None and process.poll() is None and time.monotonic() < deadline:
        writer = writer_of(home)
    if writer is not None:
        with suppress(ProcessLookupError):
            os.kill(writer, signal.SIGKILL)
    if victim != "writer":
        process.kill()


def damage(home: Path, stdout: str) -> Iterator[str]:
    """What is wrong with a store of runs that print so: everything in it is read, and compared with its digests."""
    if not settle(home, PATIENCE):
        yield "a writer does not end"
    try:
        with Store.open(home) as store:
            runs, verifier = store.runs(), Verifier(store)
            for run in runs:
                report = verifier.run(run)
                yield from (f"{run.id}: {each}" for each in report.damages)
                if report.key != SIGNED:
                    yield f"{run.id}: {report.key}"
                printed = "".join(text for _, text in store.output(run))
                if not stdout.startswith(printed):
                    yield f"{run.id}: {printed!r} is recorded"
            yield from verify_files(store).damages
        listed = subprocess.run(
            [sys.executable, "-m", "florhook", "--home", str(home), "runs"], capture_output=True, text=True
        )
        if listed.returncode or any(run.id not in listed.stdout for run in runs):
            yield f"florhook runs: {listed}"
    except FlorError as error:
        if "is no store" not in str(error) and "is empty" not in str(error):
            yield str(error)


@contextmanager
def slowed(pid: int, share: float) -> Iterator[None]:
    """Lets a process run for that share of the time only, as one that waits for a slow disk."""
    code = (
        "import os, signal, sys, time\n"
        "while True:\n"
        "    os.kill(int(sys.argv[1]), signal.SIGSTOP); time.sleep(0.2 * (1 - float(sys.argv[2])))\n"
        "    os.kill(int(sys.argv[1]), signal.SIGCONT); time.sleep(0.2 * float(sys.argv[2]))\n"
    )
    command = [sys.executable, "-S", "-c", code, str(pid), str(share)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
