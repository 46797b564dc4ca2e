"""The figures of the paper that published the circuits benchmark, for the tables beside our own.

None of them was measured here: they are for the paper's agent on the original models, with the paper's judges. Table 9
is a rating by one person of 17 components. Figures 3 and 4 were published as pictures without numbers, so their rows
are empty.
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


NOT_MEASURED = "published, not measured here"
SOURCE = f"HyVE paper (arXiv 2606.24026); {NOT_MEASURED}"
GPT, CLAUDE, GEMINI, QWEN = "GPT-5.4", "Claude-Sonnet-4.6", "Gemini-3.1-Pro", "Qwen-3-Coder-30B-A3B"
_MEASURES = ("description_quality", "plan_soundness", "task_accuracy")

Row = dict[str, float | None]


def _table(number: int, *columns: str) -> dict[str, Row]:
    return printed("hyve", f"Table {number}").numbers(*columns)


TABLE_2 = _table(2)
#: Role descriptions of the ten AF1 components of Llama-3-8B, rated by three people (`study af1`).
TABLE_4: dict[str, dict[str, int]] = {
    name: {column: int(count) for column, count in row.items() if count is not None} for name, row in _table(4).items()
}
TABLE_9 = _table(9)
TABLE_10 = _table(10)
TABLE_11 = _table(11)
#: Agreement of two people, and of the lower human with the lower judge: Table 6 on texts of two backbones, Table 7
#: on those of all four; Table 8 holds each person against each judge there. Weighted kappa on 0/1/2, plain on 0/1.
TABLE_6 = _table(6, *_MEASURES)
TABLE_7 = _table(7, *_MEASURES)
TABLE_8 = _table(8)
