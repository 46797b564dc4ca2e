"""`vesalius bench mechrl`."""

from typing import Annotated

import typer

from vesalius.cli.options import (
    JsonOption,
    OneDeviceOption,
    RunOption,
    SpecimenArgument,
    names,
)


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
