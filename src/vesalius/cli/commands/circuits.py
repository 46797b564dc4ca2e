"""One circuit: measure, discover, explain, and draw the page."""

from contextlib import nullcontext
from typing import Annotated, Any

import typer

from vesalius import api
from vesalius.cli.console import output, print_json, print_line, print_sections, print_view, resumable
from vesalius.cli.options import (
    JsonOption,
    OnePrompt,
    Planned,
    PlanOption,
    Printed,
    Ranked,
    SpecimenArgument,
    command,
    names,
)
from vesalius.errors import BadInput
from vesalius.options import (
    ALIGNED,
    DISCOVERED,
    FAITHFUL,
    NEURONS,
    SWEPT,
    Aligned,
    Ask,
    Calls,
    Charted,
    Checked,
    CircuitFrom,
    Continuing,
    Cut,
    Draw,
    Edit,
    Explaining,
    Force,
    HowFound,
    Knockout,
    Load,
    Parts,
    Pruned,
    Read,
    Sample,
    Sandboxed,
    Scoring,
    Selected,
    Sparse,
    flag,
)

commands = typer.Typer()


@command(commands)
def sweep(
    specimen: SpecimenArgument,
    load: Load,
    one: OnePrompt,
    knockout: Knockout,
    draw: Draw = SWEPT,
    *,
    printed: Ranked,
    parts: Parts,
    force: Force,
    sparse: Sparse,
) -> None:
    """Measure how much each head and MLP matters, or each site of a kind, with intervals and a picture.

    Replaces each component on every prompt and reports clean minus edited score: positive means removing it hurts.
    Zero means a head's z, or what an MLP writes without its output bias: output biases of attention and MLPs stay.
    An interrupted sweep continues when the same command is given again.

    Of several kinds a table shows where they disagree. --sites replaces activations of other kinds, such as the
    residual stream; with --by position the result is a map of layers and positions.

    Example: vesalius sweep smollm2-135m --behaviour induction --kind resample,zero

    A map: vesalius sweep smollm2-135m --behaviour induction --sites resid --by position

    The strongest latents: vesalius sweep org/model -b ioi --sites features --features transcoders/
    """
    load = one.studied(load)
    if printed.plan:
        return output(api.plan("sweep", specimen, load, knockout, draw, parts, sparse), as_json=printed.json)
    with resumable():
        report = api.sweep_report(specimen, load, knockout, draw, parts, force, sparse, out=printed.out or True)
    return output(report, as_json=printed.json, top=printed.top)


@command(commands, name="what-if")
def what_if(
    specimen: Annotated[
        str | None,
        typer.Argument(help="As for `vesalius sweep`; left out with --from.", metavar="[SPECIMEN]"),
    ] = None,
    components: Annotated[
        str | None,
        typer.Option(
            "--components", "-c", help="Replaced together, comma-separated: L1H2,L3_MLP,L12.resid@S2,L0H1->L5H3.k."
        ),
    ] = None,
    *,
    edit: Edit,
    load: Load,
    draw: Draw,
    printed: Printed,
    file: Annotated[
        str | None, typer.Option("--from", help="Ask again what a what_if.json asked, instead of naming it here.")
    ] = None,
    force: Force,
    sparse: Sparse,
) -> None:
    """Replace some components, activations or edges together and print how the outputs change.

    Prints the score before and after with intervals, and the outputs that changed. The answer is a file that
    --from FILE asks again, here or elsewhere.

    Example: vesalius what-if smollm2-135m -b ioi -c L20H0,L22H4 --kind resample

    One position of the residual stream: vesalius what-if smollm2-135m -b ioi -c L12.resid@S2
    """
    if file is not None:
        if specimen is not None or components is not None:
            raise BadInput("--from FILE names specimen and components; leave them out here")
        return output(api.what_if_again(file, out=printed.out or True), as_json=printed.json)
    if specimen is None or components is None:
        raise BadInput("name a specimen and --components, such as `vesalius what-if 3 -c L0_MLP`")
    result = api.what_if(specimen, components, edit, load, draw, force, sparse, out=printed.out or True)
    return output(result, as_json=printed.json)


@command(commands)
def complete(
    specimen: SpecimenArgument, read: Read, continuing: Continuing, sparse: Sparse, *, printed: Printed
) -> None:
    """Continue a prompt with and without an intervention, and print the next token's distribution of both.

    Sites are replaced (--edits), or a direction is added at one (--steer). The likeliest token is written each time;
    steering is compared with random directions of the same length.

    Example: vesalius complete smollm2-135m --prompt "I think that this film is" --steer L15.resid --toward "It is
    wonderful" --away "It is terrible" --strength 2
    """
    load = Load(**read.values())
    output(api.complete(specimen, load, continuing, sparse, out=printed.out or True), as_json=printed.json)


