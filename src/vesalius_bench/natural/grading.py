"""Grade an explanation: run it in the model's place, try its stand-ins, and compare it with what was planted.

The only module that opens `key`.
"""

from collections.abc import Mapping, Sequence

import torch

from vesalius.components import Component
from vesalius.discovery.head_tests import bos_of
from vesalius.discovery.shares import Shares
from vesalius.documents.metric import Metric
from vesalius.documents.proposal import Proposal, RunProposal, StandIn
from vesalius.explanations.running import parse_program
from vesalius.explanations.running.rules import Tokens
from vesalius.model.specimen import Specimen
from vesalius.progress import Progress, silent
from vesalius_bench.natural.documents import NaturalFigures, PlantedFigures, StandInFigures
from vesalius_bench.natural.key import ANSWERS, PlantedAnswer
from vesalius_session.proposals.run import GRADING, PAIRS, pairs_among, proposal_prompts, run_proposal, stand_ins

#: The strongest components of an explanation, of which every pair is tried.
STRONGEST = 8
#: A program looks where the planted head does if it puts more than this of its attention there.
MOST_OF_IT = 0.5


def graded(
    specimen: Specimen,
    proposal: Proposal,
    *,
    case: Mapping[str, str],
    n: int,
    seed: int,
    spent: tuple[float | None, float],
    unsafe: bool = False,
    progress: Progress = silent,
) -> NaturalFigures:
    """The figures of one explanation; `case` holds its id, the scientist, the model and the behaviour, `spent` the
    passes and CPU seconds that it took.
    """
    run = run_proposal(specimen, proposal, n=n, seed=seed, unsafe=unsafe, progress=progress)
    shares = Shares(specimen.model, proposal_prompts(specimen, n, split=GRADING, seed=seed).report)
    answer = ANSWERS.get(case["model"])
    return NaturalFigures(
        **case,
        run=run,
        variables=variable_accuracy(run),
        stand_ins=stand_in_figures(shares, proposal),
        planted=None if answer is None else planted_figures(specimen, run, answer, n=n, seed=seed),
        forwards=None if spent[0] is None else round(spent[0], 1),
        cpu_seconds=round(spent[1], 2),
    )


def variable_accuracy(run: RunProposal) -> Metric:
    """The mean accuracy of the variables that are named between the embedding and the output."""
    known = [one.at.accuracy.value for one in run.found if one.at.accuracy.value is not None]
    if not known:
        return Metric(value=None, low=None, high=None, n=0)
    return Metric.of_mean(torch.tensor(known, dtype=torch.float64))


def stand_in_figures(shares: Shares, proposal: Proposal) -> StandInFigures:
    """Of every pair of the strongest components, and of the pairs that are named: which cost more than the sum."""
    named = {pair for group in proposal.stand_ins for pair in pairs_among(group)}
    tried = list(dict.fromkeys([*sorted(named), *pairs_among(_strongest(shares, proposal))]))
    measured: list[StandIn] = stand_ins(shares, tried)
    holds = {one.components for one in measured if one.holds}
    return StandInFigures(
        pairs=len(tried),
        interchangeable=len(holds),
        chance=Metric.of_share(len(holds), len(tried)),
        precision=Metric.of_share(len(holds & named), len(named)),
        recall=Metric.of_share(len(holds & named), len(holds)),
    )


def _strongest(shares: Shares, proposal: Proposal) -> list[str]:
    """The components of an explanation whose replacement alone moves the score most."""
    names = [*proposal.programs, *proposal.mlps]
    if not names:
        return []
    every = set(shares.model.components)
    scores = shares.scores([every - {Component.parse(name)} for name in names])
    effects = (shares.full[:, None] - scores).mean(0).abs().tolist()
    return [name for _, name in sorted(zip(effects, names, strict=True), key=lambda pair: -pair[0])[:STRONGEST]]


def planted_figures(
    specimen: Specimen, run: RunProposal, answer: PlantedAnswer, *, n: int, seed: int
) -> PlantedFigures:
    """An explanation beside what was planted."""
    proposal = run.proposal
    named = {*proposal.programs, *proposal.mlps}
    rightly = {(one.variable, one.at.place) for one in run.found if one.at.carries}
    groups = {frozenset(one.components) for one in run.stand_ins}
    looks = [
        _looks_there(specimen, proposal.programs.get(head, ""), (look.query, look.key), n=n, seed=seed)
        for head, look in answer.heads.items()
    ]
    return PlantedFigures(
        precision=Metric.of_share(len(named & answer.components), len(named)),
        recall=Metric.of_share(len(named & answer.components), len(answer.components)),
        programs=Metric.of_share(sum(looks), len(looks)),
        variables=Metric.of_share(len(set(answer.variables) & rightly), len(answer.variables)),
        stand_ins=Metric.of_share(sum(frozenset(one) in groups for one in answer.stand_ins), len(answer.stand_ins)),
    )


def _looks_there(specimen: Specimen, text: str, roles: Sequence[str], *, n: int, seed: int) -> bool:
    """Whether a program looks from one role at another, on most prompts."""
    prompts = proposal_prompts(specimen, min(n, PAIRS), split=GRADING, seed=seed).report.prompts
    if not text or prompts is None or any(role not in prompts.roles for role in roles):
        return False
    tokens = Tokens.of(specimen, prompts.batch, len(bos_of(specimen)))
    pattern = parse_program(text).pattern(tokens)
    query, key = (prompts.roles[role] for role in roles)
    there = pattern[torch.arange(len(pattern)), query, key]
    return bool((there > MOST_OF_IT).double().mean() > MOST_OF_IT)
