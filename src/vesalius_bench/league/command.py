"""A league: fresh circuits with a sealed key, submissions, scores."""

from typing import Annotated

import typer

from vesalius.cli.options import BackboneOption, JsonOption, UnsafeSandboxOption

league = typer.Typer(no_args_is_help=True, help="Score a scientist or a method on fresh circuits whose key is sealed.")

LeagueArgument = Annotated[str, typer.Argument(help="A directory of `vesalius league make`.", metavar="LEAGUE")]
PassphraseOption = Annotated[
    str | None, typer.Option("--passphrase-file", help="A file whose first line is the passphrase of the key.")
]


@league.command()
def make(
    out: Annotated[str, typer.Option(help="Directory of the league.")],
    seed: Annotated[
        int | None, typer.Option(help="Seed of the tasks, part of the key. Default: a secret one is drawn.")
    ] = None,
    circuits: Annotated[int, typer.Option(min=1, help="Circuits to train.")] = 30,
    functions: Annotated[int, typer.Option(min=0, help="Black-box functions of each category.")] = 0,
    depth: Annotated[int, typer.Option(help="Longest chain of operators of a program, 1 to 5.")] = 3,
    passphrase_file: PassphraseOption = None,
    key_out: Annotated[
        str | None, typer.Option(help="Write the key here, unsealed, instead; a place outside the league.")
    ] = None,
    specimens: Annotated[
        str | None, typer.Option(help="Take circuits that `vesalius train` made in this directory.")
    ] = None,
    hide_circuits: Annotated[
        bool, typer.Option("--hide-circuits", help="Do not say which components make up a circuit.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Generate and train fresh circuits, and seal the key. Training takes minutes of one core per circuit.

    Example: vesalius league make --circuits 30 --passphrase-file secret.txt --out league
    """
    from vesalius import api
    from vesalius.cli.console import output, print_line, resumable

    passphrase = None if passphrase_file is None else api.read_passphrase(passphrase_file)
    with resumable():
        result = api.make_league(
            out=out,
            seed=seed,
            circuits=circuits,
            functions=functions,
            depth=depth,
            passphrase=passphrase,
            key_out=key_out,
            specimens=specimens,
            circuits_given=not hide_circuits,
        )
    output(result, as_json=json)
    if not json:
        print_line(f"give {out} away; explain it: vesalius league submit {out} --scientist builtin")


@league.command()
def submit(
    directory: LeagueArgument,
    scientist: Annotated[
        str | None,
        typer.Option(help="builtin, hyve, package.module:function, or a null: empty, by-kind, always-MAPPER."),
    ] = None,
    backbone: BackboneOption = None,
    explanations: Annotated[
        str | None, typer.Option(help="A directory of explanations instead: c01.json, or c01/explanation.json.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="A discovery method instead: sweep, eap, eap-ig, relp, acdc.")
    ] = None,
    interpreter: Annotated[
        str | None, typer.Option(help="Interpreter of the functions, which the scorer runs: builtin, module:function.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the submission. Default: who made it.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the scientist or method.")] = 0,
    n: Annotated[int, typer.Option("--n", min=2, help="Prompts of a discovery method.")] = 32,
    unsafe_sandbox: UnsafeSandboxOption = False,
    json: JsonOption = False,
) -> None:
    """Explain, or discover, every circuit of a league and write one submission. No key is needed.

    Example: vesalius league submit league --scientist always-MAPPER
    """
    from vesalius import api
    from vesalius.cli.console import output, resumable

    with resumable():
        result = api.submit_league(
            directory,
            scientist=scientist,
            backbone=backbone,
            explanations=explanations,
            method=method,
            interpreter=interpreter,
            name=name,
            seed=seed,
            n=n,
            unsafe_sandbox=unsafe_sandbox,
        )
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
    json: JsonOption = False,
) -> None:
    """Open the key, score a submission and write one JSON row and one page.

    Example: vesalius league score league builtin --passphrase-file secret.txt
    """
    from vesalius import api
    from vesalius.cli.console import output, print_line

    passphrase = None if passphrase_file is None else api.read_passphrase(passphrase_file)
    result = api.score_league(directory, submission, passphrase=passphrase, key=key, interpreter=interpreter)
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
    from vesalius import api
    from vesalius.cli.console import output

    return output(api.league_table(*(places or ())), as_json=json)
