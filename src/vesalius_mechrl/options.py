"""The options of this package, declared once: what the tables of MechRL are made of, and how sets are searched."""

from collections.abc import Sequence
from typing import Annotated, Any

from vesalius.options import OptionRecord, flag, require_drawable


class Experiment(OptionRecord):
    """What the tables of MechRL are made of."""

    paper: Annotated[bool, flag("As published, quirks included; says which.", "--paper")] = False
    seeds: Annotated[int, flag("Policies trained of each kind, and sets of episodes.", least=1)] = 5
    steps: Annotated[int, flag("Training steps of each policy.", least=1)] = 200_000
    episodes: Annotated[int, flag("Test episodes per seed.", least=1)] = 30
    size: Annotated[
        str,
        flag(
            "laptop: 8 rows per episode, half an hour of one core; full: 32 rows, needs a GPU.", of=("laptop", "full")
        ),
    ] = "laptop"
    training: Annotated[
        str | Sequence[str] | None,
        flag("Behaviours to train on. Default: induction,ioi; with --paper the published batches of both."),
    ] = None
    held_out: Annotated[
        str | Sequence[str] | None,
        flag(
            "Behaviours to search that no policy is trained on. Default: docstring,greater-than,capitals; with --paper "
            "the published batches of docstring."
        ),
    ] = None
    batches: Annotated[
        str | None,
        flag(
            "fresh: prompts written for every episode, as published (default with --paper); pooled: rows drawn from a "
            "pool that is measured once (default without)."
        ),
    ] = None
    picks: Annotated[
        int | None,
        flag("Picks of an episode. Default: 50, as published; of a model with fewer than 144 heads the same share."),
    ] = None
    collapse: Annotated[
        bool,
        flag("Also train the policy in a single environment, and draw how decided each becomes.", "--collapse"),
    ] = False
    control: Annotated[
        str,
        flag(
            "Ordinary text of the reward: factbook, wikitext:PATH (as published), or a text file whose articles are "
            "separated by blank lines."
        ),
    ] = "factbook"
    reward: Annotated[
        str, flag("Unit of the task's damage: logits (as published), or nats like that of the control text.")
    ] = "logits"
    context: Annotated[
        str | Sequence[str] | None,
        flag(
            "Also train policies that have no label and infer the task by an encoder: of the `rewards` seen in the "
            "episode (as the paper proposes), of the `prompts`, or rewards,prompts."
        ),
    ] = None


class SetSearch(OptionRecord):
    """Among which heads sets are searched, on which prompts, and what counts."""

    pool: Annotated[Any, flag("The heads to choose among, comma-separated. Default: all.", rare=True)] = None
    kind: Annotated[
        Any,
        flag("zero, mean, resample or value-bias. Default: resample of a natural model, else mean.", "--kind", "-k"),
    ] = None
    least: Annotated[float, flag("Smallest synergy that counts, as a share of the clean score.")] = 0.1
    budget: Annotated[int | None, flag("Sets to pay for. Default: all of 1 or 2.", rare=True)] = None
    n: Annotated[int, flag("Prompts.", least=1)] = 32
    seed: Annotated[int, flag("Seed of the prompts and of the search.")] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_drawable(self.n, self.seed)
