"""Other circuits that keep a behaviour as well as the best one, and the experiment that distinguishes two of them."""

from typing import Literal

from vesalius.documents.base import Record
from vesalius.documents.metric import Metric

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
