"""How reliably entities and relations follow what they are, answered by our own knowledge or by a language model.

As published: an entity is asked for words of its concept and for words drawn from other concepts, a relation for
members whose facts are known. Here every function also has a share of inputs on which it does what it is said to, and
relations with an exception are asked for members of it as well. Single concepts are measured; a pair is two of them.
"""

import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from pydantic import JsonValue

from vesalius.api.door import directory_for, findable_model, verb, written
from vesalius.documents.metric import Metric
from vesalius.documents.request import Request
from vesalius.errors import BadInput
from vesalius.options import Out, Paid
from vesalius.progress import Progress, silent
from vesalius.runs.directory import CALLS, SPENDING
from vesalius.runs.steps import six_places
from vesalius_backbones import Backbone
from vesalius_backbones.runs.access import ModelAccess, SpendingFile, booked, totals
from vesalius_backbones.runs.steps import RunLimits
from vesalius_backbones.runs.usage import call_totals
from vesalius_functions.bench.functions import chosen_suite, suite_functions
from vesalius_functions.bench.scorecard import metrics_of
from vesalius_functions.box import Function, Reply
from vesalius_functions.documents import (
    RELIABILITY_FILE,
    Reliability,
    ReliableCategory,
    ReliableFunction,
    Selectivity,
)
from vesalius_functions.entities import EntityFunction
from vesalius_functions.knowledge.scoring import REPLY_TOKENS
from vesalius_functions.knowledge.tables import UNDEFINED, same
from vesalius_functions.options import Drawn
from vesalius_functions.relations import RelationFunction
from vesalius_functions.suite import BY_MODEL, Suite, in_words

INPUTS = 10
#: How many of a relation's inputs are of its exception, as in the unit tests.
EXCEPTED = 2
#: An entity says that a word is related above this.
RELATED = 0.5

#: What has to be said where no language model answers.
OF_OUR_KNOWLEDGE = {
    "entities": "Word vectors score the entities; two constants of theirs were set so that the means over these "
    "concepts lie near the published ones (0.85 and 0.08): the means are not an independent check.",
    "relations": "Fact tables answer the relations, and the same tables say what is right: their rate is 1 by "
    "construction and shows only that lookups work.",
}


