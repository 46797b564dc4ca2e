"""Run a proposal in the model's place: the ladder of its programs, its variables at their places, its stand-ins.

An agent that tries proposals sees what they are worth on prompts of the train split; what it submits, and what a
benchmark grades, is measured on prompts of the test split, which no proposal has seen.
"""

import random
from collections.abc import Collection, Iterator, Sequence
from itertools import combinations
from typing import Any, Literal

from vesalius.behaviours.behaviour import TooFewPrompts
from vesalius.behaviours.registry import behaviour_of
from vesalius.behaviours.trial import NothingUnseen, Trial, trial
from vesalius.components import Component
from vesalius.discovery.account import NamedSet, SetRuns
from vesalius.discovery.head_tests import bos_of
from vesalius.discovery.shares import Shares, share_between
from vesalius.discovery.whole import PromptSets
from vesalius.documents.alignment import Alignment
from vesalius.documents.answers import CARRIED
from vesalius.documents.base import FrozenDict
from vesalius.documents.claims import ClaimRecord, Evidence, Verdict
from vesalius.documents.explanation import Explanation
from vesalius.documents.metric import Metric
from vesalius.documents.proposal import RUNS, PlacedVariable, Proposal, RunProposal, StandIn
from vesalius.documents.running import DEPENDS, ELSEWHERE_BELOW, Running
from vesalius.documents.whole import KEEP
from vesalius.errors import BadInput, quoted
from vesalius.explanations.claims.base import Claim, Outcome, all_of
from vesalius.explanations.laboratory import Lab
from vesalius.explanations.running import parse_program, put_in_place
from vesalius.explanations.running.explained import FIT
from vesalius.explanations.running.programs import mixture
from vesalius.explanations.running.rules import BOS, Tokens, library
from vesalius.explanations.variables.algorithms import shipped
from vesalius.explanations.variables.align import grade_places
from vesalius.explanations.variables.sides import sources_of
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


# The claim that an explanation, given as data, runs in the model's place: it is about the whole behaviour.
#
# Its experiment needs no laboratory: `run` carries it out. It is no kind that is described for one component.

#: The rule of evidence that no verdict reads.
REPORTED = "reported; "
OF_VARIABLES = "at least 0.5, and more than the controls"


class Runs(Claim, frozen=True):
    """The explanation, run in the model's place, keeps the behaviour."""

    kind: Literal["runs"] = RUNS
    proposal: Proposal

    @property
    def text(self) -> str:
        """What is put in the place of what."""
        said = self.proposal
        counts = [
            (len(said.programs), "attention program"),
            (len(said.variables), "variable"),
            (len(said.stand_ins), "group of stand-ins"),
        ]
        named = [f"{n} {what}{'s' * (n > 1)}" for n, what in counts if n]
        return f"Run in the model's place, the explanation holds: {', '.join(named) or 'its MLPs'}."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """It is run by a session."""
        raise BadInput(f"a claim of the kind {RUNS} is about the whole behaviour; put it to a session")

    def record(self, run: RunProposal, *, seed: int) -> ClaimRecord:
        """The claim with what came out: supported where every part of it holds."""
        evidence = [*_of_programs(run, seed), *_of_variables(run, seed), *_of_stand_ins(run, seed)]
        verdicts: list[Verdict] = [_verdict(one) for one in evidence if not one.rule.startswith(REPORTED)]
        verdict: Verdict = all_of(*verdicts) if verdicts else "untested"
        return ClaimRecord(kind=RUNS, text=self.text, verdict=verdict, evidence=tuple(evidence))


def _verdict(evidence: Evidence) -> Verdict:
    return "undecided" if evidence.passed is None else "supported" if evidence.passed else "refuted"


def _of_programs(run: RunProposal, seed: int) -> list[Evidence]:
    running = run.running
    if running is None:
        return []
    doubt = running.doubt(KEEP)
    return [
        Evidence(
            experiment="programs in the model's place",
            measure="share kept",
            **_ends(running.claimed.kept),
            controls=FrozenDict({one.step: one.kept.value for one in running.controls}),
            rule=f"at least {KEEP:g}, and more than the controls",
            seed=seed,
            passed=True if doubt is None else False if running.beaten_by else None,
            outcome=doubt,
        ),
        *_of_heads(running, seed),
    ]


def _of_heads(running: Running, seed: int) -> Iterator[Evidence]:
    """Programs head by head: what is kept does not show a false one of a head that another stands in for."""
    for one in running.heads:
        if one.elsewhere:
            grade = one.decisive
            yield Evidence(
                experiment=f"{one.head} looks at {one.program}",
                measure="overlap with its attention",
                value=grade.overlap,
                low=None,
                high=None,
                n=grade.n,
                controls=FrozenDict({"position mean": grade.position_mean, "all BOS": grade.bos}),
                rule=f"at least {ELSEWHERE_BELOW:g} of what reads no tokens",
                seed=seed,
                passed=False,
            )
    if running.heads:
        yield Evidence(
            experiment="programs head by head",
            measure=f"share of the heads whose word is not {DEPENDS!r}",
            **_ends(Metric.of_share(sum(one.word != DEPENDS for one in running.heads), len(running.heads))),
            rule=f"{REPORTED}the verdict rests on what all keep together",
            seed=seed,
            passed=None,
        )


