"""Published studies, repeated on a model."""

from typing import Annotated

import typer

from vesalius import api
from vesalius.cli.console import output, resumable
from vesalius.cli.options import JsonOption, PlanOption, RunOption
from vesalius.errors import BadInput
from vesalius_bench.options import Explainer, RatedBy, StudyOptions


def study(
    name: Annotated[str, typer.Argument(help="The study: af1, the roles of components in addition.", metavar="STUDY")],
    model: Annotated[
        str,
        typer.Option("--model", help="A natural model: arithmetic, a model directory, a GGUF file, a hub id."),
    ],
    studied: StudyOptions,
    explainer: Explainer,
    rated: RatedBy,
    out: RunOption = None,
    plan: PlanOption = False,
    json: JsonOption = False,
) -> None:
    """Repeat a published study: which components add numbers, what each one does, and how well that is described.

    Checks that the model adds, takes or discovers the circuit, explains it and prints the published Table 4 with our
    rows. It writes study.json, report.html and a sheet for raters. The same command continues an interrupted study;
    with --backbone, --ratings or --judge it adds to a finished one.

    Example: vesalius study af1 --model arithmetic
    """
    if plan:
        if explainer.backbone or rated.judge:
            raise BadInput("--plan: how often a language model is asked is not known; leave out --backbone and --judge")
        return output(api.study_plan(name, model, studied), as_json=json)
    with resumable():
        result = api.study(name, model, studied, explainer, rated, out=out or True)
    return output(result, as_json=json, flags=("--ratings", "--judge", "--roles"))
