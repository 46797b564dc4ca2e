"""The black-box functions, to look at."""

from typing import Annotated

import typer

from vesalius.cli.options import (
    CategoryOption,
    DatasetOption,
    FunctionIdsOption,
    FunctionsSeedOption,
    JsonOption,
    ModeOption,
    names,
)

commands = typer.Typer(
    name="functions",
    help="Black-box functions with known answers: 1,000 numeric, 1,000 on strings, 200 entities, 75 relations.\n\n"
    "Each hides a rule: a formula with noise or a corrupted interval, operations on text, a concept that words are "
    "scored by, a fact about the world with an exception. [bold]vesalius functions sample[/bold] shows some of them "
    "with their truth; [bold]vesalius bench functions[/bold] finds the rules from queries alone and "
    "grades the answers; [bold]vesalius report RUN[/bold] draws them.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@commands.command()
def sample(
    category: CategoryOption,
    seed: FunctionsSeedOption = None,
    count: Annotated[
        int | None,
        typer.Option("--count", min=1, help="How many; the first of a longer draw are the same. Default: 5."),
    ] = None,
    ids: FunctionIdsOption = None,
    mode: ModeOption = None,
    dataset: DatasetOption = None,
    json: JsonOption = False,
) -> None:
    """Draw black-box functions and show what they are, with a few inputs and outputs.

    Example: vesalius functions sample --category strings --count 3
    """
    from vesalius import api
    from vesalius.cli.console import output
    from vesalius.cli.tables.functions import print_functions

    rows = api.sample_functions(category, seed=seed, count=count, ids=names(ids), mode=mode, dataset=dataset)
    output(rows, print_functions, as_json=json)
