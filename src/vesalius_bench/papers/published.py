"""The tables and figures of the three papers as data: what each prints, what measures ours, and how ours differs.

`hyve.json`, `mechrl.json` and `find.json` have them in the order of the paper, published figures as printed there; none
of those was measured here. HyVE's are for the paper's agent on the original models, with the paper's judges; Table 9 is
a rating by one person of 17 components. Where a published table is in words, the rows are in our own. A figure that was
published as a picture without numbers has no rows. `words` are texts that several entries share.
"""

from functools import partial
from importlib import resources
from typing import Literal, get_args

from pydantic import Field, model_validator

from vesalius.documents.base import FrozenDict, FrozenMap, Record
from vesalius.files import parse_json
from vesalius_bench.papers.documents import Paper

#: The kinds of results that fill a table.
ResultKind = Literal[
    "circuits",
    "functions",
    "study",
    "mechrl",
    "ratings",
    "explanation",
    "reliability",
    "unit tests",
    "evaluator",
]
#: The runs that `--run` makes.
Filled = Literal[
    "circuits", "agent", "judged", "study", "study agent", "mechrl", "functions", "dialogue", "evaluator", "reliability"
]
#: What those runs take beside this code.
NEEDS: dict[Filled, str] = {
    "agent": "needs a language model that explains",
    "judged": "needs language models that explain and that judge",
    "study agent": "needs a language model that explains a model that adds",
    "dialogue": "needs a language model that asks",
    "evaluator": "needs a language model that takes unit tests",
}
#: A cell that the paper leaves empty.
EMPTY = "–"
NOT_MEASURED = "published, not measured here"
GPT, CLAUDE, GEMINI, QWEN = "GPT-5.4", "Claude-Sonnet-4.6", "Gemini-3.1-Pro", "Qwen-3-Coder-30B-A3B"

FigureRow = dict[str, float | None]


class PrintedTable(Record):
    """One table or figure. `reads` are the kinds of results that fill it (none: the code itself); `filled_by` is the
    run that `--run` makes, and without one `by_hand` says what it takes instead, and then how. `data` are modules of
    the extra `functions` without which the code has no rows. `published` are the texts of each row by `columns`.
    """

    id: str
    title: str
    reads: tuple[ResultKind, ...] = ()
    command: str
    differs: str
    filled_by: Filled | None = None
    by_hand: str = ""
    data: tuple[str, ...] = ()
    note: str = ""
    columns: tuple[str, ...] = ()
    published: FrozenMap[str, tuple[str, ...]] = Field(default_factory=FrozenDict)

    @model_validator(mode="after")
    def _whole(self) -> "PrintedTable":
        for name, cells in self.published.items():
            if len(cells) != len(self.columns):
                raise ValueError(f"{self.id}, {name}: {len(cells)} cells in {len(self.columns)} columns")
        if bool(self.reads) != bool(self.filled_by or self.by_hand):
            raise ValueError(f"{self.id}: results fill it exactly where a run or people give them")
        return self

    @property
    def is_figure(self) -> bool:
        """Whether the paper draws it."""
        return self.id.startswith("Figure")

    @property
    def needs(self) -> str:
        """What filling it takes beside this code: a language model, judges or people; empty where it takes nothing."""
        if self.filled_by is not None:
            return NEEDS.get(self.filled_by, "")
        return self.by_hand.partition(":")[0]

    @property
    def rows(self) -> dict[str, dict[str, str]]:
        """The published texts by row and column."""
        return {name: dict(zip(self.columns, cells, strict=True)) for name, cells in self.published.items()}

    def numbers(self) -> dict[str, FigureRow]:
        """The rows as numbers: shares of percentages, None where nothing is printed."""
        return {name: {column: number(cell) for column, cell in row.items()} for name, row in self.rows.items()}


class PaperTables(Record):
    """A paper: where it was published, and its tables and figures in order."""

    paper: Paper
    source: str
    entries: tuple[PrintedTable, ...]

    @property
    def not_measured(self) -> str:
        """What is said of a published row."""
        return f"{self.source}; {NOT_MEASURED}"


def number(text: str) -> float | None:
    """A printed figure as a number: `34.49M` are tokens, `94.1%` is a share, `$0.40` dollars."""
    if text == EMPTY:
        return None
    if text.endswith("M"):
        return round(float(text[:-1]) * 1e6)
    if text.endswith("%"):
        return round(float(text[:-1]) / 100, 6)
    return float(text.lstrip("$").replace("−", "-"))


def read_paper(paper: Paper) -> PaperTables:
    """The data of one paper; a file of ours that is not whole is an error at once."""
    file = f"{paper}.json"
    data = parse_json((resources.files("vesalius_bench.papers") / file).read_bytes(), source=file, unique=True)
    assert isinstance(data, dict)
    words: dict[str, str] = {}
    for name, text in data["words"].items():
        words[name] = text.format_map(words)
    entries = [
        {"id": id}
        | {field: value.format_map(words) if isinstance(value, str) else value for field, value in entry.items()}
        for id, entry in data["entries"].items()
    ]
    return PaperTables.model_validate({"paper": paper, "source": data["source"], "entries": entries})


PAPERS: dict[str, PaperTables] = {paper: read_paper(paper) for paper in get_args(Paper)}


def printed(paper: str, id: str) -> PrintedTable:
    """What a paper prints in a table; a figure without numbers has no rows."""
    return next(entry for entry in PAPERS[paper].entries if entry.id == id)


_table = partial(printed, "hyve")
SOURCE = PAPERS["hyve"].not_measured
TABLE_2, TABLE_9, TABLE_10, TABLE_11 = (_table(f"Table {place}").numbers() for place in (2, 9, 10, 11))
#: Role descriptions of the ten AF1 components of Llama-3-8B, rated by three people (`study af1`).
TABLE_4 = {name: {column: int(cell) for column, cell in row.items()} for name, row in _table("Table 4").rows.items()}
#: Agreement of two people, and of the lower human with the lower judge: Table 6 on texts of two backbones, Table 7
#: on those of all four; Table 8 holds each person against each judge there. Weighted kappa on 0/1/2, plain on 0/1.
TABLE_6, TABLE_7 = (_table(f"Table {place}").numbers() for place in (6, 7))
TABLE_8 = _table("Table 8").numbers()
