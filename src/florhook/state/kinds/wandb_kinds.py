"""A run of Weights & Biases: it belongs to its process, and what the program reads of it is state.

Imported only once the program has imported wandb's runs.
"""

from __future__ import annotations

from typing import Any

from wandb.sdk.wandb_run import Run

from ...registration import Registration
from .base import Registry
from .foreign import InPlace


def _read(run: Any) -> tuple[Any, ...]:
    # What a disabled run, or another release, does not have is no state.
    return getattr(run, "_step", None), run._settings.run_name, dict(run._config._items)


def _make() -> Any:
    raise TypeError("a run of Weights & Biases is made by wandb.init alone")


def _write(run: Any, state: tuple[Any, ...]) -> None:
    step, run._settings.run_name, items = state
    if step is not None:
        run._step = step
    run._config._items.clear()
    run._config._items.update(items)


def register(registry: Registry) -> None:
    registry.add(
        InPlace(Registration(Run, "wandb run", _read, _make, _write, subclasses=True)), Run, derived=True
    )
