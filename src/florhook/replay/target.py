"""The program of a recorded run, for commands that name the run only."""

from __future__ import annotations

import json
import os

from ..errors import UsageError
from ..launch import Target
from ..settings import Settings
from ..store.rows import RunRow
from ..store.store import Store


def target_of(run: RunRow, settings: Settings) -> Target:
    """The recorded program with its arguments."""
    if run.program.startswith("-m "):
        return Target("module", run.program[3:], list(run.argv))
    if run.program == "-c":
        raise UsageError(f"run {run.id} is one of code given by -c; this needs a script or module")
    return Target("script", os.path.join(settings.base, run.program), list(run.argv))


def target_asked_for(settings: Settings) -> Target:
    """That of the run in the settings, which a worker is told."""
    task = os.environ.get("FLORHOOK_TASK")
    with Store.open(settings.home) as store:
        return target_of(store.find(json.loads(task)["run"] if task else settings.run), settings)
