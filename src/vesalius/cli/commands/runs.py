"""Finished runs: list them, repeat one from its records, compare two."""

import sys
from typing import Annotated

import typer

from vesalius import api
from vesalius.cli.console import output, print_json, print_line, print_view
from vesalius.cli.options import JsonOption, command

commands = typer.Typer()
DocumentOutOption = Annotated[str | None, typer.Option(help="Directory for the result as JSON. Default: none.")]


@command(commands)
def replay(
    run: Annotated[
        str, typer.Argument(help="A finished run of `vesalius bench`, or a run of `vesalius mcp`.", metavar="RUN")
    ],
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Cases at a time.")] = 2,
    execute: Annotated[bool, typer.Option("--execute", help="Run the code again that the run has executed.")] = False,
    trusted: Annotated[
        bool, typer.Option("--trusted", help="Run the package.module:function that the run names, with your rights.")
    ] = False,
    unsafe_sandbox: Annotated[
        bool, typer.Option("--unsafe-sandbox", help="Run code even where the kernel cannot confine it.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Repeat a run from its recorded calls, without network or key, and compare the scorecards.

    What executed code gave is read from the run too, unless --execute is given. A run of a `package.module:function`
    needs --trusted, since the function runs with your rights. Of `vesalius mcp` every call that
    succeeded is made again, and the results are compared.
    Exit code 0 if the stored scorecard is reproduced, 1 if not, with what differs.

    Example: vesalius replay vesalius-runs/bench-circuits-builtin-first5-seed0
    """
    result = api.replay(run, jobs=jobs, execute=execute, trusted=trusted, unsafe_sandbox=unsafe_sandbox)
    if json:
        calls = {} if result.calls is None else {"calls": result.calls}
        print_json({"run": run, "equal": result.equal, "differences": list(result.differences), **calls})
    elif result.equal:
        print_line(f"{run}: {result.sentence}")
    if not result.equal:
        print(f"vesalius: {run}: {result.sentence}; {'; '.join(result.differences[:3])}", file=sys.stderr)
        raise typer.Exit(1)


@command(commands)
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
    difference = api.diff(a, b, out=out)
    if json:
        return print_json(difference.as_data())
    return print_view(difference.view())


@command(commands)
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
    results = api.results(directory)
    if kind is not None:
        results = results.of_kind(kind)
    if json:
        return print_json(results.as_data())
    return print_view(results.view())


# What is there to be read: the documents that results are written as, and the plug-ins of installed packages.


@command(commands)
def schema(
    name: Annotated[str | None, typer.Argument(help="A document, such as explanation. Default: list them.")] = None,
    json: JsonOption = False,
) -> None:
    """Print the JSON Schema of a document.

    Example: vesalius schema explanation
    """
    if name is not None:
        return print_json(api.schema(name))
    if json:
        return print_json(api.schema_names())
    for each in api.schema_names():
        print_line(each)
    return None


@command(commands)
def convert(
    source: Annotated[str, typer.Argument(help="A circuit in MIB form, its directory, or an attribution graph.")],
    out: Annotated[str, typer.Option(help="The file to write; it ends in .json.")],
    model: Annotated[str, typer.Option(help="What a graph calls the model.")] = "model",
    json: JsonOption = False,
) -> None:
    """Turn a circuit into an attribution graph of circuit-tracer and Neuronpedia, or such a graph into a circuit.

    Nodes are heads, MLPs and neurons. A graph has the 1,000 strongest edges.

    Example: vesalius convert found/circuit.json --out graph.json --model smollm2-135m
    """
    circuit = api.convert(source, out, model=model)
    output(
        circuit,
        lambda circuit: print_line(f"{len(circuit.nodes)} nodes, {len(circuit.edges)} edges: {out}"),
        as_json=json,
    )


@command(commands)
def plugins(
    check: Annotated[
        bool, typer.Option("--check", help="Import those of trusted packages, and say what is wrong with them.")
    ] = False,
    trust: Annotated[
        str | None, typer.Option(help="A package whose plug-ins may run, with your rights, from now on.")
    ] = None,
    revoke: Annotated[str | None, typer.Option(help="A package whose plug-ins may run no longer.")] = None,
    json: JsonOption = False,
) -> None:
    """List the plug-ins of installed packages: names that are accepted beside the built-in ones.

    Scientists, interpreters, discovery methods, behaviours, model loaders and judges; see examples/plugin. None is
    imported before you trust its package, once; an update that offers more is asked for again.

    Example: vesalius plugins --check
    """
    output(api.plugins(check=check, trust=trust, revoke=revoke), as_json=json)
