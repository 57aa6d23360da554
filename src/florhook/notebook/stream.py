"""Runs the command line in a process of its own, whose output becomes the notebook's."""

from __future__ import annotations

import codecs
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

CHUNK = 1 << 16  # bytes
HERE = str(Path(__file__).resolve().parent.parent.parent)  # where florhook is imported from


def run_florhook(words: Sequence[str], folder: str) -> int:
    """The exit status of `python -m florhook` with these words. An interrupt of the notebook is one of the process."""
    path = os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, "-m", "florhook", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            _pass_on([(process.stdout, sys.stdout), (process.stderr, sys.stderr)])
        except BaseException:
            os.killpg(process.pid, signal.SIGINT)
            raise
        return process.wait()


def _pass_on(pairs: Sequence[tuple[IO[bytes], Any]]) -> None:
    """Copy each stream to another as it comes, until all are at their ends."""
    with selectors.DefaultSelector() as selector:
        for source, target in pairs:
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            selector.register(source, selectors.EVENT_READ, (decoder, target))
        while selector.get_map():
            for key, _ in selector.select():
                data = os.read(key.fd, CHUNK)
                decoder, target = key.data
                target.write(decoder.decode(data, final=not data))
                target.flush()
                if not data:
                    selector.unregister(key.fileobj)
