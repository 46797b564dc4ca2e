"""Finished runs: repeat one from its records, compare several with the published tables."""

import sys
from typing import Annotated

import typer

from vesalius.cli.options import JsonOption
from vesalius.errors import BadInput

commands = typer.Typer()
DocumentOutOption = Annotated[str | None, typer.Option(help="Directory for the result as JSON. Default: none.")]


@commands.command()
def replay(
    run: Annotated[
        str, typer.Argument(help="A finished run of `vesalius bench`, or a run of `vesalius mcp`.", metavar="RUN")
    ],
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Cases at a time.")] = 2,
    execute: Annotated[bool, typer.Option("--execute", help="Run the code again that the run has executed.")] = False,
    json: JsonOption = False,
) -> None:
    """Repeat a run from its recorded calls, without network or key, and compare the scorecards.

    What executed code gave is read from the run too, unless --execute is given. Of `vesalius mcp` every call that
    succeeded is made again, and the results are compared.
    Exit code 0 if the stored scorecard is reproduced, 1 if not, with what differs.

    Example: vesalius replay vesalius-runs/bench-circuits-builtin-first5-seed0
    """
    from pathlib import Path

    from vesalius import api
    from vesalius.api.tool_runs import is_tool_run
    from vesalius.cli.console import print_json, print_line

    if is_tool_run(Path(run)):
        return _replay_tools(run, as_json=json)
    result = api.replay(run, jobs=jobs, execute=execute)
    if json:
        print_json({"run": run, "equal": result.equal, "differences": list(result.differences)})
    elif result.equal:
        print_line(f"{run}: the scorecard is reproduced from the records")
    if not result.equal:
        differences = "; ".join(result.differences[:3])
        print(f"vesalius: {run}: the scorecard is not reproduced; {differences}", file=sys.stderr)
        raise typer.Exit(1)
    return None


def _replay_tools(run: str, *, as_json: bool) -> None:
    """Make the calls of a run of `vesalius mcp` again."""
    try:
        from vesalius_agents.mcp.replaying import replay_calls
    except ModuleNotFoundError as missing:
        raise BadInput(f"calls of tools need {missing.name}; run: pip install 'vesalius[mcp]'") from None
    from vesalius.cli.console import print_json, print_line

    result = replay_calls(run)
    if as_json:
        print_json({"run": run, "equal": result.equal, "differences": list(result.differences), "calls": result.calls})
    elif result.equal:
        print_line(f"{run}: {result.calls} calls give the same results again")
    if not result.equal:
        differences = "; ".join(result.differences[:3])
        print(f"vesalius: {run}: the calls do not give the same results; {differences}", file=sys.stderr)
        raise typer.Exit(1)


@commands.command()
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
    from vesalius import api
    from vesalius.cli.console import print_json
    from vesalius_bench.papers.run_tables import print_comparison

    comparison = api.compare(runs, ratings=ratings or (), out=out)
    if json:
        return print_json({"runs": runs, **comparison.as_data()})
    return print_comparison(comparison)


@commands.command()
def diff(
    a: Annotated[str, typer.Argument(help="A result: a directory or its JSON file.", metavar="A")],
    b: Annotated[str, typer.Argument(help="Another result of the same kind.", metavar="B")],
    out: DocumentOutOption = None,
    json: JsonOption = False,
) -> None:
    """Say what differs between two results: claims that flipped, components that moved, figures side by side.

    A and B are two explanations, discoveries, sweeps or benchmark runs: two seeds, two scientists, or a base model and
    a fine-tuned one. Nothing is computed again.

    Example: vesalius diff vesalius-runs/explain-frac_prevs-seed0 vesalius-runs/explain-frac_prevs-seed1
    """
    from vesalius import api
    from vesalius.cli.console import print_json, print_view

    difference = api.diff(a, b, out=out)
    if json:
        return print_json(difference.as_data())
    return print_view(difference.view())


@commands.command()
def ratings(
    files: Annotated[
        list[str],
        typer.Argument(help="Ratings by people, CSV or JSON, or the directory of an annotation.", metavar="FILE..."),
    ],
    run: Annotated[
        list[str] | None,
        typer.Option("--run", help="A run of `vesalius bench circuits` with judges of the same texts; repeatable."),
    ] = None,
    ids: Annotated[
        str | None,
        typer.Option(help="Only these specimens, comma-separated; human-subset names ten circuits with 17 components."),
    ] = None,
    csv: Annotated[str | None, typer.Option(help="File for all these ratings as one CSV.")] = None,
    out: DocumentOutOption = None,
    json: JsonOption = False,
) -> None:
    """Compare the ratings of several people with each other and with judges.

    Prints each rater, the agreement of every pair (Cohen's kappa, weighted on 0/1/2), the majority and the lowest score
    of every agent, and the published tables of agreement beside them. A file has the columns specimen, component,
    rater, measure, score, or run, agent, rater, item, score, comment.

    Example: vesalius ratings alice.csv bob.csv --run vesalius-runs/bench-circuits-hyve-seed0
    """
    from vesalius import api
    from vesalius.cli.console import print_json, print_line, print_view
    from vesalius_bench.papers.run_tables import print_sheet
    from vesalius_bench.papers.runs import SOURCE

    chosen = None if ids is None else [name for name in ids.split(",") if name.strip()]
    report = api.ratings(files, runs=run or (), ids=chosen, csv=csv, out=out)
    if json:
        return print_json(report.as_data())
    print_view(report.view())
    for sheet in api.rating_sheets(report):
        if sheet.rows:
            print_sheet(sheet)
    return print_line(f"\n* {SOURCE}")


@commands.command()
def runs(
    directory: Annotated[str, typer.Argument(help="Where results are looked for.", metavar="[DIRECTORY]")] = (
        "vesalius-runs"
    ),
    kind: Annotated[str | None, typer.Option(help="Only this kind: explanation, discovery, sweep, benchmark.")] = None,
    json: JsonOption = False,
) -> None:
    """List every run and every result below a directory, the latest first.

    Example: vesalius runs vesalius-runs
    """
    from vesalius import api
    from vesalius.cli.console import print_json, print_view

    results = api.results(directory)
    if kind is not None:
        results = results.of_kind(kind)
    if json:
        return print_json(results.as_data())
    return print_view(results.view())
