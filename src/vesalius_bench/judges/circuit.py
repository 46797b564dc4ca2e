"""One explanation judged: every note and the task description against the answer key, and, where there is a trace, the
plans and first hypotheses on the way to it.

Several judges score each item and the lowest score is kept, the rule of the published benchmark: a high score stands
only where all give it. If any judge fails, the item is an error and has no score. Where nothing was said there is
nothing to ask, and the score is 0 by rule. Judges see texts alone: no tag, no name of a scientist, model or run.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from vesalius.documents.explanation import Explanation
from vesalius.documents.metric import Metric
from vesalius.documents.trace import Attempt, Trace
from vesalius.errors import BadInput
from vesalius_bench.judges.judge import Judge, Judgement
from vesalius_truth.grading.keys import ReferenceTexts, reference_texts
from vesalius_truth.grading.plans import PlanTest, plan_metrics
from vesalius_truth.grading.ratings import MEASURES, Item, Kappa, Measure, MeasureName, cohen_kappa

SCHEMA = 1
NOTHING_SAID, NOTHING_SEEN = "nothing was said", "nothing was observed"
#: What a trace adds to a claim once it was put to the engine; a plan is judged without it.
OUTCOME = ("verdict", "error")


class JudgedItem(BaseModel):
    """One text and its score. `rule` says why a score needed no judge, `error` why there is no score."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    measure: MeasureName
    component: str = ""
    iteration: int = 1
    score: int | None
    rule: str = ""
    error: str = ""
    judgements: tuple[Judgement, ...] = ()


