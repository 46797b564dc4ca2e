"""Published studies, repeated on a model."""

from typing import Annotated

import typer

from vesalius.cli.options import (
    BackboneOption,
    DeviceOption,
    DtypeOption,
    JsonOption,
    MaxCostOption,
    PlanOption,
    PricesOption,
    ProtocolOption,
    RunOption,
    TimeoutOption,
    UnsafeSandboxOption,
)
from vesalius.errors import BadInput


def study(
    name: Annotated[str, typer.Argument(help="The study: af1, the roles of components in addition.", metavar="STUDY")],
    model: Annotated[
        str,
        typer.Option("--model", help="A natural model: arithmetic, a model directory, a GGUF file, a hub id."),
    ],
    circuit: Annotated[
        str | None,
        typer.Option(
            "--circuit",
            help="A circuit (MIB JSON), a discovery.json or a directory of `vesalius discover`. Default: the published "
            "ten components for a model of Llama-3-8B's shape, else one is discovered.",
        ),
    ] = None,
    behaviour: Annotated[
        str | None,
        typer.Option(
            "--behaviour",
            "-b",
            help="The sums: addition:high=99,shots=0, ... Default: the published ones for Llama-3-8B, those that "
            "`arithmetic` was trained on, else sums of digits.",
        ),
    ] = None,
    scientist: Annotated[
        str | None,
        typer.Option(
            "--scientist",
            help="Who explains beside the built-in scientist: hyve, which --backbone alone means as well, hybrid "
            "(built in, then the language model for the rest), or your own as package.module:function.",
        ),
    ] = None,
    backbone: BackboneOption = None,
    protocol: ProtocolOption = None,
    roles: Annotated[
        str | None,
        typer.Option("--roles", help="Reference roles to rate against: CSV (component, role) or a JSON object."),
    ] = None,
    ratings: Annotated[
        str | None,
        typer.Option("--ratings", help="Scores by at least three people: rating-sheet.csv of the run, filled in."),
    ] = None,
    judge: Annotated[
        list[str] | None,
        typer.Option("--judge", help="A language model that rates the roles; give it twice for two judges."),
    ] = None,
    n: Annotated[int, typer.Option("--n", min=4, help="Prompts of each step.")] = 32,
    top: Annotated[
        int, typer.Option("--top", min=1, help="Components of a discovered circuit by effect; backups come on top.")
    ] = 24,
    seed: Annotated[int, typer.Option(help="Seed of all prompts.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out the checks of a discovered circuit.")] = False,
    base_url: Annotated[
        str | None, typer.Option(help="Address of your own server, for compatible and local models.")
    ] = None,
    max_cost: MaxCostOption = None,
    timeout: TimeoutOption = 120.0,
    max_tokens: Annotated[int, typer.Option(help="The longest reply of the language model.")] = 4096,
    prices: PricesOption = None,
    compact: Annotated[
        bool, typer.Option("--compact", help="Short typed prompts without free code, for models with a small context.")
    ] = False,
    unsafe_sandbox: UnsafeSandboxOption = False,
    out: RunOption = None,
    dtype: DtypeOption = "auto",
    device: DeviceOption = "auto",
    plan: PlanOption = False,
    json: JsonOption = False,
) -> None:
    """Repeat a published study: which components add numbers, what each one does, and how well that is described.

    Checks that the model adds, takes or discovers the circuit, explains it and prints the published Table 4 with our
    rows. It writes study.json, report.html and a sheet for raters. The same command continues an interrupted study;
    with --backbone, --ratings or --judge it adds to a finished one.

    Example: vesalius study af1 --model arithmetic
    """
    from vesalius import api
    from vesalius.cli.console import output, resumable

    options = {"circuit": circuit, "behaviour": behaviour, "n": n, "top": top, "seed": seed, "quick": quick}
    options |= {"dtype": dtype, "device": device}
    if plan:
        if backbone or judge:
            raise BadInput("--plan: how often a language model is asked is not known; leave out --backbone and --judge")
        return output(api.study_plan(name, model, **options), as_json=json)
    with resumable():
        result = api.study(
            name,
            model,
            **options,
            scientist=scientist,
            backbone=backbone,
            protocol=protocol,
            roles=roles,
            ratings=ratings,
            judge=judge or (),
            base_url=base_url,
            max_cost=max_cost,
            timeout=timeout,
            max_tokens=max_tokens,
            prices=prices,
            compact=compact,
            unsafe_sandbox=unsafe_sandbox,
            out=out or True,
        )
    return output(result, as_json=json, flags=("--ratings", "--judge", "--roles"))
