"""A store at a URL: what one machine records another one replays, whatever is killed, missing or torn on the way.

A machine is here a cache folder. What a run prints is compared with a plain run of the edited program.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import random
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT, Flor

from florhook.errors import StoreError, UsageError
from florhook.settings import from_sources
from florhook.store import home as homes
from florhook.store import remote
from florhook.store.collect import Request, collect
from florhook.store.recording import Recording
from florhook.store.rows import CheckpointRow, Piece, RunRow
from florhook.store.store import Store

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("fsspec") is None, reason="fsspec is not installed"),
    pytest.mark.usefixtures("own_key"),
]
KILLS = int(os.environ.get("FLOR_KILLS", "2"))

PROGRAM = """
    import time

    weights = [0.0] * 2000
    large = bytearray(200_000)
    for epoch in range(5):
        for i in range(len(weights)):
            weights[i] += epoch / 2
        large[epoch] = epoch + 1
        time.sleep(0.02)
        print("epoch", epoch, sum(weights))
"""
PROBE = '    print("probe", epoch, list(large[:6]), weights[7])\n'


class Machine:
    """A user's machine with a copy of the program, and a cache of its own."""

    def __init__(self, folder: Path, url: str, **environ: str) -> None:
        self.flor = Flor(folder / "program", folder)
        self.flor.folder.mkdir(parents=True)
        self.flor.write("train.py", PROGRAM)
        self.url, self.environ = url, {"XDG_CACHE_HOME": str(folder / "cache"), **environ}

    @property
    def home(self) -> Path:
        (home,) = (Path(self.environ["XDG_CACHE_HOME"]) / "florhook").iterdir()
        return home

    def __call__(self, *words: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return self.flor(*words, **{"FLOR_HOME": self.url, **self.environ, **changes})

    def record(self, **changes: str) -> subprocess.CompletedProcess[str]:
        return self("train.py", FLOR_EPSILON="inf", **changes)

    def add_probe(self) -> None:
        path = self.flor.folder / "train.py"
        text = path.read_text()
        path.write_text(text.replace("    print", PROBE + "    print"))

    def probed(self) -> str:
        """What a plain run prints that stands in lines of the probe."""
        plain = self.flor.python("train.py").stdout
        return "".join(line for line in plain.splitlines(True) if line.startswith("probe"))

    def wait_for_upload(self) -> None:
        """Until the process that uploads has nothing left."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.closing(sqlite3.connect(self.home / "sent.sqlite", timeout=30)) as db:
                db.execute("ATTACH ? AS store", (str(self.home / "catalog.sqlite"),))
                with contextlib.suppress(sqlite3.OperationalError):  # not there yet
                    (left,) = db.execute(
                        "SELECT count(*) FROM store.runs"
                        " WHERE id NOT IN (SELECT id FROM main.runs WHERE whole OR NOT ours)"
                    ).fetchone()
                    if not left:
                        return
            time.sleep(0.1)
        raise AssertionError(f"not uploaded: {self.status()}")

    def objects(self, folder: str) -> list[Path]:
        return sorted((Path(self.url.removeprefix("file://")) / folder).glob("*"))

    def status(self) -> str:
        try:
            return json.loads((self.home / "upload.json").read_text())["error"] or ""
        except (OSError, ValueError):
            return "nothing"

    def end_upload(self) -> None:
        """Kills the process that would try for minutes, once it has said why."""
        deadline = time.monotonic() + 60
        while self.status() in ("", "nothing") and time.monotonic() < deadline:
            time.sleep(0.1)
        os.kill(json.loads((self.home / "upload.json").read_text())["pid"], signal.SIGKILL)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/bucket/prefix"


def machine(tmp_path: Path, name: str, url: str, **environ: str) -> Machine:
    return Machine(tmp_path / name, url, **environ)


# Settings --------------------------------------------------------------------------------------------------


def test_a_url_has_a_cache_folder(tmp_path: Path) -> None:
    """One for each URL, with a readable name that does not tell the password."""
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    one, two = (
        from_sources({**environ, "FLOR_HOME": f"sftp://me:secret@host/{name}/"}, {}, tmp_path)
        for name in "ab"
    )
    assert one.remote == "sftp://me:secret@host/a"
    assert one.home.parent == two.home.parent == tmp_path / "florhook"
    assert re.fullmatch(r"sftp-host-a-[0-9a-f]{10}", one.home.name)
    assert one.home != two.home
    assert from_sources({**environ, "FLOR_HOME": "store"}, {}, tmp_path).remote is None


@pytest.mark.parametrize(
    "text", ["s3://", "s3:///x", "://x", "memory://", "file://x", "simplecache::s3://b/x"]
)
def test_what_is_no_url(text: str, tmp_path: Path) -> None:
    """One line names the variable and what would be right."""
    with pytest.raises(UsageError, match=r"FLOR_HOME.*(s3://bucket/prefix|file:///x)"):
        from_sources({"FLOR_HOME": text}, {}, tmp_path)


def test_commands_that_need_a_url(flor: Flor) -> None:
    """`push` of a folder is wrong usage."""
    done = flor("push")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("florhook: push is for a store at a URL")
    assert done.stderr.count("\n") == 1


# From machine to machine -----------------------------------------------------------------------------------


def test_record_here_replay_there(tmp_path: Path, url: str) -> None:
    """The other machine has nothing but the URL and the key; recording says one line more."""
    here, there = machine(tmp_path, "here", url), machine(tmp_path, "there", url)
    plain = here.flor.python("train.py")
    done = here.record()
    assert (done.stdout, done.returncode) == (plain.stdout, 0)
    assert re.fullmatch(rf"florhook: \d+\.\d MB and the end .* uploaded to {url}; .*\n", done.stderr)
    here.wait_for_upload()
    shown = there("runs")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout == here("runs").stdout
    assert not (there.home / "fetched").exists()
    assert there("show").stdout == here("show").stdout
    there.add_probe()
    for workers in ("1", "2"):
        replay = there(
            "train.py", FLOR_MODE="replay", FLOR_WORKERS=workers, FLOR_STATS=str(tmp_path / "stats")
        )
        assert (replay.stdout, replay.stderr, replay.returncode) == (there.probed(), "", 0)
    assert json.loads((tmp_path / "stats").read_text())["jumps"] > 0
    shutil.rmtree(there.home / "fetched")  # it is fetched again
    assert there("train.py", FLOR_MODE="replay").stdout == there.probed()
    assert not list(tmp_path.rglob("program/.florhook"))


def test_only_what_is_asked_for_is_fetched(tmp_path: Path, url: str) -> None:
    """The large pieces stay where they are until a checkpoint is restored."""
    here, there = machine(tmp_path, "here", url), machine(tmp_path, "there", url)
    here.record()
    here.wait_for_upload()
    there("show")
    fetched = [path.stat().st_size for path in (there.home / "fetched").iterdir()]
    everything = [path.stat().st_size for path in here.objects("packs")]
    assert len(fetched) == 1
    assert fetched[0] < 100_000 < max(everything)


def test_another_key(tmp_path: Path, url: str) -> None:
    """What another key has signed is not restored without --trust; FLOR_KEY names a key that both have."""
    here = machine(tmp_path, "here", url)
    there = machine(tmp_path, "there", url, XDG_CONFIG_HOME=str(tmp_path / "other"))
    here.record()
    here.wait_for_upload()
    there.add_probe()
    replay = there("train.py", FLOR_MODE="replay")
    assert (replay.stdout, replay.returncode) == (there.probed(), 0)
    assert "not signed by this user" in replay.stderr
    key = tmp_path / "config" / "florhook" / "key"
    for words, changes in ((["--trust"], {}), ([], {"FLOR_KEY": os.path.relpath(key, there.flor.folder)})):
        replay = there(*words, "train.py", FLOR_MODE="replay", **changes)
        assert (replay.stdout, replay.stderr) == (there.probed(), "")


def test_resume_on_another_machine(tmp_path: Path, url: str) -> None:
    """A crashed run goes on elsewhere; a third machine replays the whole, from what two have uploaded."""
    here, there, third = (machine(tmp_path, name, url) for name in ("here", "there", "third"))
    crash = "    if epoch == 3:\n        import os; '/here/' in os.getcwd() and os._exit(7)\n"
    for each in (here, there, third):
        path = each.flor.folder / "train.py"
        path.write_text(path.read_text().replace("    print", crash + "    print"))
    assert here.record().returncode == 7
    here.wait_for_upload()
    plain = there.flor.python("train.py")
    resumed = there("train.py", FLOR_MODE="resume", FLOR_EPSILON="inf")
    assert (resumed.stdout, resumed.returncode) == (plain.stdout, 0)
    there.wait_for_upload()
    assert third("runs").stdout == there("runs").stdout
    third.add_probe()
    replay = third("train.py", FLOR_MODE="replay")
    assert (replay.stderr, replay.stdout) == ("", third.probed())


def test_memory_filesystem_in_one_process(tmp_path: Path) -> None:
    """Any fsspec URL will do: here is one that lives in this process, so that only calls in it see it."""
    from florhook.store import transfer

    here, there = tmp_path / "here", tmp_path / "there"
    for home in (here, there):
        remote.attach(home, f"memory://{tmp_path.name}/store")
    write(here, "a", 3)
    assert [line.endswith(f"uploaded to memory://{tmp_path.name}/store") for line in transfer.push(here)] == [
        True
    ]
    assert list(transfer.refresh(there)) == []
    with Store.open(there) as store:
        packs = [name for (name,) in store.connection.execute("SELECT name FROM packs")]
        transfer.fetch(there, packs)
        assert check(store, "a") == [0, 1, 2]


# Through the store's own interface -------------------------------------------------------------------------


def state(run: str, number: int) -> list[bytes]:
    """Bytes that are known from their name: a stream, a large leaf, a small one, and one that never changes."""
    sizes = {"stream": 900, "leaf": 150_000, "small": 3000}
    parts = [
        hashlib.shake_128(f"{run} {name} {number}".encode()).digest(size) for name, size in sizes.items()
    ]
    return [*parts, hashlib.shake_128(b"shared").digest(70_000)]


def take(recording: Recording, run: str, number: int) -> bool:
    pieces = [Piece(index, memoryview(part), index == 0) for index, part in enumerate(state(run, number))]
    return recording.checkpoint(CheckpointRow(1, number, float(number), 0, "{}"), pieces)


def write(home: Path, run: str, count: int) -> None:
    """A run that ended, of which nothing is uploaded yet."""
    url = (home / "remote").read_text()
    (home / "remote").unlink()  # the writer would begin to upload
    recording = Recording.start(home, RunRow(run, "train.py", (), "/w", time.time()), 64 << 20)
    for number in range(count):
        assert take(recording, run, number)
    assert recording.finish(time.time(), 0, {}, 30)
    assert homes.wait(home, run, 30)
    remote.attach(home, url)


def check(store: Store, run: str) -> list[int]:
    """Which checkpoints a run has; all of them read back, signed."""
    found = store.checkpoints(run)
    store.fetch({digest for checkpoint in found for digest in checkpoint.digests})
    for checkpoint in found:
        contents = [bytes(store.read(digest)) for digest in checkpoint.digests]
        assert contents == state(run, checkpoint.iteration)
        assert store.trusted(run, checkpoint)
    return [checkpoint.iteration for checkpoint in found]


def read_elsewhere(folder: Path, url: str) -> dict[str, list[int]]:
    """What a machine that has nothing finds at the URL: checkpoints by run."""
    remote.attach(folder, url)
    assert remote.refresh(folder) == []
    if not homes.catalog_path(folder).exists():
        return {}
    with Store.open(folder) as store:
        return {run.id: check(store, run.id) for run in store.runs()}


def attached(home: Path, url: str) -> Path:
    remote.attach(home, url)
    return home


def objects(url: str, folder: str) -> list[Path]:
    return sorted((Path(url.removeprefix("file://")) / folder).iterdir())


def test_a_second_upload_has_nothing_to_do(tmp_path: Path, url: str) -> None:
    """What is there is not written again, also where it was forgotten what was uploaded; shared bytes go once."""
    home = attached(tmp_path / "here", url)
    write(home, "a", 2)
    assert remote.push(home) == [f"0.4 MB uploaded to {url}"]  # 2 x 153.9 KB and 70 KB
    before = {path: path.stat().st_mtime_ns for path in objects(url, "packs") + objects(url, "runs")}
    assert remote.push(home) == [f"0.0 MB uploaded to {url}"]
    write(home, "b", 1)
    assert remote.push(home) == [f"0.2 MB uploaded to {url}"]
    assert before == {path: path.stat().st_mtime_ns for path in before}
    assert read_elsewhere(tmp_path / "there", url) == {"a": [0, 1], "b": [0]}
    assert sum(path.stat().st_size for path in objects(url, "packs")) < 3 * 155_000 + 71_000


def test_an_emptied_bucket_is_filled_again(tmp_path: Path, url: str) -> None:
    """What was uploaded is believed only as long as it is there."""
    home = attached(tmp_path / "here", url)
    write(home, "a", 2)
    remote.push(home)
    for path in [*objects(url, "packs"), *objects(url, "runs")]:
        path.unlink()
    remote.push(home)
    assert read_elsewhere(tmp_path / "there", url) == {"a": [0, 1]}


def test_torn_objects(tmp_path: Path, url: str) -> None:
    """A torn catalog is left out, and an older whole one taken; the next upload mends what is torn."""
    home = attached(tmp_path / "here", url)
    write(home, "a", 2)
    remote.push(home)
    (catalog,) = objects(url, "runs")
    torn = catalog.with_name("a.000002-" + "0" * 32 + ".sqlite")
    torn.write_bytes(catalog.read_bytes()[:5000])
    assert read_elsewhere(tmp_path / "second", url) == {"a": [0, 1]}
    os.truncate(catalog, 7000)
    torn.unlink()
    third = attached(tmp_path / "third", url)
    assert remote.refresh(third) == [f"run a at {url} is left out: {catalog.name} is not whole"]
    for path in objects(url, "packs"):
        os.truncate(path, 100)
    (home / "sent.sqlite").unlink()
    remote.push(home)
    assert read_elsewhere(third, url) == {"a": [0, 1]}


def test_what_is_foreign_at_the_url(tmp_path: Path, url: str) -> None:
    """Other objects do not matter; a catalog that names files outside, or none at all, is left out with the reason."""
    home = attached(tmp_path / "here", url)
    write(home, "a", 1)
    remote.push(home)
    folder = objects(url, "runs")[0].parent
    (folder / "notes.txt").write_text("mine")
    for run, content in (("b", b"no database at all"), ("../c", b"")):
        digest = hashlib.blake2b(content).hexdigest()
        with contextlib.suppress(OSError):
            (folder / f"{run}.000001-{digest[:32]}.sqlite").write_bytes(content)
    import xxhash

    bad = folder / f"d.000001-{xxhash.xxh3_128_hexdigest(b'no database' * 100)}.sqlite"
    bad.write_bytes(b"no database" * 100)
    there = attached(tmp_path / "there", url)
    said = remote.refresh(there)
    assert [line.partition(" at ")[0] for line in sorted(said)] == ["run b", "run d"]
    assert "it cannot be read: file is not a database" in said[-1]
    with Store.open(there) as store:
        assert check(store, "a") == [0]
    with pytest.raises(StoreError, match="is no name of a pack file"):
        remote.fetch(there, ["../../etc/passwd"])


def test_differences_are_uploaded_as_wholes(tmp_path: Path, url: str) -> None:
    """After `gc --compact` and `gc --max-bytes`, what is left is uploaded, in a form that reads by itself."""
    home = attached(tmp_path / "here", url)
    (home / "remote").unlink()
    recording = Recording.start(home, RunRow("a", "train.py", (), "/w", time.time()), 64 << 20)
    base = hashlib.shake_128(b"base").digest(100_000)
    contents = [bytes([number]) + base[1:] for number in range(4)]
    for number, content in enumerate(contents):
        pieces = [Piece(0, memoryview(b"stream"), True), Piece(1, memoryview(content))]
        assert recording.checkpoint(CheckpointRow(1, number, float(number), 0, "{}"), pieces)
    assert recording.finish(time.time(), 0, {}, 30)
    assert homes.wait(home, "a", 30)
    assert collect(Request(home, compact=True)).after < 250_000
    remote.attach(home, url)
    remote.push(home)
    there = attached(tmp_path / "there", url)
    assert remote.refresh(there) == []
    with Store.open(there) as store:
        assert [bytes(store.read(row.digests[1])) for row in store.checkpoints("a")] == contents
    assert collect(Request(there, max_bytes=1)).thinned == {}  # what is elsewhere takes no room here


def test_deleted_runs(tmp_path: Path, url: str) -> None:
    """`gc --delete` takes the run away from the URL, with what no other run needs; another store's run stays."""
    here = machine(tmp_path, "here", url)
    there = machine(tmp_path, "there", url)
    here.record()
    here.wait_for_upload()
    there.record()
    there.wait_for_upload()
    mine, others = (line.split()[0] for line in here("runs").stdout.splitlines()[1:])
    before = {path.name for path in here.objects("packs")}
    done = here("gc", "--delete", mine, "--delete", others)
    assert done.returncode == 0
    assert done.stderr == f"florhook: run {others} was recorded in another store, and stays at {url}\n"
    assert [path.name.partition(".")[0] for path in here.objects("runs")] == [others]
    left = {path.name for path in here.objects("packs")}
    assert left < before
    there.add_probe()
    shutil.rmtree(there.home)
    assert there("train.py", FLOR_MODE="replay", FLOR_RUN=others).stdout == there.probed()
    assert len(here("runs").stdout.splitlines()) == 1


# Killed ----------------------------------------------------------------------------------------------------

TRAINING = """
import sys, time
sys.path.insert(0, sys.argv[1])
from test_remote import take
from pathlib import Path
from florhook.store.recording import Recording
from florhook.store.rows import RunRow

recording = Recording.start(Path(sys.argv[2]), RunRow(sys.argv[3], "train.py", (), "/w", time.time()), 64 << 20)
for number in range(10_000):
    if take(recording, sys.argv[3], number):
        print(number, flush=True)
    time.sleep(0.002)
"""
UPLOADING = """
import sys
from pathlib import Path
from florhook.store import transfer

transfer.OBJECT = 400_000
while True:
    print(*transfer.push(Path(sys.argv[1])), flush=True)
"""


def start(code: str, *words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, words)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(KILLS))
def test_killed(tmp_path: Path, url: str, number: int) -> None:
    """Training and uploads are killed at any moment: at the URL is what reads back, and the next upload ends it."""
    draw = random.Random(number)
    home = attached(tmp_path / "here", url)
    (home / "remote").unlink()
    training = start(TRAINING, ROOT / "tests", home, "a")
    assert training.stdout is not None
    training.stdout.readline()
    remote.attach(home, url)
    for again in range(3):
        uploading = start(UPLOADING, home)
        time.sleep(draw.uniform(0.2, 1.0))
        uploading.kill()
        uploading.communicate()
        read_elsewhere(tmp_path / f"there {again}", url)
    training.kill()
    training.communicate()
    assert homes.wait(home, "a", 30)
    remote.push(home)
    with Store.open(home) as store:
        expected = check(store, "a")
    assert len(expected) > 5
    assert read_elsewhere(tmp_path / "at the end", url) == {"a": expected}
    assert read_elsewhere(tmp_path / "there 0", url) == {"a": expected}


