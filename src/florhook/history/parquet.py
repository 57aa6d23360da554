"""Rows as a Parquet file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import UsageError
from .extras import needed
from .tables import Row

LARGEST = 2**63


def write_parquet(columns: Sequence[str], rows: Sequence[Row], path: Path) -> None:
    """Write them through pyarrow. A column of whole numbers and others has floats, one of numbers and text has text."""
    arrow, parquet = needed("pyarrow", "parquet"), needed("pyarrow.parquet", "parquet")
    table = {name: _alike([row.get(name) for row in rows]) for name in columns}
    try:
        parquet.write_table(arrow.table(table), path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None


def _alike(values: list[Any]) -> list[Any]:
    """Values of one type, which a column of Parquet has."""
    kinds = {type(value) for value in values if value is not None}
    if int in kinds and any(isinstance(value, int) and abs(value) >= LARGEST for value in values):
        kinds |= {float}
    if len(kinds) < 2 and float not in kinds:
        return values
    if kinds <= {int, float}:
        return [None if value is None else float(value) for value in values]
    return [None if value is None else str(value) for value in values]
