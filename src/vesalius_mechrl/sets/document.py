"""Heads that matter together and back each other up, as a file: `sets.json`."""

from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, computed_field, model_serializer, model_validator

from vesalius.documents.base import Document, Keyed, Record
from vesalius.documents.circuit import Score
from vesalius.documents.frozen import FrozenList, FrozenMap
from vesalius.documents.performance import Performance
from vesalius.documents.request import Request, whole_option
from vesalius.documents.views import Row, Viewable, join_first, made, subject_of

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


class HeadSets(Viewable, Keyed, Document, kind="sets"):
    """What a search of sets of heads found, and what of it held on other prompts.

    `components` have the largest effect of ablating a head in addition to some other set, `sets` are the best that were
    measured, `backup_groups` those confirmed on held-out prompts, `tested` all that were tested there, `synergies` the
    pairs with one on the prompts of the search (only where all pairs were measured). `price` is what a head costs and
    `least_synergy` the smallest synergy that counts, in the metric's unit; `complete` is False where the budget ended
    first. `pool` are the heads that were searched, `budget` the sets that could be measured.
    """

    FILE = SETS_FILE
    RANK = 80
    DRAWN_BY = "vesalius_mechrl.page_synergy"
    SCHEMA = 1
    COMMAND, VERB = "sets", "discover_sets"
    REMEDY = "run `vesalius sets` again"
    ABSENT_IF_EMPTY: ClassVar[tuple[str, ...]] = ("directory", "picture")

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

    def _summary(self) -> str:
        best = self.sets[0] if self.sets else None
        groups = join_first(["+".join(group.heads) for group in self.backup_groups], 5)
        strongest = f"\nbest set: {join_first(best.heads, 6)}, effect {best.effect:+.3g}" if best else ""
        subject = subject_of(self.specimen, self.behaviour)
        return (
            f"Sets of heads in {subject} by {self.search} search on {self.n} prompts, "
            f"{self.metrics.get('queries', 0):g} sets measured{strongest}\n"
            f"backup groups: {groups or 'none held on the held-out prompts'}"
        )

    def _rows(self) -> list[Row]:
        return [
            {"heads": "+".join(one.heads), "effect": one.effect, "low": one.low, "high": one.high, "value": one.value}
            for one in self.sets
        ]

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {
            name: value
            for name, value in handler(self).items()
            if value is not None or name not in self.ABSENT_IF_EMPTY
        }
