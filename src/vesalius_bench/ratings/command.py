"""Ratings by people, compared."""

from typing import Annotated

import typer

from vesalius import api
from vesalius.cli.console import print_json, print_sections, print_view
from vesalius.cli.options import JsonOption

DocumentOutOption = Annotated[str | None, typer.Option(help="Directory for the result as JSON. Default: none.")]


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
    from vesalius.documents.view import Text
    from vesalius_bench.papers.published import SOURCE

    chosen = None if ids is None else [name for name in ids.split(",") if name.strip()]
    report = api.ratings(files, runs=run or (), ids=chosen, csv=csv, out=out)
    if json:
        return print_json(report.as_data())
    print_view(report.view())
    sheets = [sheet.section() for sheet in api.rating_sheets(report) if sheet.rows]
    return print_sections([*sheets, Text([f"* {SOURCE}"])])
