"""The atlas of a model, and circuits of single neurons."""

import typer

from vesalius.cli.options import Ranked, SpecimenArgument, command
from vesalius.options import NEURONS, Charted, Draw, Force, Load, Read, Scoring

commands = typer.Typer()


@command(commands)
def atlas(
    specimen: SpecimenArgument,
    read: Read,
    charted: Charted,
    *,
    printed: Ranked,
) -> None:
    """Say what every head of a model is by standard tests and by its weights, and what its neurons read and write.

    Previous-token, duplicate-token and induction heads on repeated random tokens and on text, heads that copy or
    suppress the token that they read, heads that position decides; each figure beside its chance level, each name by a
    stated rule. Writes atlas.json and its page atlas.html; the same weights are measured once.

    Example: vesalius atlas smollm2-135m
    """
    from vesalius import api
    from vesalius.cli.console import output

    load = Load(**read.values())
    if printed.plan:
        return output(api.plan("atlas", specimen, load, charted), as_json=printed.json)
    result = api.atlas(specimen, load, charted, out=printed.out or True)
    return output(result, as_json=printed.json, top=printed.top)


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
