"""Circuits of single neurons."""

import typer

from vesalius.cli.options import SpecimenArgument, Studied, Table, command
from vesalius.options import NEURONS, Draw, Force, Scoring

commands = typer.Typer()


@command(commands)
def neurons(
    specimen: SpecimenArgument,
    studied: Studied,
    scoring: Scoring,
    draw: Draw = NEURONS,
    *,
    results: Table,
    force: Force,
) -> None:
    """Find the smallest set of neurons that keeps a share of a behaviour, all other neurons resampled.

    Writes neurons.json, its page neurons.html, and circuit.json. The set is measured on held-out prompts, beside as
    many neurons that change most between the prompt and its counterfactual, and as many random ones.

    Example: vesalius neurons smollm2-135m -b examples/agreement.jsonl --keep 0.8
    """
    from vesalius import api
    from vesalius.cli.console import output
    from vesalius.cli.tables.neurons import print_neurons
    from vesalius.cli.tables.sweep import print_plan

    asked = (studied.load(), scoring, draw, force)
    if results.plan:
        return output(api.plan("neurons", specimen, *asked), print_plan, as_json=results.json)
    circuit = api.neurons(specimen, *asked, out=results.out or True)
    return output(circuit, lambda circuit: print_neurons(circuit, results.top), as_json=results.json)
