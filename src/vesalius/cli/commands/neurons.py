"""Circuits of single neurons."""

from typing import Annotated

import typer

from vesalius.cli.options import (
    AnswerOption,
    BehaviourOption,
    CounterfactualOption,
    DeviceOption,
    DtypeOption,
    ForceOption,
    JsonOption,
    MetricOption,
    PlanOption,
    PromptOption,
    RevisionOption,
    SpecimenArgument,
    TokenizerOption,
    TopOption,
    WrongOption,
    studied_for,
)

commands = typer.Typer()


@commands.command()
def neurons(
    specimen: SpecimenArgument,
    behaviour: BehaviourOption = None,
    prompt: PromptOption = None,
    answer: AnswerOption = None,
    wrong: WrongOption = None,
    counterfactual: CounterfactualOption = None,
    metric: MetricOption = None,
    method: Annotated[
        str, typer.Option("--method", "-m", help="How neurons are scored: relp, relp-qk or gradient.")
    ] = "relp-qk",
    keep: Annotated[float, typer.Option("--keep", help="Share of the behaviour to keep, above 0, at most 1.")] = 0.8,
    n: Annotated[int, typer.Option("--n", min=2, help="Prompts, and as many held-out ones.")] = 16,
    seed: Annotated[int, typer.Option(help="Seed of the prompts.")] = 0,
    force: ForceOption = False,
    top: TopOption = 12,
    out: Annotated[str | None, typer.Option(help="Directory for neurons.json. Default: vesalius-runs/...")] = None,
    tokenizer: TokenizerOption = None,
    revision: RevisionOption = None,
    dtype: DtypeOption = "auto",
    device: DeviceOption = "auto",
    plan: PlanOption = False,
    json: JsonOption = False,
) -> None:
    """Find the smallest set of neurons that keeps a share of a behaviour, all other neurons resampled.

    Writes neurons.json, its page neurons.html, and circuit.json. The set is measured on held-out prompts, beside as
    many neurons that change most between the prompt and its counterfactual, and as many random ones.

    Example: vesalius neurons smollm2-135m -b examples/agreement.jsonl --keep 0.8
    """
    from vesalius import api
    from vesalius.cli.console import output

    options = {
        "behaviour": studied_for(behaviour, prompt, answer, wrong, counterfactual),
        "metric": metric,
        "tokenizer": tokenizer,
        "revision": revision,
        "dtype": dtype,
        "device": device,
        "method": method,
        "keep": keep,
        "n": n,
        "seed": seed,
        "force": force,
    }
    if plan:
        return output(api.plan("neurons", specimen, **options), as_json=json)
    circuit = api.neurons(specimen, **options, out=out or True)
    return output(circuit, as_json=json, top=top)
