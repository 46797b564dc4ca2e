"""`vesalius sets`: heads that matter together."""

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
    PromptOption,
    RevisionOption,
    SpecimenArgument,
    TokenizerOption,
    TopOption,
    WrongOption,
    names,
    studied_for,
)


def sets(
    specimen: SpecimenArgument,
    behaviour: BehaviourOption = None,
    prompt: PromptOption = None,
    answer: AnswerOption = None,
    wrong: WrongOption = None,
    counterfactual: CounterfactualOption = None,
    metric: MetricOption = None,
    search: Annotated[str, typer.Option(help="group, greedy, beam, prune, rl or pairs.")] = "group",
    pool: Annotated[str | None, typer.Option(help="The heads to choose among, comma-separated. Default: all.")] = None,
    kind: Annotated[str, typer.Option("--kind", "-k", help="zero, mean, resample or value-bias.")] = "mean",
    least: Annotated[
        float | None, typer.Option(help="Smallest synergy that counts, as a share of the clean score.")
    ] = None,
    budget: Annotated[int | None, typer.Option(help="Sets to pay for. Default: all of 1 or 2.")] = None,
    n: Annotated[int, typer.Option("--n", min=1, help="Prompts.")] = 32,
    seed: Annotated[int, typer.Option(help="Seed of the prompts and of the search.")] = 0,
    force: ForceOption = False,
    top: TopOption = 12,
    out: Annotated[str | None, typer.Option(help="Directory for sets.json. Default: vesalius-runs/...")] = None,
    tokenizer: TokenizerOption = None,
    revision: RevisionOption = None,
    dtype: DtypeOption = "auto",
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Search heads that matter together and back each other up.

    Sets are searched on some prompts and confirmed on others; writes sets.json.

    Example: vesalius sets smollm2-135m --behaviour induction --search pairs
    """
    from vesalius.cli.console import output, resumable
    from vesalius_mechrl.api_sets import discover_sets

    with resumable():
        head_sets = discover_sets(
            specimen,
            search,
            budget=budget,
            pool=names(pool),
            kind=kind,
            **({} if least is None else {"least": least}),
            n=n,
            seed=seed,
            force=force,
            behaviour=studied_for(behaviour, prompt, answer, wrong, counterfactual),
            metric=metric,
            tokenizer=tokenizer,
            revision=revision,
            dtype=dtype,
            device=device,
            out=out or True,
        )
    return output(head_sets, as_json=json, top=top)
