"""Workers on other machines, as the pool's process sees them: each looks like one that was started here.

What a worker's steward sends lands where a local worker would have put it: output in the files of the pool's folder,
lines in the socket of the pool's hand, stderr on stderr.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import signal
import socket
import threading
from pathlib import Path
from typing import Protocol

from .relay import Frame, What, challenge, frames, line, notice_silence
from .share import KEPT

LOOK = 0.25  # seconds between looks at a job that has not called yet
HELLO = 10.0  # seconds for a caller to say who it is
ENDING = 5.0  # seconds for a job to be called off


class Job(Protocol):
    """What was handed to a cluster."""

    def problem(self) -> str | None:
        """Why it will not call any more; None while it runs or waits for its turn."""

    def cancel(self) -> None:
        """Call it off, or end it."""


class Switchboard:
    """Where the stewards of one replay call: at all addresses of this machine, or at `host`."""

    def __init__(self, host: str | None = None) -> None:
        self.secret = secrets.token_hex(32)
        self._socket = socket.create_server((host or "", 0))
        self.port = int(self._socket.getsockname()[1])
        self.hosts = [host] if host else _addresses()
        self._workers: dict[int, WorkerAway] = {}
        threading.Thread(target=self._answer_calls, daemon=True).start()

    def expect(self, number: int, worker: WorkerAway) -> None:
        """That a worker's steward will call, once."""
        self._workers[number] = worker

    def close(self) -> None:
        """Answer no call any more."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._socket.close()

    def _answer_calls(self) -> None:
        while True:
            try:
                sock, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(sock,), daemon=True).start()

    def _answer(self, sock: socket.socket) -> None:
        try:
            sock.settimeout(HELLO)
            number = challenge(sock, self.secret)
            sock.settimeout(None)
            notice_silence(sock)
        except OSError:
            number = None
        worker = None if number is None else self._workers.pop(number, None)
        if worker is None:
            sock.close()
        else:
            worker.called(sock)


class WorkerAway:
    """One worker; the pool uses it as a process (`wait`, `kill`, `returncode`)."""

    def __init__(self, status: socket.socket, folder: Path) -> None:
        """`status` is the worker's end of the pool's socket, `folder` has the items' output."""
        self.returncode: int | None = None
        self._status, self._folder = status, folder
        self._call: socket.socket | None = None
        self._rang, self._stopped = threading.Event(), threading.Event()
        self._job: Job | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def begin(self, job: Job) -> None:
        """The job was handed to the cluster."""
        self._job = job
        self._thread.start()

    def called(self, sock: socket.socket) -> None:
        """The steward is there."""
        self._call = sock
        self._rang.set()

    def kill(self) -> None:
        """End it; does not wait."""
        self._stopped.set()
        if self._call is None:
            self._cancel()
        else:
            self._shut(socket.SHUT_WR)  # its steward ends it, and hangs up

    def wait(self) -> int:
        """Its exit status, once it has ended; that of a killed process where nobody knows."""
        self._thread.join(ENDING if self._stopped.is_set() else None)
        if self._thread.is_alive():
            self._cancel()
            self._shut(socket.SHUT_RDWR)
        return -signal.SIGKILL if self.returncode is None else self.returncode

    def _cancel(self) -> None:
        with contextlib.suppress(Exception):  # of the cluster's: the job has ended, mostly
            self._begun().cancel()

    def _shut(self, how: int) -> None:
        with contextlib.suppress(OSError):
            if self._call is not None:
                self._call.shutdown(how)

    def _begun(self) -> Job:
        assert self._job is not None
        return self._job

    def _serve(self) -> None:
        try:
            while not self._rang.wait(LOOK):
                problem = self._begun().problem()
                if self._stopped.is_set():
                    return
                if problem is not None and not self._rang.is_set():
                    self._status.sendall(line(refused=problem))
                    return
            if not self._stopped.is_set():
                self._relay()
        except OSError:
            pass  # the connection broke: a worker that is gone, like one that was killed
        finally:
            if self.returncode is None:
                self.returncode = -signal.SIGKILL
            if self._call is not None:
                self._call.close()
            self._status.close()  # tells the pool

    def _relay(self) -> None:
        assert self._call is not None
        buffer = bytearray()
        with selectors.DefaultSelector() as selector:
            for source in (self._call, self._status):
                selector.register(source, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    data = key.fileobj.recv(1 << 20)  # type: ignore[union-attr]
                    if key.fileobj is self._status:
                        if not data:
                            selector.unregister(self._status)
                        elif not self._stopped.is_set():
                            self._call.sendall(data)
                        continue
                    buffer += data
                    for frame in frames(buffer):
                        if not self._stopped.is_set():
                            self._take(frame)
                    if not data:
                        return

    def _take(self, frame: Frame) -> None:
        if frame.what is What.SAYS:
            self._status.sendall(frame.data)
        elif frame.what is What.REFUSES:
            self._status.sendall(line(refused=frame.data.decode()))
        elif frame.what is What.ERRORS:
            with contextlib.suppress(OSError):
                os.write(2, frame.data)
        elif frame.what is What.ENDED:
            self.returncode = frame.number
        else:
            name = f"{frame.number}{KEPT if frame.what is What.KEEPS else ''}"
            with open(self._folder / name, "ab") as file:
                file.write(frame.data)


def _addresses() -> list[str]:
    """Under which other machines may find this one: its name, and the address that its packets have."""
    found = [socket.getfqdn(), socket.gethostname()]
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing; an address of the documentation's (RFC 5737)
        found.append(probe.getsockname()[0])
    return list(dict.fromkeys([*found, "127.0.0.1"]))
