"""The runs that fill tables of the papers which nothing fills by now: planned first, with their cost, then made.

A language model that costs money is asked only under a spending cap. What only people can give is never run.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from vesalius.api.benchmarks import bench_circuits
from vesalius.api.places import RUNS
from vesalius.backbones.messages import Prices, TokenUsage
from vesalius.errors import BadInput
from vesalius.progress import Progress
from vesalius.runs.settings import chosen_circuits
from vesalius_bench.papers.documents import PaperPlan, PaperStep
from vesalius_bench.papers.entries import Entry, Filled, filled
from vesalius_bench.papers.papers import Runs, entry_of, sources_for, tables_of
from vesalius_bench.papers.published import GPT, TABLE_11
from vesalius_bench.study.study import study
from vesalius_functions.bench.benchmark import bench_functions
from vesalius_functions.bench.reliability import function_reliability
from vesalius_functions.suite import SUITE
from vesalius_mechrl.benchmark import bench_mechrl

#: The models that are studied where none is named.
STUDY_MODEL, MECHRL_MODEL = "arithmetic", "smollm2-135m"
ASKING: tuple[Filled, ...] = ("agent", "judged", "study agent", "evaluator")


@dataclass(frozen=True)
class RunOptions:
    """What the runs of a plan may use: language models, a natural model, only the first `limit` cases, a cap."""

    backbone: str | None = None
    judges: tuple[str, ...] = ()
    model: str | None = None
    limit: int | None = None
    max_cost: float | None = None

    @property
    def agent(self) -> dict[str, JsonValue]:
        """Options of a run of the agent."""
        cap: dict[str, JsonValue] = {} if self.max_cost is None else {"max_cost": self.max_cost}
        return {"scientist": "hyve", "protocol": "paper", "backbone": self.backbone, **cap}


def paper_plan(
    paper: str,
    table: str | int | None = None,
    *,
    figure: str | int | None = None,
    runs: Runs = (),
    backbone: str | None = None,
    judges: Sequence[str] = (),
    model: str | None = None,
    limit: int | None = None,
    max_cost: float | None = None,
) -> PaperPlan:
    """The runs that fill what `runs` do not: of one table or figure, or of all. Nothing is run.

    What asks a language model needs `backbone` (`judges` as well, for judged tables) and, unless the model is free,
    `max_cost`. `left_out` says what cannot be run like this, and why; asked for alone, that is refused.
    """
    tables = tables_of(paper)
    chosen = tables.entries if table is None and figure is None else (entry_of(tables, table, figure),)
    sources = sources_for(runs, chosen, paper)
    missing = [entry for entry in chosen if not filled(tables, entry, sources).measured]
    options = RunOptions(backbone, tuple(judges), model, limit, max_cost)
    left_out = {entry.id: reason for entry in missing if (reason := _refusal(entry, options))}
    if len(chosen) == 1 and left_out:
        raise BadInput(f"{chosen[0].id} of {paper} cannot be run like this: {left_out[chosen[0].id]}")
    wanted: dict[Filled, list[str]] = {}
    for entry in missing:
        if entry.filled_by is not None and entry.id not in left_out:
            wanted.setdefault(_with_models(entry.filled_by, options), []).append(entry.id)
    steps = tuple(step for filled_by, ids in wanted.items() for step in _steps(filled_by, tuple(ids), options))
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


def _refusal(entry: Entry, options: RunOptions) -> str:
    """Why an entry cannot be run with these options; empty where it can."""
    if entry.filled_by is None:
        return entry.by_hand
    if entry.filled_by in ASKING and options.backbone is None:
        return "it asks a language model; name one with `backbone`, and `max_cost` unless it is free"
    if entry.filled_by == "judged" and not options.judges:
        return "it needs judges; name them with `judge`"
    return _budget(_models(_with_models(entry.filled_by, options), options), options)


def _budget(models: Sequence[str], options: RunOptions) -> str:
    costly = [model for model in models if _price(model) != 0.0]
    if costly and options.max_cost is None:
        return f"{costly[0]} is not known to be free; set a spending cap with `max_cost`"
    return ""


def _price(model: str) -> float | None:
    """0 where a model is free, None where its price is not known, else dollars per million tokens that it reads."""
    price = Prices.load().of(*_named(model))
    return None if price is None else price.input


def _named(model: str) -> tuple[str, str]:
    provider, colon, name = model.partition(":")
    if not colon or not name:
        raise BadInput(f"backbone {model!r}: name it as PROVIDER:MODEL, such as openai:gpt-5.4")
    return provider, name


def _with_models(filled_by: Filled, options: RunOptions) -> Filled:
    """The run that fills more at once: with a backbone the agent's, with judges the judged one."""
    if filled_by in ("circuits", "agent") and options.backbone is not None:
        return "judged" if options.judges else "agent"
    return "study agent" if filled_by == "study" and options.backbone is not None else filled_by


def _models(filled_by: Filled, options: RunOptions) -> tuple[str, ...]:
    if options.backbone is None or filled_by in ("circuits", "study", "mechrl"):
        return ()
    return (options.backbone, *(options.judges if filled_by == "judged" else ()))


