"""Several models on several behaviours."""

import typer

from vesalius import api
from vesalius.cli.console import output, resumable
from vesalius.cli.options import JsonOption, PlanOption, RunOption
from vesalius.options import Parts
from vesalius_bench.options import Cells, SurveyOptions


def survey(
    cells: Cells,
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
    if plan:
        return output(api.survey_plan(cells.models, cells.behaviours, surveyed), as_json=json)
    with resumable():
        result = api.survey(cells.models, cells.behaviours, surveyed, parts, out=out or True)
    output(result, as_json=json)
    if result.n_failed:
        raise typer.Exit(1)
    return None
