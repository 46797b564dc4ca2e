"""Run a proposal in the model's place: the ladder of its programs, its variables at their places, its stand-ins.

An agent that tries proposals sees what they are worth on prompts of the train split; what it submits, and what a
benchmark grades, is measured on prompts of the test split, which no proposal has seen.
"""

from collections.abc import Collection, Sequence
from itertools import combinations
from typing import Literal

from vesalius.behaviours.behaviour import TooFewPrompts
from vesalius.behaviours.registry import behaviour_of
from vesalius.behaviours.trial import NothingUnseen, Trial, trial
from vesalius.components import Component
from vesalius.discovery.account import NamedSet, SetRuns
from vesalius.discovery.shares import Shares, share_between
from vesalius.discovery.whole import PromptSets
from vesalius.documents.metric import Metric
from vesalius.documents.proposal import PlacedVariable, Proposal, RunProposal, StandIn
from vesalius.errors import BadInput
from vesalius.explanations.running import parse_program, put_in_place
from vesalius.explanations.running.explained import FIT
from vesalius.explanations.variables.align import grade_places
from vesalius.model.specimen import Specimen
from vesalius.progress import Progress, silent
from vesalius_session.proposals.reading import algorithm_of

Split = Literal["train", "test"]
TRYING: Split = "train"
GRADING: Split = "test"
#: Prompts of the ladder and of stand-ins, and prompts whose pairs grade variables.
PROMPTS, PAIRS = 32, 24
#: The excess, as a share of what replacing everything costs, from which components stand in for each other.
LEAST_EXCESS = 0.05
GRADE_SEED = 7_000_003
#: The fewest prompts that anything is graded on.
LEAST_PROMPTS = 4


def run_proposal(
    specimen: Specimen,
    proposal: Proposal,
    *,
    split: Split = GRADING,
    n: int = PROMPTS,
    seed: int = 0,
    unsafe: bool = False,
    progress: Progress = silent,
) -> RunProposal:
    """What a proposal is worth on `n` prompts of a split. A program of the proposal runs in the sandbox."""
    config = specimen.model.config
    sets = proposal_prompts(specimen, n, split=split, seed=seed)
    runs = SetRuns(specimen.model, sets)
    named = [Component.parse(name).within(config) for name in (*proposal.programs, *proposal.mlps)]
    running = None
    if named:
        programs = {
            Component.parse(name).within(config): parse_program(text) for name, text in proposal.programs.items()
        }
        running = put_in_place(
            specimen,
            NamedSet(tuple(sorted(named)), sets, len(named)),
            given=programs,
            runs=runs,
            seed=seed,
            progress=progress,
        )
    agreement, variables, forwards = None, (), 0.0
    if proposal.algorithm is not None:
        progress("exchanging variables", 0, 0)
        graded = grade_places(
            specimen,
            algorithm_of(proposal.algorithm),
            dict(proposal.variables),
            split=split,
            n=min(n, PAIRS),
            seed=seed,
            unsafe=unsafe,
        )
        agreement, forwards = graded.agreement, graded.forwards
        variables = tuple(PlacedVariable(variable=name, at=at, given=at.given) for name, at in graded.places.items())
    return RunProposal(
        proposal=proposal,
        running=running,
        agreement=agreement,
        variables=variables,
        stand_ins=tuple(stand_ins(runs.report, proposal.stand_ins)),
        rules=size_of(proposal),
        rows=round(runs.report.cost.rows + forwards + (0.0 if running is None else running.rows), 1),
    )


def proposal_prompts(specimen: Specimen, n: int, *, split: Split, seed: int) -> PromptSets:
    """Prompts that programs' position means are taken of, and `n` others that they are run on; those of the test split
    have other templates and words where the behaviour has some.
    """
    fit = trial(specimen, FIT, seed=seed, split=TRYING)
    report = _unseen(specimen, fit, n, split=split, seed=GRADE_SEED + seed)
    return PromptSets(fit, fit, report)


def _unseen(specimen: Specimen, fit: Trial, n: int, *, split: Split, seed: int) -> Trial:
    """`n` prompts of a split that are not among those that fit, or as many as a small split has."""
    asked = n + FIT
    while asked >= LEAST_PROMPTS:
        try:
            return trial(specimen, asked, seed=seed, split=split, apart_from=fit).take(slice(0, n))
        except NothingUnseen:
            raise
        except TooFewPrompts as few:
            asked = few.n if 0 < few.n < asked else asked // 2
        except BadInput:
            asked //= 2
    raise BadInput(
        f"behaviour {behaviour_of(specimen).label}: its {split} split has fewer than {LEAST_PROMPTS} prompts that no "
        "explanation has seen; give more rows"
    )


def stand_ins(shares: Shares, groups: Collection[tuple[str, ...]]) -> list[StandIn]:
    """What replacing all members of each group costs beyond the sum of what each costs, paired over prompts."""
    if not groups:
        return []
    every = set(shares.model.components)
    members = {group: [Component.parse(name) for name in group] for group in groups}
    removed = [frozenset(parts) for parts in members.values()]
    removed += [frozenset([part]) for parts in members.values() for part in parts]
    removed = list(dict.fromkeys(removed))
    scores = shares.scores([every - one for one in removed])
    cost = {one: shares.full - column for one, column in zip(removed, scores.T, strict=True)}
    made = []
    for group, parts in members.items():
        excess = cost[frozenset(parts)] - sum(cost[frozenset([part])] for part in parts)
        share = share_between(shares.nothing, shares.nothing + excess, shares.full).metric()
        made.append(StandIn(components=group, excess=share, holds=_holds(share)))
    return made


def pairs_among(components: Sequence[str]) -> list[tuple[str, ...]]:
    """Every pair of some components, as stand-ins are written."""
    return [tuple(map(str, pair)) for pair in combinations(sorted(map(Component.parse, components)), 2)]


def size_of(proposal: Proposal) -> int:
    """The rules of the programs, the variables that are placed, and the MLPs."""
    rules = sum(len(parse_program(text).rules) for text in proposal.programs.values())
    return rules + len(proposal.variables) + len(proposal.mlps)


def _holds(excess: Metric) -> bool:
    return (excess.low or 0.0) > 0 and (excess.value or 0.0) >= LEAST_EXCESS
