"""The runs that fill tables of the papers which nothing fills by now: planned first, with their cost, then made.

A language model that costs money is asked only under a spending cap. What only people can give is never run.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from vesalius.api.door import RUNS, verb
from vesalius.errors import BadInput
from vesalius.progress import Progress
from vesalius_backbones.messages import Price, Prices, TokenUsage
from vesalius_bench.circuits.benchmark import bench_circuits
from vesalius_bench.circuits.selection import chosen_circuits
from vesalius_bench.options import Filling
from vesalius_bench.papers.documents import PaperPlan, PaperStep
from vesalius_bench.papers.published import GPT, TABLE_11, Filled, PrintedTable
from vesalius_bench.papers.tables import Runs, entry_of, filled, sources_for, tables_of
from vesalius_bench.study.study import study
from vesalius_functions.bench.benchmark import bench_functions
from vesalius_functions.bench.reliability import function_reliability
from vesalius_functions.suite import SUITE
from vesalius_mechrl.benchmark import bench_mechrl

#: The models that are studied where none is named.
STUDY_MODEL, MECHRL_MODEL = "arithmetic", "smollm2-135m"
MECHRL_WORK = "5 seeds of 200,000 steps, K = 1 and K = 5, and a single environment"
ASKING: tuple[Filled, ...] = ("agent", "judged", "study agent", "dialogue", "evaluator")
StepOptions = dict[str, JsonValue]


@verb
def paper_plan(
    paper: str,
    table: str | int | None = None,
    *,
    figure: str | int | None = None,
    runs: Runs = (),
    filling: Filling,
) -> PaperPlan:
    """The runs that fill what `runs` do not: of one table or figure, or of all. Nothing is run.

    What asks a language model needs `backbone` (`judges` as well, for judged tables) and, unless the model is free,
    `max_cost`. `left_out` says what cannot be run like this, and why; asked for alone, that is refused.
    """
    tables = tables_of(paper)
    chosen = tables.entries if table is None and figure is None else (entry_of(tables, table, figure),)
    sources = sources_for(runs, chosen, paper)
    missing = [entry for entry in chosen if not filled(tables, entry, sources).measured]
    left_out = {entry.id: reason for entry in missing if (reason := _refusal(entry, filling))}
    if len(chosen) == 1 and left_out:
        raise BadInput(f"{chosen[0].id} of {paper} cannot be run like this: {left_out[chosen[0].id]}")
    wanted: dict[Filled, list[str]] = {}
    for entry in missing:
        if entry.filled_by is not None and entry.id not in left_out:
            wanted.setdefault(_with_models(entry.filled_by, filling), []).append(entry.id)
    steps = tuple(step for filled_by, ids in wanted.items() for step in _steps(filled_by, tuple(ids), filling))
    costs = [step.cost for step in steps]
    known = [cost for cost in costs if cost is not None]
    return PaperPlan(
        paper=tables.paper, steps=steps, cost=sum(known) if len(known) == len(costs) else None, left_out=left_out
    )


def paper_run(plan: PaperPlan, *, jobs: int = 2, progress: Progress | bool | None = None) -> tuple[str, ...]:
    """Make the runs of a plan, one after the other, each in its own directory under `vesalius-runs`; returns those.

    A run that was interrupted continues when it is made again.
    """
    return tuple(_CALLS[step.command](dict(step.options), jobs, progress) for step in plan.steps)


def _refusal(entry: PrintedTable, filling: Filling) -> str:
    """Why an entry cannot be run with these options; empty where it can."""
    if entry.filled_by is None:
        return entry.by_hand
    if entry.filled_by in ASKING and filling.backbone is None:
        return "it asks a language model; name one with `backbone`, and `max_cost` unless it is free"
    if entry.filled_by == "judged" and not filling.judges:
        return "it needs judges; name them with `judge`"
    models = _models(_with_models(entry.filled_by, filling), filling)
    costly = [model for model in models if not _is_free(model)]
    if costly and filling.max_cost is None:
        return f"{costly[0]} is not known to be free; set a spending cap with `max_cost`"
    return ""


def _price(model: str) -> Price | None:
    provider, colon, name = model.partition(":")
    if not colon or not name:
        raise BadInput(f"backbone {model!r}: name it as PROVIDER:MODEL, such as openai:gpt-5.4")
    return Prices.load().of(provider, name)


def _is_free(model: str) -> bool:
    price = _price(model)
    return price is not None and price.input == 0.0


def _with_models(filled_by: Filled, filling: Filling) -> Filled:
    """The run that fills more at once: with a backbone the agent's, with judges the judged one."""
    if filled_by in ("circuits", "agent") and filling.backbone is not None:
        return "judged" if filling.judges else "agent"
    with_model: dict[Filled, Filled] = {"study": "study agent", "functions": "dialogue"}
    return filled_by if filling.backbone is None else with_model.get(filled_by, filled_by)


