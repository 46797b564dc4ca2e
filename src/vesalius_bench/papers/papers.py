"""The tables and figures of the three papers, filled from runs."""

from collections.abc import Sequence
from pathlib import Path

from vesalius.api.places import RUNS, Out, directory_for, require_place
from vesalius.errors import BadInput, choices, note
from vesalius.report.plots import save_figure
from vesalius_bench.papers import find, hyve, mechrl
from vesalius_bench.papers.documents import PaperContents, PaperTable
from vesalius_bench.papers.entries import Entry, PaperTables, filled, listed
from vesalius_bench.papers.page import draw_paper_figure
from vesalius_bench.papers.sources import Kind, Sources, find_sources, read_sources

PAPERS: dict[str, PaperTables] = {"hyve": hyve.TABLES, "mechrl": mechrl.TABLES, "find": find.TABLES}
Runs = Sequence[str | Path]


def paper_contents(paper: str, runs: Runs = ()) -> PaperContents:
    """Every table and figure of a paper ("hyve", "mechrl" or "find"): how many rows are published and measured, the
    command that measures it, and how ours differs. `runs` are results; by default those under `vesalius-runs`.
    """
    tables = tables_of(paper)
    sources = sources_for(runs, tables.entries, paper)
    return PaperContents(
        paper=tables.paper,
        published_in=tables.source,
        results=tuple(str(result.directory) for result in sources.results),
        entries=tuple(listed(tables, entry, sources) for entry in tables.entries),
    )


def paper_table(
    paper: str,
    table: str | int | None = None,
    *,
    figure: str | int | None = None,
    runs: Runs = (),
    out: Out = None,
) -> PaperTable:
    """One table or figure of a paper: the published rows as printed, and ours from `runs` (by default those under
    `vesalius-runs`). With `out` it is written there as JSON, and a figure is drawn as SVG and PNG.
    """
    tables = tables_of(paper)
    entry = entry_of(tables, table, figure)
    require_place(out)
    sources = sources_for(runs, [entry], f"{entry.id} of {paper}")
    document = filled(tables, entry, sources)
    if not out:
        return document
    place = directory_for(out, "paper")
    if entry.is_figure:
        document = document.model_copy(update={"pictures": _drawn(document, sources, place)})
    document.save(place)
    return document


def tables_of(paper: str) -> PaperTables:
    """The tables of a paper by its name."""
    if paper not in PAPERS:
        raise BadInput(f"paper {paper!r} does not exist; choose one of {choices(PAPERS)}")
    return PAPERS[paper]


def entry_of(tables: PaperTables, table: str | int | None, figure: str | int | None) -> Entry:
    """The entry that is asked for, by its number or its whole name."""
    if (table is None) == (figure is None):
        raise BadInput("name one table or one figure of the paper: `table` or `figure`")
    kind, asked = ("Table", str(table)) if figure is None else ("Figure", str(figure))
    ids = {entry.id: entry for entry in tables.entries if entry.id.startswith(kind)}
    wanted = f"{kind} {asked.strip().removeprefix(kind).strip()}".casefold()
    match = next((entry for id, entry in ids.items() if id.casefold() == wanted), None)
    if match is None:
        numbers = choices([id.removeprefix(f"{kind} ") for id in ids], 20)
        raise BadInput(f"{kind.lower()} {asked!r} of {tables.paper} does not exist; there are {numbers or 'none'}")
    return match


def sources_for(runs: Runs, entries: Sequence[Entry], subject: str) -> Sources:
    """The results that fill these entries: those named, or those under `vesalius-runs`."""
    reads: list[Kind] = [kind for entry in entries for kind in entry.reads]
    if runs:
        return read_sources([Path(run) for run in runs], reads=reads, subject=subject)
    return find_sources(Path(RUNS), reads=reads)


def _drawn(table: PaperTable, sources: Sources, place: Path) -> tuple[str, ...]:
    """The files of a figure; none where nothing was measured. Where each run has a picture of its own, they are
    numbered.
    """
    if not table.measured:
        note(f"{table.id}: nothing was measured, so nothing is drawn; to measure: {table.command}")
        return ()
    pictures = draw_paper_figure(table, [result.document for result in sources.results])
    names = [table.file_name + (f"-{number}" if len(pictures) > 1 else "") for number in range(1, len(pictures) + 1)]
    return tuple(
        str(save_figure(picture, place / f"{name}.{ending}"))
        for picture, name in zip(pictures, names, strict=True)
        for ending in ("svg", "png")
    )