def _of_variables(run: RunProposal, seed: int) -> list[Evidence]:
    passed = {"carries": True, "in part": None, "no": False}
    figures = [
        Evidence(
            experiment=f"{one.variable} exchanged at {one.at.place}",
            measure="share as predicted",
            **_ends(one.at.accuracy),
            controls=FrozenDict({name: metric.value for name, metric in one.at.controls.items()}),
            rule=f"{REPORTED}inputs and answers stand there by construction" if one.given else OF_VARIABLES,
            seed=seed,
            passed=None if one.given else passed[one.at.verdict],
        )
        for one in run.variables
    ]
    if run.agreement is None:
        return figures
    answers = Evidence(
        experiment="the algorithm's answers",
        measure="share that the model gives",
        **_ends(run.agreement),
        rule="at least 0.5" if run.found else f"{REPORTED}no variable is placed between the embedding and the output",
        seed=seed,
        passed=None if run.agreement.low is None or not run.found else run.agreement.low >= CARRIED,
    )
    return [answers, *figures]


def _of_stand_ins(run: RunProposal, seed: int) -> list[Evidence]:
    return [
        Evidence(
            experiment=f"{' and '.join(one.components)} replaced together",
            measure="excess over the sum of each, as a share",
            **_ends(one.excess),
            rule=f"above chance, and at least {LEAST_EXCESS:g}",
            seed=seed,
            passed=one.holds,
        )
        for one in run.stand_ins
    ]


def _ends(metric: Metric) -> dict[str, Any]:
    return {"value": metric.value, "low": metric.low, "high": metric.high, "n": metric.n}


# Proposals from what was measured: that of a finished explanation, and a null with the right names.

#: Claims that say that components stand in for each other, and where they name the others.
STAND_INS = {"redundant": "others", "backup_of": "of"}


def proposal_of(explanation: Explanation, alignment: Alignment | None = None) -> Proposal:
    """What an explanation says, as data: its own proposal, or else its programs and MLPs, the supported claims that
    components stand in for each other, and the places of an alignment.
    """
    if explanation.proposed is not None:
        return explanation.proposed.proposal
    running = explanation.running
    placed = {} if alignment is None else dict(_placed(alignment))
    algorithm = None
    if alignment is not None and placed:
        algorithm = alignment.algorithm if alignment.algorithm in shipped() else alignment.program
    return Proposal(
        programs=FrozenDict({} if running is None else {one.head: one.program for one in running.heads}),
        mlps=() if running is None else running.mlps,
        algorithm=algorithm,
        variables=FrozenDict(placed),
        stand_ins=tuple(dict.fromkeys(_stand_ins(explanation))),
    )


def _placed(alignment: Alignment) -> Iterator[tuple[str, str]]:
    """The place of each variable: one between the embedding and the output, where one carries it."""
    for one in alignment.variables:
        if one.place is not None:
            yield one.name, one.place if one.between is None else one.between.place


def _stand_ins(explanation: Explanation) -> Iterator[tuple[str, ...]]:
    for part in explanation.components:
        for claim in part.claims:
            if claim.kind in STAND_INS and claim.verdict == "supported" and claim.prediction is not None:
                others = claim.prediction.get(STAND_INS[claim.kind]) or []
                if not isinstance(others, list) or not all(isinstance(one, str) for one in others):
                    raise BadInput(
                        f"explanation of {part.id}: a claim {claim.kind!r} names {quoted(others, 60)} as its other "
                        "components; a list of names is expected"
                    )
                if others:
                    yield tuple(sorted({part.id, *others}))


def null_of(proposal: Proposal, specimen: Specimen, *, seed: int) -> Proposal:
    """The same components, variables and numbers of stand-ins with everything else drawn at random: for each head a
    program of as many rules, for each variable another position and any layer, and pairs of any components.
    """
    rng = random.Random(f"null/{seed}")
    rules = _rules(specimen, seed)
    pairs = pairs_among([*proposal.programs, *proposal.mlps])
    wanted = min(len(proposal.stand_ins), len(pairs))
    return Proposal(
        programs=FrozenDict({head: _random(text, rules, rng) for head, text in proposal.programs.items()}),
        mlps=proposal.mlps,
        algorithm=proposal.algorithm,
        variables=FrozenDict(_elsewhere(proposal, specimen, rng)),
        stand_ins=tuple(rng.sample(pairs, wanted)),
    )


def _rules(specimen: Specimen, seed: int) -> list[str]:
    """The rules that some prompts of the behaviour give."""
    material = trial(specimen, 4, seed=seed, split=TRYING)
    return library([Tokens.of(specimen, material.batch, len(bos_of(specimen)))])


def _random(text: str, rules: Sequence[str], rng: random.Random) -> str:
    """As many rules as a program has, without its own, with weights of the same sizes."""
    program = parse_program(text)
    own = set(program.rules)
    others = [rule for rule in rules if rule not in own] or [BOS]
    weights = [weight for _, weight in (program.then or program.other)][: len(others)]
    drawn = rng.sample(others, len(weights))
    total = sum(weights)
    return " + ".join(
        f"{rule} {weight:.2f}"
        for rule, weight in mixture({rule: one / total for rule, one in zip(drawn, weights, strict=True)})
    )


def _elsewhere(proposal: Proposal, specimen: Specimen, rng: random.Random) -> dict[str, str]:
    """Each variable at a random layer between the embedding and the output, at another role than it is said to be: what
    stands at a role stays there for many layers, so that another layer would often do.
    """
    if not proposal.variables:
        return {}
    sources = sources_of(specimen, behaviour_of(specimen), TRYING, n=1, seed=0)
    roles = sorted({role for case in sources.cases(1, "null") for role in case.base.roles})
    layers = range(1, max(2, specimen.model.config.n_layers))
    made = {}
    for name, place in proposal.variables.items():
        own = place.partition("@")[2]
        others = [role for role in roles if role not in own.split("+")] or roles
        made[name] = f"resid{rng.choice(layers)}@{rng.choice(others)}"
    return made