def _models(filled_by: Filled, filling: Filling) -> tuple[str, ...]:
    if filling.backbone is None or filled_by in ("circuits", "study", "mechrl"):
        return ()
    return (filling.backbone, *(filling.judges if filled_by == "judged" else ()))


def _steps(filled_by: Filled, fills: tuple[str, ...], filling: Filling) -> Iterator[PaperStep]:
    """The runs behind one kind of filling."""
    models, limit = _models(filled_by, filling), filling.limit
    cap: StepOptions = {} if filling.max_cost is None or not models else {"max_cost": filling.max_cost}
    count: StepOptions = {} if limit is None else {"count": limit}
    agent: StepOptions = {"protocol": "paper", "backbone": filling.backbone, **cap} if models else {}

    def step(command: str, options: StepOptions, work: str, cost: float | None = None) -> PaperStep:
        """A run; its cost is 0 where every model is free, else not known before it, and at most the cap."""
        cost = 0.0 if all(map(_is_free, models)) else cost
        return PaperStep(command=command, options=options, fills=fills, work=work, models=models, cost=cost)

    if filled_by in ("circuits", "agent", "judged"):
        cases = len(chosen_circuits(None, None, limit))
        asked: StepOptions = {"scientist": "hyve", **agent} if models else {}
        first: StepOptions = {} if limit is None else {"limit": limit}
        judges: StepOptions = {"judge": list(filling.judges)} if filled_by == "judged" else {}
        yield step("bench circuits", {**asked, **first, **judges}, f"{cases} circuits", _agent_cost(models, cases))
    elif filled_by in ("study", "study agent"):
        yield step("study af1", {"model": filling.model or STUDY_MODEL, **agent}, "one model")
    elif filled_by == "mechrl":
        model = filling.model or MECHRL_MODEL
        yield step("bench mechrl", {"specimen": model, "paper": True, "collapse": True}, MECHRL_WORK)
    elif filled_by == "reliability":
        asked = {"backbone": filling.backbone, **cap} if models else {}
        work = f"{limit or SUITE['entities']} entities on the words of each other"
        yield step("functions reliability", {"matrix": True, **count, **asked}, work)
    else:
        asked = {"interpreter": "aia", "backbone": filling.backbone} if models else {}
        if filled_by == "evaluator":
            asked = {"interpreter": "oracle", "evaluator": filling.backbone}
        for category, size in SUITE.items():
            if filled_by != "evaluator" or category != "numeric":
                options = {"category": category, **asked, **count, **cap}
                yield step("bench functions", options, f"{limit or size} {category} functions")


def _agent_cost(models: Sequence[str], cases: int) -> float | None:
    """Dollars of the agent by the tokens that the paper's took per circuit with GPT-5.4; None with judges that cost."""
    price = _price(models[0]) if models else None
    if price is None or not all(map(_is_free, models[1:])):
        return None
    used = {name: (value or 0.0) / 84 * cases for name, value in TABLE_11[GPT].items()}
    tokens = TokenUsage(input=round(used["input_tokens"]), output=round(used["output_tokens"]))
    return price.model_copy(update={"long": None}).cost(tokens)


MakeRun = Callable[[dict[str, Any], int, Progress | bool | None], str]


def _circuits(options: dict[str, Any], jobs: int, progress: Progress | bool | None) -> str:
    judges = options.pop("judge", ())
    return str(bench_circuits(**options, judges=judges, jobs=jobs, progress=progress).directory)


def _reliability(options: Mapping[str, object], jobs: int, progress: Progress | bool | None) -> str:
    place = Path(RUNS) / "paper-find-reliability"
    function_reliability(**options, jobs=jobs, out=place, progress=progress)
    return str(place)


#: What makes the run of each command, and says where it is: of its options, the jobs and the progress.
_CALLS: dict[str, MakeRun] = {
    "bench circuits": _circuits,
    "bench functions": lambda options, jobs, progress: str(
        bench_functions(**options, jobs=jobs, progress=progress).directory
    ),
    "study af1": lambda options, _, progress: str(study("af1", **options, progress=progress).directory),
    "bench mechrl": lambda options, jobs, progress: str(
        Path(bench_mechrl(**options, jobs=jobs, progress=progress).numbers).parent
    ),
    "functions reliability": _reliability,
}
