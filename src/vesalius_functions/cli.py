"""The black-box functions, to look at."""

from typing import Annotated, Any

import typer

from vesalius import api
from vesalius.cli.console import output, print_line, resumable, stdout
from vesalius.cli.options import (
    BackboneOption,
    CategoryOption,
    EngineOption,
    JobsOption,
    JsonOption,
    RunOption,
    command,
    names,
)
from vesalius.options import Cap, Spend
from vesalius_functions.options import Drawn, Functions, Interpreting, Recipe

commands = typer.Typer(
    name="functions",
    help="Black-box functions with known answers: 1,000 numeric, 1,000 on strings, 200 entities, 75 relations.\n\n"
    "Each hides a rule: a formula with noise or a corrupted interval, operations on text, a concept that words are "
    "scored by, a fact about the world with an exception. [bold]vesalius functions sample[/bold] shows some of them "
    "with their truth; [bold]vesalius bench functions[/bold] finds the rules from queries alone and "
    "grades the answers; [bold]vesalius report RUN[/bold] draws them. [bold]vesalius functions serve[/bold] puts them "
    "behind scripts for agents of your own.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@command(commands)
def sample(category: CategoryOption, *, functions: Functions, json: JsonOption = False) -> None:
    """Draw black-box functions and show what they are, with a few inputs and outputs.

    Example: vesalius functions sample --category strings --count 3
    """
    from rich.table import Table

    from vesalius_functions.suite import in_words

    def show(rows: list[dict[str, Any]]) -> None:
        table = Table("id", "family", "truth", "examples", box=None, pad_edge=False)
        for row in rows:
            examples = ", ".join(example["text"] for example in row["examples"][:3])
            table.add_row(row["id"], row["family"], in_words(row["truth"])[:160], examples)
        stdout.print(table, markup=False)

    output(api.sample_functions(category, functions=functions), show, as_json=json)


@command(commands)
def serve(
    category: CategoryOption,
    out: Annotated[str, typer.Option("--out", help="Directory that gets a folder with function.py per function.")],
    *,
    functions: Functions,
    budget: Annotated[
        int | None, typer.Option("--budget", min=1, help="Inputs that each function may be asked. Default: any number.")
    ] = None,
) -> None:
    """Put functions behind scripts in the published form until Ctrl-C: `python DIR/ID/function.py 1 2.5`.

    The scripts ask this process; no definition is in the directory. Every query is a line of DIR/queries.jsonl and
    counts against the budget, over restarts too. `vesalius bench functions --interpreter answers:DIR` grades the
    description.txt, code.py and domain.txt that an agent leaves in the folders. An agent that can run vesalius itself
    could draw the same functions: give it a --seed that it does not know.

    Example: vesalius functions serve --category numeric --ids f00003 --out served --budget 50 --seed 71
    """
    with api.serve_functions(category, out, functions=functions, budget=budget) as served:
        print_line(f"{len(served.asked)} {category} functions are served in {out} until Ctrl-C")
        try:
            served.wait()
        except KeyboardInterrupt:
            print_line(f"{sum(served.asked.values())} queries in {out}/queries.jsonl")


@command(commands)
def reliability(
    category: Annotated[
        str, typer.Option("--category", help="entities, relations, or both with a comma between them.")
    ] = "entities,relations",
    *,
    backbone: BackboneOption = None,
    drawn: Drawn,
    inputs: Annotated[int, typer.Option("--inputs", min=1, help="Inputs per function, as published.")] = 10,
    matrix: Annotated[
        bool, typer.Option("--matrix", help="Also ask every entity for the words of all others (Figure A4).")
    ] = False,
    jobs: JobsOption = 2,
    cap: Cap,
    out: RunOption = None,
    json: JsonOption = False,
) -> None:
    """Measure how reliably functions of concepts and facts do what they are said to: Table A1 of the paper.

    Without --backbone our word vectors and fact tables answer. The document and the calls of a language model are
    written to --out, and the same command continues an interrupted study.

    Example: vesalius functions reliability --backbone local:smollm2-135m --count 20
    """
    with resumable():
        study = api.function_reliability(
            names(category) or (),
            backbone=backbone,
            drawn=drawn,
            inputs=inputs,
            matrix=matrix,
            max_cost=cap.max_cost,
            jobs=jobs,
            out=out,
        )
    output(study, as_json=json)


@command(commands)
def unit_tests(
    run: Annotated[str, typer.Argument(help="A graded run of `bench functions`.", metavar="RUN")],
    *,
    export: Annotated[str | None, typer.Option("--export", help="Write a sheet for people to this CSV file.")] = None,
    answers: Annotated[
        list[str] | None, typer.Option("--answers", help="A filled-in sheet of --export; repeatable.")
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="Functions on the sheet.")] = 25,
    seed: Annotated[int, typer.Option(help="Which functions, and the order of the rows.")] = 0,
    evaluator: Annotated[
        str | None,
        typer.Option(
            "--evaluator", help="A language model, or trained:DIR, that takes the same tests now.", metavar="P:M"
        ),
    ] = None,
    cap: Cap,
    out: RunOption = None,
    json: JsonOption = False,
) -> None:
    """Let people take the unit tests of a run, and compare their answers with evaluators: Table A4 of the paper.

    --export writes a blind sheet: a description and three choices per row, of the interpreter's and the true
    descriptions, and rows that match descriptions. People put 1, 2 or 3 into the column answer. --answers reads the
    sheets back.

    Example: vesalius functions unit-tests RUN --export sheet.csv, then
    vesalius functions unit-tests RUN --answers alice.csv --answers bob.csv
    """
    from vesalius.errors import BadInput

    if (export is None) == (not answers):
        raise BadInput("give --export FILE to write a sheet, or --answers FILE to read sheets")
    if export is not None:
        path = api.export_unit_tests(run, export, count=count, seed=seed)
        return output({"sheet": str(path)}, lambda written: print_line(f"sheet: {written['sheet']}"), as_json=json)
    with resumable():
        study = api.unit_tests(run, answers or (), evaluator=evaluator, max_cost=cap.max_cost, out=out)
    return output(study, as_json=json)


