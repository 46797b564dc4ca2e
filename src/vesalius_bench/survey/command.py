"""Several models on several behaviours."""

from typing import Annotated

import typer

from vesalius.cli.options import (
    DeviceOption,
    DtypeOption,
    JsonOption,
    MetricOption,
    PartsEngineOption,
    PartsJobsOption,
    PlanOption,
    RunOption,
)


def survey(
    models: Annotated[
        list[str],
        typer.Argument(help="Natural models: smollm2-135m, directories, GGUF files, hub ids.", metavar="MODEL..."),
    ],
    behaviour: Annotated[
        list[str] | None,
        typer.Option("--behaviour", "-b", help="A behaviour by name or file; give it once for each."),
    ] = None,
    kind: Annotated[
        str, typer.Option("--kind", "-k", help="What components are replaced by: zero, mean, resample or value-bias.")
    ] = "resample",
    n: Annotated[int, typer.Option("--n", min=1, help="Prompts of a sweep.")] = 32,
    top: Annotated[int, typer.Option("--top", min=1, help="Components that two halves of the prompts compare.")] = 10,
    discover: Annotated[
        str | None,
        typer.Option(
            "--discover", help="Also find a circuit, with checks: sweep, eap, eap-ig, relp, acdc, bandit or rl."
        ),
    ] = None,
    metric: MetricOption = None,
    seed: Annotated[int, typer.Option(help="Seed of the prompts, the halves and the bootstrap.")] = 0,
    engine: PartsEngineOption = None,
    jobs: PartsJobsOption = None,
    out: RunOption = None,
    dtype: DtypeOption = "auto",
    device: DeviceOption = "auto",
    plan: PlanOption = False,
    json: JsonOption = False,
) -> None:
    """Say which models perform which behaviours, which heads and MLPs matter, and how stable that is.

    Ends with one page, report.html. It can be interrupted at any moment: the same command continues it, and finished
    cells are not measured again. A cell that fails is a line of the table; the exit code is 1 if any did.

    Example: vesalius survey smollm2-135m -b induction -b ioi -b examples/antonyms.jsonl
    """
    from vesalius import api
    from vesalius.cli.console import output, resumable

    options = {"kind": kind, "n": n, "top": top, "discover": discover, "metric": metric, "seed": seed}
    options |= {"dtype": dtype, "device": device}
    if plan:
        return output(api.survey_plan(models, behaviour or (), **options), as_json=json)
    with resumable():
        result = api.survey(models, behaviour or (), engine=engine, jobs=jobs, out=out or True, **options)
    output(result, as_json=json)
    if result.n_failed:
        raise typer.Exit(1)
    return None
