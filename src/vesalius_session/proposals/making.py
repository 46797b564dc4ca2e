"""Proposals from what was measured: that of a finished explanation, and a null with the right names."""

import random
from collections.abc import Iterator, Sequence

from vesalius.behaviours.registry import behaviour_of
from vesalius.behaviours.trial import trial
from vesalius.discovery.head_tests import bos_of
from vesalius.documents.alignment import Alignment
from vesalius.documents.base import FrozenDict
from vesalius.documents.explanation import Explanation
from vesalius.documents.proposal import Proposal
from vesalius.errors import BadInput, quoted
from vesalius.explanations.running import parse_program
from vesalius.explanations.running.programs import mixture
from vesalius.explanations.running.rules import BOS, Tokens, library
from vesalius.explanations.variables.algorithms import shipped
from vesalius.explanations.variables.sides import sources_of
from vesalius.model.specimen import Specimen
from vesalius_session.proposals.run import TRYING, pairs_among

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
