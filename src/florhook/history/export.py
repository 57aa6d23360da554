"""Named values at their true steps, for other tools: TensorBoard, MLflow, Weights & Biases."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..dataclass import dataclass
from ..errors import FlorError, UsageError
from .extras import needed
from .lines import History
from .tables import Value, values_of

BATCH = 500  # metrics that MLflow takes at once
_NOT_OF_MLFLOW = re.compile(r"[^\w\-./: ]")


@dataclass(frozen=True)
class Point:
    """One value of one curve. `at`: seconds since the epoch, when the run printed it or came to its iteration."""

    rank: int
    curve: str
    step: int
    value: float
    at: float


def points_of(history: History, names: Sequence[str]) -> Iterator[Point]:
    """All values in the order in which they were printed.

    A curve is a name; where it was printed in several loops, whose steps are different ones, with the loop's variable
    behind it, and where both the run and a replay printed it, with "hindsight" behind the replay's.
    """
    values = values_of(history, names)
    loops: dict[str, set[str]] = {}
    for value in values:
        loops.setdefault(value.name, set()).add(_site(value))
    recorded = {value.name for value in values if not value.line.replay}
    for value in values:
        notes = [_variable(history, value)] if len(loops[value.name]) > 1 else []
        notes += ["hindsight"] if value.line.replay and value.name in recorded else []
        curve = f"{value.name} ({', '.join(notes)})" if notes else value.name
        line = value.line
        at = history.run.origin + (line.time or 0.0)
        yield Point(line.rank, curve, line.step, float(value.value), at)


def _site(value: Value) -> str:
    return value.line.places[-1].site if value.line.places else ""


def _variable(history: History, value: Value) -> str:
    cells = history.columns.cells(value.line.places)
    return next(reversed(cells), "outside")


def export_tensorboard(history: History, names: Sequence[str], folder: Path) -> int:
    """Event files below `folder/<run id>`, for each rank one, in place of older ones; how many values were written."""
    files = needed("tensorboard.summary.writer.event_file_writer", "tensorboard")
    events = needed("tensorboard.compat.proto.event_pb2", "tensorboard")
    summaries = needed("tensorboard.compat.proto.summary_pb2", "tensorboard")
    writers = {}
    count = 0
    for point in points_of(history, names):
        if point.rank not in writers:
            name = f"{history.run.id}.{point.rank}" if point.rank else history.run.id
            for older in (folder / name).glob(
                "events.out.tfevents.*"
            ):  # else each value would be there twice
                older.unlink()
            writers[point.rank] = files.EventFileWriter(str(folder / name))
        scalar = summaries.Summary.Value(tag=point.curve, simple_value=point.value)
        summary = summaries.Summary(value=[scalar])
        writers[point.rank].add_event(events.Event(wall_time=point.at, step=point.step, summary=summary))
        count += 1
    for writer in writers.values():
        writer.close()
    return count


def export_mlflow(history: History, names: Sequence[str], folder: Path) -> int:
    """One MLflow run in the database `folder/mlflow.db`; how many values were written. Curves of rank 1 end in `.1`.

    In a database, since MLflow's stores of plain files are given up from version 3 on.
    """
    mlflow, entities = needed("mlflow", "mlflow"), needed("mlflow.entities", "mlflow")
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{folder.absolute() / 'mlflow.db'}")
    found = client.get_experiment_by_name("florhook")
    artifacts = (folder.absolute() / "artifacts").as_uri()
    experiment = found.experiment_id if found else client.create_experiment("florhook", artifacts)
    started = int(1000 * history.run.origin)
    run = client.create_run(experiment, start_time=started, run_name=history.run.id).info.run_id
    metrics = [
        entities.Metric(_mlflow_key(point), point.value, int(1000 * point.at), point.step)
        for point in points_of(history, names)
    ]
    for start in range(0, len(metrics), BATCH):
        client.log_batch(run, metrics=metrics[start : start + BATCH])
    client.set_terminated(run, end_time=int(1000 * (history.run.ended or time.time())))
    return len(metrics)


def _mlflow_key(point: Point) -> str:
    return _NOT_OF_MLFLOW.sub("_", _of_rank(point))


def export_wandb(history: History, names: Sequence[str], folder: Path) -> int:
    """One offline run of Weights & Biases below `folder`; how many values were written.

    Its own steps must not go back, so each value comes with the true one as `global_step`, the axis of all curves.
    """
    wandb = needed("wandb", "wandb")
    run = wandb.init(
        project="florhook", name=history.run.id, dir=str(folder), mode="offline",
        settings=wandb.Settings(console="off", silent=True, disable_code=True, disable_git=True),
    )  # fmt: skip
    run.define_metric("*", step_metric="global_step")
    count = 0
    for point in points_of(history, names):
        run.log({_of_rank(point): point.value, "global_step": point.step})
        count += 1
    run.finish()
    return count


def _of_rank(point: Point) -> str:
    return f"{point.curve}.{point.rank}" if point.rank else point.curve


TOOLS = {"tensorboard": export_tensorboard, "mlflow": export_mlflow, "wandb": export_wandb}


def export(history: History, names: Sequence[str], tool: str, folder: Path) -> int:
    """Write the values for a tool; UsageError where the tool is not installed, or cannot write to the folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return TOOLS[tool](history, names, folder)
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror or error}") from None
    except FlorError:
        raise
    except Exception as error:  # the tool's own, of which each has its classes
        first = (str(error).strip().splitlines() or [""])[0]
        raise UsageError(f"{tool} cannot write to {folder}: {type(error).__name__}: {first}") from error
