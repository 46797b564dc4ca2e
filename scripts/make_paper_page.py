"""Writes the tables of docs/how-to/paper.md: `python scripts/make_paper_page.py`.

What a table is, its command and where ours differs come from the code; what was measured in this repository is counted
in recorded results: the rows that `vesalius paper` would print from each file. A test compares the page with them.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vesalius.documents.scorecard import Scorecard
from vesalius_bench.papers.published import PAPERS, PaperTables, PrintedTable
from vesalius_bench.papers.sources import KINDS, SourceResult, Sources, find_sources
from vesalius_bench.papers.tables import filled
from vesalius_mechrl.documents import MechrlStudy

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "how-to" / "paper.md"
RESULTS, EXAMPLES = ROOT / "benchmarks" / "results", ROOT / "examples" / "recorded"
HEAD = "| | what | command | measured in this repository | where ours differs |\n|---|---|---|---|---|"
HEADINGS = {"hyve": "## HyVE", "mechrl": "## MechRL", "find": "## FIND"}
#: What the short records leave out of a document; no table shows it.
FUNCTIONS = {"benchmark": "functions", "request": {"command": "bench functions"}, "cost": 0.0, "seconds": 0.0}
MECHRL = {"request": {"command": "bench mechrl"}, "specimen": "", "quirks": {}, "numbers": "", "pictures": ()}


def recorded() -> dict[str, list[SourceResult]]:
    """Every recorded result that `vesalius paper` could read, by the file or folder that holds it."""
    results: dict[str, list[SourceResult]] = {}
    for name, result in _results():
        results.setdefault(name, []).append(result)
    return results


def _results() -> Iterator[tuple[str, SourceResult]]:
    card = RESULTS / "circuits.json"
    yield _name(card), SourceResult("circuits", card, "circuits", Scorecard.read(card))
    file = RESULTS / "function_scorecards.json"
    for label, short in _read(file).items():
        kept = {name: value for name, value in short.items() if name != "kinds"}
        yield _name(file), SourceResult("functions", file / label, label, Scorecard.from_data({**FUNCTIONS, **kept}))
    for mode in ("paper", "corrected"):
        file = RESULTS / f"mechrl_{mode}.json"
        yield _name(file), SourceResult("mechrl", file, mode, MechrlStudy.from_data({**MECHRL, **_read(file)}))
    for result in find_sources(EXAMPLES, reads=KINDS).results:
        yield _name(result.directory), result


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def table(tables: PaperTables, results: dict[str, list[SourceResult]]) -> str:
    """The table of one paper in Markdown."""
    rows = [_row(tables, entry, results) for entry in tables.entries]
    return "\n".join([HEAD, *rows])


def _row(tables: PaperTables, entry: PrintedTable, results: dict[str, list[SourceResult]]) -> str:
    commands = re.sub(r"vesalius .*?(?=; |, then |$)", r"`\g<0>`", entry.command)
    return f"| {entry.id} | {entry.title} | {commands} | {measured(tables, entry, results)} | {entry.differs} |"


def measured(tables: PaperTables, entry: PrintedTable, results: dict[str, list[SourceResult]]) -> str:
    """How many rows of a table each recorded result gives."""
    if not entry.reads:
        return "from the code"
    counts = {
        name: len(filled(tables, entry, Sources(tuple(one for one in held if one.kind in entry.reads))).measured)
        for name, held in results.items()
    }
    return ", ".join(f"{n} row{'s' * (n > 1)} from `{name}`" for name, n in counts.items() if n) or "no"


def page(text: str) -> str:
    """The page with its tables made afresh."""
    results = recorded()
    for paper, heading in HEADINGS.items():
        old = re.search(rf"{heading}[^\n]*\n\n((?:\|[^\n]*\n)+)", text)
        assert old is not None, f"{PAGE}: no table under {heading}"
        text = text[: old.start(1)] + table(PAPERS[paper], results) + "\n" + text[old.end(1) :]
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
