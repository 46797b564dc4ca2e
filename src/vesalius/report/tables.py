"""Records of free form (read-off tables, refuted hypotheses) as tables a page can print.

A read-off table comes as a mapping: flat (`{"a": 0, "x": 1}`), nested (`{"a": {"0": 1}}`), or a record whose fields
are facts and tables (`{"arguments": ["token"], "rows": [["a", 0]]}`). Nothing is dropped silently: what does not fit
is counted.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ROWS, COLUMNS = 64, 24


@dataclass(frozen=True)
class Sheet:
    """A printable table: header cells, body cells, and how many rows and columns were left out."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    rows_left_out: int = 0
    columns_left_out: int = 0


@dataclass(frozen=True)
class Reading:
    """A free-form record: single facts, then tables."""

    facts: tuple[tuple[str, str], ...]
    sheets: tuple[Sheet, ...]


def read_table(table: Mapping[str, Any]) -> Reading:
    """Turn a component's read-off table into facts and printable tables."""
    if not table:
        return Reading((), ())
    if all(_is_plain(value) for value in table.values()):
        return Reading((), (sheet("", ("input", "value"), list(table.items())),))
    if all(isinstance(value, Mapping) for value in table.values()):
        return Reading((), (_grid("", table),))
    header = next((table[name] for name in ("columns", "header") if _is_list_of_plain(table.get(name))), None)
    facts, sheets = [], []
    for name, value in table.items():
        if _is_plain(value) or _is_list_of_plain(value):
            if value is not header:
                facts.append((words(name), spell(value)))
        else:
            sheets.append(_structured(words(name), value, header))
    return Reading(tuple(facts), tuple(sheets))


def read_records(records: Sequence[Mapping[str, Any]]) -> Sheet:
    """A list of records as one table, a column for each field any of them has, in the order they first appear."""
    columns = list(dict.fromkeys(name for record in records for name in record))
    return sheet("", [words(name) for name in columns], [[record.get(name) for name in columns] for record in records])


def sheet(title: str, columns: Sequence[Any], rows: Sequence[Sequence[Any]]) -> Sheet:
    """Cut a table to what a page can show."""
    return Sheet(
        title,
        tuple(str(column) for column in columns[:COLUMNS]),
        tuple(tuple(row[:COLUMNS]) for row in rows[:ROWS]),
        max(0, len(rows) - ROWS),
        max(0, len(columns) - COLUMNS),
    )


def spell(value: Any) -> str:
    """A value as text: strings bare, lists with commas, numbers short, the rest as JSON."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.4g}"
    if _is_list_of_plain(value):
        return ", ".join(spell(part) for part in value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def words(name: Any) -> str:
    """A field's name as a heading."""
    return str(name).replace("_", " ")


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def _is_list_of_plain(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(_is_plain(part) for part in value)


def _structured(title: str, value: Any, header: Sequence[Any] | None) -> Sheet:
    if isinstance(value, Mapping):
        if value and all(isinstance(row, Mapping) for row in value.values()):
            return _grid(title, value)
        return sheet(title, ("input", "value"), list(value.items()))
    if all(isinstance(row, Mapping) for row in value):
        records = read_records(value)
        return Sheet(title, records.columns, records.rows, records.rows_left_out, records.columns_left_out)
    rows = [row if isinstance(row, list | tuple) else [row] for row in value]
    width = max(map(len, rows))
    names = list(header) if header is not None and len(header) == width else [""] * width
    return sheet(title, names, rows)


def _grid(title: str, table: Mapping[str, Mapping[str, Any]]) -> Sheet:
    columns = list(dict.fromkeys(name for row in table.values() for name in row))
    return sheet(
        title, ["", *columns], [[name, *(row.get(column) for column in columns)] for name, row in table.items()]
    )
