"""The benchmarks."""

from typing import Annotated

import typer

from vesalius.cli.options import (
    AnnotationsOption,
    BackboneOption,
    BaseUrlOption,
    CircuitFromOption,
    CompactOption,
    EngineOption,
    IdsOption,
    JobsOption,
    JsonOption,
    LeaveOutOption,
    LimitOption,
    MaxCostOption,
    MaxTokensOption,
    PricesOption,
    ProtocolOption,
    RunOption,
    SpecimensOption,
    TimeoutOption,
    UnsafeSandboxOption,
    command,
    names,
)

commands = typer.Typer(
    name="bench", help="Run a benchmark and print its scorecard.", no_args_is_help=True, rich_markup_mode="rich"
)


@command(commands)
def circuits(
    scientist: Annotated[
        str | None,
        typer.Option(
            "--scientist",
            help="Who explains: builtin, hyve, hybrid, a plug-in, command:PROGRAM that speaks JSON lines, or "
            "package.module:function. Default: hyve with --backbone.",
        ),
    ] = None,
    backbone: BackboneOption = None,
    protocol: ProtocolOption = None,
    judge: Annotated[
        list[str] | None,
        typer.Option(
            "--judge", help="Who judges the texts: a language model, P:M, or a plug-in; give it twice for two."
        ),
    ] = None,
    specimens: SpecimensOption = None,
    annotations: AnnotationsOption = None,
    ids: IdsOption = None,
    limit: LimitOption = None,
    circuit_from: CircuitFromOption = None,
    seed: Annotated[int, typer.Option(help="Seed of the scientist; grading has its own.")] = 0,
    jobs: JobsOption = 2,
    engine: EngineOption = "local",
    max_cost: MaxCostOption = None,
    timeout: TimeoutOption = 120.0,
    base_url: BaseUrlOption = None,
    max_tokens: MaxTokensOption = 4096,
    compact: CompactOption = False,
    prices: PricesOption = None,
    unsafe_sandbox: UnsafeSandboxOption = False,
    out: RunOption = None,
    leave_out: LeaveOutOption = None,
    json: JsonOption = False,
) -> None:
    """Explain circuits with known answers, grade tags and programs, and print the scorecard.

    Every metric comes with its interval, its n and its baseline, beside what null explanations earn. An interrupted run
    continues when the same command is given again; only the cap, the jobs and the engine may change.

    Example: vesalius bench circuits --limit 5 --json, or
    vesalius bench circuits --specimens InterpBench --annotations AgenticInterpBench
    """
    from vesalius import api
    from vesalius.cli.console import output, resumable

    with resumable():
        card = api.bench_circuits(
            scientist=scientist,
            backbone=backbone,
            protocol=protocol,
            judges=judge or (),
            specimens=specimens,
            annotations=annotations,
            ids=names(ids),
            limit=limit,
            circuit_from=circuit_from,
            leave_out=leave_out,
            seed=seed,
            prices=prices,
            max_cost=max_cost,
            timeout=timeout,
            base_url=base_url,
            max_tokens=max_tokens,
            compact=compact,
            unsafe_sandbox=unsafe_sandbox,
            jobs=jobs,
            engine=engine,
            out=out,
        )
    output(card, as_json=json)


@command(commands)
def discovery(
    methods: Annotated[
        str, typer.Option("--methods", help="Discovery methods, comma-separated; also of plug-ins.")
    ] = "sweep,eap,eap-ig,relp,relp-qk,acdc",
    specimens: SpecimensOption = None,
    ids: IdsOption = None,
    limit: LimitOption = None,
    n: Annotated[int, typer.Option("--n", min=2, help="Prompts per circuit.")] = 32,
    seed: Annotated[int, typer.Option(help="Seed of the prompts.")] = 0,
    hard: Annotated[
        bool,
        typer.Option("--hard", help="Models written by hand that mislead discovery, instead of the 84 circuits."),
    ] = False,
    steps: Annotated[int, typer.Option(min=0, help="eap-ig: gradients to average; 0: the default, 5.")] = 0,
    jobs: JobsOption = 2,
    out: RunOption = None,
    json: JsonOption = False,
) -> None:
    """Find circuits with known answers by each method; print how well the scores separate the true parts.

    An interrupted run continues when the same command is given again.

    Example: vesalius bench discovery --methods sweep,eap --limit 5
    """
    from vesalius import api
    from vesalius.cli.console import output, resumable

    with resumable():
        card = api.bench_discovery(
            methods=names(methods) or (),
            specimens=specimens,
            ids=names(ids),
            limit=limit,
            n=n,
            seed=seed,
            hard=hard,
            steps=steps,
            jobs=jobs,
            out=out,
        )
    output(card, as_json=json)
