"""What there is to dissect: list it, look at it, run it, ask what it can do."""

from typing import Annotated

import typer

from vesalius.cli.options import BehaviourOption, JsonOption, SpecimenArgument

commands = typer.Typer()


@commands.command()
def specimens(json: JsonOption = False) -> None:
    """List the specimens that need no download: name, components, shape.

    Example: vesalius specimens --json
    """
    from vesalius.cli import catalogue as command

    command.list_specimens(as_json=json)


@commands.command()
def show(specimen: SpecimenArgument, behaviour: BehaviourOption = None, json: JsonOption = False) -> None:
    """Show one specimen: its shape, vocabulary and a few examples.

    Example: vesalius show smollm2-135m --behaviour ioi
    """
    from vesalius.cli import catalogue as command

    command.show(specimen, behaviour=behaviour, as_json=json)


@commands.command()
def predict(
    specimen: SpecimenArgument,
    input: Annotated[
        str, typer.Option("--input", "-i", help="A JSON list of inputs (token lists, or texts), @FILE, or - for stdin.")
    ],
    json: JsonOption = False,
) -> None:
    """Run the model on inputs and print its decoded outputs.

    Example: vesalius predict smollm2-135m --input '["The capital of France is"]'
    """
    from vesalius.cli import catalogue as command

    command.predict(specimen, input, as_json=json)


@commands.command()
def behaviours(
    specimen: Annotated[str | None, typer.Argument(help="Measure whether this model performs each of them.")] = None,
    n: Annotated[int, typer.Option("--n", min=1, help="Prompts per behaviour.")] = 32,
    seed: Annotated[int, typer.Option(help="Seed of the prompts.")] = 0,
    json: JsonOption = False,
) -> None:
    """List the behaviours; with a model, say whether it performs each one.

    Example: vesalius behaviours smollm2-135m --n 32
    """
    from vesalius.cli import catalogue as command

    command.behaviours(specimen, n=n, seed=seed, as_json=json)
