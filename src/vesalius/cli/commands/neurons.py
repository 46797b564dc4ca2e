"""Circuits of single neurons."""

import typer

from vesalius.cli.options import Ranked, SpecimenArgument, command
from vesalius.options import NEURONS, Draw, Force, Load, Scoring

commands = typer.Typer()


@command(commands)
def neurons(
    specimen: SpecimenArgument,
    load: Load,
    scoring: Scoring,
    draw: Draw = NEURONS,
    *,
    force: Force,
    printed: Ranked,
) -> None:
    """Find the smallest set of neurons that keeps a share of a behaviour, all other neurons resampled.

    Writes neurons.json, its page neurons.html, and circuit.json. The set is measured on held-out prompts, beside as
    many neurons that change most between the prompt and its counterfactual, and as many random ones.

    Example: vesalius neurons smollm2-135m -b examples/agreement.jsonl --keep 0.8
    """
    from vesalius import api
    from vesalius.cli.console import output

    if printed.plan:
        return output(api.plan("neurons", specimen, load, scoring, draw, force), as_json=printed.json)
    circuit = api.neurons(specimen, load, scoring, draw, force, out=printed.out or True)
    return output(circuit, as_json=printed.json, top=printed.top)
