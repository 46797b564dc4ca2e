"""What is there to be read: the documents that results are written as, and the plug-ins of installed packages."""

from typing import Annotated

import typer

from vesalius.cli.options import JsonOption, command

commands = typer.Typer()


@command(commands)
def schema(
    name: Annotated[str | None, typer.Argument(help="A document, such as explanation. Default: list them.")] = None,
    json: JsonOption = False,
) -> None:
    """Print the JSON Schema of a document.

    Example: vesalius schema explanation
    """
    from vesalius import api
    from vesalius.cli.console import print_json, print_line

    if name is not None:
        return print_json(api.schema(name))
    if json:
        return print_json(api.schema_names())
    for each in api.schema_names():
        print_line(each)
    return None


@command(commands)
def convert(
    source: Annotated[str, typer.Argument(help="A circuit in MIB form, its directory, or an attribution graph.")],
    out: Annotated[str, typer.Option(help="The file to write; it ends in .json.")],
    model: Annotated[str, typer.Option(help="What a graph calls the model.")] = "model",
    json: JsonOption = False,
) -> None:
    """Turn a circuit into an attribution graph of circuit-tracer and Neuronpedia, or such a graph into a circuit.

    Nodes are heads, MLPs and neurons. A graph has the 1,000 strongest edges.

    Example: vesalius convert found/circuit.json --out graph.json --model smollm2-135m
    """
    from vesalius import api
    from vesalius.cli.console import output, print_line

    circuit = api.convert(source, out, model=model)
    output(
        circuit,
        lambda circuit: print_line(f"{len(circuit.nodes)} nodes, {len(circuit.edges)} edges: {out}"),
        as_json=json,
    )


@command(commands)
def plugins(
    check: Annotated[
        bool, typer.Option("--check", help="Import each, and say what is wrong with those that fail.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """List the plug-ins of installed packages: names that are accepted beside the built-in ones.

    Scientists, interpreters, discovery methods, behaviours, model loaders and judges; see examples/plugin.

    Example: vesalius plugins --check
    """
    from vesalius import api
    from vesalius.cli.console import output

    output(api.plugins(check=check), as_json=json)
