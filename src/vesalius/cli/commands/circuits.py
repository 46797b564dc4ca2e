"""One circuit: measure, discover, explain, and draw the page."""

from contextlib import nullcontext
from typing import Annotated

import typer

from vesalius.cli.options import JsonOption, MethodFlags, Results, SpecimenArgument, Studied, Table, command, names
from vesalius.errors import BadInput
from vesalius.options import (
    DISCOVERED,
    SWEPT,
    Ask,
    Calls,
    Checked,
    CircuitFrom,
    Cut,
    Draw,
    Edit,
    Explaining,
    Knockout,
    Load,
    Parts,
)

commands = typer.Typer()


@command(commands)
def sweep(
    specimen: SpecimenArgument,
    studied: Studied,
    knockout: Knockout,
    draw: Draw = SWEPT,
    *,
    results: Table,
    parts: Parts,
) -> None:
    """Measure how much each head and MLP matters, with intervals and a picture.

    Replaces each component on every prompt and reports clean minus edited score: positive means removing it hurts.
    Zero means a head's z, or what an MLP writes without its output bias: output biases of attention and MLPs stay.
    An interrupted sweep continues when the same command is given again.

    Example: vesalius sweep smollm2-135m --behaviour induction --kind zero
    """
    from vesalius import api
    from vesalius.cli.console import output, resumable
    from vesalius.cli.tables.sweep import print_plan, print_sweep

    asked = (studied.load(), knockout, draw, parts)
    if results.plan:
        return output(api.plan("sweep", specimen, *asked), print_plan, as_json=results.json)
    with resumable():
        report = api.sweep_report(specimen, *asked, out=results.out or True)
    return output(report, lambda sweep: print_sweep(sweep, results.top), as_json=results.json)


@command(commands, name="what-if")
def what_if(
    specimen: Annotated[
        str | None,
        typer.Argument(help="As for `vesalius sweep`; left out with --from.", metavar="[SPECIMEN]"),
    ] = None,
    components: Annotated[
        str | None,
        typer.Option("--components", "-c", help="Replaced together, comma-separated: L1H2,L3_MLP."),
    ] = None,
    *,
    edit: Edit,
    load: Load,
    draw: Draw,
    out: Annotated[str | None, typer.Option(help="Directory for what_if.json. Default: vesalius-runs/...")] = None,
    json: JsonOption = False,
    file: Annotated[
        str | None, typer.Option("--from", help="Ask again what a what_if.json asked, instead of naming it here.")
    ] = None,
) -> None:
    """Replace some components together and print how the outputs change.

    Prints the score before and after with intervals, and the outputs that changed. The answer is a file that
    --from FILE asks again, here or elsewhere.

    Example: vesalius what-if smollm2-135m -b ioi -c L20H0,L22H4 --kind resample
    """
    from vesalius import api
    from vesalius.cli.console import output
    from vesalius.cli.tables.what_if import print_what_if

    if file is not None:
        if specimen is not None or components is not None:
            raise BadInput("--from FILE names specimen and components; leave them out here")
        return output(api.what_if_again(file, out=out or True), print_what_if, as_json=json)
    if specimen is None or components is None:
        raise BadInput("name a specimen and --components, such as `vesalius what-if 3 -c L0_MLP`")
    result = api.what_if(specimen, components, edit, load, draw, out=out or True)
    return output(result, print_what_if, as_json=json)


@command(commands)
def discover(
    specimen: SpecimenArgument,
    studied: Studied,
    method: MethodFlags,
    draw: Draw = DISCOVERED,
    *,
    results: Table,
    checked: Checked,
    cut: Cut,
    parts: Parts,
) -> None:
    """Score the components and edges of a model by how much a behaviour needs them.

    Writes circuit.json in the format of the MIB benchmark and discovery.html with pictures. Where the true circuit is
    known the scores are graded.

    Example: vesalius discover frac_prevs --method eap-ig
    """
    from vesalius import api
    from vesalius.cli.console import output, print_json
    from vesalius.cli.tables.discovery import print_discovery
    from vesalius.cli.tables.sweep import print_plan

    asked = (studied.load(), draw, checked, cut, parts)
    if results.plan:
        return output(api.plan("discover", specimen, *asked, **method.keywords()), print_plan, as_json=results.json)
    discovery = api.discover(specimen, *asked, **method.keywords(), out=results.out or True)
    if results.json:
        return print_json({**discovery.as_data(), "page": f"{discovery.directory}/discovery.html"})
    return print_discovery(discovery, results.top)


@command(commands)
def explain(
    specimen: SpecimenArgument,
    studied: Studied,
    components: Annotated[
        str | None,
        typer.Option(
            "--components", "-c", help="The circuit, comma-separated. Default: the specimen's own, or chosen."
        ),
    ] = None,
    *,
    source: CircuitFrom,
    ask: Ask,
    study: Explaining,
    results: Results,
    claims: Annotated[
        bool, typer.Option("--claims", "-v", help="Print every claim with its evidence after the summary.")
    ] = False,
    calls: Calls,
    parts: Parts,
) -> None:
    """Say what each component of a circuit does, with the experiments behind every sentence.

    Works from the model alone: programs for specimens with a listed vocabulary, the causal profile (roles of heads and
    MLPs) for natural models with --behaviour. With --backbone a language model proposes (HyVE). It writes
    explanation.json and report.html, the evidence page; HyVE also trace.json.

    Example: vesalius explain frac_prevs
    """
    from vesalius import api
    from vesalius.cli.console import output, resumable
    from vesalius.cli.tables.explanation import print_explanation
    from vesalius.cli.tables.sweep import print_plan

    asked, named = (studied.load(), source, study, ask, parts), names(components)
    if results.plan:
        if ask.backbone:
            raise BadInput("--plan: how often a language model is asked is not known beforehand; leave out --backbone")
        return output(api.plan("explain", specimen, *asked, components=named), print_plan, as_json=results.json)
    with resumable() if ask.backbone else nullcontext():
        explanation = api.explain(specimen, *asked, calls, components=named, out=results.out or True)
    return output(explanation, lambda explanation: print_explanation(explanation, claims=claims), as_json=results.json)


@commands.command()
def report(
    run: Annotated[
        str,
        typer.Argument(
            help="A directory made by `vesalius explain`, `discover`, `survey`, `study` or `bench`.", metavar="RUN"
        ),
    ],
    json: JsonOption = False,
) -> None:
    """Render the pages of a run again and print the path of the evidence page, or of a benchmark's index page.

    Example: vesalius report vesalius-runs/explain-frac_prevs-seed0
    """
    from vesalius import api
    from vesalius.cli.console import output, print_line

    page = api.report(run)
    output({"page": str(page)}, lambda document: print_line(document["page"]), as_json=json)
