"""One judge: a language model that gives one score at a time, asked twice with the texts in either order. A malformed
answer, or one with two different scores, is asked for again once.

The lower of the two scores counts, so that a preference for the first or the last text earns nothing, and where they
differ that is kept for the count. A call that fails gives an error and no score: infrastructure is never a zero.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vesalius.backbones import Backbone, BackboneError
from vesalius.backbones.json_repair import objects
from vesalius.errors import BadInput, choices
from vesalius.grading.judges.measures import MEASURES, MeasureName
from vesalius.grading.judges.prompts import ORDERS, Order, prompt

#: A reason is for reading, not for scoring: a long one is cut, not refused.
MOST_REASON = 500
#: How often a malformed answer is asked for again.
REASKS = 1


class _TwoSteps(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, title="Verdict")

    reason: str
    score: int = Field(ge=0, le=1)


class _ThreeSteps(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, title="Verdict")

    reason: str
    score: int = Field(ge=0, le=2)


_SHAPES: dict[int, type[_TwoSteps] | type[_ThreeSteps]] = {1: _TwoSteps, 2: _ThreeSteps}


class Opinion(BaseModel):
    """One answer of one judge. `error` and `kind` say why there is no score (`kind` as `BackboneError.kind`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    judge: str
    order: Order
    score: int | None = None
    reason: str = ""
    error: str = ""
    kind: str = ""
    cost: float | None = 0.0


class Judgement(BaseModel):
    """Both answers of one judge."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    judge: str
    opinions: tuple[Opinion, ...]

    @property
    def score(self) -> int | None:
        """The lower of the two; None if either is missing."""
        scores = [opinion.score for opinion in self.opinions if opinion.score is not None]
        return min(scores) if len(scores) == len(self.opinions) else None

    @property
    def consistent(self) -> bool | None:
        """Whether the order made no difference; None if that is not known."""
        if self.score is None or len(self.opinions) < len(ORDERS):
            return None
        return len({opinion.score for opinion in self.opinions}) == 1


class Judge:
    """A language model that scores texts by our rubrics. `name` stands in results; it is the model's unless given."""

    def __init__(self, backbone: Backbone, *, name: str | None = None) -> None:
        self.backbone = backbone
        self.name = name or backbone.name

    def score(
        self, measure: MeasureName, reference: str, candidate: str, *, context: str = "", scope: str = "judge"
    ) -> Judgement:
        """Score a text against what it is measured by.

        `reference` is the true note or description, or for the diagnostics the hypothesis a plan tests and the
        observation a hypothesis rests on; `context` says what the whole model computes. `scope` is the part of a run
        this belongs to: calls are recorded under `SCOPE/ORDER`, so that a resumed run repeats none.
        """
        if measure not in MEASURES:
            raise BadInput(f"measure {measure!r}: judges know {choices(MEASURES)}")
        texts = {"reference": reference, "candidate": candidate, "context": context}
        opinions = [self._opinion(measure, texts, order, f"{scope}/{order}") for order in ORDERS]
        return Judgement(judge=self.name, opinions=tuple(opinions))

    def _opinion(self, measure: MeasureName, texts: dict[str, str], order: Order, scope: str) -> Opinion:
        shape = _SHAPES[MEASURES[measure].best]
        origin: dict[str, Any] = {"judge": self.name, "order": order}

        def problem(text: str) -> str:
            scores = {verdict.score for verdict in _verdicts(text, shape)}
            return "" if len(scores) == 1 else f"it has {'two different scores' if scores else 'no score'}; give one"

        try:
            reply = self.backbone.within(scope).chat(
                prompt(measure, **texts, order=order), schema=shape, label=scope, check=problem, reasks=REASKS
            )
        except BackboneError as failure:
            return Opinion(**origin, error=str(failure), kind=failure.kind, cost=failure.cost)
        verdict = _verdicts(reply.text, shape)[0]
        return Opinion(**origin, score=verdict.score, reason=verdict.reason[:MOST_REASON], cost=reply.cost)


def _verdicts(text: str, shape: type[_TwoSteps] | type[_ThreeSteps]) -> list[_TwoSteps | _ThreeSteps]:
    """Every verdict in a reply. A judge that quotes another verdict beside its own does not say which one counts."""
    try:
        return [shape.model_validate_json(text)]
    except ValidationError:
        pass
    verdicts = []
    for value, _ in objects(text):
        try:
            verdicts.append(shape.model_validate(value))
        except ValidationError:
            continue
    return verdicts
