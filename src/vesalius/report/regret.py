"""Pictures of a search: regret against queries paid, and how policies learned, both with bands over seeds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from vesalius.report.figures import save_figure

COLUMNS = 3
#: Learned policies are drawn in colours and thick, the others thin.
_LEARNED = ("one-hot", "per-head", "paper")
_COLOURS = plt.get_cmap("tab20")


def draw_regret(comparisons: Sequence[Mapping[str, Any]], path: Path, *, title: str) -> Path:
    """One panel per task: mean regret of every rival at each budget, with its 95 % band over seeds (PNG)."""
    figure, axes = _panels(len(comparisons))
    for panel, found in zip(axes, comparisons, strict=False):
        for place, method in enumerate(found["methods"]):
            name, budgets = method["method"], method["budgets"]
            learned = name.startswith(_LEARNED)
            style = {"color": _COLOURS(place % _COLOURS.N), "linewidth": 2.2 if learned else 1.1}
            panel.plot(budgets, method["mean"], label=name, linestyle="-" if learned else "--", **style)
            if method["low"] is not None:
                panel.fill_between(budgets, method["low"], method["high"], alpha=0.15, color=style["color"], lw=0)
        panel.set(xscale="log", title=f"{found['task']} (best {found['oracle']:.2f})")
        panel.set_xticks(method["budgets"], [f"{budget:g}" for budget in method["budgets"]], fontsize=7)
        panel.minorticks_off()
        panel.set_ylim(bottom=0)
        panel.spines[["top", "right"]].set_visible(False)
    return _finish(figure, axes, path, title=title, x="queries paid", y=f"regret ({comparisons[0]['unit']})")


def draw_learning(curves: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]], path: Path, *, title: str) -> Path:
    """One panel per policy: best reward in validation episodes while training, mean and range over seeds (PNG)."""
    figure, axes = _panels(len(curves))
    for panel, (name, runs) in zip(axes, curves.items(), strict=False):
        for place, task in enumerate(runs[0][0]["evaluation"]):
            steps = [point["step"] for point in runs[0]]
            values = np.array([[point["evaluation"][task] for point in run] for run in runs])
            panel.plot(steps, values.mean(0), color=f"C{place}", label=task)
            panel.fill_between(steps, values.min(0), values.max(0), color=f"C{place}", alpha=0.15, lw=0)
        panel.set(title=name)
        panel.tick_params(axis="x", labelsize=7)
        panel.spines[["top", "right"]].set_visible(False)
    return _finish(figure, axes, path, title=title, x="training steps", y="best reward found")


def _panels(n: int) -> tuple[Figure, list[Any]]:
    columns = min(n, COLUMNS)
    rows = -(-n // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(4.1 * columns, 3.1 * rows + 0.9), dpi=150, layout="constrained", squeeze=False
    )
    listed = list(axes.flat)
    for spare in listed[n:]:
        spare.set_visible(False)
    return figure, listed[:n]


def _finish(figure: Figure, axes: Sequence[Any], path: Path, *, title: str, x: str, y: str) -> Path:
    for panel in axes:
        panel.set_xlabel(x, fontsize=8)
    axes[0].set_ylabel(y)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(6, len(labels)), frameon=False, fontsize=8)
    figure.suptitle(title)
    return save_figure(figure, path)
