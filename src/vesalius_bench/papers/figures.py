"""The published figures of the three papers, as they are printed there. None of them was measured here.

`published.json` has them by paper and table. Where a published table is in words, the rows are in our own.
"""

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from vesalius.files import parse_json

#: A cell that the paper leaves empty.
EMPTY = "–"


@dataclass(frozen=True)
class Printed:
    """One published table: texts by row and column."""

    columns: tuple[str, ...]
    rows: dict[str, dict[str, str]]
    note: str = ""

    def numbers(self, *columns: str) -> dict[str, dict[str, float | None]]:
        """The rows as numbers, of these columns or of all: shares of percentages, None where nothing is printed."""
        chosen = columns or self.columns
        return {name: {column: number(row[column]) for column in chosen} for name, row in self.rows.items()}


#: What a paper publishes as a picture without numbers, or what is not in it.
NOTHING = Printed((), {})


@cache
def _data() -> dict[str, Any]:
    file = resources.files("vesalius_bench.papers") / "published.json"
    data = parse_json(file.read_bytes(), source="published.json")
    assert isinstance(data, dict)
    return data


def printed(paper: str, table: str) -> Printed:
    """What a paper prints in a table; nothing of a figure without numbers."""
    data = _data()[paper].get(table)
    if data is None:
        return NOTHING
    columns = tuple(data["columns"])
    rows = {name: dict(zip(columns, values, strict=True)) for name, values in data["rows"].items()}
    return Printed(columns, rows, data.get("note", ""))


def number(text: str) -> float | None:
    """A printed figure as a number: `34.49M` are tokens, `94.1%` is a share, `$0.40` dollars."""
    if text == EMPTY:
        return None
    if text.endswith("M"):
        return round(float(text[:-1]) * 1e6)
    if text.endswith("%"):
        return round(float(text[:-1]) / 100, 6)
    return float(text.lstrip("$").replace("−", "-"))