def _steps(filled_by: Filled, fills: tuple[str, ...], options: RunOptions) -> Iterator[PaperStep]:
    """The runs behind one kind of filling."""
    models = _models(filled_by, options)
    first: dict[str, JsonValue] = {} if options.limit is None else {"limit": options.limit}
    if filled_by in ("circuits", "agent", "judged"):
        cases = len(chosen_circuits(None, None, options.limit))
        given = first if filled_by == "circuits" else {**options.agent, **first}
        judges: dict[str, JsonValue] = {"judge": list(options.judges)} if filled_by == "judged" else {}
        cost = _agent_cost(models, cases)
        yield PaperStep(
            command="bench circuits",
            options={**given, **judges},
            fills=fills,
            work=f"{cases} circuits",
            models=models,
            cost=cost,
        )
    elif filled_by in ("study", "study agent"):
        asked = {name: value for name, value in options.agent.items() if name != "scientist"} if models else {}
        yield PaperStep(
            command="study af1",
            options={"model": options.model or STUDY_MODEL, **asked},
            fills=fills,
            work="one model",
            models=models,
            cost=_free(models),
        )
    elif filled_by == "mechrl":
        yield PaperStep(
            command="bench mechrl",
            options={"specimen": options.model or MECHRL_MODEL, "paper": True},
            fills=fills,
            work="5 seeds of 200,000 steps, K = 1 and K = 5",
        )
    elif filled_by == "reliability":
        count: dict[str, JsonValue] = {} if options.limit is None else {"count": options.limit}
        asked = {name: value for name, value in options.agent.items() if name in ("backbone", "max_cost") and models}
        yield PaperStep(
            command="functions reliability",
            options={"matrix": True, **count, **asked},
            fills=fills,
            work=f"{options.limit or SUITE['entities']} entities on the words of each other",
            models=models,
            cost=_free(models),
        )
    else:
        yield from _function_steps(filled_by, fills, options)


def _function_steps(filled_by: Filled, fills: tuple[str, ...], options: RunOptions) -> Iterator[PaperStep]:
    models = _models(filled_by, options)
    cap: dict[str, JsonValue] = {} if options.max_cost is None or not models else {"max_cost": options.max_cost}
    for category, size in SUITE.items():
        if filled_by == "evaluator" and category == "numeric":
            continue
        asked: dict[str, JsonValue] = {}
        if filled_by == "evaluator":
            asked = {"interpreter": "oracle", "evaluator": options.backbone}
        elif models:
            asked = {"interpreter": "aia", "backbone": options.backbone}
        count: dict[str, JsonValue] = {} if options.limit is None else {"count": options.limit}
        yield PaperStep(
            command="bench functions",
            options={"category": category, **asked, **count, **cap},
            fills=fills,
            work=f"{options.limit or size} {category} functions",
            models=models,
            cost=_free(models),
        )


def _free(models: Sequence[str]) -> float | None:
    """0 where every model is free; else not known before the run, and at most the cap."""
    return 0.0 if all(_price(model) == 0.0 for model in models) else None


def _agent_cost(models: Sequence[str], cases: int) -> float | None:
    """Dollars of the agent by the tokens that the paper's took per circuit with GPT-5.4; None with judges that cost."""
    if not models:
        return 0.0
    price = Prices.load().of(*_named(models[0]))
    if price is None or _free(models[1:]) is None:
        return None
    used = {name: (value or 0.0) / 84 * cases for name, value in TABLE_11[GPT].items()}
    tokens = TokenUsage(input=round(used["input_tokens"]), output=round(used["output_tokens"]))
    return price.model_copy(update={"long": None}).cost(tokens)


def _circuits(options: dict[str, Any], jobs: int, progress: Progress | bool | None) -> str:
    judges = options.pop("judge", ())
    return str(bench_circuits(**options, judges=judges, jobs=jobs, progress=progress).directory)


def _functions(options: dict[str, Any], jobs: int, progress: Progress | bool | None) -> str:
    return str(bench_functions(**options, jobs=jobs, progress=progress).directory)


def _study(options: dict[str, Any], jobs: int, progress: Progress | bool | None) -> str:
    return str(study("af1", **options, out=True, progress=progress).directory)


def _mechrl(options: dict[str, Any], jobs: int, progress: Progress | bool | None) -> str:
    return str(Path(bench_mechrl(**options, jobs=jobs, progress=progress).numbers).parent)


def _reliability(options: dict[str, Any], jobs: int, progress: Progress | bool | None) -> str:
    place = Path(RUNS) / "paper-find-reliability"
    function_reliability(**options, jobs=jobs, out=place, progress=progress)
    return str(place)


_CALLS: dict[str, Callable[[dict[str, Any], int, Progress | bool | None], str]] = {
    "bench circuits": _circuits,
    "bench functions": _functions,
    "study af1": _study,
    "bench mechrl": _mechrl,
    "functions reliability": _reliability,
}
