"""The effects of a sweep as a file: `sweep.json`."""

from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, computed_field, model_serializer

from vesalius.documents.base import Document, Record
from vesalius.documents.request import Request

SWEEP_FILE = "sweep.json"


class SweepRow(Record):
    """The effect of replacing one component (or, as `L0H1+L1H2`, a set), with its 95 % bootstrap interval."""

    id: str
    effect: float
    ci_low: float
    ci_high: float


class Sweep(Document):
    """Clean minus edited score of every component, most helpful first; `baseline` is the clean score.

    `forwards` is the cost in forward passes of all prompts.
    """

    SCHEMA = 2
    REMEDY = "run `vesalius sweep` again"

    schema_version: Literal[2] = Field(default=2, alias="schema")
    request: Request
    unit: str
    baseline: float
    baseline_low: float
    baseline_high: float
    components: tuple[SweepRow, ...]
    forwards: float
    seconds: float
    directory: str | None = None
    heatmap: str | None = None

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
    def kind(self) -> str:
        """What components are replaced by: zero, mean, resample or value-bias."""
        return str(self.request.options.get("kind", "zero"))

    @computed_field
    @property
    def pairs(self) -> bool:
        """Whether pairs of components were replaced."""
        return bool(self.request.options.get("pairs", False))

    @computed_field
    @property
    def n(self) -> int:
        """Prompts."""
        return int(str(self.request.options.get("n", 0)))

    @computed_field
    @property
    def seed(self) -> int:
        """Seed of the prompts and of the bootstrap."""
        return self.request.seed or 0

    @computed_field
    @property
    def split(self) -> str:
        """The pool that the prompts were drawn from."""
        return str(self.request.options.get("split", "test"))

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        files = ("directory", "heatmap")
        return {name: value for name, value in handler(self).items() if value is not None or name not in files}

    @classmethod
    def upgrade(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Schema 1 had no request; the components that were named are those that it lists."""
        named = {part for row in data.get("components", []) for part in row["id"].split("+")}
        request = {
            "command": "sweep",
            "specimen": data.get("specimen"),
            "behaviour": data.get("behaviour"),
            "components": sorted(named),
            "options": {name: data.get(name) for name in ("kind", "pairs", "n", "split")},
            "seed": data.get("seed"),
            "versions": {},
        }
        return {**data, "request": request}
