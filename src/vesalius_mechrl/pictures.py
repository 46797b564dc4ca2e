"""Pictures: regret against queries paid and how policies learned, with bands over seeds, and the synergy of pairs."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from vesalius.report.plots import Picture, new_figure, save_figure

COLUMNS = 3
#: Learned policies are thick lines that lie below the others, so that a rival of equal regret is seen on top of them.
_LEARNED = ("one-hot", "per-head", "paper", "single", "reward-encoder", "prompt-encoder")
_LEARNED_COLOURS = ("#c9b3e6", "#6a3fa0", "#f2b8a0", "#b5402a")
_RIVAL_COLOURS = ("C0", "C1", "C2", "C8", "C9", "black", "C6", "C7")
_MARKERS = "osDv^<>P"


def draw_regret(comparisons: Sequence[Mapping[str, Any]], *, title: str, held_out: Collection[str] = ()) -> Picture:
    """One panel per task: mean regret of every rival at each budget, with its 95 % band over seeds."""
    figure, axes = _panels(len(comparisons))
    for panel, comparison in zip(axes, comparisons, strict=False):
        for method, style in zip(
            comparison["methods"], _styles([m["method"] for m in comparison["methods"]]), strict=True
        ):
            budgets = method["budgets"]
            panel.plot(budgets, method["mean"], label=method["method"], **style)
            if method["low"] is not None:
                panel.fill_between(budgets, method["low"], method["high"], alpha=0.12, color=style["color"], lw=0)
        kind = ", held out" if comparison["task"] in held_out else ""
        panel.set(xscale="log", title=f"{comparison['task']}{kind} (best {comparison['oracle']:.2f})")
        ticks = comparison["methods"][-1]["budgets"]
        panel.set_xticks(ticks, [f"{budget:g}" for budget in ticks], fontsize=7)
        panel.minorticks_off()
        panel.set_ylim(bottom=0)
        panel.spines[["top", "right"]].set_visible(False)
    unit = comparisons[0]["unit"].replace(" - 1 * ", " less ")
    heading = f"{title}: mean regret and its 95 % band over seeds"
    return _finish(figure, axes, title=heading, x="queries paid", y=f"regret ({unit})")


def _styles(names: Sequence[str]) -> list[dict[str, Any]]:
    """A line for every rival: markers distinguish lines that lie on each other."""
    styles: list[dict[str, Any]] = []
    counts = {True: 0, False: 0}
    for name in names:
        learned = name.startswith(_LEARNED)
        place = counts[learned]
        counts[learned] += 1
        if learned:
            colour = _LEARNED_COLOURS[(place ^ 1) % len(_LEARNED_COLOURS)]
            styles.append({"color": colour, "linewidth": 3.2, "linestyle": "-", "zorder": 2})
        else:
            look = {"marker": _MARKERS[place % len(_MARKERS)], "markersize": 4, "markerfacecolor": "white"}
            styles.append(
                {
                    "color": _RIVAL_COLOURS[place % len(_RIVAL_COLOURS)],
                    "linewidth": 1.1,
                    "linestyle": "--",
                    "zorder": 3,
                    **look,
                }
            )
    return styles


def draw_learning(curves: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]], *, title: str) -> Picture:
    """One panel per policy: best reward in validation episodes while training, mean and range over seeds."""
    figure, axes = _panels(len(curves))
    for panel, (name, runs) in zip(axes, curves.items(), strict=False):
        for place, task in enumerate(runs[0][0]["evaluation"]):
            steps = [point["step"] for point in runs[0]]
            values = np.array([[point["evaluation"][task] for point in run] for run in runs])
            panel.plot(steps, values.mean(0), color=f"C{place}", label=task)
            panel.fill_between(steps, values.min(0), values.max(0), color=f"C{place}", alpha=0.15, lw=0)
        panel.set(title=name)
        panel.tick_params(axis="x", labelsize=7)
        panel.xaxis.set_major_locator(MaxNLocator(5))
        panel.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        panel.spines[["top", "right"]].set_visible(False)
    heading = f"{title}: mean and range over seeds"
    return _finish(figure, axes, title=heading, x="training steps", y="best reward in validation episodes")


def draw_collapse(curves: Mapping[str, Sequence[Sequence[Mapping[str, float]]]], heads: int, *, title: str) -> Picture:
    """How undecided every policy is about its first pick while it learns, each seed a line; dashed: any head alike."""
    figure = new_figure(5.6, 3.8)
    axes = figure.add_subplot()
    for place, (name, runs) in enumerate(curves.items()):
        for seed, run in enumerate(runs):
            steps, values = [point["step"] for point in run], [point["entropy"] for point in run]
            axes.plot(steps, values, color=f"C{place}", lw=1.4, label="_" if seed else name)
    axes.axhline(np.log(heads), color="0.5", ls="--", lw=1)
    axes.set(xscale="log", xlabel="training steps", ylabel="entropy of the first pick (nats)")
    axes.set_ylim(bottom=0)
    axes.set_title(f"{title}: does the policy collapse?", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    return figure


def _panels(n: int) -> tuple[Picture, list[Any]]:
    columns = min(n, COLUMNS)
    rows = -(-n // columns)
    figure = new_figure(4.1 * columns, 3.1 * rows + 0.9)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for spare in panels[n:]:
        spare.set_visible(False)
    return figure, panels[:n]


def _finish(figure: Picture, axes: Sequence[Any], *, title: str, x: str, y: str) -> Picture:
    for panel in axes:
        panel.set_xlabel(x, fontsize=8)
    for place in range(0, len(axes), COLUMNS):
        axes[place].set_ylabel(y, fontsize=8)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(6, len(labels)), frameon=False, fontsize=8)
    figure.suptitle(title)
    return figure


# The synergy map: one cell per pair of heads, blue where they back each other up and red where they work in series.

LABELLED_HEADS = 40


def draw_synergy(
    matrix: Float[np.ndarray, "head head"],
    heads: Sequence[str],
    path: Path,
    *,
    title: str,
    unit: str,
    marked: Sequence[tuple[str, ...]] = (),
) -> Path:
    """Write the symmetric matrix of pair synergies as a PNG; NaN stays blank, `marked` pairs get a frame."""
    reach = float(np.nanmax(np.abs(matrix))) if np.isfinite(matrix).any() else 0.0
    size = 2.6 + min(len(heads), LABELLED_HEADS) * 0.2
    figure = new_figure(size + 0.9, size)
    axes = figure.add_subplot()
    image = axes.imshow(matrix, cmap="RdBu", vmin=-(reach or 1.0), vmax=reach or 1.0, origin="lower")
    step = -(-len(heads) // LABELLED_HEADS)
    places = range(0, len(heads), step)
    axes.set_xticks(places, [heads[i] for i in places], rotation=90, fontsize=6)
    axes.set_yticks(places, [heads[i] for i in places], fontsize=6)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(title, fontsize=9)
    at = {head: i for i, head in enumerate(heads)}
    for pair in marked:
        for one, other in (pair, pair[::-1]):
            corner = (at[one] - 0.5, at[other] - 0.5)
            axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="black", linewidth=1))
    figure.colorbar(image, ax=axes, shrink=0.8, label=f"synergy ({unit}): d(ij) - d(i) - d(j)")
    return save_figure(figure, path)
