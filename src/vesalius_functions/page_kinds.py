"""Figure 5 of FIND for measured runs: how many functions of each kind an interpreter gets right, as bars."""

from collections.abc import Mapping, Sequence

from vesalius.report.plots import Picture, new_figure

COLOURS = ("#2166ac", "#b2182b", "#7f7f7f", "#2e7d4f", "#8c6bb1", "#d98c1f")


def draw_kinds(rows: Sequence[tuple[str, Mapping[str, float | None]]], *, title: str) -> Picture:
    """One group of bars per kind, one bar per run; a kind that a run does not have leaves its place empty."""
    kinds = list(dict.fromkeys(kind for _, figures in rows for kind in figures))
    figure = new_figure(max(4.6, 1.1 * len(kinds) + 1.5), 3.4)
    axes = figure.add_subplot()
    width = 0.8 / len(rows)
    for number, (name, figures) in enumerate(rows):
        drawn = [(place, value) for place, kind in enumerate(kinds) if (value := figures.get(kind)) is not None]
        places = [place + (number - (len(rows) - 1) / 2) * width for place, _ in drawn]
        axes.bar(places, [value for _, value in drawn], width, label=name, color=COLOURS[number % len(COLOURS)])
    axes.set_xticks(range(len(kinds)), kinds)
    axes.set(ylim=(0, 1.05), ylabel="share right", title=title)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), frameon=False)
    return figure