@command(commands)
def discover(
    specimen: SpecimenArgument,
    load: Load,
    how: HowFound,
    draw: Draw = DISCOVERED,
    *,
    cut: Cut,
    printed: Ranked,
    checked: Checked,
    force: Force,
    one: OnePrompt,
    parts: Parts,
) -> None:
    """Find the smallest connected circuit that keeps a stated share of a behaviour, or say that there is none.

    Components are ranked on some prompts, the size is chosen on others, and what the circuit keeps is measured on
    prompts that had no part in either. The first line answers Yes, Partly or No. Writes circuit.json in the format of
    the MIB benchmark and discovery.html with pictures. Where the true circuit is known the scores are graded.

    Example: vesalius discover smollm2-135m -b greater-than --keep 0.8
    """
    records = (one.studied(load), draw, cut, checked, force, parts)
    options: dict[str, Any] = how.values() | {"paper": how.paper or None}
    if printed.plan:
        return output(api.plan("discover", specimen, *records, **options), as_json=printed.json)
    discovery = api.discover(specimen, *records, out=printed.out or True, **options)
    if printed.json:
        return print_json({**discovery.as_data(), "page": f"{discovery.directory}/discovery.html"})
    return print_view(discovery.view(), top=printed.top)


class WhatExplained(OnePrompt):
    """What is explained: components, and one prompt instead of a behaviour."""

    components: Annotated[
        str | None,
        flag("The circuit, comma-separated. Default: the specimen's own, or chosen.", "--components", "-c"),
    ] = None


class Told(Planned):
    """Where an explanation goes, and how much of it is printed."""

    claims: Annotated[bool, flag("Print every claim with its evidence after the summary.", "--claims", "-v")] = False


@command(commands)
def explain(
    specimen: SpecimenArgument,
    load: Load,
    what: WhatExplained,
    *,
    source: CircuitFrom,
    ask: Ask,
    study: Explaining,
    printed: Told,
    force: Force,
    calls: Calls,
    parts: Parts,
) -> None:
    """Say what each component of a circuit does, with the experiments behind every sentence.

    Works from the model alone: programs for specimens with a listed vocabulary, the causal profile (roles of heads and
    MLPs) for natural models with --behaviour. With --backbone a language model proposes (HyVE). It writes
    explanation.json and report.html, the evidence page; HyVE also trace.json.

    Example: vesalius explain frac_prevs
    """
    from vesalius.documents.explanation import claims_of

    load = what.studied(load)
    named = names(what.components)
    if printed.plan:
        if ask.backbone:
            raise BadInput("--plan: how often a language model is asked is not known beforehand; leave out --backbone")
        records = (load, source, study, force, ask, parts)
        return output(api.plan("explain", specimen, *records, components=named), as_json=printed.json)
    with resumable() if ask.backbone else nullcontext():
        records = (load, source, study, force, ask, calls, parts)
        explanation = api.explain(specimen, *records, components=named, out=printed.out or True)
    output(explanation, as_json=printed.json)
    if printed.claims and not printed.json:
        print_sections(claims_of(explanation))


@command(commands)
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
    page = api.report(run)
    output({"page": str(page)}, lambda document: print_line(document["page"]), as_json=json)


# The atlas of a model, and circuits of single neurons.


@command(commands)
def atlas(
    specimen: SpecimenArgument,
    read: Read,
    charted: Charted,
    *,
    printed: Ranked,
) -> None:
    """Say what every head of a model is by standard tests and by its weights, and what its neurons read and write.

    Previous-token, duplicate-token and induction heads on repeated random tokens and on text, heads that copy or
    suppress the token that they read, heads that position decides; each figure beside its chance level, each name by a
    stated rule. Writes atlas.json and its page atlas.html; the same weights are measured once.

    Example: vesalius atlas smollm2-135m
    """
    load = Load(**read.values())
    if printed.plan:
        return output(api.plan("atlas", specimen, load, charted), as_json=printed.json)
    result = api.atlas(specimen, load, charted, out=printed.out or True)
    return output(result, as_json=printed.json, top=printed.top)


@command(commands)
def align(
    specimen: SpecimenArgument,
    load: Load,
    aligned: Aligned,
    draw: Sample = ALIGNED,
    *,
    printed: Planned,
    sandboxed: Sandboxed,
    force: Force,
) -> None:
    """Find where a model holds the variables of an algorithm: a short Python program over a behaviour's inputs.

    A variable's place is where taking it from another prompt changes the output as the program says, on held-out
    templates, beside controls. "No place carries it" is an answer. Writes alignment.json and its page alignment.html.

    Example: vesalius align smollm2-135m -b ioi --against ioi-by-name --role S2
    """
    if printed.plan:
        return output(api.plan("align", specimen, load, aligned, draw, sandboxed, force), as_json=printed.json)
    result = api.align(specimen, load, aligned, draw, sandboxed, force, out=printed.out or True)
    return output(result, as_json=printed.json)


