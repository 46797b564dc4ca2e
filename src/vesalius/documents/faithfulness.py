"""How much of a behaviour one circuit keeps when everything else is ablated, beside random circuits of its size."""

from typing import Literal

from vesalius.documents.base import Line, ResultDocument
from vesalius.documents.metric import Metric
from vesalius.documents.request import Request
from vesalius.documents.view import Answer, Facts, Sheet, View, subject_of

FAITHFULNESS_FILE = "faithfulness.json"


class Faithfulness(ResultDocument, kind="faithfulness"):
    """The faithfulness of a circuit of `size` out of `candidates` components or edges: 0 with everything ablated
    (`ablated`, a mean score), 1 for the whole model (`full`).

    `random` is the mean of `random_circuits` circuits of the same size. `heads_only`: the circuit is one of heads, and
    the MLPs are kept throughout. `forwards` the cost in forward passes of all
    prompts.
    """

    FILE = FAITHFULNESS_FILE
    RANK = 70
    COMMAND = VERB = "faithfulness"
    REMEDY = "run `vesalius faithfulness` again"

    request: Request
    by: Literal["components", "edges"]
    size: int
    candidates: int
    heads_only: bool = False
    faithfulness: Metric
    random: Metric
    random_circuits: int
    unit: str
    score: float
    full: float
    ablated: float
    forwards: float
    seconds: float

    def listed(self) -> Line:
        """What a list of results says of it: the share kept, beside that of random circuits."""
        title = f"{subject_of(self.request.specimen, self.request.behaviour)}, {self.size} {self.by}"
        figures = f"faithfulness {self.faithfulness.figures}, random {self.random.figures}"
        return Line(title, figures, seconds=self.seconds)

    def view(self) -> View:
        """The figure of the circuit beside that of random ones, and the scores behind them."""
        subject = subject_of(self.request.specimen, self.request.behaviour)
        figures = {"circuit": self.faithfulness, "random circuits of its size": self.random}
        rows = [(name, self.size, one.value, one.low, one.high, one.n) for name, one in figures.items()]
        return View(
            f"{subject}: faithfulness of a circuit",
            Answer(
                f"Faithfulness {self.faithfulness.figures} of {self.size} of {self.candidates} {self.by} in {subject}, "
                f"n {self.faithfulness.n}"
            ),
            [
                Facts(
                    [
                        (f"{self.random_circuits} random circuits of that size", self.random.figures),
                        (
                            "",
                            f"score {self.score:.4g} of the circuit, {self.full:.4g} of the model, {self.ablated:.4g} "
                            f"with everything ablated ({self.unit})",
                        ),
                    ]
                ),
                Sheet(("circuit", "size", "faithfulness", "low", "high", "n"), rows, terminal=0),
                Facts([("again", self.request.command_line())], terminal_only=True),
            ],
            command=self.request.command_line(),
        )
