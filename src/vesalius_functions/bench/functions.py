"""Black-box functions with known answers: to look at, and to serve to agents as the published scripts."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from vesalius.api.places import directory_for
from vesalius.errors import BadInput, note
from vesalius.files import write_text
from vesalius_functions.agents import exemplars_for
from vesalius_functions.agents.evaluator import SPLITS, TESTED, TESTS, USUAL_SEED, evaluator_examples
from vesalius_functions.agents.invention import said_input, said_output
from vesalius_functions.answer import Mode, json_value
from vesalius_functions.box import Box, Function
from vesalius_functions.interpreters import check_askable
from vesalius_functions.serving import ServedFunctions
from vesalius_functions.suite import SEED, Suite, in_words

__all__ = [
    "SEED",
    "chosen_suite",
    "evaluator_data",
    "in_words",
    "sample_functions",
    "serve_functions",
    "suite_functions",
    "usual_mode",
]
#: How many are shown where nothing is said.
SHOWN = 5


def sample_functions(
    category: str,
    *,
    seed: int | None = None,
    count: int | None = None,
    ids: Sequence[str | int] | None = None,
    mode: str | None = None,
    dataset: str | Path | None = None,
) -> list[dict[str, Any]]:
    """Functions of a category (numeric, strings, entities, relations) with their truth and a few examples.

    The first `count` (5 where nothing is said), or those that `ids` names, such as "f00042" or 42. `mode` is
    "fixed", or "published" with the published faults; `dataset` a folder of the published dataset.
    """
    count = SHOWN if count is None and ids is None else count
    suite = chosen_suite(category, seed, count, mode, dataset, ids=ids)
    return [_described(suite, function) for function in suite_functions(suite)]


@contextmanager
def serve_functions(
    category: str,
    out: str | Path,
    *,
    ids: Sequence[str | int] | None = None,
    seed: int | None = None,
    count: int | None = None,
    mode: str | None = None,
    dataset: str | Path | None = None,
    budget: int | None = None,
) -> Iterator[ServedFunctions]:
    """Put functions behind scripts in the published form (`python function.py x`) while the block runs.

    `out` gets a folder per function; the definitions are in no file there. `ids` names some of the functions that the
    other options choose, `budget` is the number of inputs that each may be asked. Every query is a line of
    `queries.jsonl`, also for a server that is started again. `bench_functions(interpreter="answers:DIR")` grades what
    an agent wrote into the folders.
    """
    suite = chosen_suite(category, seed, count, mode, dataset, ids=ids)
    functions = {function.id: function for function in suite_functions(suite)}
    for function in functions.values():
        check_askable(function)
    with ServedFunctions(functions, directory_for(out), budget=budget) as served:
        yield served


def evaluator_data(
    out: str | Path,
    *,
    categories: str | Sequence[str] = TESTED,
    tests: int = TESTS,
    seed: int = USUAL_SEED,
) -> dict[str, dict[str, int]]:
    """Write training data for an evaluator of descriptions to `out`: train.jsonl, validation.jsonl and test.jsonl.

    A line is a unit test of a true description with its answer, also as chat messages; no concept, relation or program
    is in two splits. `tests` is their number per category. Returns tests and functions of each split.
    """
    chosen = (categories,) if isinstance(categories, str) else tuple(dict.fromkeys(categories))
    examples = list(evaluator_examples(chosen, tests=tests, seed=seed))
    directory = directory_for(out)
    counts = {}
    for split in SPLITS:
        rows = [one for one in examples if one.split == split]
        lines = (json.dumps(row.as_data(), ensure_ascii=False) + "\n" for row in rows)
        write_text(directory / f"{split}.jsonl", "".join(lines))
        counts[split] = {"tests": len(rows), "functions": len({(row.category, row.function) for row in rows})}
    return counts


def chosen_suite(
    category: str,
    seed: int | None,
    count: int | None,
    mode: str | None,
    dataset: str | Path | None,
    *,
    ids: Sequence[str | int] | None = None,
    function_backbone: str | None = None,
) -> Suite:
    """The functions that the options choose, not drawn yet."""
    if dataset is not None and not str(dataset).strip():
        raise BadInput("`dataset`: is empty; give the folder of a published dataset, or leave it out")
    folder = None if dataset is None else str(Path(dataset).resolve())
    named = None if ids is None else tuple(map(str, ids))
    chosen_mode = cast(Mode, mode or usual_mode(dataset))
    return Suite(category, SEED if seed is None else seed, count, chosen_mode, folder, named, function_backbone)


def suite_functions(suite: Suite) -> Sequence[Function]:
    """The functions of a suite; says how many records of a dataset were left out."""
    functions, left_out = suite.functions(), suite.left_out
    if left_out:
        name, reason = next(iter(left_out.items()))
        first = f"the first, {name}: {reason}"
        note(f"dataset {suite.dataset}: {len(functions)} functions, {len(left_out)} records left out; {first}")
    return functions


def usual_mode(dataset: str | Path | None) -> Mode:
    """Functions drawn afresh are without the published faults; those of a published folder are as published."""
    return "fixed" if dataset is None else "published"


def _described(suite: Suite, function: Function) -> dict[str, Any]:
    box = Box(function)
    box.ask(exemplars_for(function, suite).inputs)
    examples = [
        {
            "input": json_value(query.input),
            "output": json_value(query.reply.value),
            **({} if query.reply.error is None else {"error": query.reply.error}),
            "text": f"f({said_input(query.input)}) = {said_output(query.reply)}",
        }
        for query in box.log
    ]
    identity = {"id": function.id, "category": function.category, "family": function.family}
    return {**identity, "truth": json_value(function.truth()), "examples": examples}