@verb
def function_reliability(
    categories: str | Sequence[str] = BY_MODEL,
    *,
    backbone: str | None = None,
    drawn: Drawn,
    inputs: int = INPUTS,
    matrix: bool = False,
    paid: Paid,
    jobs: int = 2,
    out: Out = None,
    progress: Progress = silent,
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
    suites = [chosen_suite(name, drawn, model) for name in chosen]
    check_model(model, paid)
    for suite in suites:
        suite_functions(suite)
    seed, count = suites[0].seed, suites[0].count
    words = [
        None if model is None else Path(model.replace(":", "_")).name,
        None if count is None else f"first{count}",
        f"seed{seed}",
    ]
    directory = directory_for(out, "functions-reliability", "+".join(chosen), *words)
    started = time.monotonic()
    access = None if model is None else model_access(model, directory, paid)
    with ExitStack() as stack:
        opened = None if access is None else stack.enter_context(replace(access, max_tokens=REPLY_TOKENS).open())
        results = {
            suite.category: measured(suite, opened, inputs=inputs, matrix=matrix, jobs=jobs, report=progress)
            for suite in suites
        }
    options: dict[str, JsonValue] = {
        "category": list[JsonValue](chosen),
        "count": drawn.count,
        "mode": drawn.mode,
        "dataset": None if drawn.dataset is None else str(drawn.dataset),
        "matrix": matrix or None,
        "inputs": None if inputs == INPUTS else inputs,
    }
    study = Reliability(
        request=Request(
            command="functions reliability",
            options={name: value for name, value in options.items() if value is not None},
            seed=seed,
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
    return written(Reliability.from_data(six_places(study.as_data())), directory, RELIABILITY_FILE)


def check_model(model: str | None, paid: Paid) -> None:
    """Refuse a language model that cannot be opened or paid, before work begins."""
    limits = RunLimits(max_cost=paid.max_cost, timeout=paid.timeout)
    limits.check_models([] if model is None else [model], None if paid.prices is None else str(paid.prices))


def model_access(model: str, directory: Path, paid: Paid) -> ModelAccess:
    """The model with its record in the directory, and the counter of the cap where there is one."""
    calls, spending = directory / CALLS / "functions.jsonl", directory / SPENDING
    if paid.max_cost is not None:
        SpendingFile(spending).begin({calls.name: booked(calls)})
    prices = None if paid.prices is None else str(paid.prices)
    return ModelAccess(model, calls, prices=prices, cap=paid.max_cost, cap_file=spending, timeout=paid.timeout)


@dataclass(frozen=True)
class Measured:
    """The functions of one category, each with its figures, and who answered."""

    category: ReliableCategory
    functions: tuple[ReliableFunction, ...]
    selectivity: Selectivity | None = None


def measured(
    suite: Suite,
    backbone: Backbone | None = None,
    *,
    inputs: int = INPUTS,
    matrix: bool = False,
    jobs: int = 1,
    report: Progress = silent,
) -> Measured:
    """Ask every function of a suite. `matrix` also asks every entity for the words of all the others."""
    functions = [_askable(function, backbone) for function in suite.functions()]
    if suite.category == "entities":
        single = [one for one in functions if isinstance(one, EntityFunction) and one.family == "concept"]
        own_words = {one.id: _own_words(one, inputs) for one in single}
        work = partial(_entity, own_words=own_words, count=inputs, seed=suite.seed)
    else:
        single = [one for one in functions if isinstance(one, RelationFunction) and one.relation is not None]
        own_words = {}
        work = partial(_relation, count=inputs, seed=suite.seed)
    if not single:
        raise BadInput(f"`category` {suite.category}: no function of this choice has known answers; choose others")
    rows: list[ReliableFunction] = []
    with ThreadPoolExecutor(jobs) as pool:
        for row in pool.map(work, single):
            rows.append(row)
            report(f"{suite.category}: {row.id}", len(rows), len(single))
        selective = _selectivity(single, own_words, pool, report) if matrix and own_words else None
    figures = [_figures(row, one.family) for row, one in zip(rows, single, strict=True)]
    category = ReliableCategory(backbone=_who(single), metrics=metrics_of(figures))
    return Measured(category, tuple(rows), selective)


def _askable(function: Function, backbone: Backbone | None) -> Function:
    if backbone is None or not isinstance(function, EntityFunction | RelationFunction):
        return function
    return function.answered_by(backbone.within(function.id))


def _who(functions: Sequence[Function]) -> str:
    """Who answers; each fact table has a name, all of them together are one answerer."""
    names = {str(function.truth()["backbone"]) for function in functions}
    return names.pop() if len(names) == 1 else "fact tables"


def _own_words(function: EntityFunction, count: int) -> list[str]:
    """Words that people listed for the concept; of a published function the right words of its tests."""
    words = chain.from_iterable(function.words) if function.words else (test.right.input for test in function.triplets)
    return list(dict.fromkeys(map(str, words)))[:count]


def _entity(function: Function, *, own_words: dict[str, list[str]], count: int, seed: int) -> ReliableFunction:
    own = own_words[function.id]
    others = sorted({word for id, words in own_words.items() if id != function.id for word in words} - set(own))
    dice = random.Random(f"reliability/{seed}/{function.id}")
    strange = dice.sample(others, min(count, len(others)))
    replies = function.replies([*own, *strange])
    scores = [None if reply.error else float(reply.value) for reply in replies]
    mine, theirs = scores[: len(own)], scores[len(own) :]
    right = sum(score is not None and score > RELATED for score in mine)
    right += sum(score is not None and score < RELATED for score in theirs)
    return ReliableFunction(
        id=function.id,
        category="entities",
        name=in_words(function.truth()),
        rate=Metric.of_share(right, len(scores)),
        own=_mean(mine),
        random=_mean(theirs),
        n_error=sum(score is None for score in scores),
    )


def _relation(function: Function, *, count: int, seed: int) -> ReliableFunction:
    assert isinstance(function, RelationFunction)
    assert function.relation is not None
    dice = random.Random(f"reliability/{seed}/{function.id}")
    table, exception = function.relation.table, function.exception
    members = dice.sample(list(function.relation.values), len(function.relation.values))
    excepted = [one for one in members if exception is not None and exception.holds(table, one)][:EXCEPTED]
    plain = [one for one in members if exception is None or not exception.holds(table, one)][: count - len(excepted)]
    replies = function.replies([*plain, *excepted])
    facts = [
        _says(reply, function.relation.value(member))
        for member, reply in zip(plain, replies[: len(plain)], strict=True)
    ]
    silent = [_says(reply, UNDEFINED) for reply in replies[len(plain) :]]
    return ReliableFunction(
        id=function.id,
        category="relations",
        name=in_words(function.truth()),
        rate=Metric.of_share(sum(facts) + sum(silent), len(replies)),
        facts=Metric.of_share(sum(facts), len(facts)),
        undefined=Metric.of_share(sum(silent), len(silent)) if silent else None,
        n_error=sum(reply.error is not None for reply in replies),
    )


def _says(reply: Reply, expected: str) -> bool:
    return reply.error is None and same(str(reply.value), expected)


def _selectivity(
    functions: Sequence[Function], own_words: dict[str, list[str]], pool: ThreadPoolExecutor, report: Progress
) -> Selectivity:
    """Every entity asked for the words of all of them, in one go per entity."""
    words = [word for function in functions for word in own_words[function.id]]

    def row(function: Function) -> tuple[float | None, ...]:
        replies = function.replies(words)
        values = {word: None if reply.error else reply.value for word, reply in zip(words, replies, strict=True)}
        return tuple(_mean([values[word] for word in own_words[other.id]]) for other in functions)

    means: list[tuple[float | None, ...]] = []
    for one in pool.map(row, functions):
        means.append(one)
        report("selectivity", len(means), len(functions))
    largest = sum(
        row[i] is not None and all((row[i] or 0.0) > (value or 0.0) for j, value in enumerate(row) if j != i)
        for i, row in enumerate(means)
    )
    names = tuple(in_words(function.truth()) for function in functions)
    return Selectivity(entities=names, means=tuple(means), diagonal_largest=Metric.of_share(largest, len(means)))


def _figures(row: ReliableFunction, family: str) -> dict[str, float | None]:
    if row.category == "entities":
        return {"rate": row.rate.value, "own": row.own, "random": row.random}
    parts = {"facts": row.facts, "undefined": row.undefined, f"rate_{family}": row.rate}
    return {"rate": row.rate.value, **{name: None if one is None else one.value for name, one in parts.items()}}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
