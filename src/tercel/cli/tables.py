"""Tables of results as files: CSV, and Parquet for those who have pyarrow."""

import csv
import io
import re
from collections.abc import Callable, Iterator
from itertools import islice

import msgspec

from tercel.cli.lazy import late
from tercel.cli.rows import Row, Table, Value
from tercel.core.errors import UsageError

BATCH_ROWS = 5000

_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?(e-?[0-9]+)?")


def write_csv(table: Table, write: Callable[[bytes], object]) -> None:
    columns = table.columns
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for batch in _batches(table.rows()):
        writer.writerows([_text(row.get(column)) for column in columns] for row in batch)
        write(text.getvalue().encode())
        text.seek(0)
        text.truncate()
    write(text.getvalue().encode())


def _text(value: Value) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while batch := list(islice(rows, BATCH_ROWS)):
        yield batch


# -- Parquet ----------------------------------------------------------------------------------------------


def write_parquet(table: Table, path: str) -> None:
    """Each column has a type that fits all its values; what is nested, or mixed, becomes text."""
    try:
        open_writer = late("pyarrow.parquet", "ParquetWriter")
    except ImportError:
        raise UsageError("Parquet needs pyarrow: pip install 'tercel[parquet]'", "parquet") from None
    kinds = _kinds(table)
    schema = late("pyarrow", "schema")([(name, late("pyarrow", kind)()) for name, kind in kinds.items()])
    with open_writer(path, schema) as writer:
        for batch in _batches(table.rows()):
            columns = {name: [_as(row.get(name), kind) for row in batch] for name, kind in kinds.items()}
            writer.write_table(late("pyarrow", "table")(columns, schema=schema))


def _kinds(table: Table) -> dict[str, str]:
    """pyarrow's name for the type of each column."""
    kinds: dict[str, str] = {}
    inputs = table.inputs
    for row in table.rows():
        for name, value in row.items():
            if value is not None:
                kind = _kind(value, points=name in inputs)
                kinds[name] = _common(kinds.get(name, kind), kind)
    return {name: kinds.get(name, "string") for name in table.columns}


def _kind(value: Value, points: bool) -> str:
    if isinstance(value, bool):
        return "bool_"
    if isinstance(value, int):
        return "int64" if -(2**63) <= value < 2**63 else "string"
    if isinstance(value, float):
        return "float64"
    if points and isinstance(value, str):  # a sweep's values are texts, and mostly numbers
        if _WHOLE.fullmatch(value):
            return "int64"
        if _NUMBER.fullmatch(value):
            return "float64"
    return "string"


def _common(one: str, other: str) -> str:
    if one == other:
        return one
    return "float64" if {one, other} == {"int64", "float64"} else "string"


def _as(value: Value, kind: str) -> Value:
    if value is None or kind == "bool_":
        return value
    match kind:
        case "int64":
            return int(value)
        case "float64":
            return float(value)
    return _text(value)
