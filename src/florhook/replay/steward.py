"""On another machine: checks that it is fit for a replay, runs one worker, and passes on what it says and prints.

The worker ends when the connection to the supervisor does.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import xxhash

from .. import __version__
from ..dataclass import asdict, dataclass
from ..errors import FlorError
from ..runs import new_id
from ..runtime import trackers
from ..runtime.entropy import version_of_python
from ..settings import from_sources
from ..store import remote
from ..store.home import catalog_path
from .relay import Frame, What, introduce, notice_silence
from .share import KEPT

TICK = 0.02  # seconds between looks at what the worker prints
TIMEOUT = 60.0  # seconds for a connection to the supervisor
LIBRARIES = ("torch", "numpy")  # of whose versions the results depend


@dataclass(frozen=True)
class Job:
    """All that a worker on another machine needs to know. It travels as plain data (`as_plain`)."""

    hosts: list[str]
    port: int
    secret: str
    number: int
    command: list[str]  # without the interpreter
    home: str  # of the store: a folder or a URL
    cwd: str
    task: dict[str, Any]
    given: dict[str, str]  # variables that the worker must have
    others: dict[str, str]  # those that it gets where its machine does not set them
    versions: dict[str, str]
    sources: dict[str, str]  # digests of the program's files
    force: bool

    def as_plain(self) -> dict[str, Any]:
        """What `Job(**plain)` makes the same of."""
        return asdict(self)


def versions_here() -> dict[str, str]:
    """Of Python, florhook and the libraries that are installed."""
    found = {"Python": version_of_python(), "florhook": __version__}
    for library in LIBRARIES:
        try:
            found[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    return found


def digest_of(path: str) -> str:
    """Of a file's content; empty where it cannot be read."""
    try:
        return xxhash.xxh3_128_hexdigest(Path(path).read_bytes())
    except OSError:
        return ""


def work(plain: Mapping[str, Any]) -> None:
    """Do a job; what an executor calls on the other machine."""
    job = Job(**plain)
    # An error of the connection means that the supervisor is gone, which needs no answer.
    with _connected(job) as sock, contextlib.suppress(ConnectionError, TimeoutError):
        reason = unfit(job)
        if reason is None:
            _Steward(job, sock).run()
        else:
            sock.sendall(_refusal(reason))


def _refusal(reason: str) -> bytes:
    text = f"this cannot be replayed on {socket.gethostname()}: {reason}"
    return Frame(What.REFUSES, 0, text.encode()).encoded()


def unfit(job: Job) -> str | None:
    """Why this machine cannot replay that; None where it can."""
    here = versions_here()
    for name, wanted in job.versions.items():
        if here.get(name) != wanted and not job.force:
            return f"{name} is {here.get(name, 'not installed')}, and {wanted} where the replay was started"
    if not os.path.isdir(job.cwd):
        return f"the working folder {job.cwd} is missing"
    for path, digest in job.sources.items():
        found = digest_of(os.path.join(job.cwd, path))
        if found != digest:
            return f"{path} {'is another version' if found else 'is missing'}"
    if "://" not in job.home and not catalog_path(Path(job.home)).exists():
        return f"the store {job.home} is missing: it has to be in a shared folder, or at a URL"
    return None


def _connected(job: Job) -> socket.socket:
    problem: OSError = ConnectionError("no address was given")
    for host in job.hosts:
        try:
            sock = socket.create_connection((host, job.port), TIMEOUT)
            introduce(sock, job.secret, job.number)
        except OSError as error:
            problem = error
            continue
        sock.settimeout(None)
        notice_silence(sock)
        return sock
    raise ConnectionError(f"the replay that asked for this worker cannot be reached: {problem}")


