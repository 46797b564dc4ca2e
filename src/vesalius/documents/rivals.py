"""Other circuits that keep a behaviour as well as the best one, and the experiment that distinguishes two of them."""

from collections.abc import Sequence
from typing import Literal

from vesalius.components import Edge
from vesalius.documents.base import Record
from vesalius.documents.metric import Metric
from vesalius.documents.view import Facts, Section, Sheet, Text

By = Literal["components", "edges"]


def circuit_name(place: int) -> str:
    """What a circuit is called by its place."""
    return "best" if place == 0 else f"rival {place}"


class RivalCircuit(Record):
    """A circuit that one search led to: its components (and its edges, where rivals are searched by edges), what it
    keeps on the prompts of the search (`searched`) and on held-out prompts (`faithfulness`), its Jaccard index with the
    best circuit, and whether it is as faithful as that on held-out prompts, less the tolerance.
    """

    components: tuple[str, ...]
    edges: tuple[str, ...] = ()
    search: str
    searched: float
    faithfulness: Metric
    overlap: float
    as_faithful: bool


class Exchange(Record):
    """A component (or edge) of one circuit that one of another replaces: what the first circuit keeps without `one`,
    and with `other` in its place; `synergy` is what ablating both in the whole model costs beyond the two alone, as a
    share of the behaviour: positive for backups.
    """

    one: str
    other: str
    without: float
    exchanged: float
    synergy: float


class Distinction(Record):
    """An ablation of components that one of two circuits has and the other has not, carried out on the whole model; of
    each circuit's own components the one whose outcome the two predict most differently.

    Predictions and outcome are shares of the behaviour that stay; a circuit's prediction is what it alone keeps with
    the same components ablated. `supports` is the circuit whose prediction lies nearer to the outcome; "neither" where
    the predictions are within the tolerance, the interval of the outcome holds the middle between them, or the ablation
    of the other circuit's components speaks for the other circuit.
    """

    first: int
    second: int
    ablated: tuple[str, ...]
    first_predicts: float
    second_predicts: float
    outcome: Metric
    supports: Literal["first", "second", "neither"]

    @property
    def verdict(self) -> str:
        """The circuit that the outcome speaks for."""
        places = {"first": self.first, "second": self.second}
        return circuit_name(places[self.supports]) if self.supports in places else "neither"


class Rivals(Record):
    """Circuits that keep at least `least_kept` of the behaviour, the best first, with as little overlap as was found.

    `by` says what circuits are made of. `core` is in all that are as faithful as the best, `exchangeable` are pairs
    shown by an intervention. `n` held-out prompts; `forwards` the work in forward passes of all prompts of the
    discovery.
    """

    by: By = "components"
    asked: int
    least_kept: float
    tolerance: float
    n: int
    circuits: tuple[RivalCircuit, ...]
    core: tuple[str, ...]
    exchangeable: tuple[Exchange, ...] = ()
    distinctions: tuple[Distinction, ...] = ()
    forwards: float
    seconds: float

    def sections(self) -> list[Section]:
        """The circuits, what all share, what is exchangeable, and what distinguishes them."""
        part = self.by[:-1]
        circuits = [
            (
                circuit_name(place),
                named(row.edges or row.components),
                row.faithfulness.figures,
                row.overlap,
                row.as_faithful,
            )
            for place, row in enumerate(self.circuits)
        ]
        core = f"core of those as faithful as the best: {named(self.core) or 'nothing'}"
        sections: list[Section] = [
            Text(
                [
                    f"Each circuit keeps at least {self.least_kept:g} of the behaviour on the discovery's prompts. The "
                    f"best was cut by removing the weakest {self.by} first, a rival by removing what earlier circuits "
                    f"hold first. A rival is as faithful as the best if it keeps as much, less {self.tolerance:g}, on "
                    f"{self.n} held-out prompts. Overlap is the Jaccard index with the best."
                ],
                pages_only=True,
            ),
            Sheet(("circuit", self.by, "faithfulness", "overlap", "as faithful"), circuits),
            Text([f"No rival was found; {core}." if len(self.circuits) == 1 else f"{core}."]),
        ]
        if self.exchangeable:
            rows = [(one.one, one.other, one.without, one.exchanged, one.synergy) for one in self.exchangeable]
            rows = [(named([one]), named([other]), *more) for one, other, *more in rows]
            columns = (f"{part} of the best", "exchangeable for", "without it", "exchanged", "synergy")
            caption = (
                f"What the best circuit keeps without a {part} of its own, and with one of a rival in its place. "
                "Synergy is what ablating both costs the whole model beyond the two alone: positive for backups."
            )
            sections.append(Sheet(columns, rows, title="Exchangeable", caption=caption, signed=("synergy",)))
        if self.distinctions:
            distinctions = [
                (
                    named(one.ablated),
                    f"{circuit_name(one.first)} predicts {one.first_predicts:.2f}",
                    f"{circuit_name(one.second)} {one.second_predicts:.2f}",
                    one.outcome.figures,
                    one.verdict,
                )
                for one in self.distinctions
            ]
            caption = (
                f"For each pair, the ablation of the one's own {self.by} and of the other's whose outcome the two "
                "predict most differently: a circuit predicts what it alone keeps under it. The outcome is that of the "
                "whole model. Where the two ablations contradict each other, because parts back each other up, they "
                "speak for neither circuit."
            )
            columns = ("ablating", "prediction", "other prediction", "the model keeps", "which speaks for")
            sections.append(Sheet(columns, distinctions, title="What distinguishes them", caption=caption))
        cost = f"{self.n} held-out prompts, {self.forwards:.1f} forward-equivalents, {self.seconds:.1f} s"
        sections.append(Facts([("rivals", f"{len(self.circuits) - 1} of {self.asked} found, {cost}")]))
        return sections


def named(parts: Sequence[str]) -> str:
    """Names of components or edges as every screen writes them: L1H2, L0_MLP->L1H2."""
    return ", ".join(Edge.parse(part).format("canonical") if "->" in part else part for part in parts)
