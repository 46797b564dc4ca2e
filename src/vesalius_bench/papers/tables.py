"""The tables and figures of the three papers filled from runs, and runs side by side in the published tables."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vesalius.api.door import RUNS, directory_for, require_place
from vesalius.errors import BadInput, choices, note, result_kept
from vesalius.options import Out
from vesalius.report.plots import Picture, new_figure, save_figure
from vesalius_bench.papers.comparison import FIGURE_5, Comparison, compare_runs
from vesalius_bench.papers.documents import PUBLISHED, PaperContents, PaperEntry, PaperRow, PaperTable
from vesalius_bench.papers.figures import draw_curves, draw_texts
from vesalius_bench.papers.published import PAPERS, PaperTables, PrintedTable, ResultKind
from vesalius_bench.papers.rows import ROWS
from vesalius_bench.papers.sources import Sources, find_sources, read_sources, recorded_sources
from vesalius_bench.ratings.agreement import read_ratings_of, with_ratings
from vesalius_functions.documents import Selectivity
from vesalius_functions.knowledge.geography import installed
from vesalius_functions.page_kinds import COLOURS, draw_kinds
from vesalius_mechrl.pictures import draw_collapse, draw_learning, draw_regret

Runs = Sequence[str | Path]
INSTALL = "pip install 'vesalius[functions]'"
#: Shares of at least this much have their figure printed.
READABLE = 0.06
#: Entities whose names fit beside the grid.
MOST_NAMED = 40
#: Figures that are texts in boxes, those of them whose boxes follow one another, and the most boxes of a picture.
IN_A_ROW = {("hyve", "Figure 2"), ("find", "Figure 3"), ("find", "Figure A5")}
DRAWN_AS_TEXT = IN_A_ROW | {
    ("hyve", "Figure 1"),
    *(("find", f"Figure {number}") for number in ("1", "2", "4", "A2", "A3")),
}
MOST_BOXES = 16
SHADES = (*COLOURS, "#5b8fb9", "#d6777c", "#4d4d4d", "#86b892", "#b9a3d0", "#e8bf7d")


def paper_contents(paper: str, runs: Runs = ()) -> PaperContents:
    """Every table and figure of a paper ("hyve", "mechrl" or "find"): how many rows are published and measured, the
    command that measures it, and how ours differs. `runs` are results; by default those under `vesalius-runs`.
    """
    tables = tables_of(paper)
    sources = sources_for(runs, tables.entries, paper)
    pairs = [filled_or_recorded(tables, entry, sources, named=bool(runs)) for entry in tables.entries]
    read = dict.fromkeys(result.run for _, used in pairs for result in used.results)
    return PaperContents(
        paper=tables.paper,
        published_in=tables.source,
        results=tuple(read),
        entries=tuple(
            PaperEntry(
                id=entry.id,
                title=table.title,
                published=len(table.published),
                measured=len(table.measured),
                command=table.command,
                differs=table.differs,
                recorded=table.recorded,
                models=tuple(dict.fromkeys(row.model for row in table.measured if row.model)),
                needs="" if table.measured else entry.needs,
            )
            for entry, (table, _) in zip(tables.entries, pairs, strict=True)
        ),
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
    document, sources = filled_or_recorded(tables, entry, sources, named=bool(runs))
    if not out:
        return document
    place = directory_for(out, "paper")
    with result_kept(document):
        if entry.is_figure:
            document = document.model_copy(update={"pictures": _drawn(document, sources, place)})
        document.save(place)
    return document


def compare(
    runs: Sequence[str | Path], *, ratings: str | Path | Sequence[str | Path] = (), out: Out = None
) -> Comparison:
    """Runs side by side: of the circuits and the functions benchmark in the published tables; of runs of circuits and
    of explanations (made by `ves.explain` with `out`) also the calls, tokens, cost and seconds by stage and component.

    `ratings` are files of ratings or directories of an annotation: what people gave the texts of these runs then stands
    beside what judges gave them. With `out`, Figure 5 of the functions runs is drawn there as SVG and PNG.
    """
    require_place(out)
    comparison = compare_runs([Path(run) for run in runs])
    if out:
        pictured = next((table for table in comparison.tables if table.id == FIGURE_5), None)
        measured = [] if pictured is None else [(name, row) for name, _, row in pictured.measured()]
        if pictured is None or not any(row for _, row in measured):
            raise BadInput("`out`: there is nothing to draw; give a finished run of `vesalius bench functions`")
        place = directory_for(out, "compare")
        with result_kept(comparison):
            _save(draw_kinds(measured, title=pictured.title), place / "find-figure-5")
    files = [Path(ratings)] if isinstance(ratings, str | Path) else [Path(file) for file in ratings]
    return with_ratings(comparison, read_ratings_of(files)) if files else comparison


def tables_of(paper: str) -> PaperTables:
    """The tables of a paper by its name."""
    if paper not in PAPERS:
        raise BadInput(f"paper {paper!r} does not exist; choose one of {choices(PAPERS)}")
    return PAPERS[paper]


def entry_of(tables: PaperTables, table: str | int | None, figure: str | int | None) -> PrintedTable:
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


def sources_for(runs: Runs, entries: Sequence[PrintedTable], subject: str) -> Sources:
    """The results that fill these entries: those named, or those under `vesalius-runs`."""
    reads: list[ResultKind] = [kind for entry in entries for kind in entry.reads]
    if runs:
        return read_sources([Path(run) for run in runs], reads=reads, subject=subject)
    return find_sources(Path(RUNS), reads=reads)


def filled_or_recorded(
    tables: PaperTables, entry: PrintedTable, sources: Sources, *, named: bool
) -> tuple[PaperTable, Sources]:
    """The document of an entry and the results that fill it: those given, or, unless the caller `named` them, the
    recorded ones where they fill nothing.
    """
    own = sources.filling(entry.id, entry.reads)
    table = filled(tables, entry, own)
    if named or table.measured or not entry.reads:
        return table, own
    kept = recorded_sources().filling(entry.id, entry.reads)
    recorded = filled(tables, entry, kept)
    return (recorded.model_copy(update={"recorded": True}), kept) if recorded.measured else (table, own)


def filled(tables: PaperTables, entry: PrintedTable, sources: Sources) -> PaperTable:
    """The document of an entry: the published rows and ours; rows without any figure are left out."""
    rows = ROWS[tables.paper][entry.id](sources)
    measured = [row for row in rows if any(value is not None for value in row.values.values())]
    columns = dict.fromkeys((*entry.columns, *(column for row in measured for column in row.values)))
    ready = all(map(installed, entry.data))
    return PaperTable(
        paper=tables.paper,
        id=entry.id,
        title=entry.title,
        columns=tuple(columns),
        published_in=f"{tables.source}, {entry.id}",
        note=entry.note,
        published=tuple(PaperRow(name=name, source=PUBLISHED, values={**row}) for name, row in entry.rows.items()),
        measured=tuple(measured),
        command=entry.command if ready else f"{entry.command}, after {INSTALL}",
        differs=entry.differs,
    )


def _drawn(table: PaperTable, sources: Sources, place: Path) -> tuple[str, ...]:
    """The files of a figure; none where nothing was measured. Where each run has a picture of its own, they are
    numbered.
    """
    if not table.measured:
        note(f"{table.id}: nothing was measured, so nothing is drawn; to measure: {table.command}")
        return ()
    pictures = _pictures(table, sources)
    marks = [f"-{number}" for number in range(1, len(pictures) + 1)] if len(pictures) > 1 else [""]
    named = zip(pictures, marks, strict=True)
    return tuple(file for picture, mark in named for file in _save(picture, place / f"{table.file_name}{mark}"))


def _save(picture: Picture, place: Path) -> list[str]:
    return [str(save_figure(picture, place.with_name(f"{place.name}.{ending}"))) for ending in ("svg", "png")]


def _pictures(table: PaperTable, sources: Sources) -> list[Picture]:
    """The pictures of a figure: one for all runs where their rows hold shares or texts, else one for each document."""
    documents: list[Any] = [result.document for result in sources.results]
    title = f"{table.paper.upper() if table.paper == 'find' else 'HyVE'} {table.id}: {table.title}"
    if (table.paper, table.id) == ("find", "Figure A1"):
        curves = draw_curves(sources)
        return [] if curves is None else [curves]
    if (table.paper, table.id) in DRAWN_AS_TEXT:
        return [draw_texts(table.measured[:MOST_BOXES], title=title, arrows=(table.paper, table.id) in IN_A_ROW)]
    if table.id == "Figure regret":
        return [
            draw_regret(
                [task.as_data() for task in study.regret],
                title=f"{study.specimen}, {study.mode}",
                held_out=study.held_out,
            )
            for study in documents
        ]
    if table.id == "Figure collapse":
        drawn = [(study, study.as_data()["entropy"]) for study in documents if study.entropy]
        return [draw_collapse(curves, one.heads, title=f"{one.specimen}, {one.mode}") for one, curves in drawn]
    if table.paper == "mechrl":
        return [draw_learning(study.curves, title=f"{study.specimen}, {study.mode}") for study in documents]
    if table.paper == "hyve":
        return [draw_shares(table.measured, table.columns, title=title)]
    if table.id == "Figure 5":
        return [draw_kinds([(row.name, _numbers(row)) for row in table.measured], title=table.title)]
    return [draw_selectivity(one.selectivity) for one in documents if one.selectivity is not None]


def draw_selectivity(selectivity: Selectivity) -> Picture:
    """Mean output of every entity function (row) on the words of every entity (column)."""
    n = len(selectivity.entities)
    side = min(9.0, max(4.2, 0.22 * n + 2.0))
    figure = new_figure(side + 0.8, side)
    axes = figure.add_subplot()
    means = [[float("nan") if value is None else value for value in row] for row in selectivity.means]
    image = axes.imshow(means, cmap="Blues", vmin=0, vmax=1)
    if n <= MOST_NAMED:
        axes.set_xticks(range(n), selectivity.entities, rotation=90, fontsize=7)
        axes.set_yticks(range(n), selectivity.entities, fontsize=7)
    axes.set(xlabel="words of this entity", ylabel="function of this entity")
    share = selectivity.diagonal_largest
    axes.set_title(f"FIND Figure A4: own words largest in {share.value:.2f} of {share.n} rows", fontsize=10)
    figure.colorbar(image, label="mean output", shrink=0.8)
    return figure


def draw_shares(rows: Sequence[PaperRow], columns: Sequence[str], *, title: str) -> Picture:
    """One stacked bar per run, a piece per column."""
    figure = new_figure(7.2, 1.5 + 0.5 * len(rows))
    axes = figure.add_subplot()
    left = [0.0] * len(rows)
    for place, column in enumerate(columns):
        shares = [_numbers(row).get(column, 0.0) for row in rows]
        bars = axes.barh(range(len(rows)), shares, left=left, label=column, color=SHADES[place % len(SHADES)])
        labels = [f"{share:.2f}" if share >= READABLE else "" for share in shares]
        axes.bar_label(bars, labels, label_type="center", color="white", fontsize=8)
        left = [before + share for before, share in zip(left, shares, strict=True)]
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.invert_yaxis()
    axes.set(xlim=(0, 1), xlabel="share")
    axes.set_title(title, loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=min(4, len(columns)), frameon=False, fontsize=8)
    return figure


def _numbers(row: PaperRow) -> dict[str, float]:
    return {name: value for name, value in row.values.items() if isinstance(value, int | float)}
