"""One judge: a language model that gives one score at a time, asked twice with the texts in either order, or once, as
published. A malformed answer, or one with two different scores, is asked for again once.

The lower of the two scores counts, so that a preference for the first or the last text earns nothing, and where they
differ that is kept for the count. A call that fails gives an error and no score: infrastructure is never a zero.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Literal, get_args

from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vesalius.errors import BadInput, choices
from vesalius.plugins import JUDGES, Plugin, find_plugin
from vesalius_backbones import Backbone, BackboneError, Message, system, user
from vesalius_backbones.untrusted_text import fence_key, neutralise, objects
from vesalius_truth.grading.ratings import MEASURES, MeasureName

# What a judge is told: the rubric and the rules as the system's words, the texts in blocks as the user's.

Order = Literal["given_first", "judged_first"]
ORDERS: tuple[Order, ...] = get_args(Order)
CONTEXT = "TASK"


def prompt(
    measure: MeasureName, reference: str, candidate: str, *, context: str = "", order: Order = "given_first"
) -> list[Message]:
    """The messages that ask for one score. `context`, if any, always comes first; `order` is that of the other two."""
    asked = MEASURES[measure]
    texts = {CONTEXT: context} if context else {}
    texts |= {asked.given: reference, asked.judged: candidate}
    blocks = [{"title": title, "text": neutralise(text)} for title, text in texts.items()]
    # The key is made from the texts as they will stand there, where a key split by invisible characters is whole again.
    key = fence_key([block["text"] for block in blocks])
    frame = _render("frame.md", measure=measure, key=key, titles=list(texts))
    if order == "judged_first":
        blocks[-2:] = reversed(blocks[-2:])
    return [system(frame), user(_render("blocks.md", blocks=blocks, key=key, judged=asked.judged))]


def _render(template: str, **values: object) -> str:
    return _environment().get_template(template).render(**values).strip()


@cache
def _environment() -> Environment:
    loader = PackageLoader("vesalius_bench.judges", "templates")
    # Prompts are plain text: escaping for HTML would only hide what the graded text says.
    return Environment(loader=loader, undefined=StrictUndefined, autoescape=False, trim_blocks=True, lstrip_blocks=True)


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
    """The answers of one judge: in either order, or one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    judge: str
    opinions: tuple[Opinion, ...]

    @property
    def score(self) -> int | None:
        """The lowest; None if one is missing."""
        scores = [opinion.score for opinion in self.opinions if opinion.score is not None]
        return min(scores) if len(scores) == len(self.opinions) else None

    @property
    def consistent(self) -> bool | None:
        """Whether the order made no difference; None if that is not known."""
        if self.score is None or len(self.opinions) < len(ORDERS):
            return None
        return len({opinion.score for opinion in self.opinions}) == 1


class Judge:
    """A language model that scores texts by our rubrics. `name` stands in results; it is the model's unless given.

    With `once` it is asked once, what the text is measured by first, as the published benchmark does.
    """

    def __init__(self, backbone: Backbone, *, name: str | None = None, once: bool = False) -> None:
        self.backbone = backbone
        self.orders = ORDERS[:1] if once else ORDERS
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
        opinions = [self._opinion(measure, texts, order, f"{scope}/{order}") for order in self.orders]
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


# A judge that is a plug-in: a function instead of a language model.

#: `BackboneError.kind` of a plug-in that raised or gave no score.
FAULT = "plugin"


def judge_plugin(name: str) -> Plugin | None:
    """The plug-in of that name; None where a name is that of a language model, `provider:model`."""
    return find_plugin(JUDGES, name, ())


class PluginJudge(Judge):
    """A plug-in as a judge; what it does wrong is an error of the item, as with every judge."""

    def __init__(self, plugin: Plugin) -> None:
        self.name = plugin.name
        self._plugin = plugin
        self._function: Callable[..., Any] = plugin.load()
        if not callable(self._function):
            raise plugin.refused("is not a function")

    def score(
        self, measure: MeasureName, reference: str, candidate: str, *, context: str = "", scope: str = "judge"
    ) -> Judgement:
        """Score a text by the plug-in's function."""
        if measure not in MEASURES:
            raise BadInput(f"measure {measure!r}: judges know {choices(MEASURES)}")
        best, order = MEASURES[measure].best, ORDERS[0]
        try:
            given = self._function(measure=measure, reference=reference, candidate=candidate, context=context)
            score, reason = given if isinstance(given, tuple) and len(given) == 2 else (given, "")
            if isinstance(score, bool) or not isinstance(score, int) or not 0 <= score <= best:
                raise ValueError(f"{score!r:.40} is not a whole score from 0 to {best}")
        except Exception as error:  # a plug-in may raise anything
            problem = " ".join(f"{type(error).__name__}: {error}".split())
            fault = str(self._plugin.refused(f"gave no score ({problem})"))
            return Judgement(
                judge=self.name, opinions=(Opinion(judge=self.name, order=order, error=fault, kind=FAULT),)
            )
        opinion = Opinion(judge=self.name, order=order, score=score, reason=str(reason)[:MOST_REASON])
        return Judgement(judge=self.name, opinions=(opinion,))
