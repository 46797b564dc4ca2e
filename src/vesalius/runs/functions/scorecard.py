"""The scorecard of a functions run, from the ledger alone; functions in the order of the suite.

Every metric is a mean over the functions it applies to, with its interval and, where grading gave one (`X_baseline`),
the baseline it has to beat. Functions that the machinery failed on, at whatever step (an evaluator's call, too), are
counted in `n_error` and are in no figure; code that cannot be run is a wrong answer, not an error.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from vesalius.documents.metric import Metric
from vesalius.errors import Failed
from vesalius.functions.interpreters import BUILTIN
from vesalius.functions.suite import SEED, lacks_source
from vesalius.functions.unit_tests import CHANCE
from vesalius.runs.functions.settings import BENCHMARK
from vesalius.runs.scorecard import mean, model_name, rounded
from vesalius.statistics import mean_interval

if TYPE_CHECKING:
    from vesalius.runs.functions.benchmark import FunctionsBenchmark

SCHEMA = 1
BASELINE = "_baseline"
#: The figure that decides whether an answer is right, the first that a category has.
DECIDING = ("success", "exact_match", "unit_test")
#: The figures that come first, in this order, where a category has them.
CONTRACT = (*DECIDING, "interval_found", "false_alarm", "family_named", "queries")
COUNTED = ("queries", "rounds", "input_tokens", "output_tokens", "hallucinated")
OVERLAP = "exemplar_overlap"
#: What the categories call a rule named and a corruption found, under the names that all of them share.
SHARED = {
    "family_named": ("operations_named", "concept_named", "rule_named"),
    "interval_found": ("exception_found",),
}
#: What the built-in interpreter has in common with whoever made the functions.
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
STANDS_IN = "a program that agrees with all stored pairs answers in its place, and grading is by those pairs alone."

Figures = dict[str, float | None]


def summed(benchmark: "FunctionsBenchmark") -> dict[str, Any]:
    """The figures of a run; refused where no function could be interpreted and graded."""
    state, settings = benchmark.state, benchmark.settings
    through = state.graded if settings.evaluator is None else state.graded.keys() & state.evaluated.keys()
    graded = [function for function in benchmark.functions if function.id in through]
    if not graded:
        reason = next(iter(state.failed.values()), {"reason": "nothing was run"})["reason"]
        raise Failed(f"{benchmark.run.directory}: no function could be interpreted and graded; the first: {reason}")
    rows = [
        {"id": function.id, "family": function.family, "figures": case_figures(benchmark, function.id)}
        for function in graded
    ]
    suite = settings.suite
    card: dict[str, Any] = {
        "benchmark": BENCHMARK,
        "subject": settings.interpreter,
        "category": suite.category,
        "mode": suite.mode,
        "seed": suite.seed,
        "suite": _suite_name(benchmark),
        "backbone": model_name(settings.backbone),
        "evaluator": model_name(settings.evaluator),
        "budget": settings.budget,
        "schema": SCHEMA,
        "n": len(rows),
        "n_error": len(benchmark.functions) - len(rows),
        "errors": [failure for _, failure in sorted(state.failed.items())],
        "metrics": metrics_of([row["figures"] for row in rows]),
        "families": _families(rows),
        "failures": [_failure(row, state.graded[row["id"]]["fault"]) for row in rows if is_failure(row["figures"])],
        "caveats": _caveats(benchmark),
        "seconds": sum(
            state.graded[function.id]["seconds"] + state.interpreted[function.id]["seconds"] for function in graded
        ),
        "cost": state.total().cost,
    }
    if suite.left_out:
        card["left_out"] = suite.left_out
    if settings.models:
        card["usage"] = {"calls": state.total().model_dump(exclude={"at_most"})}
    return rounded(card)


def _caveats(benchmark: "FunctionsBenchmark") -> list[str]:
    """What has to be said beside the figures."""
    suite, functions = benchmark.settings.suite, benchmark.functions
    said = [CAVEAT.format(CAVEATS[suite.category])] if benchmark.settings.interpreter == BUILTIN else []
    if suite.dataset is None:
        return said
    missing = sum(map(lacks_source, functions))
    nets = sum(function.truth().get("kind") == "mlp" for function in functions)
    of = f"of {len(functions)} functions"
    if missing:
        said.append(f"{missing} {of} were published as test pairs without source: {STANDS_IN}")
    if nets:
        said.append(f"{nets} {of} are nets whose weights were not published: nets trained here stand in for them.")
    if suite.left_out:
        said.append(f"{len(suite.left_out)} records of the dataset are left out; scorecard.json says why.")
    return said


def case_figures(benchmark: "FunctionsBenchmark", case: str) -> Figures:
    """Every figure of one function: its grade, what it took, and what the evaluator said."""
    state = benchmark.state
    taken = state.interpreted[case]
    figures: Figures = dict(state.graded[case]["metrics"])
    for name, known_as in SHARED.items():
        for other in known_as:
            if other in figures:
                figures.setdefault(name, figures[other])
    figures |= {name: taken[name] for name in COUNTED if taken.get(name) is not None}
    if taken.get("overlap") is not None:
        figures[OVERLAP] = taken["overlap"]
    tested = state.evaluated.get(case)
    if tested is not None:
        figures["unit_test_executable"] = figures.pop("unit_test", None)
        figures["unit_test"] = tested["score"]
        figures["unit_test_unanswered"] = tested["unanswered"] / tested["tests"] if tested["tests"] else None
    return figures


def deciding(figures: Figures) -> tuple[str, float] | None:
    """The figure that says whether an answer is right."""
    return next(((name, value) for name in DECIDING if (value := figures.get(name)) is not None), None)


def is_failure(figures: Figures) -> bool:
    """Whether an answer is less than right."""
    found = deciding(figures)
    return found is not None and found[1] < 1


def metrics_of(rows: Sequence[Figures]) -> dict[str, Any]:
    """Every metric over the functions it applies to."""
    seen = dict.fromkeys(name for row in rows for name in row if not name.endswith(BASELINE))
    names = [*(name for name in CONTRACT if name in seen), *(name for name in seen if name not in CONTRACT)]
    found = {}
    for name in names:
        values = [value for row in rows if (value := row.get(name)) is not None]
        if values:
            baselines = [value for row in rows if (value := row.get(name + BASELINE)) is not None]
            chance = CHANCE if name.startswith("unit_test") and "unanswered" not in name else None
            baseline = sum(baselines) / len(baselines) if baselines else chance
            measured = _metric([float(value) for value in values], baseline, count=name in (*COUNTED, OVERLAP))
            found[name] = measured.model_dump(exclude_none=True)
    return found


def _metric(values: Sequence[float], baseline: float | None, *, count: bool) -> Metric:
    """A share with the Wilson interval where values are yes or no, else a mean with a bootstrap interval."""
    n = len(values)
    if not count and all(value in (0.0, 1.0) for value in values):
        return Metric.of_share(sum(values), n, baseline=baseline)
    mean = sum(values) / n
    low, high = (end.item() for end in mean_interval(torch.tensor(values, dtype=torch.float64)[:, None]))
    return Metric(value=mean, low=min(low, mean), high=max(high, mean), n=n, baseline=baseline)


def _families(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Per family: how many, how many of them less than right, and the mean of the deciding figure; worst first."""
    found: dict[str, Any] = {}
    for row in rows:
        found.setdefault(row["family"], []).append(row["figures"])
    told = {
        family: {
            "n": len(figures),
            "failed": sum(map(is_failure, figures)),
            "value": mean([decided[1] for one in figures if (decided := deciding(one)) is not None]),
        }
        for family, figures in found.items()
    }
    return dict(sorted(told.items(), key=lambda item: (-item[1]["failed"] / item[1]["n"], item[0])))


def _failure(row: dict[str, Any], fault: str | None) -> dict[str, Any]:
    decided = deciding(row["figures"])
    assert decided is not None
    return {"id": row["id"], "family": row["family"], decided[0]: decided[1], "fault": _one_line(fault)}


def _suite_name(benchmark: "FunctionsBenchmark") -> str:
    suite = benchmark.settings.suite
    if suite.dataset is not None:
        return f"published folder {suite.dataset}"
    reported = "; the reported suite" if suite.seed == SEED and suite.count is None else ""
    return f"{len(benchmark.functions)} {suite.category} functions drawn under seed {suite.seed}{reported}"


def _one_line(text: str | None) -> str | None:
    return None if text is None else " ".join(text.split())[:200]
