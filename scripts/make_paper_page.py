"""Writes the tables of docs/how-to/paper.md: `python scripts/make_paper_page.py`.

What a table is, its command and where ours differs come from the code; what was measured in this repository is counted
in recorded results: the rows that `vesalius paper` prints where you have no run. A test compares the page with them.
"""

import re
from pathlib import Path

from vesalius_bench.papers.documents import PaperTable
from vesalius_bench.papers.published import PAPERS, PaperTables, PrintedTable
from vesalius_bench.papers.sources import Sources, recorded_sources
from vesalius_bench.papers.tables import filled

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "how-to" / "paper.md"
HEAD = "| | what | command | measured in this repository | where ours differs |\n|---|---|---|---|---|"
HEADINGS = {"hyve": "## HyVE", "mechrl": "## MechRL", "find": "## FIND"}


def table(tables: PaperTables, results: Sources) -> str:
    """The table of one paper in Markdown."""
    rows = [_row(tables, entry, results) for entry in tables.entries]
    return "\n".join([HEAD, *rows])


def _row(tables: PaperTables, entry: PrintedTable, results: Sources) -> str:
    commands = re.sub(r"vesalius .*?(?=; |, then |$)", r"`\g<0>`", entry.command)
    return f"| {entry.id} | {entry.title} | {commands} | {measured(tables, entry, results)} | {entry.differs} |"


def measured(tables: PaperTables, entry: PrintedTable, results: Sources) -> str:
    """How many rows of a table each recorded result gives, and the model that they were made with; or why none does."""
    if not entry.reads:
        return "from the code"
    table: PaperTable = filled(tables, entry, results.filling(entry.id, entry.reads))
    counts: dict[tuple[str, str], int] = {}
    for row in table.measured:
        place = (row.run.partition(", ")[0], row.model)
        counts[place] = counts.get(place, 0) + 1
    said = [f"{n} row{'s' * (n > 1)} from `{run}` ({model})" for (run, model), n in counts.items()]
    return ", ".join(said) or (f"no: {entry.needs}" if entry.needs else "no")


def page(text: str) -> str:
    """The page with its tables made afresh."""
    results = recorded_sources()
    for paper, heading in HEADINGS.items():
        old = re.search(rf"{heading}[^\n]*\n\n((?:\|[^\n]*\n)+)", text)
        assert old is not None, f"{PAGE}: no table under {heading}"
        text = text[: old.start(1)] + table(PAPERS[paper], results) + "\n" + text[old.end(1) :]
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
