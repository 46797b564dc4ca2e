"""Check what was found: whether a circuit keeps the behaviour, and whether a claim holds on other inputs."""

from typing import Annotated

import typer

from vesalius.cli.options import Printed, SpecimenArgument, command
from vesalius.options import FAITHFUL, Cut, Draw, Load, Pruned

commands = typer.Typer()


@command(commands)
def faithfulness(
    specimen: SpecimenArgument,
    load: Load,
    components: Annotated[
        str | None, typer.Option("--components", "-c", help="The circuit, comma-separated: L1H2,L3_MLP.")
    ] = None,
    circuit: Annotated[
        str | None,
        typer.Option(help="A circuit file, or a directory of `vesalius discover` or `vesalius explain`, instead."),
    ] = None,
    draw: Draw = FAITHFUL,
    *,
    printed: Printed,
    pruned: Pruned,
    cut: Cut,
) -> None:
    """Ablate everything outside a circuit and print how much of the behaviour stays, beside random circuits.

    0 is everything ablated, 1 the whole model. Where the circuit lists edges, edges are cut.

    Example: vesalius faithfulness 3 --circuit vesalius-runs/discover-frac_prevs-eap-n16-seed0 --least 0.01
    """
    from vesalius import api
    from vesalius.cli.console import output

    result = api.faithfulness(
        specimen, load, pruned, cut, draw, components=components, circuit=circuit, out=printed.out or True
    )
    return output(result, as_json=printed.json)


@command(commands)
def retest(
    explanation: Annotated[str, typer.Argument(help="A directory of `vesalius explain`, or an explanation file.")],
    component: Annotated[str, typer.Option("--component", "-c", help="The component that the claim is about.")],
    claim: Annotated[
        str, typer.Option(help="Its number among the claims about the component, from 1, or its kind: necessary.")
    ] = "1",
    seed: Annotated[int, typer.Option(help="Seed of the held-out inputs; the explanation's own repeats it.")] = 1,
    *,
    printed: Printed,
) -> None:
    """Decide one claim of an explanation again, on the held-out inputs of another seed, by the same rule.

    Example: vesalius retest vesalius-runs/explain-frac_prevs-seed0 -c L0_MLP --claim necessary --seed 5
    """
    from vesalius import api
    from vesalius.cli.console import output

    result = api.retest(explanation, component, claim, seed=seed, out=printed.out or True)
    return output(result, as_json=printed.json)
