"""Specimens that were trained and tasks that were generated: what `vesalius train` and `vesalius generate` print."""

from typing import Any

from pydantic import SerializerFunctionWrapHandler, model_serializer

from vesalius.documents.base import Keyed, Record
from vesalius.documents.frozen import FrozenMap
from vesalius.documents.views import Row, Viewable, join_first

#: The figures that a trained model is accepted by.
GATE = (
    "accuracy",
    "iia_worst",
    "iia_changed_worst",
    "strict_worst",
    "strict_all",
    "mean_ablated",
    "zero_ablated",
)


class TrainedSpecimen(Viewable, Keyed):
    """A specimen that was trained and accepted, with the figures of the gate on `n` fresh inputs.

    `iia` is the interchange accuracy of every component, `iia_changed` the same where the answer changes, `inert` the
    components that no interchange shows. `strict_worst` and `strict_all` are accuracies with one component, and with
    all, outside the circuit patched; `mean_ablated` and `zero_ablated` with all of them ablated.
    """

    name: str
    accuracy: float
    iia_worst: float
    iia_changed_worst: float
    strict_worst: float
    strict_all: float
    mean_ablated: float
    zero_ablated: float
    iia: FrozenMap[str, float]
    iia_changed: FrozenMap[str, float | None]
    inert: tuple[str, ...]
    accepted: bool
    n: int
    params: int
    attempts: int
    seconds: float
    directory: str

    @property
    def gate(self) -> dict[str, float]:
        """The figures that the model is accepted by."""
        return {name: getattr(self, name) for name in GATE}

    def _summary(self) -> str:
        tries = "1 try" if self.attempts == 1 else f"{self.attempts} tries"
        return (
            f"Trained specimen {self.name} in {self.directory}: accepted after {tries}, {self.params} weights, "
            f"{self.seconds:.1f} s\naccuracy {self.accuracy:.4f}, worst interchange accuracy {self.iia_worst:.4f}, "
            f"worst with a component outside patched {self.strict_worst:.4f}"
        )

    def _rows(self) -> list[Row]:
        return [
            {"component": name, "iia": value, "iia_changed": self.iia_changed.get(name), "inert": name in self.inert}
            for name, value in self.iia.items()
        ]


class TrainingRow(Record):
    """One of several programs trained together. One that `was_there` before has no figures."""

    name: str
    accepted: bool
    was_there: bool | None = None
    accuracy: float | None = None
    iia_worst: float | None = None
    iia_changed_worst: float | None = None
    strict_worst: float | None = None
    strict_all: float | None = None
    mean_ablated: float | None = None
    zero_ablated: float | None = None
    shortfalls: tuple[str, ...] | None = None
    directory: str | None = None

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if value is not None}


class TrainedSpecimens(Viewable, Keyed):
    """Several programs trained together: `accepted` of `n`."""

    n: int
    accepted: int
    specimens: tuple[TrainingRow, ...]

    def _summary(self) -> str:
        refused = [row.name for row in self.specimens if not row.accepted]
        rest = f"; not accepted: {join_first(refused, 5)}" if refused else ""
        return f"{self.accepted} of {self.n} programs trained and accepted{rest}"

    def _rows(self) -> list[Row]:
        return [row.as_data() for row in self.specimens]


class GeneratedTask(Record):
    """One task: its SPEC.py, the components that its program takes, its tokens and its longest input."""

    name: str
    path: str
    components: tuple[str, ...]
    vocab: tuple[Any, ...]
    max_len: int


class GeneratedTasks(Viewable, Keyed):
    """Fresh RASP tasks, the same for the same seed; `depth` is the longest chain of operators."""

    seed: int
    depth: int
    tasks: tuple[GeneratedTask, ...]

    def _summary(self) -> str:
        names = join_first([task.name for task in self.tasks], 5)
        return f"{len(self.tasks)} generated tasks of seed {self.seed}, depth {self.depth}: {names}"

    def _rows(self) -> list[Row]:
        return [
            {"name": task.name, "path": task.path, "components": " ".join(task.components), "max_len": task.max_len}
            for task in self.tasks
        ]
