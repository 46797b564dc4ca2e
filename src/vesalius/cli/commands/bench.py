"""The benchmarks."""

from typing import Annotated

import typer

from vesalius.cli.options import (
    AnnotationsOption,
    BackboneOption,
    BaseUrlOption,
    CategoryOption,
    CircuitFromOption,
    CompactOption,
    DatasetOption,
    EngineOption,
    FunctionIdsOption,
    FunctionsSeedOption,
    IdsOption,
    JobsOption,
    JsonOption,
    LeaveOutOption,
    LimitOption,
    MaxCostOption,
    MaxTokensOption,
    ModeOption,
    OneDeviceOption,
    PricesOption,
    ProtocolOption,
    RunOption,
    SpecimenArgument,
    SpecimensOption,
    TimeoutOption,
    UnsafeSandboxOption,
    names,
)

commands = typer.Typer(
    name="bench", help="Run a benchmark and print its scorecard.", no_args_is_help=True, rich_markup_mode="rich"
)


@commands.command()
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


@commands.command()
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


@commands.command()
def mechrl(
    specimen: SpecimenArgument = "smollm2-135m",
    paper: Annotated[bool, typer.Option("--paper", help="As published, quirks included; says which.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Policies trained of each kind, and sets of episodes.")] = 5,
    steps: Annotated[int, typer.Option(min=1, help="Training steps of each policy.")] = 200_000,
    episodes: Annotated[int, typer.Option(min=1, help="Test episodes per seed.")] = 30,
    size: Annotated[
        str, typer.Option(help="laptop: 8 rows per episode, half an hour of one core; full: 32 rows, needs a GPU.")
    ] = "laptop",
    training: Annotated[
        str | None,
        typer.Option(help="Behaviours to train on. Default: induction,ioi; with --paper induction-out,ioi."),
    ] = None,
    held_out: Annotated[
        str, typer.Option(help="Behaviours to search that no policy is trained on.")
    ] = "docstring,greater-than,capitals",
    control: Annotated[
        str,
        typer.Option(
            help="Ordinary text of the reward: factbook, wikitext:PATH (as published), or a text file whose articles "
            "are separated by blank lines."
        ),
    ] = "factbook",
    reward: Annotated[
        str,
        typer.Option(help="Unit of the task's damage: logits (as published), or nats like that of the control text."),
    ] = "logits",
    context: Annotated[
        bool,
        typer.Option(
            "--context", help="Also train a policy that reads the prompts through a learned encoder, without a label."
        ),
    ] = False,
    matrices: Annotated[
        str | None,
        typer.Option(help="Directory of measured effect matrices. Default: measured into the run's directory."),
    ] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", min=1, help="Policies trained at a time; the results do not depend on it.")
    ] = 2,
    out: RunOption = None,
    device: OneDeviceOption = "cpu",
    json: JsonOption = False,
) -> None:
    """Print the tables of MechRL for a natural model, with intervals, beside searches that learn nothing.

    Measures effect matrices, trains policies, and plays. An interrupted benchmark continues when the same
    command is given again. Tables 2 and 3 look for the published heads where the model has GPT-2 small's shape, and
    for heads identified by their attention otherwise.

    Example: vesalius bench mechrl smollm2-135m --seeds 5
    """
    from vesalius import api
    from vesalius.cli.console import output, resumable

    with resumable():
        document = api.bench_mechrl(
            specimen,
            paper=paper,
            seeds=seeds,
            steps=steps,
            episodes=episodes,
            size=size,
            training=names(training) or (),
            held_out=names(held_out) or (),
            control=control,
            reward=reward,
            context=context,
            matrices=matrices,
            jobs=jobs,
            device=device,
            out=out,
        )
    output(document, as_json=json)


@commands.command()
def functions(
    category: CategoryOption,
    interpreter: Annotated[
        str,
        typer.Option(
            "--interpreter",
            help="builtin, oracle (the ceiling), table (numeric), aia, milan, aia+milan, a plug-in, command:PROGRAM "
            "that speaks JSON lines, answers:DIR of `functions serve`, or package.module:function.",
        ),
    ] = "builtin",
    backbone: BackboneOption = None,
    evaluator: Annotated[
        str | None,
        typer.Option("--evaluator", help="A language model that takes the unit tests of descriptions.", metavar="P:M"),
    ] = None,
    function_backbone: Annotated[
        str | None,
        typer.Option(
            "--function-backbone",
            help="A language model that answers entities and relations in place of word vectors and fact tables.",
            metavar="P:M",
        ),
    ] = None,
    dataset: DatasetOption = None,
    seed: FunctionsSeedOption = None,
    count: Annotated[
        int | None,
        typer.Option("--count", min=1, help="How many functions. Default: 1000, 1000, 200 or 75, by category."),
    ] = None,
    ids: FunctionIdsOption = None,
    mode: ModeOption = None,
    budget: Annotated[
        int | None,
        typer.Option("--budget", min=1, help="Queries per function. Default: as many as the interpreter needs."),
    ] = None,
    white_box: Annotated[
        bool, typer.Option("--white-box", help="Give the interpreter the weights of numeric functions that are nets.")
    ] = False,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Commands a language model may send.")] = 20,
    system_prompt: Annotated[
        str | None,
        typer.Option("--system-prompt", help="With --mode published: gpt, or llama-2, which forbids invented outputs."),
    ] = None,
    grading_seed: Annotated[
        int | None,
        typer.Option(
            "--grading-seed",
            min=0,
            help="Grade on the test points of an earlier run. Default: drawn after the answers are written.",
        ),
    ] = None,
    jobs: JobsOption = 2,
    engine: EngineOption = "local",
    max_cost: MaxCostOption = None,
    timeout: TimeoutOption = 120.0,
    prices: PricesOption = None,
    unsafe_sandbox: UnsafeSandboxOption = False,
    out: RunOption = None,
    json: JsonOption = False,
) -> None:
    """Find the rules of black-box functions from questions alone, grade the answers, and print the scorecard.

    An interrupted run continues when the same command is given again; only the cap, the jobs and the
    engine may change. Code of an answer runs in the sandbox only.

    Example: vesalius bench functions --category numeric --count 20 --json
    """
    from vesalius import api
    from vesalius.cli.console import output, resumable

    with resumable():
        card = api.bench_functions(
            category=category,
            interpreter=interpreter,
            backbone=backbone,
            evaluator=evaluator,
            function_backbone=function_backbone,
            dataset=dataset,
            seed=seed,
            count=count,
            ids=names(ids),
            mode=mode,
            budget=budget,
            white_box=white_box,
            rounds=rounds,
            system_prompt=system_prompt,
            grading_seed=grading_seed,
            prices=prices,
            max_cost=max_cost,
            timeout=timeout,
            unsafe_sandbox=unsafe_sandbox,
            jobs=jobs,
            engine=engine,
            out=out,
        )
    output(card, as_json=json)
