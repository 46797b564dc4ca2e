"""`vesalius bench natural`."""

from typing import Annotated

import typer

from vesalius import api
from vesalius.cli.console import output, resumable
from vesalius.cli.options import JsonOption, PlanOption, RunOption
from vesalius.options import Foreign, Jobs
from vesalius_bench.options import NaturalOptions


def natural(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            help="Natural models: arithmetic, smollm2-135m, directories, hub ids; planted: models with a known answer. "
            "Default: planted.",
            metavar="MODEL...",
        ),
    ] = None,
    out: RunOption = None,
    plan: PlanOption = False,
    json: JsonOption = False,
    *,
    options: NaturalOptions,
    foreign: Foreign,
    workers: Jobs,
) -> None:
    """Have scientists explain natural models, run what they say in the models' place, and print what it keeps.

    Beside the built-in scientist stand a scripted agent and a null, which names the same components with random
    programs. An interrupted run continues when the same command is given again.

    Example: vesalius bench natural planted, or vesalius bench natural smollm2-135m -b induction -b ioi
    """
    named = models or ["planted"]
    if plan:
        return output(api.bench_natural_plan(named, options), as_json=json)
    with resumable():
        result = api.bench_natural(named, options, foreign, workers, out=out)
    return output(result, as_json=json)
