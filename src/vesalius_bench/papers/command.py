"""The tables and figures of the three papers, from runs, and runs beside the published tables."""

from typing import Annotated

import typer

from vesalius import api
from vesalius.cli.console import output, print_json, print_view, resumable, with_flags
from vesalius.cli.options import JobsOption, JsonOption
from vesalius.errors import BadInput
from vesalius_bench.options import Filling


def paper(
    name: Annotated[str, typer.Argument(help="hyve, mechrl or find.", metavar="PAPER")],
    runs: Annotated[
        list[str] | None,
        typer.Argument(help="Results that fill the tables. Default: all under vesalius-runs.", metavar="[RUN...]"),
    ] = None,
    table: Annotated[str | None, typer.Option("--table", help="Only this table: 2, A1.")] = None,
    figure: Annotated[str | None, typer.Option("--figure", help="Only this figure: 4, A4.")] = None,
    run: Annotated[
        bool, typer.Option("--run", help="Run what nothing fills by now; its plan and cost are printed first.")
    ] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Print what --run would run and what it costs; then stop.")] = (
        False
    ),
    out: Annotated[
        str | None,
        typer.Option("--out", help="Directory for the table as JSON, and for a figure as SVG and PNG.", metavar="DIR"),
    ] = None,
    json: JsonOption = False,
    jobs: JobsOption = 2,
    *,
    filling: Filling,
) -> None:
    """Print or draw the tables and figures of a paper from your runs, beside the published figures.

    Without --table and --figure it lists all of them: what is measured, and the command that measures the rest. What
    was not measured here is marked as such.

    Example: vesalius paper hyve --table 2 vesalius-runs/bench-circuits-builtin-seed0
    """
    named = {"table": table, "figure": figure}
    wanted, flags = runs or [], ("--backbone", "--max-cost", "--judge")
    if table is not None and figure is not None:
        raise BadInput("--table and --figure both name what to print; leave one out")
    if out is not None and table is None and figure is None:
        raise BadInput("--out: name what to write with --table or --figure")
    if run or plan:
        planned = api.paper_plan(name, **named, runs=wanted, filling=filling)
        if plan:
            return output(planned, as_json=json, flags=flags)
        for line in planned.lines():
            typer.echo(with_flags(line, flags), err=True)
        with resumable():
            made = api.paper_run(planned, jobs=jobs)
        wanted = [*wanted, *made] if wanted else []
    elif filling != Filling():
        raise BadInput("--backbone, --judge, --model, --limit and --max-cost go with --run; add it or leave them out")
    if table is None and figure is None:
        return output(api.paper_contents(name, wanted), as_json=json)
    return output(api.paper_table(name, **named, runs=wanted, out=out), as_json=json)


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Finished runs of `bench circuits` or `bench functions`, or directories made by `vesalius explain`.",
            metavar="RUN...",
        ),
    ],
    ratings: Annotated[
        list[str] | None,
        typer.Option("--ratings", help="Ratings by people of these runs' texts, a file or a directory; repeatable."),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option("--out", help="Directory for Figure 5 of functions runs, as SVG and PNG.", metavar="DIR"),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Print the published tables of the circuits benchmark with these runs beside the published rows, and what was
    asked of language models: calls, tokens (those from the cache too), cost and seconds by stage and by component.

    Runs of `bench functions` stand in Table 2 and Figure 5 of FIND. Of `vesalius explain` only the calls are compared.
    With --ratings a table has what people gave the texts of each run beside what judges gave them.

    Example: vesalius compare vesalius-runs/bench-circuits-builtin-seed0
    """
    comparison = api.compare(runs, ratings=ratings or (), out=out)
    if json:
        return print_json({"runs": runs, **comparison.as_data()})
    return print_view(comparison.view())
