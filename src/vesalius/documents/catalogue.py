"""What there is to study, as `vesalius specimens`, `show`, `models` and `behaviours` print it.

A `Listing` is a list with a short repr and a table, an `Entry` a dictionary whose keys are attributes as well:
`ves.specimens()[0].id` is `ves.specimens()[0]["id"]`. Both are plain JSON.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from vesalius.documents.base import Keyed
from vesalius.documents.frozen import FrozenDict, FrozenList, FrozenMap
from vesalius.documents.views import (
    LONGEST_REPR,
    SHOWN_ROWS,
    Row,
    Viewable,
    as_table,
    html_table,
    join_first,
    repr_of_first,
    shortened,
    title_of,
)


class Entry(FrozenDict[str, Any]):
    """One entry of a catalogue; subclasses say which keys it has."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no {name!r}; it has {', '.join(self)}") from None

    def as_data(self) -> dict[str, Any]:
        """Plain JSON data."""
        return dict(self)


Item = TypeVar("Item", bound=Entry)


class Listing(list[Item]):
    """Entries of a catalogue in order."""

    def __getitem__(self, place: Any) -> Any:
        chosen = super().__getitem__(place)
        return Listing(chosen) if isinstance(place, slice) else chosen

    def __repr__(self) -> str:
        return repr_of_first((shortened(repr(entry), LONGEST_REPR // 4) for entry in self), len(self), "[{}]")

    def _repr_html_(self) -> str:
        return html_table(self[:SHOWN_ROWS], total=len(self))

    def as_data(self) -> list[dict[str, Any]]:
        """Plain JSON data: a list with one object for each entry."""
        return [entry.as_data() for entry in self]

    def table(self) -> Any:
        """The entries as a pandas DataFrame, or as `Rows` where pandas is not installed."""
        return as_table(self.as_data())


class SpecimenEntry(Entry):
    """One specimen in the list of all: its shape and its components."""

    id: str
    name: str
    kind: str
    components: Sequence[str]
    layers: int
    heads: int
    d_model: int

    def __repr__(self) -> str:
        return f"{self.name} ({self.id}, {self.kind}): {self.layers} layers x {self.heads} heads"


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


class ModelFamily(Entry):
    """A family of models that is read, with the `model_type`s of its configurations."""

    family: str
    model_types: Sequence[str]
    exact: bool


class PluginEntry(Entry):
    """A plug-in of an installed package. `problem` says why it cannot be used, None where nothing is known to be wrong
    with it.
    """

    kind: str
    name: str
    package: str
    version: str
    target: str
    problem: str | None = None


class BehaviourEntry(Entry):
    """A behaviour by its name."""

    name: str
    description: str


class MeasuredBehaviour(Entry):
    """How well a model performs a behaviour: the fields of `Performance` after its name. `performs` is None where it
    cannot be asked, and `reason` says why.
    """

    name: str
    performs: bool | None


class BehaviourReport(Viewable, Entry):
    """One behaviour on one model: which rows are kept and why others are not, and accuracy and metric, each
    `{value, low, high, n}`, of all rows and of each split (None where nothing is left to measure). `bos` is the token
    that is put before every text.
    """

    model: str
    bos: str | None
    behaviour: str
    n_rows: int
    n_kept: int
    rows: Sequence[Mapping[str, Any]]
    splits: Mapping[str, Any]
    accuracy: Mapping[str, Any] | None
    metric: Mapping[str, Any] | None
    metric_name: str
    unit: str
    performs: bool | None
    note: str | None

    def _summary(self) -> str:
        figures = {"accuracy": self.accuracy, self.metric_name: self.metric}
        words = [f"{name} {_figure(one)}" for name, one in figures.items() if one is not None]
        return (
            f"{title_of(self.behaviour)} on {self.model}: {self.n_kept} of {self.n_rows} rows can be used"
            f"{''.join(f', {one}' for one in words)}"
        )

    def _rows(self) -> list[Row]:
        return list(self.rows)


def _figure(figure: Mapping[str, Any]) -> str:
    low, high = figure.get("low"), figure.get("high")
    interval = "" if low is None or high is None else f" [{low:.2f}, {high:.2f}]"
    return f"{figure['value']:.2f}{interval}"