@pytest.mark.slow
def test_the_helper_uploads_while_training_goes_on(tmp_path: Path, url: str) -> None:
    """A run can be seen elsewhere before it has ended, and it is complete after training was killed."""
    home = attached(tmp_path / "here", url)
    training = start(TRAINING, ROOT / "tests", home, "a")
    deadline = time.monotonic() + 30
    while not read_elsewhere(tmp_path / "there", url).get("a") and time.monotonic() < deadline:
        time.sleep(0.2)
    assert training.poll() is None
    training.kill()
    training.communicate()
    assert homes.wait(home, "a", 30)
    with Store.open(home) as store:
        expected = [row.iteration for row in store.checkpoints("a")]
    while len(read_elsewhere(tmp_path / "there", url)["a"]) < len(expected) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert read_elsewhere(tmp_path / "there", url) == {"a": expected}


@pytest.mark.slow
def test_memory_is_bounded(tmp_path: Path, url: str) -> None:
    """A piece of 300 MB goes up and down in processes that take a third of that."""
    home = attached(tmp_path / "here", url)
    (home / "remote").unlink()
    recording = Recording.start(home, RunRow("a", "train.py", (), "/w", time.time()), 400 << 20)
    content = os.urandom(300_000_000)
    pieces = [Piece(0, memoryview(b"stream"), True), Piece(1, memoryview(content))]
    assert recording.checkpoint(CheckpointRow(1, 0, 0.0, 0, "{}"), pieces)
    assert recording.finish(time.time(), 0, {}, 60)
    assert homes.wait(home, "a", 60)
    remote.attach(home, url)
    code = (
        "import sys, resource; from pathlib import Path; from florhook.store import remote, home as homes\n"
        "from florhook.store.store import Store\n"
        "here, there, url = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]\n"
        "remote.push(here); remote.attach(there, url); remote.refresh(there)\n"
        "with Store.open(there) as store: store.fetch(store.checkpoints('a')[0].digests)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = start(code, home, tmp_path / "there", url)
    out, _ = done.communicate(timeout=100)
    assert int(out) * 1024 < 100_000_000
    with Store.open(tmp_path / "there") as store:
        assert store.read(store.checkpoints("a")[0].digests[1]) == content
    for folder in tmp_path.iterdir():  # pytest would keep a gigabyte
        shutil.rmtree(folder)


# What is not there -----------------------------------------------------------------------------------------


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def aws(endpoint: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_MAX_ATTEMPTS": "1",
        "NO_PROXY": "127.0.0.1",
    }


needs_s3 = pytest.mark.skipif(importlib.util.find_spec("s3fs") is None, reason="s3fs is not installed")
needs_moto = pytest.mark.skipif(importlib.util.find_spec("moto") is None, reason="moto is not installed")


@needs_s3
def test_nobody_answers(tmp_path: Path) -> None:
    """Training prints, ends and takes as long as without; it says one line, and the run is in the cache."""
    here = machine(tmp_path, "here", "s3://bucket/prefix", **aws(f"http://127.0.0.1:{closed_port()}"))
    plain = here.flor.python("train.py")
    began = time.monotonic()
    done = here.record()
    assert time.monotonic() - began < 20
    assert (done.stdout, done.returncode) == (plain.stdout, 0)
    assert done.stderr.startswith("florhook: ")
    assert done.stderr.count("\n") == 1
    here.end_upload()
    here.add_probe()
    replay = here("train.py", FLOR_MODE="replay")
    assert (replay.stdout, replay.returncode) == (here.probed(), 0)
    assert re.fullmatch(
        r"florhook: FLOR_HOME=s3://bucket/prefix: .*127.0.0.1.*; this is what .* has of it\n", replay.stderr
    )
    pushed = here("push")
    assert (pushed.returncode, pushed.stdout) == (3, "")
    assert pushed.stderr.count("\n") == 1


def test_the_end_says_what_is_wrong(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the uploading process has met is said at the end, with what to do; an old error is not."""
    home = attached(tmp_path / "here", url)
    remote.status_path(home).write_text(
        '{"error": "FLOR_HOME=u: access is denied", "sent": {"a": 1500000}, "pid": 1}'
    )
    now = time.time()
    assert remote.farewell(home, "a", now - 10, 4_000_000) == (
        f"FLOR_HOME=u: access is denied; the run is kept in {home}, "
        "2.5 MB are left for the next recording, or `florhook push`"
    )
    going_on = f"4.0 MB and the end of the record are being uploaded to {url}; that goes on in the background"
    assert remote.farewell(home, "a", now + 10, 4_000_000) == going_on
    monkeypatch.setattr(remote, "find_spec", lambda _: None)
    assert "fsspec is not installed; pip install 'florhook[remote]'" in remote.farewell(
        home, "a", now + 10, 1
    )


def test_without_fsspec(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is named, and so it is where fsspec does not know the protocol."""
    from florhook.store.bucket import Bucket

    with pytest.raises(StoreError, match="FLOR_HOME=nosuch://a: Protocol not known: nosuch"):
        Bucket("nosuch://a")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(
        StoreError, match=rf"FLOR_HOME={url}: fsspec is not installed; pip install 'florhook\[remote\]'"
    ):
        Bucket(url)


# A server that speaks S3 -----------------------------------------------------------------------------------

SERVER = """
import sys, time
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[str]:
    """The address of a server on loopback."""
    with (tmp_path / "server.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        server.kill()
        server.communicate()


@pytest.mark.slow
@needs_s3
@needs_moto
def test_s3(tmp_path: Path, s3: str) -> None:
    """No bucket: one line. With the bucket, `push` takes up what was left, and another machine replays it."""
    here, there = (machine(tmp_path, name, "s3://bucket/prefix", **aws(s3)) for name in ("here", "there"))
    assert here.record().returncode == 0
    here.end_upload()
    assert here.status() == (
        "FLOR_HOME=s3://bucket/prefix: there is no such bucket or folder: make it, or correct FLOR_HOME"
    )
    missing = there("runs")
    assert (missing.returncode, missing.stdout) == (3, "")
    assert missing.stderr == f"florhook: {here.status()}\n"
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        urllib.request.Request(f"{s3}/bucket", method="PUT")
    ).close()
    pushed = here("push")
    assert (pushed.returncode, pushed.stderr) == (0, "")
    assert re.fullmatch(r"\d+\.\d MB uploaded to s3://bucket/prefix\n", pushed.stdout)
    there.add_probe()
    replay = there("train.py", FLOR_MODE="replay")
    assert (replay.stdout, replay.stderr, replay.returncode) == (there.probed(), "", 0)
    nobody = replace(there.flor).python  # credentials missing
    environ = {name: value for name, value in there.environ.items() if not name.startswith("AWS_")}
    done = nobody(
        "-m",
        "florhook",
        "push",
        FLOR_HOME=there.url,
        **environ,
        AWS_EC2_METADATA_DISABLED="true",
        HOME=str(tmp_path),
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert "there are no credentials: set AWS_ACCESS_KEY_ID" in done.stderr
