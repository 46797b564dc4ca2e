"""The workbench in the browser."""

from typing import Annotated

import typer

from vesalius.errors import BadInput

commands = typer.Typer()


@commands.command(name="open")
def open_workbench(
    what: Annotated[
        str | None,
        typer.Argument(help="A run, a directory of results or a specimen.", metavar="[RUN | SPECIMEN | DIRECTORY]"),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on loopback; 0: any that is free.")] = 0,
    allow_backbone: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-backbone",
            help="A scripted language model that runs started from the page may use, as scripted:FILE; it is a "
            "program. May be given several times.",
            metavar="P:M",
        ),
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the browser.")] = True,
) -> None:
    """Open results and specimens in the browser: maps, attention, what-ifs, claims, two results side by side.

    A server on loopback, for you alone: the address it prints carries a token that lets one browser in. Ctrl-C ends it.

    Example: vesalius open vesalius-runs
    """
    try:
        from vesalius.workbench.start import find_place, serve
    except ModuleNotFoundError as missing:
        raise BadInput(f"the workbench needs {missing.name}; run: pip install 'vesalius[workbench]'") from None
    from vesalius.cli.console import print_line

    directory, opened, first = find_place(what)
    serve(
        directory,
        opened=opened,
        first=first,
        port=port,
        browser=browser,
        say=print_line,
        backbones=allow_backbone or (),
    )
