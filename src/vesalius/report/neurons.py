"""The page of a circuit of neurons, from `neurons.json`: how much each number of them keeps, where they are, and what
the strongest do.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from vesalius.components import Component
from vesalius.documents.neurons import NeuronCircuit, NeuronDetail
from vesalius.documents.views import subject_of, title_of
from vesalius.report.faithfulness import Chart, draw_curve
from vesalius.report.html import duration, render, write
from vesalius.report.tables import Sheet, sheet

PAGE = "neurons.html"


@dataclass(frozen=True)
class Line:
    """One ranking's curve."""

    sizes: tuple[int, ...]
    shares: tuple[float, ...]
    faithfulness: tuple[float, ...]


@dataclass(frozen=True)
class Firing:
    """A prompt as a neuron sees it: every token with its activation, and a shade from -9 to 9."""

    id: str
    tokens: tuple[tuple[str, float, int], ...]


def draw_neurons(circuit: NeuronCircuit, directory: Path) -> Path:
    """Write the page of a circuit of neurons into a directory, and return its path."""
    html = render(
        "neurons.html",
        ["theme.js"],
        name=subject_of(circuit.request.specimen, circuit.request.behaviour),
        lede=_lede(circuit),
        facts=_facts(circuit),
        chart=_chart(circuit),
        points=_points(circuit),
        layers=_layers(circuit),
        scores=_scores(circuit),
        firing=[_firing(detail) for detail in circuit.details],
        size=circuit.size,
        command=circuit.request.command_line(),
    )
    return write(directory / PAGE, html)


def _lede(circuit: NeuronCircuit) -> str:
    return (
        f"{circuit.size:,} of {circuit.n_neurons:,} neurons keep {circuit.share.figures} of the behaviour on "
        f"{circuit.share.n} held-out prompts; as many at random keep {circuit.share.baseline or 0.0:.3f}."
    )


def _facts(circuit: NeuronCircuit) -> list[tuple[str, str]]:
    facts = [
        ("Scored by", f"{circuit.request.method}{_on_prompts(circuit.n)}, seed {circuit.request.seed}"),
        ("Chosen to keep", f"{circuit.keep:g}; kept {circuit.share_chosen:.3f} where they were chosen"),
    ]
    if performance := circuit.performance:
        facts.append((f"Accuracy on {title_of(circuit.request.behaviour or '')}", performance.accuracy_figures))
    return [*facts, ("Cost", f"{circuit.forwards:.1f} forward passes of the prompts, {duration(circuit.seconds)}")]


def _on_prompts(n: int | None) -> str:
    """On how many prompts; earlier files do not say."""
    return "" if n is None else f" on {n} prompt{'s' if n > 1 else ''}"


def _chart(circuit: NeuronCircuit) -> Chart:
    sizes = (0, *(point.size for point in circuit.curve))
    shares = tuple(size / circuit.n_neurons for size in sizes)
    names = {"by score": "share", "most changed": "magnitude", "random": "random"}
    return draw_curve(
        {
            name: Line(sizes, shares, (0.0, *(getattr(point, field) for point in circuit.curve)))
            for name, field in names.items()
        },
        parts="neurons",
    )


def _points(circuit: NeuronCircuit) -> Sheet:
    rows = [
        (
            f"{point.size:,}",
            *(f"{round(x, 3) + 0.0:.3f}" for x in (point.share, point.low, point.high, point.magnitude, point.random)),
        )
        for point in circuit.curve
    ]
    return sheet("", ("neurons", "share kept", "at least", "at most", "most changed", "random"), rows)


def _layers(circuit: NeuronCircuit) -> Sheet:
    """How many neurons of each layer are in the set, and their part of all magnitudes."""
    parts = [(Component.parse(row.id).layer, abs(row.score)) for row in circuit.components]
    count, total = Counter(layer for layer, _ in parts), sum(size for _, size in parts) or 1.0
    weight = {layer: sum(size for own, size in parts if own == layer) / total for layer in count}
    rows = [(layer, count[layer], round(weight[layer], 3)) for layer in sorted(count)]
    return sheet("", ("layer", "neurons kept", "share of all score magnitudes"), rows)


def _scores(circuit: NeuronCircuit) -> Sheet:
    """The strongest neurons with the intervals of their scores and the tokens that they write."""
    rows = []
    for detail in circuit.details:
        interval = "" if detail.low is None or detail.high is None else f"{detail.low:.3g} to {detail.high:.3g}"
        tokens = (" ".join(map(repr, some)) or "-" for some in (detail.raises, detail.lowers))
        rows.append((detail.id, f"{detail.score:.3g}", interval, *tokens))
    return sheet("", ("neuron", f"score ({circuit.unit})", "95 % interval", "raises", "lowers"), rows)


def _firing(detail: NeuronDetail) -> Firing:
    strongest = max(map(abs, detail.activations), default=0.0) or 1.0
    shades = (round(9 * value / strongest) for value in detail.activations)
    return Firing(detail.id, tuple(zip(detail.tokens, detail.activations, shades, strict=True)))
