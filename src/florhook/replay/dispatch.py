"""Hands the workers of a pool to a cluster: what each needs to know, where it calls, and who starts it."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..settings import Settings
from .away import Switchboard, WorkerAway
from .executors import EXECUTORS, Cluster
from .steward import Job, digest_of, versions_here

JOBS = "jobs"  # the folder for the cluster's own files, beside those of the pool


class Dispatch:
    """`sources` are the program's files; `given` are variables that each worker must have, `task` what it is told."""

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        task: Mapping[str, Any],
        given: Mapping[str, str],
        sources: list[str],
    ) -> None:
        cluster = Cluster.parsed(settings.cluster)
        self._folder, self._task = folder, task
        self._executor = EXECUTORS[settings.executor](cluster, folder.with_name(f"{folder.name}-{JOBS}"))
        self._switchboard = Switchboard(cluster.host)
        ours = {name: value for name, value in os.environ.items() if name.startswith("FLOR_")}
        self._common: dict[str, Any] = {
            "hosts": self._switchboard.hosts,
            "port": self._switchboard.port,
            "secret": self._switchboard.secret,
            "command": command(sys.orig_argv, sys.argv[0]),
            "home": settings.remote or str(settings.home),
            "cwd": os.getcwd(),
            "given": {**ours, **given},
            "others": {} if self._executor.hands_on_variables else dict(os.environ),
            "versions": versions_here(),
            "sources": {path: digest_of(path) for path in sources},
            "force": settings.force,
        }

    def start(self, task: Mapping[str, Any], stdin: int, number: int) -> WorkerAway:
        """A worker for the pool; it has no standard input, as what a cluster starts has none."""
        os.close(stdin)
        whole = {**self._task, **{name: value for name, value in task.items() if name != "status"}}
        job = Job(number=number, task=whole, **self._common)
        worker = WorkerAway(socket.socket(fileno=os.dup(task["status"])), self._folder)
        self._switchboard.expect(number, worker)
        worker.begin(self._executor.submit(job.as_plain()))
        return worker

    def close(self) -> None:
        """All workers have ended."""
        self._switchboard.close()
        self._executor.close()


def command(words: list[str], script: str) -> list[str]:
    """How a worker is started elsewhere: as this process was, without the interpreter and the place of our `script`."""
    options = words[1:]
    if os.path.basename(script) != "florhook" or script not in options:
        return options
    at = options.index(script)
    return [*options[:at], "-m", "florhook", *options[at + 1 :]]
