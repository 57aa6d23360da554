"""A store whose bytes are elsewhere: a folder that stands for a URL, and the helper processes that move its bytes.

The folder is a store like any other, used by all as it is. A file in it, `remote`, has the URL. What talks to the URL
(`bucket.py`, `transfer.py`) runs in processes of its own, or in the command line before anything is opened: neither the
training process nor a replayed program ever imports fsspec, which brings threads and an event loop.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from florhook.errors import StoreError
from florhook.settings import without_password
from florhook.store import spawn

FAR = "far-"  # how the names of pack files begin that are at the URL
NOT_INSTALLED = "fsspec is not installed; pip install 'florhook[remote]'"
_BOOTSTRAP = (
    "import os, sys; os.nice(int(sys.argv[1])); sys.path += sys.argv[4:]; "
    "from florhook.store.remote import main; sys.exit(main(*sys.argv[2:4]))"
)
_FAILED = 1  # exit status of a helper that said why


def attach(home: Path, url: str) -> None:
    """Makes the folder stand for the URL. OSError where that cannot be."""
    if url_of(home) == url:
        return
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = home / f"remote.{os.getpid()}"
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(url)
    draft.replace(home / "remote")


def url_of(home: Path) -> str | None:
    """What a folder stands for; None for one that stands for itself."""
    try:
        return (home / "remote").read_text()
    except OSError:
        return None


def fetched_path(home: Path) -> Path:
    """Where pack files lie that were fetched. Any of them may be removed: it is fetched again."""
    return home / "fetched"


def status_path(home: Path) -> Path:
    """What the uploading process says of itself: JSON with `error`, `sent` (bytes by run) and `pid`."""
    return home / "upload.json"


def start_upload(home: Path) -> None:
    """Starts the process that uploads, which stays until nothing is left; several take turns."""
    spawn.run_detached(_command("19", "stay", home))


def fetch(home: Path, names: Iterable[str]) -> None:
    """Brings pack files. StoreError when that fails, as of all that follow."""
    _call("fetch", home, names)


def refresh(home: Path) -> list[str]:
    """Brings the records of runs that are new at the URL; says of which that was not possible, and why."""
    return _call("refresh", home)


def push(home: Path) -> list[str]:
    """Uploads what is left; says what it was."""
    return _call("push", home)


def withdraw(home: Path, runs: Iterable[str]) -> list[str]:
    """Takes runs away from the URL; says which are not taken, and why."""
    return _call("withdraw", home, runs)


def _call(what: str, home: Path, words: Iterable[str] = ()) -> list[str]:
    """The lines that a helper prints; its last words are the error where it fails."""
    done = subprocess.run(
        _command("0", what, home),
        input="\n".join(words),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd="/",
        env=spawn.writer_environment(os.environ),
    )
    lines = done.stdout.splitlines()
    if done.returncode:
        raise StoreError(lines[-1] if lines else f"{named(home)}: the process that talks to it has died")
    return lines


def _command(nice: str, what: str, home: Path) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", _BOOTSTRAP, nice, what, str(home), *spawn.import_folders()]


def named(home: Path) -> str:
    """The URL, as messages of what is wrong name it."""
    return f"FLOR_HOME={shown(home)}"


def shown(home: Path) -> str:
    """The URL as it may be shown."""
    return without_password(url_of(home) or "")


def farewell(home: Path, run: str, since: float, written: int) -> str:
    """At the end of a recording: what is left to upload. `since` is when the run began, `written` its bytes."""
    error, sent = None, {}
    try:
        if status_path(home).stat().st_mtime >= since:
            status = json.loads(status_path(home).read_text())
            error, sent = status["error"], status["sent"]
    except (OSError, ValueError):
        pass  # it has not begun
    if error is None and find_spec("fsspec") is None:
        error = f"{named(home)}: {NOT_INSTALLED}"
    left = f"{max(0, written - sent.get(run, 0)) / 1e6:.1f} MB"
    if error is not None:
        return (
            f"{error}; the run is kept in {home}, {left} are left for the next recording, or `florhook push`"
        )
    return f"{left} and the end of the record are being uploaded to {shown(home)}; that goes on in the background"


def main(what: str, home: str) -> int:
    """A helper process: what it has to say goes to stdout; the exit status."""
    from florhook.store import transfer

    os.umask(0o077)
    try:
        for line in transfer.COMMANDS[what](Path(home), sys.stdin.read().split()) or ():
            print(line)
    except StoreError as error:
        print(error)
        return _FAILED
    except Exception as error:
        print(f"{named(Path(home))}: internal error: {type(error).__name__}: {error}; please report it")
        return _FAILED
    return 0
