"""Several models on several behaviours."""

from typing import Annotated

import typer

from vesalius.cli.options import JsonOption, PlanOption, RunOption
from vesalius.options import Parts
from vesalius_bench.options import SurveyOptions


def survey(
    models: Annotated[
        list[str],
        typer.Argument(help="Natural models: smollm2-135m, directories, GGUF files, hub ids.", metavar="MODEL..."),
    ],
    behaviour: Annotated[
        list[str] | None,
        typer.Option("--behaviour", "-b", help="A behaviour by name or file; give it once for each."),
    ] = None,
    out: RunOption = None,
    plan: PlanOption = False,
    json: JsonOption = False,
    *,
    surveyed: SurveyOptions,
    parts: Parts,
) -> None:
    """Say which models perform which behaviours, which heads and MLPs matter, and how stable that is.

    Ends with one page, report.html. It can be interrupted at any moment: the same command continues it, and finished
    cells are not measured again. A cell that fails is a line of the table; the exit code is 1 if any did.

    Example: vesalius survey smollm2-135m -b induction -b ioi -b examples/antonyms.jsonl
    """
    from vesalius import api
    from vesalius.cli.console import output, resumable

    if plan:
        return output(api.survey_plan(models, behaviour or (), surveyed), as_json=json)
    with resumable():
        result = api.survey(models, behaviour or (), surveyed, parts, out=out or True)
    output(result, as_json=json)
    if result.n_failed:
        raise typer.Exit(1)
    return None
