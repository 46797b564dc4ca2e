"""What there is to study, as `vesalius specimens`, `show`, `models` and `behaviours` print it.

A `Listing` is a list with a short repr and a table, an `Entry` a dictionary whose keys are attributes as well:
`ves.specimens()[0].id` is `ves.specimens()[0]["id"]`. Both are plain JSON.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from vesalius.documents.base import FrozenDict, FrozenList, FrozenMap, Record
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
    html_table,
    repr_of_first,
    shortened,
    title_of,
)

#: Lines of reasons, and numbers of rows in one of them.
MOST_REASONS, MOST_NUMBERS = 20, 5


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

    def row(self) -> dict[str, Any]:
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
        return repr_of_first((shortened(repr(entry), LONGEST_REPR // 4) for entry in self), len(self), "[{}]")

    def _repr_html_(self) -> str:
        return html_table(self[:SHOWN_ROWS], total=len(self))

    def as_data(self) -> list[dict[str, Any]]:
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

    def row(self) -> dict[str, Any]:
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
    examples: tuple[FrozenMap[str, Any], ...]
    vocab: tuple[Any, ...] | FrozenMap[str, Any]
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
    problem: str | None = None

    PLURAL = "plug-ins"

    def row(self) -> dict[str, Any]:
        """What it is, whose it is, and whether it can be used."""
        package, usable = f"{self.package} {self.version}", self.problem is None
        return {"name": self.name, "kind": self.kind, "package": package, "usable": usable}

    def problem_in_words(self) -> str:
        """Why it cannot be used."""
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

    def row(self) -> dict[str, Any]:
        """How well it is performed, with intervals."""
        if self.performs is None:
            return {"behaviour": self.name, "performs": "not measured"}
        return {
            "behaviour": self.name,
            "performs": self.performs,
            "accuracy [95 %]": _figure({"value": self.accuracy, "low": self.accuracy_low, "high": self.accuracy_high}),
            "logit difference [95 %]": _figure(
                {"value": self.logit_difference, "low": self.ld_low, "high": self.ld_high}
            ),
            "top-1": f"{self.top1:.2f}",
            "n": self.n,
        }

    def problem_in_words(self) -> str:
        """Why it was not measured."""
        return self.reason if self.performs is None else ""


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

    def view(self) -> View:
        """Which rows can be used and why others cannot, then accuracy and metric of each split."""
        figures = {"accuracy": self.accuracy, self.metric_name: self.metric}
        words = [f"{name} {_figure(one)}" for name, one in figures.items() if one is not None]
        rows = f"{self.n_rows} row{'' if self.n_rows == 1 else 's'}"
        said = [row for row in self.rows if not row["kept"] or row["reason"]]
        lacking = [row for row in self.rows if row["kept"] and row.get("suggestion")]
        reasons = _same_reasons(said)
        if lacking:
            first, many = lacking[0], f"{len(lacking)} row{'' if len(lacking) == 1 else 's'}"
            reasons.append(f"{many} without a counterfactual; row {first['row']}: {first['suggestion']}")
        if self.note:
            reasons.append(self.note)
        before = [f"before every text the model reads {self.bos}"] if self.bos is not None else []
        return View(
            f"{title_of(self.behaviour)} on {self.model}",
            Answer(
                f"{title_of(self.behaviour)} on {self.model}: {self.n_kept} of {rows} can be used"
                f"{''.join(f', {one}' for one in words)}"
            ),
            [
                *([Text(before)] if before else []),
                *([Text(reasons, bullets=True, terminal=MOST_REASONS)] if reasons else []),
                Sheet.of(list(self.rows), title="Rows", terminal=0),
                self._splits(),
            ],
        )

    def _splits(self) -> Sheet:
        name = f"{self.metric_name} ({self.unit})" if self.unit else self.metric_name
        shown: dict[str, Mapping[str, Any]] = dict(self.splits)
        if len(shown) > 1:
            shown["all"] = {**self, "n": sum(part["n"] for part in shown.values())}
        rows = [
            (split, *(_figure(part[one]) if part.get(one) else "-" for one in ("accuracy", "metric")), part["n"])
            for split, part in shown.items()
        ]
        return Sheet(("split", "accuracy [95 %]", f"{name} [95 %]", "n"), rows, title="By split")


def _same_reasons(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line for each reason, with the rows that share it."""
    sharing: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        sharing.setdefault(row["reason"], []).append(row)
    lines = []
    for reason, same in sharing.items():
        numbers = [str(row["row"]) for row in same[:MOST_NUMBERS]]
        more = f" and {len(same) - MOST_NUMBERS} more" if len(same) > MOST_NUMBERS else ""
        hint = f" ({same[0]['suggestion']})" if not same[0]["kept"] and same[0].get("suggestion") else ""
        lines.append(f"row{'s' * (len(same) > 1)} {', '.join(numbers)}{more}: {reason}{hint}")
    return lines


def _figure(figure: Mapping[str, Any]) -> str:
    return _interval(figure["value"], figure.get("low"), figure.get("high"))


def _interval(value: float | None, low: float | None, high: float | None) -> str:
    """A figure with its interval, where it has one."""
    if value is None:
        return "-"
    return f"{value:.2f}" if low is None or high is None else f"{value:.2f} [{low:.2f}, {high:.2f}]"
