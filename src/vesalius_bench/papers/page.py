"""Figures of the papers, from measured runs: stacked shares, bars by kind, curves, and a grid of mean outputs."""

from collections.abc import Sequence
from typing import Any

from vesalius.report.plots import Picture, new_figure
from vesalius_bench.papers.documents import PaperRow, PaperTable
from vesalius_functions.documents import Selectivity
from vesalius_functions.page_kinds import COLOURS, draw_kinds
from vesalius_mechrl.documents import MechrlStudy
from vesalius_mechrl.pictures import draw_learning, draw_regret

#: Shares of at least this much have their figure printed.
READABLE = 0.06
#: Entities whose names fit beside the grid.
MOST_NAMED = 40
SHADES = (*COLOURS, "#5b8fb9", "#d6777c", "#4d4d4d", "#86b892", "#b9a3d0", "#e8bf7d")


def draw_paper_figure(table: PaperTable, documents: Sequence[Any]) -> list[Picture]:
    """The pictures of a figure: one for all runs where their rows hold shares, else one for each document."""
    if table.paper == "mechrl":
        return [_draw_search(table.id, one) for one in documents]
    if table.paper == "hyve":
        return [draw_shares(table.measured, table.columns, title=f"HyVE {table.id}: {table.title}")]
    if table.id == "Figure 5":
        return [draw_kinds([(row.name, _numbers(row)) for row in table.measured], title=table.title)]
    return [draw_selectivity(one.selectivity) for one in documents if one.selectivity is not None]


def _draw_search(id: str, study: MechrlStudy) -> Picture:
    title = f"{study.specimen}, {study.mode}"
    if id == "Figure regret":
        regret = [task.as_data() for task in study.regret]
        return draw_regret(regret, title=title, held_out=study.held_out)
    return draw_learning(study.curves, title=title)


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
