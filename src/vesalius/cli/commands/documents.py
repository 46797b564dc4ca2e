"""The documents that results are written as."""

from typing import Annotated

import typer

from vesalius.cli.options import JsonOption

commands = typer.Typer()


@commands.command()
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