class _Steward:
    """One worker, and the connection."""

    def __init__(self, job: Job, sock: socket.socket) -> None:
        self.job, self.sock = job, sock
        self._environment = {**job.others, **os.environ, **job.given, "FLOR_HOME": job.home}
        self._sent: dict[str, int] = {}  # bytes, by name of a file

    def run(self) -> None:
        """Until the worker has ended, or the supervisor has."""
        try:
            home = self._reach()
        except FlorError as error:
            self.sock.sendall(_refusal(str(error)))
            return
        self.folder = home / "replays" / f"{new_id()}-{self.job.number}"
        self.folder.mkdir(parents=True, mode=0o700)
        worker, status = self._start()
        try:
            with status:
                self._pass_on(worker, status)
        finally:
            worker.kill()
            worker.wait()
            self._clean()

    def _clean(self) -> None:
        """The overlay stays with the replay; where the store is at a URL, nobody would find it here."""
        if "://" in self.job.home:
            shutil.rmtree(self.folder, ignore_errors=True)
        for name in self._sent:
            with contextlib.suppress(OSError):
                os.unlink(self.folder / name)

    def _reach(self) -> Path:
        """The folder of the store, with the records that are new at its URL."""
        settings = from_sources(self._environment, {}, Path(self.job.cwd))
        if settings.remote is not None:
            remote.attach(settings.home, settings.remote)
            remote.refresh(settings.home)
        return settings.home

    def _start(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair()
        overlay = self.folder / "overlay"
        overlay.mkdir(mode=0o700)
        share = {**self.job.task["share"], "folder": str(self.folder)}
        task = {**self.job.task, "status": theirs.fileno(), "share": share, "overlay": str(overlay)}
        offline = trackers.environment(overlay / trackers.SCRATCH, os.environ, self.job.task["trackers"])
        with theirs:
            worker = subprocess.Popen(
                [sys.executable, *self.job.command],
                cwd=self.job.cwd,
                env={**self._environment, **offline, "FLORHOOK_TASK": json.dumps(task)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        return worker, ours

    def _pass_on(self, worker: subprocess.Popen[bytes], status: socket.socket) -> None:
        assert worker.stderr is not None
        errors = worker.stderr.fileno()
        said = bytearray()
        with selectors.DefaultSelector() as selector:
            for source in (status, errors, self.sock):
                selector.register(source, selectors.EVENT_READ)
            while selector.get_map().keys() & {status.fileno(), errors}:
                ready = [key.fd for key, _ in selector.select(TICK)]
                self._send_files()
                if self.sock.fileno() in ready:
                    answer = self.sock.recv(1 << 10)
                    if not answer:
                        return  # the supervisor is gone
                    _answer(status, answer)
                if errors in ready:
                    text = os.read(errors, 1 << 16)
                    self._send(What.ERRORS, text)
                    if not text:
                        selector.unregister(errors)
                if status.fileno() in ready and not self._hear(status, said):
                    selector.unregister(status)
        self._send_files()
        self._send(What.ENDED, number=worker.wait())

    def _hear(self, status: socket.socket, said: bytearray) -> bool:
        """What the worker says goes on by whole lines, behind what it had printed before; False at its end."""
        try:
            more = status.recv(1 << 20)
        except OSError:
            return False
        said += more
        whole = said.rfind(b"\n") + 1
        self._send_files()
        self._send(What.SAYS, bytes(said[:whole]))
        del said[:whole]
        return bool(more)

    def _send_files(self) -> None:
        for entry in os.scandir(self.folder):
            number = entry.name.removesuffix(KEPT)
            if not number.isdecimal():
                continue
            with open(entry.path, "rb") as file:
                file.seek(self._sent.get(entry.name, 0))
                data = file.read()
            self._sent[entry.name] = self._sent.get(entry.name, 0) + len(data)
            self._send(What.PRINTS if number == entry.name else What.KEEPS, data, int(number))

    def _send(self, what: What, data: bytes = b"", number: int = 0) -> None:
        if data or what is What.ENDED:
            self.sock.sendall(Frame(what, number, data).encoded())


def _answer(status: socket.socket, answer: bytes) -> None:
    with contextlib.suppress(OSError):  # the worker has ended
        status.sendall(answer)
