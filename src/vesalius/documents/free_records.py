"""Records of free form (read-off tables, refuted hypotheses) as facts and tables of a view.

A read-off table comes as a mapping: flat (`{"a": 0, "x": 1}`), nested (`{"a": {"0": 1}}`), or a record whose fields
are facts and tables (`{"arguments": ["token"], "rows": [["a", 0]]}`)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vesalius.documents.view import Sheet


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
    """A table whose cells are spelt as the record has them."""
    return Sheet(
        tuple(map(str, columns)),
        [tuple(spell(cell) if not _is_number(cell) else cell for cell in row) for row in rows],
        title=title,
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


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
        return replace(records, title=title)
    rows = [row if isinstance(row, list | tuple) else [row] for row in value]
    width = max(map(len, rows))
    names = list(header) if header is not None and len(header) == width else [""] * width
    return sheet(title, names, rows)


def _grid(title: str, table: Mapping[str, Mapping[str, Any]]) -> Sheet:
    columns = list(dict.fromkeys(name for row in table.values() for name in row))
    return sheet(
        title, ["", *columns], [[name, *(row.get(column) for column in columns)] for name, row in table.items()]
    )
