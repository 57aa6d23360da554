"""Trackers of experiments: a replay sends them nothing, and gives the program the answers that they gave in the run.

Recording, what Weights & Biases and an MLflow server answered (run ids, names, addresses) is noted with its time. In a
replay `wandb.init` starts an offline run with the recorded id, whose files lie in the scratch folder, and MLflow's
requests are answered from the notes. What TensorBoard and local MLflow stores write are files, which the overlay keeps.

Things that don't work: giving MLflow a local store instead of its server (a program that holds the run's id looks it
up there in vain); `WANDB_MODE=disabled` (the run object is another one, which no checkpoint of the real one fits).
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

SCRATCH = "trackers"  # the folder for what trackers write in a replay, beside what the overlay keeps
MOST_ANSWERS = 1000  # of a run
MOST_TEXT = 1 << 16  # characters of one
WANDB, MLFLOW = "wandb.sdk.wandb_init", "mlflow.utils.rest_utils"  # the modules that are changed
WANDB_FIELDS = ("run_id", "run_name", "entity", "project", "mode")  # what the server, or chance, decides
PACKAGES = ("wandb", "mlflow", "neptune", "comet_ml")
IMPORTED = "imported"  # the key of the note that the program has one of them
READS = ("GET", "HEAD")
NOT_ASKED = {
    "error_code": "RESOURCE_DOES_NOT_EXIST",
    "message": "a replay asks no server, and the run did not ask for this",
}

Note = Callable[[str, Any], None]
ROW = "<answer of a tracker "  # how the names of the rows begin, among the sources


def row_name(number: int) -> str:
    """Under what name the nth answer is kept: no module has such a name."""
    return f"{ROW}{number}>"


def used(rows: Iterable[bytes]) -> list[str]:
    """The trackers that the program of a run imported, by its notes."""
    return [answer for _, key, answer in map(json.loads, rows) if key == IMPORTED]


def environment(scratch: Path, environ: Mapping[str, str], packages: Iterable[str]) -> dict[str, str]:
    """Variables under which these trackers stay offline, also in programs that the program starts.

    A program that uses none sees its variables as they were.
    """
    folder = str(scratch)
    quiet = environ.get("WANDB_MODE") == "disabled"
    variables = {
        "wandb": {
            "WANDB_MODE": "disabled" if quiet else "offline",
            **dict.fromkeys(("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_ARTIFACT_DIR"), folder),
            "WANDB_ERROR_REPORTING": "false",
        },
        "mlflow": {"MLFLOW_DISABLE_TELEMETRY": "true"},
        "neptune": {"NEPTUNE_MODE": "debug"},
        "comet_ml": {"COMET_START_ONLINE": "false", "COMET_OFFLINE_DIRECTORY": folder},
    }
    return {name: value for package in packages for name, value in variables[package].items()}


class Answers:
    """The noted answers, each given once, in their order; a read is answered again by the last one."""

    def __init__(self, rows: Iterable[bytes]) -> None:
        self._ahead: dict[str, list[tuple[float, Any]]] = {}
        self._last: dict[str, Any] = {}
        for at, key, answer in sorted(map(json.loads, rows), key=lambda row: row[0]):
            self._ahead.setdefault(key, []).append((at, answer))

    def jumped(self, to: float) -> None:
        """The replay was brought to a place so many seconds after the start of the run."""
        for key, ahead in self._ahead.items():
            while ahead and ahead[0][0] < to:
                self._last[key] = ahead.pop(0)[1]

    def take(self, key: str, again: bool = False) -> Any:
        """The next answer; None where there is none. `again`: the last one where no other follows."""
        ahead = self._ahead.get(key)
        if ahead:
            self._last[key] = ahead.pop(0)[1]
            return self._last[key]
        return self._last.get(key) if again else None


def row(at: float, key: str, answer: Any) -> bytes:
    """What is kept of an answer that came so many seconds after the start of the run."""
    return json.dumps([at, key, answer]).encode()


# Recording ------------------------------------------------------------------------------------------------------


def noting(note: Note) -> dict[str, Callable[[str], None]]:
    """By module: what is to be done in a recorded program once it has been imported."""
    imported = dict.fromkeys(PACKAGES, lambda name: note(IMPORTED, name))
    return {
        **imported,
        WANDB: lambda name: _note_wandb(name, note),
        MLFLOW: lambda name: _note_mlflow(name, note),
    }


def _note_wandb(name: str, note: Note) -> None:
    module: Any = sys.modules[name]
    init = module.init

    @functools.wraps(init)
    def noted(*arguments: Any, **options: Any) -> Any:
        run = init(*arguments, **options)
        with suppress(Exception):
            settings = run._settings
            note("wandb", {field: getattr(settings, field) for field in WANDB_FIELDS})
        return run

    module.init = noted


def _note_mlflow(name: str, note: Note) -> None:
    module: Any = sys.modules[name]
    request = module.http_request

    @functools.wraps(request)
    def noted(host_creds: Any, endpoint: str, method: str, *arguments: Any, **options: Any) -> Any:
        response = request(host_creds, endpoint, method, *arguments, **options)
        with suppress(Exception):
            text = "" if options.get("stream") else response.text
            if text.strip() not in ("", "{}") and len(text) <= MOST_TEXT:
                note(_request_key(endpoint, method, options), [response.status_code, text])
        return response

    module.http_request = noted


def _request_key(endpoint: str, method: str, options: Mapping[str, Any]) -> str:
    asked = options.get("params") or {}
    return f"mlflow {method} {endpoint} {json.dumps(asked, sort_keys=True, default=str)}"


# Replaying ------------------------------------------------------------------------------------------------------


def answering(answers: Answers, scratch: Path) -> dict[str, Callable[[str], None]]:
    """By module: what is to be done in a replayed program once it has been imported."""
    return {
        WANDB: lambda name: _stay_offline(name, answers, scratch),
        MLFLOW: lambda name: _answer_mlflow(name, answers),
    }


def _stay_offline(name: str, answers: Answers, scratch: Path) -> None:
    import inspect  # no start should pay for it

    module: Any = sys.modules[name]
    init = module.init
    signature = inspect.signature(init)

    @functools.wraps(init)
    def offline(*arguments: Any, **options: Any) -> Any:
        bound = signature.bind(*arguments, **options)
        given, was = bound.arguments, answers.take("wandb") or {}
        scratch.mkdir(parents=True, exist_ok=True)
        mode = "disabled" if _is_disabled(given) else "offline"
        given.update(mode=mode, dir=str(scratch))
        if was.get("run_id"):
            given["id"] = was["run_id"]
        for another_run in ("resume", "resume_from", "fork_from"):
            given.pop(another_run, None)
        run = init(*bound.args, **bound.kwargs)
        if mode == "offline":
            _as_it_was(run, was)
        return run

    module.init = offline


def _is_disabled(given: Mapping[str, Any]) -> bool:
    settings = given.get("settings")
    of_settings = settings.get("mode") if isinstance(settings, dict) else None
    if settings is not None and "mode" in getattr(settings, "model_fields_set", ()):
        of_settings = settings.mode
    mode = given.get("mode") or of_settings or os.environ.get("WANDB_MODE")
    return bool(mode == "disabled")


def _as_it_was(run: Any, was: Mapping[str, Any]) -> None:
    """Let the program see the run's name, addresses and mode; the process that writes its files has them already."""
    for field, value in was.items():
        with suppress(Exception):
            setattr(run._settings, field, value)


def _answer_mlflow(name: str, answers: Answers) -> None:
    module: Any = sys.modules[name]

    @functools.wraps(module.http_request)
    def answered(host_creds: Any, endpoint: str, method: str, *arguments: Any, **options: Any) -> Any:
        reads = method in READS
        found = answers.take(_request_key(endpoint, method, options), again=True)
        status, text = found or ((404, json.dumps(NOT_ASKED)) if reads else (200, "{}"))
        response = module.requests.Response()
        response.status_code, response._content = status, text.encode()
        response.encoding = "utf-8"
        return response

    module.http_request = answered