class JudgedCircuit(BaseModel):
    """Everything judges said about one explanation, as plain data. `cost` is None where a price is not known; `plans`
    are the experiments on its validation plans, which no judge takes part in.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = SCHEMA
    specimen: str
    judges: tuple[str, ...]
    items: tuple[JudgedItem, ...]
    plans: tuple[PlanTest, ...] = ()
    cost: float | None = 0.0

    @property
    def n_error(self) -> int:
        """Items without a score."""
        return sum(item.score is None for item in self.items)

    def scores(self) -> dict[Item, int]:
        """The scores that were given, by what they were given to."""
        return {
            Item(item.measure, self.specimen, item.component, item.iteration): item.score
            for item in self.items
            if item.score is not None
        }


@dataclass(frozen=True)
class _Question:
    """One thing to ask every judge; `rule` is set where the answer is 0 without asking."""

    item: Item
    reference: str
    candidate: str
    context: str = ""
    rule: str = ""


def judge_explanation(
    explanation: Explanation,
    trace: Trace | None = None,
    *,
    judges: Sequence[Judge],
    directory: Path | str | None = None,
    annotation: Path | None = None,
    truth: ReferenceTexts | None = None,
) -> JudgedCircuit:
    """Let judges score an explanation against the answer key and, with its `trace`, how it came about.

    `directory` is the place of a specimen made by `vesalius train`, or of an original with its `annotation`; `truth`
    gives the right answers of any other model.
    Components of the key that are not explained score
    0. Every plan is scored, and the first hypothesis of each component. No judge's failure raises: it is an error of
    its item, with the kind of failure in `judgements`.
    """
    if not judges:
        raise BadInput("judges: name at least one; the published rule takes the lower score of two")
    if trace is not None and trace.specimen != explanation.specimen:
        raise BadInput(f"trace: is of {trace.specimen!r}, the explanation of {explanation.specimen!r}; give its own")
    if truth is None:
        truth = reference_texts(explanation.specimen, None if directory is None else Path(directory), annotation)
    questions = [*_final(explanation, truth), *(_diagnostic(trace, truth) if trace else ())]
    items = tuple(_judged(question, judges) for question in questions)
    costs = [opinion.cost for item in items for made in item.judgements for opinion in made.opinions]
    known = [cost for cost in costs if cost is not None]
    return JudgedCircuit(
        specimen=explanation.specimen,
        judges=tuple(judge.name for judge in judges),
        items=items,
        cost=sum(known) if len(known) == len(costs) else None,
    )


def _final(explanation: Explanation, truth: ReferenceTexts) -> Iterator[_Question]:
    specimen, said = explanation.specimen, {part.id: part.note for part in explanation.components}
    for component, note in truth.notes.items():
        candidate = said.get(component, "")
        item = Item("description_quality", specimen, component)
        yield _Question(item, note, candidate, truth.task, rule="" if candidate.strip() else NOTHING_SAID)
    task = explanation.task_description
    yield _Question(Item("task_accuracy", specimen), truth.task, task, rule="" if task.strip() else NOTHING_SAID)


def _diagnostic(trace: Trace, truth: ReferenceTexts) -> Iterator[_Question]:
    for part in trace.components:
        first = next((attempt for attempt in part.attempts if attempt.hypothesis.strip()), None)
        if first is not None:
            item = Item("grounding", trace.specimen, part.component, first.iteration)
            rule = "" if part.observation.strip() else NOTHING_SEEN
            yield _Question(item, part.observation, first.hypothesis, truth.task, rule=rule)
        for attempt in part.attempts:
            if plan := plan_of(attempt):
                item = Item("plan_soundness", trace.specimen, part.component, attempt.iteration)
                yield _Question(item, attempt.hypothesis, plan, truth.task)


def plan_of(attempt: Attempt) -> str:
    """How a hypothesis was to be tested, in words and as typed claims, without what came of them; empty if no plan was
    made.
    """
    asked = ({name: value for name, value in claim.items() if name not in OUTCOME} for claim in attempt.claims)
    claims = [json.dumps(claim, sort_keys=True, ensure_ascii=False) for claim in asked]
    return "\n".join(part for part in (attempt.plan.strip(), *claims) if part)


def _judged(question: _Question, judges: Sequence[Judge]) -> JudgedItem:
    item = question.item
    named = {"measure": item.measure, "component": item.component, "iteration": item.iteration}
    if question.rule:
        return JudgedItem(**named, score=0, rule=question.rule)
    scope = f"judge/{item.specimen}/{item.component}/{item.measure}"
    seats: Counter[str] = Counter()
    made = []
    for judge in judges:
        # A second judge of the same name would otherwise be served the first one's answers from the record.
        seat, seats[judge.name] = seats[judge.name], seats[judge.name] + 1
        own = f"{scope}/seat {seat + 1}" if seat else scope
        made.append(
            judge.score(item.measure, question.reference, question.candidate, context=question.context, scope=own)
        )
    errors = [opinion.error for one in made for opinion in one.opinions if opinion.error]
    scores = [one.score for one in made if one.score is not None]
    score = min(scores) if not errors else None
    return JudgedItem(**named, score=score, error=errors[0] if errors else "", judgements=tuple(made))


# Many judged circuits together: the judged metrics of a scorecard, and how far the judges can be relied on.


def judged_metrics(judged: Sequence[JudgedCircuit]) -> dict[str, Metric]:
    """The judged metrics of a scorecard, for every measure that was asked.

    `description_quality` is the mean of 0/1/2 divided by 2, `task_accuracy` the share of right descriptions;
    `plan_soundness` and `grounding` are means on the scale from 0 to 2. `order_consistency` is the share of judgements
    that came out the same with the texts in either order. `n_error` items have no score and are in no figure. Plans
    that were tried have the figures of `grading.plans`.
    """
    metrics: dict[str, Metric] = {}
    for measure in MEASURES.values():
        circuits = [[item for item in circuit.items if item.measure == measure.name] for circuit in judged]
        if any(circuits):
            metrics[measure.name] = score_metric(measure, [[item.score for item in items] for items in circuits])
    metrics |= plan_metrics([circuit.plans for circuit in judged])
    seen = [[made.consistent for item in circuit.items for made in item.judgements] for circuit in judged]
    known = [[same for same in circuit if same is not None] for circuit in seen]
    if any(seen):
        consistency = Metric.of_circuits([sum(same) for same in known], [len(same) for same in known])
        metrics["order_consistency"] = consistency.with_errors(sum(map(len, seen)) - sum(map(len, known)))
    return metrics


def judge_agreement(judged: Iterable[JudgedCircuit]) -> dict[MeasureName, dict[str, Kappa]]:
    """Cohen's kappa of every pair of judges, by measure: weighted on 0/1/2, plain on 0/1. Pairs are `FIRST | SECOND`.

    Only items on which both gave a score count.
    """
    circuits = list(judged)
    agreement: dict[MeasureName, dict[str, Kappa]] = {}
    for name, measure in MEASURES.items():
        items = [item for circuit in circuits for item in circuit.items if item.measure == name and item.judgements]
        seats = max((len(item.judgements) for item in items), default=0)
        for first, second in combinations(range(seats), 2):
            pairs = [pair for item in items if (pair := _pair(item, first, second)) is not None]
            names = " | ".join(items[0].judgements[seat].judge for seat in (first, second))
            kappa = cohen_kappa(pairs, categories=measure.best + 1, weighted=measure.ordinal)
            agreement.setdefault(name, {})[names] = kappa
    return agreement


def score_metric(measure: Measure, circuits: Sequence[Sequence[int | None]]) -> Metric:
    """The metric of a measure from the scores of each circuit's items; items without a score are counted as errors."""
    scores = [[score for score in items if score is not None] for items in circuits]
    totals, counts = [sum(each) / measure.best for each in scores], [len(each) for each in scores]
    share = Metric.of_share(sum(totals), sum(counts)) if measure.per_circuit else Metric.of_circuits(totals, counts)
    return Metric(
        value=_scaled(share.value, measure.unit),
        low=_scaled(share.low, measure.unit),
        high=_scaled(share.high, measure.unit),
        n=share.n,
        statistic=share.statistic if measure.unit == 1 else "mean",
        n_error=sum(score is None for items in circuits for score in items),
    )


def _scaled(value: float | None, unit: int) -> float | None:
    return None if value is None else value * unit


def _pair(item: JudgedItem, first: int, second: int) -> tuple[int, int] | None:
    if len(item.judgements) <= second:
        return None
    one, other = item.judgements[first].score, item.judgements[second].score
    return None if one is None or other is None else (one, other)
