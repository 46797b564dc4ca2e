"""A circuit of single neurons, as a file: `neurons.json`."""

from pathlib import Path
from typing import Any

from pydantic import SerializerFunctionWrapHandler, model_serializer

from vesalius.documents.base import Line, Record, ResultDocument
from vesalius.documents.circuit import Score
from vesalius.documents.frozen import FrozenList
from vesalius.documents.metric import Metric
from vesalius.documents.performance import Performance
from vesalius.documents.request import Request
from vesalius.documents.views import Row, join_first, made, subject_of

NEURONS_FILE = "neurons.json"


class NeuronPoint(Record):
    """The share of the behaviour that `size` neurons keep on held-out prompts, with its 95 % interval, and what as many
    neurons keep that were ranked by how much their replacement changes what they write (`magnitude`) or at random.
    """

    size: int
    share: float
    low: float
    high: float
    magnitude: float
    random: float


class NeuronDetail(Record):
    """What one of the strongest neurons does.

    `low` and `high` are the 95 % interval of its score over the prompts (None for one prompt). `raises` and `lowers`
    are the tokens whose logits its output direction moves most where its activation is positive; an expert has no fixed
    direction, and one number as an output has no tokens. `tokens` are the prompt on which it fires most, `activations`
    its activation at each of them (of an expert, the length of what it adds).
    """

    id: str
    score: float
    low: float | None
    high: float | None
    raises: tuple[str, ...]
    lowers: tuple[str, ...]
    tokens: tuple[str, ...]
    activations: tuple[float, ...]


class NeuronCircuit(ResultDocument, kind="neurons"):
    """The smallest set of neurons found that keeps the share `keep` of a behaviour, all other neurons resampled.

    `components` are the neurons with their scores, means over `n` prompts (None in earlier files), strongest first, out
    of `n_neurons`. `share_chosen` is the share on the prompts that they were chosen by, `share` the one on held-out
    prompts, with random neurons of the same number as its baseline; `curve` has other sizes. `details` say more about
    the strongest. `unit` is what scores are measured in, `forwards` the cost in forward passes of all prompts.
    """

    FILE = NEURONS_FILE
    RANK = 40
    COMMAND = VERB = "neurons"
    REMEDY = "run `vesalius neurons` again"

    request: Request
    components: FrozenList[Score]
    n: int | None = None
    size: int
    n_neurons: int
    keep: float
    share_chosen: float
    share: Metric
    curve: tuple[NeuronPoint, ...]
    details: tuple[NeuronDetail, ...] = ()
    unit: str
    forwards: float
    seconds: float
    performance: Performance | None = None
    directory: str | None = None

    def save(self, directory: Path | str) -> Path:
        """Write `neurons.json` into a directory and return its path."""
        place = made(directory)
        self.model_copy(update={"directory": str(place)}).write(place / NEURONS_FILE)
        return place / NEURONS_FILE

    def listed(self) -> Line:
        """What a list of results says of it: how few neurons keep how much."""
        title = f"{subject_of(self.request.specimen, self.request.behaviour)}, {self.request.method}"
        figures = f"{self.size:,} of {self.n_neurons:,} neurons keep {self.share.figures}"
        return Line(title, figures, seconds=self.seconds)

    def _summary(self) -> str:
        subject = subject_of(self.request.specimen, self.request.behaviour)
        strongest = join_first([repr(one) for one in self.components], 5)
        return (
            f"{self.size} of {self.n_neurons} neurons keep {self.share.figures} of {subject} on {self.share.n} "
            f"held-out prompts (chosen to keep {self.keep:g})\nstrongest: {strongest}"
        )

    def _rows(self) -> list[Row]:
        return [point.model_dump() for point in self.curve]

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        absent = {name for name in ("directory", "performance", "n") if getattr(self, name) is None}
        return {name: value for name, value in handler(self).items() if name not in absent}