@command(commands)
def neurons(
    specimen: SpecimenArgument,
    load: Load,
    scoring: Scoring,
    draw: Draw = NEURONS,
    *,
    force: Force,
    printed: Ranked,
) -> None:
    """Find the smallest set of neurons that keeps a share of a behaviour, all other neurons resampled.

    Writes neurons.json, its page neurons.html, and circuit.json. The set is measured on held-out prompts, beside as
    many neurons that change most between the prompt and its counterfactual, and as many random ones.

    Example: vesalius neurons smollm2-135m -b examples/agreement.jsonl --keep 0.8
    """
    if printed.plan:
        return output(api.plan("neurons", specimen, load, scoring, draw, force), as_json=printed.json)
    circuit = api.neurons(specimen, load, scoring, draw, force, out=printed.out or True)
    return output(circuit, as_json=printed.json, top=printed.top)


# Check what was found: whether a circuit keeps the behaviour, and whether a claim holds on other inputs.


@command(commands)
def faithfulness(
    specimen: SpecimenArgument,
    load: Load,
    components: Annotated[
        str | None, typer.Option("--components", "-c", help="The circuit, comma-separated: L1H2,L3_MLP.")
    ] = None,
    circuit: Annotated[
        str | None,
        typer.Option(help="A circuit file, or a directory of `vesalius discover` or `vesalius explain`, instead."),
    ] = None,
    draw: Draw = FAITHFUL,
    *,
    printed: Printed,
    pruned: Pruned,
    selected: Selected,
) -> None:
    """Ablate everything outside a circuit and print how much of the behaviour stays, beside random circuits.

    0 is everything ablated, 1 the whole model. Where the circuit lists edges, edges are cut.

    Example: vesalius faithfulness 3 --circuit vesalius-runs/discover-frac_prevs-eap-n16-seed0 --least 0.01
    """
    result = api.faithfulness(
        specimen, load, pruned, selected, draw, components=components, circuit=circuit, out=printed.out or True
    )
    return output(result, as_json=printed.json)


@command(commands)
def retest(
    explanation: Annotated[str, typer.Argument(help="A directory of `vesalius explain`, or an explanation file.")],
    component: Annotated[str, typer.Option("--component", "-c", help="The component that the claim is about.")],
    claim: Annotated[
        str, typer.Option(help="Its number among the claims about the component, from 1, or its kind: necessary.")
    ] = "1",
    seed: Annotated[int, typer.Option(help="Seed of the held-out inputs; the explanation's own repeats it.")] = 1,
    *,
    printed: Printed,
) -> None:
    """Decide one claim of an explanation again, on the held-out inputs of another seed, by the same rule.

    Example: vesalius retest vesalius-runs/explain-frac_prevs-seed0 -c L0_MLP --claim necessary --seed 5
    """
    result = api.retest(explanation, component, claim, seed=seed, out=printed.out or True)
    return output(result, as_json=printed.json)


@command(commands)
def ladder(
    explanation: Annotated[str, typer.Argument(help="A directory of `vesalius explain`, or an explanation file.")],
    program: Annotated[
        list[str] | None,
        typer.Option(help='Another program for a head: "L18H6=1 back 0.9 + BOS 0.1". May be given several times.'),
    ] = None,
    n: Annotated[int, typer.Option("--n", "-n", help="Prompts, and as many of other templates.")] = 32,
    seed: Annotated[int, typer.Option(help="Seed of the prompts.")] = 1,
    *,
    printed: Printed,
) -> None:
    """Run the program of an explanation in the model's place again, on other prompts or with other programs.

    Example: vesalius ladder vesalius-runs/explain-smollm2-135m-ioi-seed0 --program "L18H6=1 back"
    """
    changed = {}
    for text in program or ():
        head, equals, rule = text.partition("=")
        if not equals:
            raise BadInput(f"--program {text!r} names no head; write HEAD=PROGRAM, such as L18H6=1 back")
        changed[head.strip()] = rule.strip()
    result = api.ladder(explanation, changed, n=n, seed=seed, out=printed.out or True)
    return output(result, as_json=printed.json)


@command(commands)
def improve(
    explanation: Annotated[str, typer.Argument(help="A directory of `vesalius explain`, or an explanation file.")],
    until: Annotated[float, typer.Option(help="Share of the behaviour at which the search ends.")] = 0.8,
    passes: Annotated[int, typer.Option(help="Passes of one prompt that it may take.", min=1)] = 20_000,
    n: Annotated[int, typer.Option("--n", "-n", help="Prompts that measure before and after.")] = 32,
    seed: Annotated[int, typer.Option(help="Seed of the prompts.")] = 1,
    plan: PlanOption = False,
    *,
    printed: Printed,
) -> None:
    """Improve the program of an explanation where its ladder loses most.

    Another rule for a head, or one more head, chosen on some prompts and accepted only where confirmed on others.

    Example: vesalius improve vesalius-runs/explain-smollm2-135m-induction-seed0 --passes 40000
    """
    asked = {"until": until, "passes": passes, "n": n, "seed": seed}
    if plan:
        return output(api.improve_plan(explanation, **asked), as_json=printed.json)
    return output(api.improve(explanation, **asked, out=printed.out or True), as_json=printed.json)
