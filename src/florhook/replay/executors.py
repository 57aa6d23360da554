"""Clusters on which the workers of a replay can run: Ray, and Slurm by submitit.

A cluster runs `steward.work` with a job; everything else about a worker is between its steward and the pool.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from ..dataclass import dataclass, field
from ..errors import RefusedError, UsageError
from ..settings import LOCAL
from .away import Job
from .steward import work

LOOPBACK = "127.0.0.1"
MINUTES = 60  # that Slurm is asked for, unless the user says


@dataclass(frozen=True)
class Cluster:
    """What `--cluster` says: an address or kind, our own address, and options for the cluster."""

    name: str | None = None
    host: str | None = None  # at which workers call
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def parsed(cls, text: str | None) -> Cluster:
        """`ray://head:10001,num_gpus=1`, `partition=gpu,timeout_min=120`, `local`; UsageError where that is none."""
        name = host = None
        options: dict[str, Any] = {}
        for part in filter(None, (text or "").split(",")):
            key, equals, value = part.partition("=")
            if not equals and name is None:
                name = part
            elif not equals or not re.fullmatch(r"[A-Za-z_]\w*", key) or not value:
                raise UsageError(f"--cluster takes an address and options such as num_gpus=1, not {part!r}")
            elif key == "host":
                host = value
            else:
                options[key] = _number(value)
        return cls(name, host or (LOOPBACK if name == LOCAL else None), options)


def _number(text: str) -> Any:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


class Executor(Protocol):
    """A cluster that can be handed jobs."""

    hands_on_variables: bool  # whether its jobs have our environment by its own ways

    def submit(self, job: Mapping[str, Any]) -> Job:
        """Let a machine of it call `steward.work(job)`."""

    def close(self) -> None:
        """No more will be submitted, and all jobs have ended or were called off."""


class Ray:
    """One task for each worker, which is never started again by Ray itself."""

    hands_on_variables = False

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self._ray = _needed("ray", "ray")
        address = {} if cluster.name is None else {"address": cluster.name}
        try:
            self._ray.init(
                **address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False
            )
            options = {"num_cpus": 1, "max_retries": 0, **cluster.options}
            self._work = self._ray.remote(**options)(work)
        except Exception as error:
            raise RefusedError(f"Ray cannot be used: {_one_line(error)}") from None

    def submit(self, job: Mapping[str, Any]) -> Job:
        return _RayJob(self._ray, self._work.remote(dict(job)))

    def close(self) -> None:
        self._ray.shutdown()


class _RayJob:
    def __init__(self, ray: Any, task: Any) -> None:
        self._ray, self._task = ray, task

    def problem(self) -> str | None:
        done, _ = self._ray.wait([self._task], timeout=0)
        if not done:
            return None
        try:
            self._ray.get(self._task)
        except Exception as error:
            return f"a worker's task on Ray failed: {_one_line(error)}"
        return "a worker's task on Ray has ended"

    def cancel(self) -> None:
        self._ray.cancel(self._task, force=True)


class Slurm:
    """One job for each worker, of one task; its files are in `folder`, which the cluster has to see."""

    hands_on_variables = True

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        submitit = _needed("submitit", "slurm")
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._executor = submitit.AutoExecutor(folder=str(folder), cluster=cluster.name or "slurm")
            options = {"timeout_min": MINUTES, **cluster.options}
            self._executor.update_parameters(name="florhook", **options)
        except Exception as error:
            raise RefusedError(f"Slurm cannot be used: {_one_line(error)}") from None

    def submit(self, job: Mapping[str, Any]) -> Job:
        try:
            return _SlurmJob(self._executor.submit(work, dict(job)))
        except Exception as error:
            raise RefusedError(f"Slurm took no job: {_one_line(error)}") from None

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


class _SlurmJob:
    def __init__(self, job: Any) -> None:
        self._job = job

    def problem(self) -> str | None:
        if not self._job.done():
            return None
        error = self._job.exception()
        return f"a worker's job {self._job.job_id} " + (
            "has ended" if error is None else f"failed: {_one_line(error)}"
        )

    def cancel(self) -> None:
        if not self._job.done():
            self._job.cancel()


EXECUTORS: dict[str, Callable[[Cluster, Path], Executor]] = {"ray": Ray, "slurm": Slurm}


def _needed(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"--executor {extra} needs {module}: pip install 'florhook[{extra}]' ({error})"
        ) from None


def _one_line(error: BaseException) -> str:
    """The last line of what an error of a cluster's says; the traceback of the other machine comes before it."""
    lines = [each.strip() for each in str(error).splitlines() if each.strip()]
    return lines[-1] if lines else type(error).__name__
