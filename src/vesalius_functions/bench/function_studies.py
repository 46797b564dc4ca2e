"""Studies around the functions benchmark: how reliably functions follow what they are, and unit tests by people."""

import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from vesalius.api.places import Out, directory_for, findable_model
from vesalius.api.runs import require_run
from vesalius.backbones import TIMEOUT
from vesalius.documents.request import Request
from vesalius.errors import BadInput
from vesalius.files import write_text
from vesalius.progress import Progress, shown
from vesalius.runs.directory import CALLS, SPENDING
from vesalius.runs.scorecard import call_totals, rounded
from vesalius.runs.settings import RunLimits
from vesalius.runs.work import ModelAccess, SpendingFile, totals
from vesalius_functions.bench.functions import chosen_suite, suite_functions
from vesalius_functions.bench.reliability import INPUTS, measured
from vesalius_functions.bench.unit_tests import FUNCTIONS, TestedRun, sheet, unit_test_study
from vesalius_functions.documents import RELIABILITY_FILE, UNIT_TESTS_FILE, Reliability, UnitTests
from vesalius_functions.knowledge.scoring import REPLY_TOKENS
from vesalius_functions.suite import BY_MODEL, SEED

__all__ = ["export_unit_tests", "function_reliability", "unit_tests"]
#: What has to be said where no language model answers.
OF_OUR_KNOWLEDGE = {
    "entities": "Word vectors score the entities; two constants of theirs were set so that the means over these "
    "concepts lie near the published ones (0.85 and 0.08): the means are not an independent check.",
    "relations": "Fact tables answer the relations, and the same tables say what is right: their rate is 1 by "
    "construction and shows only that lookups work.",
}


def function_reliability(
    categories: str | Sequence[str] = BY_MODEL,
    *,
    backbone: str | None = None,
    seed: int | None = None,
    count: int | None = None,
    mode: str | None = None,
    dataset: str | Path | None = None,
    inputs: int = INPUTS,
    matrix: bool = False,
    prices: str | Path | None = None,
    max_cost: float | None = None,
    timeout: float = TIMEOUT,
    jobs: int = 2,
    out: Out = None,
    progress: Progress | bool | None = None,
) -> Reliability:
    """How reliably entities and relations do what they are said to, answered by a language model or our knowledge.

    Each function is asked for `inputs` inputs whose answers are known (an entity for as many words of other concepts);
    `matrix` asks every entity for the words of all others, which is their number times as many calls. The document is
    written to `out` with the calls, and the same call continues an interrupted study without asking anything twice.
    """
    chosen = (categories,) if isinstance(categories, str) else tuple(dict.fromkeys(categories))
    if not chosen or not set(chosen) <= set(BY_MODEL):
        raise BadInput(f"`category` {', '.join(chosen) or '(none)'}: reliability is of {' and '.join(BY_MODEL)}")
    if inputs < 1:
        raise BadInput(f"`inputs` {inputs}: give 1 or more")
    if matrix and "entities" not in chosen:
        raise BadInput("`matrix`: is of entities; leave it out, or add entities")
    model = findable_model(backbone)
    suites = [chosen_suite(name, seed, count, mode, dataset, function_backbone=model) for name in chosen]
    limits, price_file = RunLimits(max_cost=max_cost, timeout=timeout), None if prices is None else str(prices)
    limits.check_models([] if model is None else [model], price_file)
    for suite in suites:
        suite_functions(suite)
    directory = directory_for(out, "functions-reliability", *_words(chosen, model, count, seed))
    started = time.monotonic()
    access = None if model is None else _access(model, directory, prices=price_file, limits=limits)
    with shown(progress) as report, ExitStack() as stack:
        opened = None if access is None else stack.enter_context(replace(access, max_tokens=REPLY_TOKENS).open())
        results = {
            suite.category: measured(suite, opened, inputs=inputs, matrix=matrix, jobs=jobs, report=report)
            for suite in suites
        }
    folder = None if dataset is None else str(dataset)
    options = {"category": list(chosen), "count": count, "mode": mode, "dataset": folder, "matrix": matrix or None}
    options |= {"inputs": None if inputs == INPUTS else inputs}
    study = Reliability(
        request=Request(
            command="functions reliability",
            options={name: value for name, value in options.items() if value is not None},
            seed=SEED if seed is None else seed,
            backbone=model,
        ),
        inputs=inputs,
        categories={name: result.category for name, result in results.items()},
        functions=tuple(row for result in results.values() for row in result.functions),
        selectivity=next((one.selectivity for one in results.values() if one.selectivity is not None), None),
        caveats=tuple(text for name, text in OF_OUR_KNOWLEDGE.items() if model is None and name in chosen),
        usage=None if access is None else call_totals(totals(access.calls)),
        seconds=time.monotonic() - started,
    )
    study = Reliability.from_data(rounded(study.as_data()))
    study.write(directory / RELIABILITY_FILE)
    return study


def _access(model: str, directory: Path, *, prices: str | None, limits: RunLimits) -> ModelAccess:
    """The model with its record in the directory, and the counter of the cap where there is one."""
    calls, spending = directory / CALLS / "functions.jsonl", directory / SPENDING
    if limits.max_cost is not None:
        SpendingFile(spending).begin({calls.name: totals(calls).at_most})
    return ModelAccess(model, calls, prices=prices, cap=limits.max_cost, cap_file=spending, timeout=limits.timeout)


def _words(categories: Sequence[str], model: str | None, count: int | None, seed: int | None) -> list[str | None]:
    return [
        "+".join(categories),
        None if model is None else Path(model.replace(":", "_")).name,
        None if count is None else f"first{count}",
        f"seed{SEED if seed is None else seed}",
    ]


def export_unit_tests(run: str | Path, file: str | Path, *, count: int = FUNCTIONS, seed: int = 0) -> Path:
    """Write the unit tests of a graded functions run as a blind sheet that people fill in; `count` functions of it."""
    if count < 1:
        raise BadInput(f"`count` {count}: give 1 or more functions")
    tested, path = TestedRun(require_run(run)), Path(file)
    if path.exists():
        raise BadInput(f"`export` {path}: is there already, perhaps filled in; name another file")
    write_text(path, sheet(tested, count=count, seed=seed))
    return path


def unit_tests(
    run: str | Path,
    answers: str | Path | Iterable[str | Path],
    *,
    evaluator: str | None = None,
    prices: str | Path | None = None,
    max_cost: float | None = None,
    timeout: float = TIMEOUT,
    out: Out = None,
) -> UnitTests:
    """Hold the answers of people against evaluators: accuracy of each, and Spearman's correlation over functions.

    `answers` are sheets that `export_unit_tests` wrote and people filled in. `evaluator` is a language model that takes
    the same tests now; its calls and the document are written to `out`.
    """
    files = [Path(answers)] if isinstance(answers, str | Path) else [Path(one) for one in answers]
    tested, model = TestedRun(require_run(run)), findable_model(evaluator)
    limits, price_file = RunLimits(max_cost=max_cost, timeout=timeout), None if prices is None else str(prices)
    limits.check_models([] if model is None else [model], price_file)
    directory = directory_for(out, "unit-tests", tested.directory.resolve().name)
    with ExitStack() as stack:
        opened = None
        if model is not None:
            access = _access(model, directory, prices=price_file, limits=limits)
            opened = stack.enter_context(access.open())
        study = unit_test_study(tested, files, opened)
    study = UnitTests.from_data(rounded(study.as_data()))
    study.write(directory / UNIT_TESTS_FILE)
    return study
