"""What there is to study, as `vesalius specimens`, `show`, `models` and `behaviours` print it.

A `Listing` is a list with a short repr and a table, an `Entry` a dictionary whose keys are attributes as well:
`ves.specimens()[0].id` is `ves.specimens()[0]["id"]`. Both are plain JSON.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

from vesalius.documents.base import FrozenDict, FrozenList, JsonMap, Record
from vesalius.documents.view import (
    LONGEST_REPR,
    SHOWN_ROWS,
    Answer,
    Facts,
    Sheet,
    Text,
    View,
    Viewable,
    as_table,
    cut_text,
    html_table,
    repr_of_first,
)
from vesalius.values import JsonObject


class Entry(FrozenDict[str, Any]):
    """One entry of a catalogue; subclasses say which keys it has."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no {name!r}; it has {', '.join(self)}") from None

    def as_data(self) -> JsonObject:
        """Plain JSON data."""
        return dict(self)

    def row(self) -> JsonObject:
        """The entry as a row of a list."""
        return self.as_data()

    def problem_in_words(self) -> str:
        """What is wrong with it; empty where nothing is."""
        return ""


Item = TypeVar("Item", bound=Entry)


class Listing(list[Item]):
    """Entries of a catalogue in order."""

    def __getitem__(self, place: Any) -> Any:
        chosen = super().__getitem__(place)
        return Listing(chosen) if isinstance(place, slice) else chosen

    def __repr__(self) -> str:
        return repr_of_first((cut_text(repr(entry), LONGEST_REPR // 4) for entry in self), len(self), "[{}]")

    def _repr_html_(self) -> str:
        return html_table(self[:SHOWN_ROWS], total=len(self))

    def as_data(self) -> list[JsonObject]:
        """Plain JSON data: a list with one object for each entry."""
        return [entry.as_data() for entry in self]

    def view(self) -> View:
        """One line for each entry; below, what is wrong with some."""
        rows = [entry.row() for entry in self]
        problems = [entry.problem_in_words() for entry in self]
        kind = getattr(type(self[0]), "PLURAL", "entries") if self else "entries"
        none = "no installed package offers plug-ins" if not self else ""
        return View(
            kind,
            Answer(none or f"{len(self)} {kind}"),
            [Sheet.of(rows, terminal=10_000), *([Text(list(filter(None, problems)))] if any(problems) else [])],
        )

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

    PLURAL = "specimens"

    def __repr__(self) -> str:
        return f"{self.name} ({self.id}, {self.kind}): {self.layers} layers x {self.heads} heads"

    def row(self) -> JsonObject:
        """Its shape, and its components as far as they are few."""
        parts = self.components
        names = " ".join(parts) if len(parts) <= 10 else f"{parts[0]} ... {parts[-1]} ({len(parts)})"
        shape = f"{self.layers} x {self.heads} x {self.d_model}"
        return {"name": self.name, "id": self.id, "layers x heads x d_model": shape, "components": names}


class SpecimenDescription(Viewable, Record):
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
    examples: tuple[JsonMap, ...]
    vocab: tuple[Any, ...] | JsonMap
    max_len: int
    min_len: int

    def view(self) -> View:
        """Its shape, its vocabulary, and a few examples."""
        parts = " ".join(self.components[:12])
        more = f" ... ({len(self.components)} in all)" if len(self.components) > 12 else ""
        vocabulary = list(self.vocab) if isinstance(self.vocab, tuple) else dict(self.vocab)
        rows = [(example.get("input"), example.get("output")) for example in self.examples]
        none = "give --behaviour to see examples; `vesalius behaviours` lists them"
        return View(
            self.name,
            Answer(
                f"{self.name} ({self.kind}): {self.layers} layers x {self.heads} heads, d_model {self.d_model}, inputs "
                f"of {self.min_len} to {self.max_len} tokens"
            ),
            [
                Facts([("components", f"{parts}{more}")]),
                Facts([("vocabulary", str(vocabulary))]),
                Sheet(("input", "output"), rows, title="Examples") if rows else Text([none]),
            ],
        )


class ModelFamily(Entry):
    """A family of models that is read, with the `model_type`s of its configurations."""

    PLURAL = "families"

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
    trusted: bool
    problem: str | None

    PLURAL = "plug-ins"

    def row(self) -> JsonObject:
        """What it is, whose it is, and whether it can be used."""
        package, usable = f"{self.package} {self.version}", self.problem is None
        return {
            "name": self.name,
            "kind": self.kind,
            "package": package,
            "runs": self.target,
            "trusted": self.trusted,
            "usable": usable,
        }

    def problem_in_words(self) -> str:
        """Why it cannot be used."""
        if self.problem and not self.trusted:
            return self.problem  # it names them
        return f"{self.kind} {self.name} of {self.package}: {self.problem}" if self.problem else ""


class BehaviourEntry(Entry):
    """A behaviour by its name."""

    PLURAL = "behaviours"

    name: str
    description: str


class MeasuredBehaviour(Entry):
    """How well a model performs a behaviour: the fields of `Performance` after its name. `performs` is None where it
    cannot be asked, and `reason` says why.
    """

    PLURAL = "behaviours"

    name: str
    performs: bool | None

    def row(self) -> JsonObject:
        """How well it is performed, with intervals."""
        if self.performs is None:
            return {"behaviour": self.name, "performs": "not measured"}
        return {
            "behaviour": self.name,
            "performs": self.performs,
            "prefers the right answer [95 %]": with_interval(self.accuracy, self.accuracy_low, self.accuracy_high),
            "says it": f"{self.top1:.2f}",
            "logit difference [95 %]": with_interval(self.logit_difference, self.ld_low, self.ld_high),
            "n": self.n,
        }

    def problem_in_words(self) -> str:
        """Why it was not measured."""
        return self.reason if self.performs is None else ""


def with_interval(value: float | None, low: float | None, high: float | None) -> str:
    """A figure with its interval, where it has one."""
    if value is None:
        return "-"
    return f"{value:.2f}" if low is None or high is None else f"{value:.2f} [{low:.2f}, {high:.2f}]"
