"""Figures of the papers, from measured runs: stacked shares, bars by kind, and a grid of mean outputs."""

from collections.abc import Sequence

from vesalius.documents.paper import PaperRow, PaperTable
from vesalius.report.figures import Picture, new_figure
from vesalius.report.function_kinds import COLOURS, draw_kinds

#: Shares of at least this much have their figure printed.
READABLE = 0.06
SHADES = (*COLOURS, "#5b8fb9", "#d6777c", "#4d4d4d", "#86b892", "#b9a3d0", "#e8bf7d")


def draw_paper_figure(table: PaperTable) -> Picture:
    """The picture of a table whose rows hold shares: stacked for HyVE, side by side for FIND."""
    if table.paper == "find":
        return draw_kinds([(row.name, _numbers(row)) for row in table.measured], title=table.title)
    return draw_shares(table.measured, table.columns, title=f"HyVE {table.id}: {table.title}")


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
