"""Specimens with a known answer: train a program into a model, generate programs to train."""

from typing import Annotated

import typer

from vesalius.cli.options import JsonOption, OneDeviceOption, command

commands = typer.Typer()


@command(commands)
def train(
    specs: Annotated[
        list[str],
        typer.Argument(
            help="Python files, each defining program(), vocab, max_len and causal. They are run.", metavar="SPEC.py..."
        ),
    ],
    out: Annotated[str, typer.Option(help="Directory for the specimen; of many, each gets one under it.")],
    seed: Annotated[int, typer.Option(help="First seed; every further try takes the next.")] = 0,
    attempts: Annotated[int, typer.Option(min=1, help="Tries before giving up; later ones are longer and wider.")] = 4,
    device: OneDeviceOption = "cpu",
    json: JsonOption = False,
) -> None:
    """Train a transformer that implements a RASP program in known components, and check that it does.

    A SPEC.py is a program: training runs it with your permissions. Read other people's files first.
    The specimen is accepted only if every figure of the gate holds on fresh inputs. An interrupted training continues
    when the same command is given again. Several files are trained together, in stacks of similar shape, one try each;
    on a GPU that costs little more than one.

    Example: vesalius train examples/frac_prevs.py --out specimens/frac_prevs
    """
    from vesalius import api
    from vesalius.cli.console import output, resumable

    with resumable():
        document = api.train(specs, out=out, seed=seed, attempts=attempts, device=device)
    output(document, as_json=json)


@command(commands)
def generate(
    seed: Annotated[int, typer.Option(help="The same seed gives the same tasks.")],
    out: Annotated[str, typer.Option(help="Directory for the SPEC.py files.")],
    count: Annotated[int, typer.Option(min=1, help="How many tasks.")] = 20,
    depth: Annotated[int, typer.Option(min=1, max=5, help="Longest chain of operators.")] = 4,
    json: JsonOption = False,
) -> None:
    """Generate fresh RASP tasks over renamed vocabularies, ready for `vesalius train`.

    Example: vesalius generate --seed 7 --count 20 --depth 4 --out tasks
    """
    from vesalius import api
    from vesalius.cli.console import output

    output(api.generate(seed=seed, out=out, count=count, depth=depth), as_json=json)
