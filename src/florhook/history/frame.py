"""`florhook.dataframe`: what was printed, as a pandas frame."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ..settings import from_sources
from .extras import needed
from .lines import NEWEST, history_of
from .tables import pivoted

if TYPE_CHECKING:
    import pandas


def dataframe(
    *names: str,
    run: str = "last",
    select: str | None = None,
    replay: str = NEWEST,
    home: str | os.PathLike[str] | None = None,
) -> pandas.DataFrame:
    """The named values that a run printed, and those that a replay of it printed since: one row for each iteration.

    The loop variables are the first columns, then comes `global_step`, the innermost loop's running count over the
    whole run, then one column for each of `names`; without any, for each name that was printed. `select` is as in
    `--select`; `replay` "last", "all" or a replay's id. `home` is the store's folder, as FLOR_HOME has it by default.
    UsageError where pandas is missing; StoreError or RefusedError where there is no such store, run, replay or name.
    """
    frames = needed("pandas", "pandas")
    folder = from_sources(os.environ, {}, Path.cwd()).home if home is None else Path(home)
    columns, rows = pivoted(history_of(folder, run, select, replay), names)
    return frames.DataFrame(rows, columns=columns)
