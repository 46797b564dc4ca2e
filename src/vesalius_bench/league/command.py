"""A league: fresh circuits with a sealed key, submissions, scores."""

from typing import Annotated

import typer

from vesalius import api
from vesalius.cli.console import output, print_line, resumable
from vesalius.cli.options import JsonOption, command
from vesalius_bench.options import Entrant, LeagueOptions

league = typer.Typer(no_args_is_help=True, help="Score a scientist or a method on fresh circuits whose key is sealed.")

LeagueArgument = Annotated[str, typer.Argument(help="A directory of `vesalius league make`.", metavar="LEAGUE")]
PassphraseOption = Annotated[
    str | None, typer.Option("--passphrase-file", help="A file whose first line is the passphrase of the key.")
]


@command(league)
def make(
    out: Annotated[str, typer.Option(help="Directory of the league.")],
    made: LeagueOptions,
    passphrase_file: PassphraseOption = None,
    json: JsonOption = False,
) -> None:
    """Generate and train fresh circuits, and seal the key. Training takes minutes of one core per circuit.

    Example: vesalius league make --circuits 30 --passphrase-file secret.txt --out league
    """
    passphrase = None if passphrase_file is None else api.read_passphrase(passphrase_file)
    with resumable():
        result = api.make_league(made, out=out, passphrase=passphrase)
    output(result, as_json=json)
    if not json:
        print_line(f"give {out} away; explain it: vesalius league submit {out} --scientist builtin")


@command(league)
def submit(directory: LeagueArgument, entrant: Entrant, json: JsonOption = False) -> None:
    """Explain, or discover, every circuit of a league and write one submission. No key is needed.

    Example: vesalius league submit league --scientist always-MAPPER
    """
    with resumable():
        result = api.submit_league(directory, entrant)
    return output(result, as_json=json)


@league.command()
def score(
    directory: LeagueArgument,
    submission: Annotated[str, typer.Argument(help="Name or directory of a submission.")],
    passphrase_file: PassphraseOption = None,
    key: Annotated[str | None, typer.Option(help="The file of a key that is kept apart.")] = None,
    interpreter: Annotated[
        str | None,
        typer.Option(help="The submission's interpreter, where it is a program: it is run here only if you name it."),
    ] = None,
    unsafe_sandbox: Annotated[
        bool,
        typer.Option("--unsafe-sandbox", help="Run that program even where the kernel cannot confine it."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Open the key, score a submission and write one JSON row and one page.

    Example: vesalius league score league builtin --passphrase-file secret.txt
    """
    passphrase = None if passphrase_file is None else api.read_passphrase(passphrase_file)
    opened = {"passphrase": passphrase, "key": key, "interpreter": interpreter, "unsafe_sandbox": unsafe_sandbox}
    result = api.score_league(directory, submission, **opened)
    output(result, as_json=json)
    if not json:
        print_line(f"row and page in {directory}/rows")


@league.command()
def table(
    places: Annotated[
        list[str] | None, typer.Argument(help="Leagues, or files of rows. Default: the rows that ship.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Print the rows of leagues as one table.

    Example: vesalius league table league
    """
    return output(api.league_table(*(places or ())), as_json=json)
