"""Specimens that were trained and tasks that were generated: what `vesalius train` and `vesalius generate` print."""

from typing import Any

from vesalius.documents.base import Record
from vesalius.documents.frozen import FrozenMap
from vesalius.documents.view import Answer, Facts, Sheet, Text, View, Viewable, join_first

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


class TrainedSpecimen(Viewable, Record):
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

    def view(self) -> View:
        """What was trained, and how it passed."""
        tries = "1 try" if self.attempts == 1 else f"{self.attempts} tries"
        rows = [(name, value, self.iia_changed.get(name), name in self.inert) for name, value in self.iia.items()]
        return View(
            f"Trained specimen {self.name}",
            Answer(
                f"Trained specimen {self.name} in {self.directory}: accepted after {tries}, {self.params} weights, "
                f"{self.seconds:.1f} s"
            ),
            [
                Facts(
                    [
                        (
                            "",
                            f"accuracy {self.accuracy:.4f}, worst interchange accuracy {self.iia_worst:.4f}, "
                            f"worst with a component outside patched {self.strict_worst:.4f}",
                        )
                    ]
                ),
                Facts([(name.replace("_", " "), f"{value:.4f}") for name, value in self.gate.items()]),
                Sheet(("component", "iia", "iia_changed", "inert"), rows, title="Components"),
            ],
            files=[("specimen", self.directory)],
        )


class TrainingRow(Record):
    """One of several programs trained together. One that `was_there` before has no figures."""

    ABSENT_IF_DEFAULT = (
        "was_there",
        "accuracy",
        "iia_worst",
        "iia_changed_worst",
        "strict_worst",
        "strict_all",
        "mean_ablated",
        "zero_ablated",
        "shortfalls",
        "directory",
    )

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


class TrainedSpecimens(Viewable, Record):
    """Several programs trained together: `accepted` of `n`."""

    n: int
    accepted: int
    specimens: tuple[TrainingRow, ...]

    def view(self) -> View:
        """Which programs were accepted, and why others were not."""
        refused = [row for row in self.specimens if not row.accepted]
        names = join_first([row.name for row in refused], 5)
        rest = f"; not accepted: {names}" if refused else ""
        why = [f"{row.name}: not accepted: {'; '.join(row.shortfalls or ())}" for row in refused]
        return View(
            "Trained specimens",
            Answer(f"{self.accepted} of {self.n} programs accepted{rest}"),
            [
                Sheet.of([row.as_data() for row in self.specimens], terminal=0),
                *([Text(why, bullets=True)] if why else []),
            ],
        )


class GeneratedTask(Record):
    """One task: its SPEC.py, the components that its program takes, its tokens and its longest input."""

    name: str
    path: str
    components: tuple[str, ...]
    vocab: tuple[Any, ...]
    max_len: int


class GeneratedTasks(Viewable, Record):
    """Fresh RASP tasks, the same for the same seed; `depth` is the longest chain of operators."""

    seed: int
    depth: int
    tasks: tuple[GeneratedTask, ...]

    def view(self) -> View:
        """The tasks, and how to train the first."""
        names = join_first([task.name for task in self.tasks], 5)
        rows = [(task.name, task.path, " ".join(task.components), task.max_len) for task in self.tasks]
        first = self.tasks[0]
        return View(
            "Generated tasks",
            Answer(f"{len(self.tasks)} generated tasks of seed {self.seed}, depth {self.depth}: {names}"),
            [
                Sheet(("name", "path", "components", "max_len"), rows),
                Facts([("train one with", f"vesalius train {first.path} --out specimens/{first.name}")]),
            ],
        )
