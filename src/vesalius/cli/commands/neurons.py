"""Circuits of single neurons."""

from typing import Annotated

import typer

from vesalius.cli.options import JsonOption, OnePrompt, PlanOption, SpecimenArgument, TopOption, command
from vesalius.options import NEURONS, Draw, Force, Load, Scoring

commands = typer.Typer()


@command(commands)
def neurons(
    specimen: SpecimenArgument,
    load: Load,
    scoring: Scoring,
    one: OnePrompt,
    draw: Draw = NEURONS,
    *,
    force: Force,
    out: Annotated[str | None, typer.Option(help="Directory for neurons.json. Default: vesalius-runs/...")] = None,
    plan: PlanOption = False,
    json: JsonOption = False,
    top: TopOption = 12,
) -> None:
    """Find the smallest set of neurons that keeps a share of a behaviour, all other neurons resampled.

    Writes neurons.json, its page neurons.html, and circuit.json. The set is measured on held-out prompts, beside as
    many neurons that change most between the prompt and its counterfactual, and as many random ones.

    Example: vesalius neurons smollm2-135m -b examples/agreement.jsonl --keep 0.8
    """
    from vesalius import api
    from vesalius.cli.console import output

    load = one.studied(load)
    if plan:
        return output(api.plan("neurons", specimen, load, scoring, draw, force), as_json=json)
    circuit = api.neurons(specimen, load, scoring, draw, force, out=out or True)
    return output(circuit, as_json=json, top=top)
