"""Check what was found: whether a circuit keeps the behaviour, and whether a claim holds on other inputs."""

from typing import Annotated

import typer

from vesalius.cli.options import (
    BehaviourOption,
    DeviceOption,
    DtypeOption,
    JsonOption,
    MetricOption,
    RevisionOption,
    SelectOption,
    SizeOption,
    SpecimenArgument,
    TokenizerOption,
    names,
)

commands = typer.Typer()


@commands.command()
def faithfulness(
    specimen: SpecimenArgument,
    behaviour: BehaviourOption = None,
    metric: MetricOption = None,
    components: Annotated[
        str | None, typer.Option("--components", "-c", help="The circuit, comma-separated: L1H2,L3_MLP.")
    ] = None,
    circuit: Annotated[
        str | None,
        typer.Option(help="A circuit file, or a directory of `vesalius discover` or `vesalius explain`, instead."),
    ] = None,
    least: Annotated[float, typer.Option(min=0.0, help="Prune what scores less than this, by magnitude.")] = 0.0,
    pin: Annotated[
        str | None, typer.Option(help="Components and edges that stay whatever they score: L1H2,a0.h1->m1.")
    ] = None,
    prune: Annotated[str | None, typer.Option(help="Components and edges to prune as well.")] = None,
    select: SelectOption = None,
    size: SizeOption = None,
    kind: Annotated[
        str, typer.Option("--kind", "-k", help="resample, zero or mean; edges are resampled.")
    ] = "resample",
    n: Annotated[int, typer.Option("--n", min=1, help="Prompts.")] = 12,
    seed: Annotated[int, typer.Option(help="Seed of the prompts and of the random circuits.")] = 0,
    split: Annotated[str, typer.Option(help="Prompts of natural models: train, validation or test.")] = "validation",
    tokenizer: TokenizerOption = None,
    revision: RevisionOption = None,
    out: Annotated[str | None, typer.Option(help="Directory for faithfulness.json. Default: vesalius-runs/...")] = None,
    dtype: DtypeOption = "auto",
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Ablate everything outside a circuit and print how much of the behaviour stays, beside random circuits.

    0 is everything ablated, 1 the whole model. Where the circuit lists edges, edges are cut.

    Example: vesalius faithfulness 3 --circuit vesalius-runs/discover-frac_prevs-eap-n16-seed0 --least 0.01
    """
    from vesalius import api
    from vesalius.cli.console import output

    result = api.faithfulness(
        specimen,
        names(components),
        circuit=circuit,
        least=least,
        pin=pin or (),
        prune=prune or (),
        select=select,
        size=size,
        kind=kind,
        n=n,
        seed=seed,
        split=split,
        behaviour=behaviour,
        metric=metric,
        tokenizer=tokenizer,
        revision=revision,
        dtype=dtype,
        device=device,
        out=out or True,
    )
    return output(result, as_json=json)


@commands.command()
def retest(
    explanation: Annotated[str, typer.Argument(help="A directory of `vesalius explain`, or an explanation file.")],
    component: Annotated[str, typer.Option("--component", "-c", help="The component that the claim is about.")],
    claim: Annotated[
        str, typer.Option(help="Its number among the claims about the component, from 1, or its kind: necessary.")
    ] = "1",
    seed: Annotated[int, typer.Option(help="Seed of the held-out inputs; the explanation's own repeats it.")] = 1,
    out: Annotated[str | None, typer.Option(help="Directory for retest.json. Default: vesalius-runs/...")] = None,
    dtype: DtypeOption = "auto",
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Decide one claim of an explanation again, on the held-out inputs of another seed, by the same rule.

    Example: vesalius retest vesalius-runs/explain-frac_prevs-seed0 -c L0_MLP --claim necessary --seed 5
    """
    from vesalius import api
    from vesalius.cli.console import output

    result = api.retest(explanation, component, claim, seed=seed, dtype=dtype, device=device, out=out or True)
    return output(result, as_json=json)
