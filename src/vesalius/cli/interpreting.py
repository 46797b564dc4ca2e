"""`functions sample` and `bench functions`: show black-box functions, and let somebody find out what they do.

The work is in `functions` and `runs`; here are the choice of functions, the progress on stderr and the tables.
"""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rich.table import Table

from vesalius.cli.benching import anywhere, label, metric_table
from vesalius.cli.console import print_json, stderr, stdout, steps
from vesalius.cli.places import out_directory
from vesalius.documents.scorecard import Scorecard
from vesalius.errors import BadInput
from vesalius.functions.agents import Limits as Talk
from vesalius.functions.agents import exemplars_for
from vesalius.functions.agents.writing import said_input, said_output
from vesalius.functions.answer import Mode
from vesalius.functions.box import Box, Function
from vesalius.functions.suite import SEED, Suite, in_words
from vesalius.report.run import render_run
from vesalius.runs.directory import Run
from vesalius.runs.engine import engine_named
from vesalius.runs.functions.benchmark import FunctionsBenchmark
from vesalius.runs.functions.settings import FunctionSettings
from vesalius.runs.functions.work import json_value
from vesalius.runs.settings import Limits

SHOWN_FAMILIES = 8


@dataclass(frozen=True)
class Request:
    """What the command line asked for; None where an option was left out."""

    category: str
    interpreter: str
    backbone: str | None
    evaluator: str | None
    dataset: str | None
    seed: int | None
    count: int | None
    mode: str | None
    budget: int | None
    rounds: int
    prices: str | None

    def settings(self) -> FunctionSettings:
        """What decides the results."""
        return FunctionSettings(
            suite=_suite(self.category, self.seed, self.count, self.mode, self.dataset),
            interpreter=self.interpreter,
            backbone=None if self.backbone is None else anywhere(self.backbone),
            evaluator=None if self.evaluator is None else anywhere(self.evaluator),
            budget=self.budget,
            talk=Talk(rounds=self.rounds),
            prices=None if self.prices is None else str(Path(self.prices).resolve()),
        )

    def words(self) -> tuple[str | None, ...]:
        """The parts of the run directory's name, where none was asked for."""
        return (
            "bench-functions",
            self.category,
            self.interpreter.replace(":", "."),
            None if self.backbone is None else Path(self.backbone.replace(":", "_")).name,
            None if self.mode == _usual_mode(self.dataset) else self.mode,
            None if self.dataset is None else Path(self.dataset).resolve().name,
            None if self.count is None else f"first{self.count}",
            None if self.budget is None else f"budget{self.budget}",
            f"seed{SEED if self.seed is None else self.seed}",
        )


def sample(
    category: str, *, seed: int | None, count: int, mode: str | None, dataset: str | None, as_json: bool
) -> None:
    """Show functions of a category with their truth and a few examples."""
    suite = _suite(category, seed, count, mode, dataset)
    _tell_left_out(suite)
    rows = [_shown(suite, function) for function in suite.functions()]
    if as_json:
        return print_json(rows)
    table = Table("id", "family", "truth", "examples", box=None, pad_edge=False)
    for row in rows:
        examples = ", ".join(example["text"] for example in row["examples"][:3])
        table.add_row(row["id"], row["family"], in_words(row["truth"])[:160], examples)
    stdout.print(table, markup=False)
    return None


def bench(
    request: Request,
    max_cost: float | None,
    unsafe_sandbox: bool,
    *,
    jobs: int,
    engine: str,
    out: str | None,
    as_json: bool,
) -> None:
    """Run the benchmark, or what is left of it, and print its scorecard."""
    settings, runs_on = request.settings(), engine_named(engine)
    limits = Limits(max_cost=max_cost, sandbox_unsafe=unsafe_sandbox)
    limits.check_models(settings.models, settings.prices)
    _tell_left_out(settings.suite)  # also refuses a dataset that cannot be read, before a directory is made
    directory = out_directory(out, *request.words())
    opened = Run(directory, settings=settings.as_data(), notes=settings.notes(), limits=limits.as_data())
    with opened as run, steps() as tell:
        benchmark = FunctionsBenchmark(run, settings, limits=limits, engine=runs_on)
        with closing(benchmark.work(jobs=jobs)) as work:
            for event in work:
                tell(label(event, {}, paid=bool(settings.models)), event.done, event.total)
        scorecard = benchmark.scorecard()
        page = render_run(directory, progress=tell)
    _tell_errors(scorecard)
    if as_json:
        return print_json(scorecard.as_data())
    _print(scorecard)
    stdout.print(f"page: {page}", soft_wrap=True, markup=False)
    return None


def _suite(category: str, seed: int | None, count: int | None, mode: str | None, dataset: str | None) -> Suite:
    if dataset is not None and not dataset.strip():
        raise BadInput("--dataset: is empty; give the folder of a published dataset, or leave it out")
    place = None if dataset is None else str(Path(dataset).resolve())
    return Suite(category, SEED if seed is None else seed, count, cast(Mode, mode or _usual_mode(dataset)), place)


def _usual_mode(dataset: str | None) -> Mode:
    """Functions drawn afresh are without the published faults; those of a published folder are what was published."""
    return "fixed" if dataset is None else "published"


def _tell_left_out(suite: Suite) -> None:
    """One line about records of a dataset that are no functions here."""
    functions, left_out = suite.functions(), suite.left_out
    if left_out:
        name, reason = next(iter(left_out.items()))
        stderr.print(
            f"dataset {suite.dataset}: {len(functions)} functions, {len(left_out)} records left out; the first, "
            f"{name}: {reason}",
            markup=False,
            soft_wrap=True,
        )


def _shown(suite: Suite, function: Function) -> dict[str, Any]:
    box = Box(function)
    box.ask(exemplars_for(function, suite).inputs)
    examples = [
        {
            "input": json_value(asked.input),
            "output": json_value(asked.reply.value),
            **({} if asked.reply.error is None else {"error": asked.reply.error}),
            "text": f"f({said_input(asked.input)}) = {said_output(asked.reply)}",
        }
        for asked in box.log
    ]
    identity = {"id": function.id, "category": function.category, "family": function.family}
    return {**identity, "truth": json_value(function.truth()), "examples": examples}


def _tell_errors(scorecard: Scorecard) -> None:
    if scorecard.errors:
        first = scorecard.errors[0]
        stderr.print(
            f"{scorecard.n_error} of {scorecard.n + scorecard.n_error} functions ended in an error and are not"
            f" in the figures (the first, {first.case}: {first.reason}); the same command tries them again",
            markup=False,
            soft_wrap=True,
        )


def _print(scorecard: Scorecard) -> None:
    stdout.print(
        f"{scorecard.benchmark}, {scorecard.category}, {scorecard.subject}: {scorecard.n} functions, "
        f"{scorecard.n_error} errors",
        markup=False,
    )
    stdout.print(metric_table(scorecard.metrics))
    worst = [(name, row) for name, row in (scorecard.families or {}).items() if row.failed][:SHOWN_FAMILIES]
    if worst:
        failed = ", ".join(f"{name} {row.failed} of {row.n}" for name, row in worst)
        stdout.print(f"less than right: {failed}", markup=False)
    for caveat in scorecard.caveats or ():
        stdout.print(caveat, markup=False)
    cost = "unknown" if scorecard.cost is None else f"${scorecard.cost:.2f}"
    stdout.print(f"cost {cost}, {scorecard.seconds:.0f} s of work", markup=False)
