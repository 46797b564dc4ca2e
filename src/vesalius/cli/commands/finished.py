"""Runs that are finished: do one again from its record, lay several beside the published tables."""

from typing import Annotated

import typer

from vesalius.cli.options import JsonOption

commands = typer.Typer()


@commands.command()
def replay(
    run: Annotated[str, typer.Argument(help="A finished run of `vesalius bench`.", metavar="RUN")],
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Cases at a time.")] = 2,
    json: JsonOption = False,
) -> None:
    """Do a run again from its recorded calls, without network or key, and compare the scorecards.

    Exit code 0 if the stored scorecard is reproduced, 1 if not, with what differs.

    Example: vesalius replay vesalius-runs/bench-circuits-builtin-first5-seed0
    """
    from vesalius.cli import comparing as command

    command.replay_run(run, jobs=jobs, as_json=json)


@commands.command()
def compare(
    runs: Annotated[list[str], typer.Argument(help="Finished runs of `vesalius bench circuits`.", metavar="RUN...")],
    json: JsonOption = False,
) -> None:
    """Print the published tables of the circuits benchmark with these runs beside the published rows.

    Example: vesalius compare vesalius-runs/bench-circuits-builtin-seed0
    """
    from vesalius.cli import comparing as command

    command.compare_runs(runs, as_json=json)
