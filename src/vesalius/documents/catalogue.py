"""What there is to study, as `vesalius specimens`, `show`, `models` and `behaviours` print it.

Lists of entries are a `Listing`: a tuple whose table and JSON are those of its entries. Entries can be read by the name
of a field, as in `ves.specimens()[0]["id"]`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from vesalius.documents.base import Keyed
from vesalius.documents.frozen import FrozenDict, FrozenList, FrozenMap
from vesalius.documents.performance import Performance
from vesalius.documents.views import Row, Several, Viewable, as_table, join_first, title_of

Entry = TypeVar("Entry", bound=Keyed, covariant=True)


class Listing(Several[Entry]):
    """Entries of a catalogue in order."""

    def __getitem__(self, place: Any) -> Any:
        chosen = super().__getitem__(place)
        return Listing(chosen) if isinstance(place, slice) else chosen

    def as_data(self) -> list[dict[str, Any]]:
        """Plain JSON data: a list with one object for each entry."""
        return [entry.as_data() for entry in self]

    def table(self) -> Any:
        """The entries as a pandas DataFrame, or as `Rows` where pandas is not installed."""
        return as_table(self.as_data())


class SpecimenEntry(Viewable, Keyed):
    """One specimen in the list of all: its shape and its components."""

    id: str
    name: str
    kind: str
    components: FrozenList[str]
    layers: int
    heads: int
    d_model: int

    def _summary(self) -> str:
        return f"{self.name} ({self.id}, {self.kind}): {self.layers} layers x {self.heads} heads"

    def _rows(self) -> list[Row]:
        return [self.as_data()]


class SpecimenDescription(Viewable, Keyed):
    """A specimen's shape, components, vocabulary and a few examples. `vocab` lists the tokens, or says of a vocabulary
    that is too long for that what it is and how large.
    """

    id: str
    name: str
    kind: str
    components: FrozenList[str]
    layers: int
    heads: int
    d_model: int
    examples: tuple[FrozenMap[str, Any], ...]
    vocab: tuple[Any, ...] | FrozenMap[str, Any]
    max_len: int
    min_len: int

    def _summary(self) -> str:
        return (
            f"{self.name} ({self.kind}): {self.layers} layers x {self.heads} heads, d_model {self.d_model}, inputs of "
            f"{self.min_len} to {self.max_len} tokens\ncomponents: {join_first(self.components, 8)}"
        )

    def _rows(self) -> list[Row]:
        return list(self.examples)


class ModelFamily(Keyed):
    """A family of models that is read, with the `model_type`s of its configurations."""

    family: str
    model_types: tuple[str, ...]
    exact: bool


class NamedEntry(Keyed):
    """An entry with a name, which comes first."""

    name: str


class BehaviourEntry(NamedEntry):
    """A behaviour by its name."""

    description: str


class MeasuredBehaviour(Performance, NamedEntry):
    """How well a model performs a behaviour."""


class UnmeasuredBehaviour(NamedEntry):
    """A behaviour that a model cannot be asked, and why."""

    performs: None = None
    reason: str


class BehaviourReport(Viewable, Keyed):
    """One behaviour on one model: which rows are kept and why others are not, and accuracy and metric, each
    `{value, low, high, n}`, of all rows and of each split (None where nothing is left to measure). `bos` is the token
    that is put before every text.
    """

    model: str
    bos: str | None
    behaviour: str
    n_rows: int
    n_kept: int
    rows: FrozenList[Mapping[str, Any]]
    splits: FrozenMap[str, Any]
    accuracy: FrozenMap[str, Any] | None
    metric: FrozenMap[str, Any] | None
    metric_name: str
    unit: str
    performs: bool | None
    note: str | None

    def __getitem__(self, field: str) -> Any:
        if field not in type(self).model_fields:
            raise KeyError(field)
        return getattr(self, field)

    def __contains__(self, field: object) -> bool:
        return field in type(self).model_fields

    def keys(self) -> Iterable[str]:
        """The names of its fields."""
        return type(self).model_fields.keys()

    def _summary(self) -> str:
        figures = {"accuracy": self.accuracy, self.metric_name: self.metric}
        words = [f"{name} {_figure(one)}" for name, one in figures.items() if one is not None]
        return (
            f"{title_of(self.behaviour)} on {self.model}: {self.n_kept} of {self.n_rows} rows can be used"
            f"{''.join(f', {one}' for one in words)}"
        )

    def _rows(self) -> list[Row]:
        return [FrozenDict(row) for row in self.rows]


def _figure(figure: Mapping[str, Any]) -> str:
    low, high = figure.get("low"), figure.get("high")
    interval = "" if low is None or high is None else f" [{low:.2f}, {high:.2f}]"
    return f"{figure['value']:.2f}{interval}"
