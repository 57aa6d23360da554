"""Starts the writer process: out of the program's sight, and without waiting until it runs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from florhook.descriptors import moved_up

# Niceness comes first: the imports already compete with the program's own start.
_BOOTSTRAP = (
    "import gc, os, sys; os.nice(19); sys.path += sys.argv[5:]; gc.disable(); "
    "from florhook.store.writer import main; gc.enable(); main(*sys.argv[1:5])"
)
# Through a shell that leaves at once, as the writer must be no child of the program: `os.wait()` would find it.
_SHELL = "/bin/sh"
_DETACH = '"$@" &'


def start_writer(home: Path, sock: socket.socket, lock: int) -> None:
    """Starts the writer of the store with its end of the socket and the locked descriptor of the run."""
    pidfd = _own_pidfd()
    fds = [fd for fd in (sock.fileno(), lock, pidfd) if fd >= 0]
    arguments = [str(sock.fileno()), str(lock), str(pidfd), str(home)]
    command = [sys.executable, "-I", "-S", "-c", _BOOTSTRAP, *arguments, *import_folders()]
    try:
        run_detached(command, fds)
    finally:
        if pidfd >= 0:
            os.close(pidfd)


def run_detached(command: list[str], fds: Sequence[int] = ()) -> None:
    """Starts a process that is nobody's child and has no terminal."""
    detached = os.access(_SHELL, os.X_OK)
    process = subprocess.Popen(
        [_SHELL, "-c", _DETACH, "florhook", *command] if detached else command,
        pass_fds=fds,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=writer_environment(os.environ),
        start_new_session=True,  # the terminal's signals are not for it
    )
    if detached:
        process.wait()
    else:
        process.returncode = 0  # keeps Popen from waiting for it when it is collected


def _own_pidfd() -> int:
    # End of file on the socket may be late, as processes forked by C code hold it too; this cannot be.
    try:
        return moved_up(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return -1


def writer_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the writer: nothing that steers Python, and florhook itself kept out."""
    kept = {name: value for name, value in environ.items() if not name.startswith("PYTHON")}
    if kept.get("FLOR_KEY"):
        kept["FLOR_KEY"] = os.path.abspath(kept["FLOR_KEY"])  # it runs in another folder
    return {**kept, "FLOR_INERT": "1"}


def import_folders() -> list[str]:
    """The folders from which the writer imports: the parents of florhook, xxhash and zstandard.

    After them those of all installed packages, where fsspec may be.
    """
    folders = []
    for name in ("florhook", "xxhash", "zstandard"):
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"{name} is not installed")
        folders.append(str(Path(spec.origin).absolute().parent.parent))
    installed = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    return list(dict.fromkeys([*folders, *installed]))