@command(commands)
def evaluator_data(
    out: Annotated[str, typer.Option("--out", help="Directory for train.jsonl, validation.jsonl and test.jsonl.")],
    category: Annotated[
        str, typer.Option("--category", help="strings, entities, relations, or several with commas between them.")
    ] = "strings,entities,relations",
    tests: Annotated[int, typer.Option("--tests", min=1, help="Tests per category; 10,000 were published.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of functions, tests and splits; benchmarks draw with 2309.")] = 2310,
    json: JsonOption = False,
) -> None:
    """Write training data for an evaluator: unit tests of true descriptions, no function in two splits.

    Each line has the description, the three examples and the right answer, also as the messages of a chat.

    Example: vesalius functions evaluator-data --out data --tests 10000
    """

    def show(counts: dict[str, dict[str, int]]) -> None:
        for split, count in counts.items():
            print_line(f"{out}/{split}.jsonl: {count['tests']} tests of {count['functions']} functions")

    counts = api.evaluator_data(out, categories=names(category) or (), tests=tests, seed=seed)
    output(counts, show, as_json=json)


@command(commands)
def evaluator_train(
    data: Annotated[str, typer.Argument(help="A directory of `functions evaluator-data`.", metavar="DATA")],
    out: Annotated[str, typer.Option("--out", help="Directory for adapter.safetensors and evaluator.json.")],
    base: Annotated[str, typer.Option("--base", help="The language model that is trained.")] = "smollm2-135m",
    *,
    recipe: Recipe,
    device: Annotated[str, typer.Option("--device", help="auto is a GPU where there is one.")] = "auto",
    json: JsonOption = False,
) -> None:
    """Train an evaluator of descriptions, and measure it on functions that it has not seen.

    Low-rank adapters of a small language model learn to say which of three examples belongs to a description. The
    validation split chooses; the test split is read once. `--evaluator trained:DIR` then takes unit tests with it. The
    same command continues an interrupted training.

    Example: vesalius functions evaluator-train data --out evaluator
    """
    with resumable():
        evaluator = api.evaluator_train(data, out=out, base=base, recipe=recipe, device=device)
    output(evaluator, as_json=json)


def bench(
    category: CategoryOption,
    *,
    interpreting: Interpreting,
    functions: Functions,
    spend: Spend,
    jobs: JobsOption = 2,
    engine: EngineOption = "local",
    out: RunOption = None,
    json: JsonOption = False,
) -> None:
    """Find the rules of black-box functions from questions alone, grade the answers, and print the scorecard.

    An interrupted run continues when the same command is given again; only the cap, the jobs and the
    engine may change. Code of an answer runs in the sandbox only.

    Example: vesalius bench functions --category numeric --count 20 --json
    """
    with resumable():
        card = api.bench_functions(
            category=category,
            interpreting=interpreting,
            functions=functions,
            spend=spend,
            jobs=jobs,
            engine=engine,
            out=out,
        )
    output(card, as_json=json)
