"""The scorecard of a functions run, from the ledger alone; functions in the order of the suite.

Every metric is a mean over the functions it applies to, with its interval and, where grading gave one (`X_baseline`),
the baseline it has to beat. Functions that the machinery failed on, at whatever step (an evaluator's call, too), are
counted in `n_error` and are in no figure; code that cannot be run is a wrong answer, not an error.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from vesalius.documents.base import FrozenDict
from vesalius.documents.metric import Metric
from vesalius.documents.scorecard import Family, FunctionFailure, Scorecard
from vesalius.errors import Failed, choices
from vesalius.files import mark_of
from vesalius.runs.steps import mean, rounded_card
from vesalius.statistics import mean_interval
from vesalius_backbones.runs.usage import call_totals, model_name
from vesalius_functions.bench.settings import (
    BENCHMARK,
    EvaluatedResult,
    FunctionSettings,
    FunctionState,
    InterpretedResult,
)
from vesalius_functions.box import CHANCE, Function, layers_of
from vesalius_functions.evaluators.trained import evaluator_name
from vesalius_functions.interpreters import BUILTIN
from vesalius_functions.suite import SEED, lacks_source

BASELINE = "_baseline"
#: The figure that decides whether an answer is right, the first that a category has.
DECIDING = ("success", "exact_match", "unit_test")
#: The figures that come first, in this order, where a category has them.
CONTRACT = (*DECIDING, "interval_found", "false_alarm", "family_named", "queries")
#: Figures of numeric functions that are also given by kind: clean, noised, corrupted, net.
BY_KIND = (
    *("success", "understood", "table", "family_named", "noise_named", "interval_found", "false_alarm"),
    "queries",
)
COUNTED = ("queries", "rounds", "input_tokens", "output_tokens", "hallucinated")
OVERLAP = "exemplar_overlap"
#: What the categories call a rule named and a corruption found, under the names that all of them share.
SHARED = {
    "family_named": ("operations_named", "concept_named", "rule_named"),
    "interval_found": ("exception_found",),
}
#: What the built-in interpreter has in common with the generator of the functions.
CAVEATS = {
    "numeric": "searches a grammar that contains the generator's families",
    "strings": "searches a grammar that contains the generator's operations",
    "entities": "compares words by the same kind of word vectors that score them",
    "relations": "looks rules up in the fact tables that the functions answer from",
}
CAVEAT = (
    "The built-in interpreter {}: it shows that search with the right prior solves these functions, not that it"
    " interprets better than a language model that has no such prior."
)
ANSWERED = (
    "{} answers the functions: an answer that names the rule can still disagree with a model that does not follow it;"
    " `vesalius functions reliability` measures how far it does."
)
WHITE_BOX = (
    "White-box access: the interpreter was given the weights of {} of {} functions, those that are nets; its figures"
    " are not those of black boxes."
)
OWN_PROMPTS = "Language models were asked by the user's own prompts ({})."
SEEN = (
    "The evaluator was trained or chosen on concepts, relations or programs of {} of {} functions; unit_test_unseen is"
    " over the others alone."
)
STANDS_IN = "a program that agrees with all stored pairs answers in its place, and grading is by those pairs alone."

Figures = dict[str, float | None]


def functions_scorecard(
    settings: FunctionSettings, functions: Sequence[Function], state: FunctionState, *, directory: Path
) -> Scorecard:
    """The figures of a run; refused where no function could be interpreted and graded."""
    finished = state.graded if settings.evaluator is None else state.graded.keys() & state.evaluated.keys()
    graded = [function for function in functions if function.id in finished]
    if not graded:
        raise Failed(f"{directory}: no function could be interpreted and graded; the first: {state.first_failure}")
    figures = {function.id: case_figures(state, function.id) for function in graded}
    suite = settings.suite
    sections: dict[str, Any] = {"left_out": suite.left_out} if suite.left_out else {}
    if settings.white_box:
        sections["access"] = "white box"
    if settings.models:
        sections["usage"] = {"calls": call_totals(state.total())}
    card = Scorecard(
        benchmark=BENCHMARK,
        subject=settings.interpreter,
        request=settings.request(grading_seed=state.grading_seed),
        category=suite.category,
        mode=suite.mode,
        seed=suite.seed,
        suite=_suite_name(settings, functions),
        backbone=model_name(settings.backbone),
        evaluator=evaluator_name(settings.evaluator),
        budget=settings.budget,
        own_prompts=None if suite.prompts is None else FrozenDict(suite.prompts.digests),
        n=len(graded),
        n_error=len(functions) - len(graded),
        errors=state.errors,
        metrics=metrics_of(list(figures.values())),
        families=_families(graded, figures),
        kinds=figures_by_kind(graded, figures),
        failures=tuple(
            _failure(function, figures[function.id], state.graded[function.id].fault)
            for function in graded
            if is_failure(figures[function.id])
        ),
        caveats=_caveats(settings, functions, state),
        seconds=sum(state.graded[f.id].seconds + state.interpreted[f.id].seconds for f in graded),
        cost=state.total().cost,
        **sections,
    )
    return rounded_card(card)


def _caveats(settings: FunctionSettings, functions: Sequence[Function], state: FunctionState) -> tuple[str, ...]:
    """What has to be said beside the figures."""
    suite = settings.suite
    caveats = [CAVEAT.format(CAVEATS[suite.category])] if settings.interpreter == BUILTIN else []
    if suite.function_backbone is not None:
        caveats.append(ANSWERED.format(model_name(suite.function_backbone)))
    if suite.prompts is not None:
        caveats.append(OWN_PROMPTS.format(mark_of(suite.prompts.digests)))
    seen = sum(one.unseen is False for one in state.evaluated.values())
    if seen:
        caveats.append(SEEN.format(seen, len(state.evaluated)))
    if settings.white_box:
        caveats.append(WHITE_BOX.format(sum(layers_of(function) is not None for function in functions), len(functions)))
    if suite.dataset is None:
        return tuple(caveats)
    missing = sum(map(lacks_source, functions))
    nets = sum(function.truth().get("kind") == "mlp" for function in functions)
    of = f"of {len(functions)} functions"
    if missing:
        caveats.append(f"{missing} {of} were published as test pairs without source: {STANDS_IN}")
    if nets:
        caveats.append(f"{nets} {of} are nets whose weights were not published: nets trained here stand in for them.")
    if suite.left_out:
        caveats.append(f"{len(suite.left_out)} records of the dataset are left out; scorecard.json says why.")
    return tuple(caveats)


def case_figures(state: FunctionState, case: str) -> Figures:
    """Every figure of one function: its grade, what it took, and what the evaluator said."""
    return figures_of(state.graded[case].metrics, state.interpreted[case], state.evaluated.get(case))


def figures_of(
    metrics: Mapping[str, float | None], taken: InterpretedResult, tested: EvaluatedResult | None = None
) -> Figures:
    """The same from its parts."""
    figures: Figures = dict(metrics)
    for name, known_as in SHARED.items():
        for other in known_as:
            if other in figures:
                figures.setdefault(name, figures[other])
    figures |= {name: value for name in COUNTED if (value := getattr(taken, name)) is not None}
    if taken.overlap is not None:
        figures[OVERLAP] = taken.overlap
    if tested is not None:
        figures["unit_test_executable"] = figures.pop("unit_test", None)
        figures["unit_test"] = tested.score
        figures["unit_test_unanswered"] = tested.unanswered / tested.tests if tested.tests else None
        if tested.unseen is not None:
            figures["unit_test_unseen"] = tested.score if tested.unseen else None
    return figures


def deciding(figures: Figures) -> tuple[str, float] | None:
    """The figure that says whether an answer is right."""
    return next(((name, value) for name in DECIDING if (value := figures.get(name)) is not None), None)


def is_failure(figures: Figures) -> bool:
    """Whether an answer is less than right."""
    decision = deciding(figures)
    return decision is not None and decision[1] < 1


def metrics_of(rows: Sequence[Figures]) -> dict[str, Metric]:
    """Every metric over the functions it applies to."""
    seen = dict.fromkeys(name for row in rows for name in row if not name.endswith(BASELINE))
    names = [*(name for name in CONTRACT if name in seen), *(name for name in seen if name not in CONTRACT)]
    metrics = {}
    for name in names:
        values = [float(value) for row in rows if (value := row.get(name)) is not None]
        if values:
            baselines = [value for row in rows if (value := row.get(name + BASELINE)) is not None]
            chance = CHANCE if name.startswith("unit_test") and "unanswered" not in name else None
            baseline = sum(baselines) / len(baselines) if baselines else chance
            metrics[name] = _metric(values, baseline, count=name in (*COUNTED, OVERLAP))
    return metrics


def _metric(values: Sequence[float], baseline: float | None, *, count: bool) -> Metric:
    """A share with the Wilson interval where values are yes or no, else a mean with a bootstrap interval."""
    n = len(values)
    if not count and all(value in (0.0, 1.0) for value in values):
        return Metric.of_share(sum(values), n, baseline=baseline)
    mean = sum(values) / n
    low, high = (end.item() for end in mean_interval(torch.tensor(values, dtype=torch.float64)[:, None]))
    return Metric(value=mean, low=min(low, mean), high=max(high, mean), n=n, baseline=baseline, statistic="mean")


def _families(functions: Sequence[Function], figures: Mapping[str, Figures]) -> dict[str, Family]:
    """Per family: how many, how many of them less than right, and the mean of the deciding figure; worst first."""
    members: dict[str, list[Figures]] = {}
    for function in functions:
        members.setdefault(function.family, []).append(figures[function.id])
    families = {
        name: Family(
            n=len(rows),
            failed=sum(map(is_failure, rows)),
            value=mean([decision[1] for row in rows if (decision := deciding(row)) is not None]),
        )
        for name, rows in members.items()
    }
    return dict(sorted(families.items(), key=lambda item: (-item[1].failed / item[1].n, item[0])))


def figures_by_kind(
    functions: Sequence[Function], figures: Mapping[str, Figures]
) -> dict[str, dict[str, float]] | None:
    """Numeric functions: how many there are of each kind, and means over them; clean ones of one family also alone."""
    groups: dict[str, list[Figures]] = {}
    for function in functions:
        truth = function.truth()
        if {"kind", "operands"} <= truth.keys():
            groups.setdefault(str(truth["kind"]), []).append(figures[function.id])
            if truth["kind"] == "clean" and not truth["operands"]:
                groups.setdefault("clean, one family", []).append(figures[function.id])
    kinds = {}
    for kind, rows in sorted(groups.items()):
        values = {name: [value for row in rows if (value := row.get(name)) is not None] for name in BY_KIND}
        kinds[kind] = {"n": len(rows), **{name: sum(given) / len(given) for name, given in values.items() if given}}
    return kinds or None


def _failure(function: Function, figures: Figures, fault: str | None) -> FunctionFailure:
    decision = deciding(figures)
    assert decision is not None
    figure = {decision[0]: decision[1]}
    return FunctionFailure.model_validate(
        {"id": function.id, "family": function.family, **figure, "fault": _one_line(fault)}
    )


def _suite_name(settings: FunctionSettings, functions: Sequence[Function]) -> str:
    suite = settings.suite
    if suite.dataset is not None:
        return f"published folder {suite.dataset}"
    whole = suite.count is None and suite.ids is None
    reported = "; the reported suite" if suite.seed == SEED and whole else ""
    chosen = "" if suite.ids is None else f": {choices(suite.ids)}"
    return f"{len(functions)} {suite.category} functions drawn under seed {suite.seed}{reported}{chosen}"


def _one_line(text: str | None) -> str | None:
    return None if text is None else " ".join(text.split())[:200]
