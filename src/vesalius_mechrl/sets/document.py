"""Heads that matter together and back each other up, as a file: `sets.json`."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, computed_field, model_validator

from vesalius.documents.base import Document, Record
from vesalius.documents.circuit import Score
from vesalius.documents.frozen import FrozenList, FrozenMap
from vesalius.documents.performance import Performance
from vesalius.documents.request import Request, whole_option
from vesalius.documents.view import Answer, Facts, Sheet, Text, View, Viewable, join_first, made, prompts, subject_of

SETS_FILE = "sets.json"


class MeasuredSet(Record):
    """The effect of ablating some heads together, with its 95 % interval over the prompts; `value` is the effect less
    the price of each head.
    """

    heads: tuple[str, ...]
    effect: float
    low: float
    high: float
    value: float


class HeadEffect(Record):
    """The effect of ablating one head, with its 95 % interval."""

    id: str
    effect: float
    low: float
    high: float


class SetSynergy(Record):
    """The effect of a set beyond the sum of its single effects, with an interval that holds for all sets at once."""

    heads: tuple[str, ...]
    synergy: float
    low: float
    high: float
    verdict: Literal["backup", "series", "none"]


class BackupGroup(Record):
    """Heads that back each other up, on held-out prompts: the effect of all, of each alone, the surplus over their sum
    (`synergy`), and the sets inside the group that show it (`links`).
    """

    heads: tuple[str, ...]
    effect: float
    low: float
    high: float
    alone: tuple[HeadEffect, ...]
    sum_alone: float
    synergy: float
    links: tuple[SetSynergy, ...]


class HeadSets(Viewable, Document, kind="sets"):
    """What a search of sets of heads found, and what of it held on other prompts.

    `components` have the largest effect of ablating a head in addition to some other set, `sets` are the best that were
    measured, `backup_groups` those confirmed on held-out prompts, `tested` all that were tested there, `synergies` the
    pairs with one on the prompts of the search (only where all pairs were measured). `price` is what a head costs and
    `least_synergy` the smallest synergy that counts, in the metric's unit; `complete` is False where the budget ended
    first. `pool` are the heads that were searched, `budget` the sets that could be measured.
    """

    FILE = SETS_FILE
    RANK = 80
    SCHEMA = 1
    COMMAND, VERB = "sets", "discover_sets"
    REMEDY = "run `vesalius sets` again"
    ABSENT_IF_DEFAULT = ("directory", "picture")

    components: FrozenList[Score]
    sets: tuple[MeasuredSet, ...]
    backup_groups: tuple[BackupGroup, ...]
    tested: tuple[SetSynergy, ...]
    synergies: tuple[SetSynergy, ...]
    metrics: FrozenMap[str, int | float]
    unit: str
    price: float
    least_synergy: float
    complete: bool
    forwards: float
    seconds: float
    performance: Performance | None = None
    schema_version: Literal[1] = Field(default=1, alias="schema")
    request: Request
    pool: tuple[str, ...]
    budget: int
    directory: str | None = None
    picture: str | None = None

    @model_validator(mode="after")
    def _whole_numbers(self) -> Self:
        """Refuse options that are not numbers when a file is read, not when it is shown."""
        _ = self.n, self.least
        return self

    @computed_field
    @property
    def specimen(self) -> str | None:
        """The specimen, as it was asked for."""
        return self.request.specimen

    @computed_field
    @property
    def behaviour(self) -> str | None:
        """The behaviour of a natural model."""
        return self.request.behaviour

    @computed_field
    @property
    def method(self) -> str:
        """Always `sets`."""
        return "sets"

    @computed_field
    @property
    def search(self) -> str:
        """How sets were chosen: group, greedy, beam, prune, rl or pairs."""
        return str(self.request.options.get("search", "group"))

    @computed_field
    @property
    def kind(self) -> str:
        """What heads are replaced by: zero, mean, resample or value-bias."""
        return str(self.request.options.get("kind", "mean"))

    @computed_field
    @property
    def least(self) -> float:
        """The smallest synergy that counts, as a share of the clean score."""
        return float(str(self.request.options.get("least", 0.0)))

    @computed_field
    @property
    def n(self) -> int:
        """Prompts of the search, and of the confirmation, at most."""
        return whole_option(self.request, "n")

    @computed_field
    @property
    def seed(self) -> int:
        """Seed of the prompts and of the search."""
        return self.request.seed or 0

    def save(self, directory: Path | str) -> Path:
        """Write `sets.json` into a directory and return its path."""
        place = made(directory)
        self.model_copy(update={"directory": str(place)}).write(place / SETS_FILE)
        return place / SETS_FILE

    def view(self) -> View:
        """The best sets, the groups of heads that back each other up, and what the search cost."""
        best, metrics = self.sets[0] if self.sets else None, self.metrics
        groups = join_first(["+".join(group.heads) for group in self.backup_groups], 5)
        subject = subject_of(self.specimen, self.behaviour)
        strongest = [("best set", f"{join_first(best.heads, 6)}, effect {best.effect:+.3g}")] if best else []
        spent = "" if self.complete else " (budget spent)"
        return View(
            f"{subject}: sets of heads, {self.kind} ablation",
            Answer(
                f"Sets of heads in {subject} by {self.search} search on {prompts(self.n)}, "
                f"{metrics.get('queries', 0):g} sets measured"
            ),
            [
                Facts([*strongest, ("backup groups", groups or "none held on the held-out prompts")]),
                Sheet(
                    ("heads", "effect", "low", "high", "value"),
                    [("+".join(one.heads), one.effect, one.low, one.high, one.value) for one in self.sets],
                    title=f"Sets: effect in {self.unit}",
                    caption=f"clean {metrics['clean']:.3f} {self.unit}; effect = clean minus edited, value = effect "
                    f"less {self.price:.3g} per head",
                    signed=("effect", "value"),
                    terminal=5,
                ),
                *([self._groups()] if self.backup_groups else [Text(["no backup group held on the held-out prompts"])]),
                Facts(
                    [
                        (
                            f"{self.search} search",
                            f"{metrics['queries']} of {self.budget} queries{spent}, {metrics['queries_to_confirm']} to "
                            f"confirm; all pairs: {metrics['all_pairs']}; {self.forwards:.1f} forward-equivalents, "
                            f"{self.seconds:.1f} s",
                        )
                    ]
                ),
            ],
            command=self.request.command_line(),
            files=[
                (name, str(place))
                for name, place in (("picture", self.picture), ("directory", self.directory))
                if place is not None
            ],
        )

    def _groups(self) -> Sheet:
        rows = [
            (
                "+".join(group.heads),
                group.effect,
                group.low,
                group.high,
                " ".join(f"{member.effect:+.3f}" for member in group.alone),
                group.sum_alone,
                group.synergy,
            )
            for group in self.backup_groups
        ]
        columns = ("backup group", "together", "low", "high", "alone", "sum alone", "synergy")
        return Sheet(columns, rows, title="Heads that back each other up", signed=("together", "sum alone", "synergy"))
