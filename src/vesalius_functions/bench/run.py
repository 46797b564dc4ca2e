"""`vesalius bench functions`: run the benchmark of black-box functions, and what its run directories are."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from vesalius.api.benchmarks import absolute, note_errors, performed
from vesalius.api.places import Out, directory_for, findable_model
from vesalius.backbones import TIMEOUT
from vesalius.documents.difference import Compared, ComponentDifference
from vesalius.documents.scorecard import Scorecard
from vesalius.json_lines import short_name
from vesalius.progress import Progress
from vesalius.runs.directory import Run, read_document
from vesalius.runs.engine import engine_named
from vesalius.runs.kinds import Benchmark
from vesalius.runs.settings import RunLimits, selection_word
from vesalius_functions.agents import DialogueLimits as Talk
from vesalius_functions.bench.benchmark import FunctionsBenchmark, stored_seed
from vesalius_functions.bench.functions import SEED as FUNCTIONS_SEED
from vesalius_functions.bench.functions import chosen_suite, suite_functions, usual_mode
from vesalius_functions.bench.scorecard import deciding
from vesalius_functions.bench.settings import BENCHMARK, FunctionSettings
from vesalius_functions.bench.work import Graded
from vesalius_functions.interpreters import BUILTIN
from vesalius_functions.interpreters import NAMES as INTERPRETERS
from vesalius_functions.page import render_functions


def bench_functions(
    *,
    category: str,
    interpreter: str = BUILTIN,
    backbone: str | None = None,
    evaluator: str | None = None,
    function_backbone: str | None = None,
    dataset: str | Path | None = None,
    seed: int | None = None,
    count: int | None = None,
    ids: Sequence[str | int] | None = None,
    mode: str | None = None,
    budget: int | None = None,
    white_box: bool = False,
    rounds: int = 20,
    system_prompt: str | None = None,
    grading_seed: int | None = None,
    prices: str | Path | None = None,
    max_cost: float | None = None,
    timeout: float = TIMEOUT,
    unsafe_sandbox: bool = False,
    jobs: int = 2,
    engine: str = "local",
    out: Out = None,
    progress: Progress | bool | None = None,
) -> Scorecard:
    """Find the rules of black-box functions from queries alone, grade the answers, and draw a page.

    `category` is numeric, strings, entities or relations; `interpreter` is "builtin", "oracle", "table", "aia",
    "milan", "aia+milan" or `package.module:function`; `evaluator` a language model that takes the unit tests of
    descriptions; `function_backbone` one that answers entities and relations in place of our knowledge; `count` takes
    the first functions, `ids` those of that name; `budget` is the number of queries per function; `white_box`
    gives the interpreter the layers of numeric functions that are nets; `system_prompt` "llama-2" is the paper's
    stricter one, in mode "published". The seed of the test points is drawn when the answers
    are written; the scorecard names it, and `grading_seed` repeats it.
    """
    answering = findable_model(function_backbone)
    suite = chosen_suite(category, seed, count, mode, dataset, ids=ids, function_backbone=answering)
    settings = FunctionSettings(
        suite=suite,
        interpreter=interpreter,
        backbone=findable_model(backbone),
        evaluator=findable_model(evaluator),
        budget=budget,
        white_box=white_box,
        talk=Talk(rounds=rounds, system=system_prompt or "gpt"),
        prices=absolute(prices),
        grading_seed=grading_seed,
    )
    limits, runs_on = RunLimits(max_cost=max_cost, sandbox_unsafe=unsafe_sandbox, timeout=timeout), engine_named(engine)
    limits.check_models(settings.models, settings.prices)
    suite_functions(suite)
    directory = directory_for(
        out,
        "bench-functions",
        category,
        short_name(interpreter),
        None if backbone is None else Path(backbone.replace(":", "_")).name,
        None if answering is None else f"on-{Path(answering.replace(':', '_')).name}",
        None if mode == usual_mode(dataset) else mode,
        None if dataset is None else Path(dataset).resolve().name,
        None if count is None else f"first{count}",
        None if suite.ids is None else selection_word(None, suite.ids, None),
        None if budget is None else f"budget{budget}",
        "white-box" if white_box else None,
        None if system_prompt is None else f"system-{system_prompt}",
        f"seed{FUNCTIONS_SEED if seed is None else seed}",
    )

    def benchmark(run: Run) -> FunctionsBenchmark:
        return FunctionsBenchmark(run, settings, limits=limits, engine=runs_on)

    card = performed(directory, settings, benchmark, limits, jobs=jobs, progress=progress)
    note_errors(card, card.n + card.n_error, "functions")
    return card


def decisions(run: Path) -> dict[str, tuple[str, float]]:
    """The figure that says whether an answer is right, with its name, of every graded function."""
    figures = {
        path.stem: deciding(dict(read_document(Graded, path).metrics)) for path in (run / "grades").glob("*.json")
    }
    return {name: figure for name, figure in sorted(figures.items()) if figure is not None}


class FunctionsBench(Benchmark):
    """`vesalius bench functions`."""

    NAME = BENCHMARK
    BUILT_IN: ClassVar[Mapping[str, tuple[str, ...]]] = {"vesalius.interpreters": INTERPRETERS}

    def run(self, **options: Any) -> Scorecard:
        """Interpret and grade."""
        return bench_functions(**options)

    def settings_of(self, directory: Path, asked: dict[str, Any]) -> FunctionSettings:
        """What was asked, with the grading seed that was drawn."""
        settings = FunctionSettings.of_run(asked)
        if settings.grading_seed is not None:
            return settings
        return replace(settings, grading_seed=stored_seed(directory, settings))

    def steps(self, run: Run, settings: FunctionSettings, **options: Any) -> FunctionsBenchmark:
        """Interpret, grade, evaluate."""
        return FunctionsBenchmark(run, settings, **options)

    def page(self, directory: Path, *, progress: Progress | None = None) -> Path:
        """The page of all functions."""
        return render_functions(directory, progress=progress)

    def compared(self, a: Path, b: Path) -> Compared:
        """Functions that one run has right and the other has not, or to another degree."""
        first, second = decisions(a), decisions(b)
        shared = [name for name in first if name in second]
        moved = [
            ComponentDifference(component=name, what=first[name][0], a=first[name][1], b=second[name][1])
            for name in shared
            if first[name] != second[name]
        ]
        left_out = len(first) + len(second) - 2 * len(shared)
        return Compared(
            components_moved=moved,
            components_same=len(shared) - len(moved),
            rule="here functions: the figure that says whether an answer is right is another one",
            notes=(f"{left_out} functions are graded in one run alone; they are left out",) if left_out else (),
        )
