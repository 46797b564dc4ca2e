"""Heads that back each other up in the arithmetic model: proposed on one pool, decided on another, held to the key."""

import re
from typing import Any

import pytest
from benchmarks.plain_claims import PlainCheck
from benchmarks.planted_lens import PLANTED, arithmetic_with_planted_head

from vesalius.api import explain, load
from vesalius.components import Component
from vesalius.documents.explanation import Explanation
from vesalius.errors import BadInput
from vesalius.explanations.claims import (
    BackupOf,
    Claim,
    LensOnly,
    MovesRole,
    Necessary,
    Primary,
    Redundant,
    Together,
    WritesAnswer,
    base,
    check,
    movers,
    necessary,
)
from vesalius.explanations.laboratory import NaturalLab
from vesalius.explanations.natural.grouping import Groups, propose_groups
from vesalius.model.specimen import Specimen
from vesalius.progress import silent
from vesalius_truth.key.other_keys import established_roles

KEY = established_roles()
A = tuple(KEY["groups"]["A"]["members"])
ZEROED: dict[str, Any] = {"replacement": "zero", "at": "end"}


@pytest.fixture(scope="module")
def arithmetic() -> Specimen:
    return load("arithmetic", device="cpu")


@pytest.fixture(scope="module")
def lab(arithmetic: Specimen) -> NaturalLab:
    """The heads of layers 0 and 1 are the circuit; those of layer 2 serve as controls."""
    circuit = [part for part in arithmetic.components if part.is_head and part.layer < 2]
    return NaturalLab.draw(arithmetic, n=128, circuit=circuit)


@pytest.fixture(scope="module")
def groups(arithmetic: Specimen) -> Groups:
    pool = NaturalLab.draw(arithmetic, 8, seed=0, split="train")
    return propose_groups(pool, [part for part in arithmetic.components if part.is_head], silent)


@pytest.mark.parametrize("letter", ["A", "B", "C"])
def test_heads_that_move_one_operand_are_grouped(groups: Groups, letter: str) -> None:
    """Every member moves that operand by the key, and the strongest movers of the key are members."""
    members = set(map(str, groups.members[f"operand {letter}"]))
    gained = {name: one["logits gained"][letter] for name, one in KEY["components"].items() if "H" in name}
    strongest = sorted(gained, key=lambda name: -gained[name])[:3]
    assert set(strongest) <= members
    assert all(gained[name] > 2 for name in members)


def test_every_member_is_proposed_to_stand_in_for_others(groups: Groups) -> None:
    heads = {member for members in groups.members.values() for member in members}
    assert set(groups.joint) == heads
    for head, found in groups.joint.items():
        for one in found:
            assert set(one.others) < set(groups.members[one.role or ""])
            assert head not in one.others
            assert set(one.others) <= groups.alike()[head]
    assert str(groups.primary["operand B"].head) == "L0H3"


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        (MovesRole(component="L0H3", role="operand B"), "supported"),
        (MovesRole(component="L0H3", role="operand C"), "refuted"),
        (MovesRole(component="L1H0", role="operand A"), "supported"),
        (MovesRole(component="L1H0", role="operand C"), "refuted"),
        (MovesRole(component="L2H0", role="operand A"), "refuted"),
        (Primary(component="L0H3", role="operand B", over=("L0H0", "L0H5")), "supported"),
        (Primary(component="L0H5", role="operand B", over=("L0H0", "L0H3")), "refuted"),
        (Primary(component="L1H0", role="operand A", over=("L1H1", "L1H2")), "refuted"),
        (Redundant(component="L0H2", others=("L0H1", "L0H4"), **ZEROED), "supported"),
        (Redundant(component="L0H0", others=("L0H3",), **ZEROED), "supported"),
        (Redundant(component="L1H0", others=tuple(name for name in A if name != "L1H0"), **ZEROED), "supported"),
        # The primary mover acts alone, and so do the two that move the same: none of them is a backup.
        (BackupOf(component="L0H3", of=("L0H0", "L0H5"), **ZEROED), "refuted"),
        (BackupOf(component="L0H0", of=("L0H3",), **ZEROED), "refuted"),
        (BackupOf(component="L0H5", of=("L0H0", "L0H3"), **ZEROED), "refuted"),
        (BackupOf(component="L1H0", of=tuple(name for name in A if name != "L1H0"), **ZEROED), "refuted"),
        (BackupOf(component="L2H2", of=("L0H1", "L0H4"), **ZEROED), "refuted"),
        (Redundant(component="L0H0", others=("L1H1", "L1H2"), **ZEROED), "refuted"),
        (Together(component="L1H0", others=tuple(name for name in A if name != "L1H0"), **ZEROED), "supported"),
        (Together(component="L2H0", others=("L2H1", "L2H2"), **ZEROED), "refuted"),
        (Necessary(component="L0H2", replacement="zero"), "refuted"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.kind}-{value.component}",
)
def test_claims_about_groups(lab: NaturalLab, claim: Claim, verdict: str) -> None:
    assert check(claim, lab).verdict == verdict


def test_hooks_alone_replace_by_what_the_sentence_of_a_joint_claim_names(arithmetic: Specimen, lab: NaturalLab) -> None:
    """Zeros at the answer in place of two heads cost more than their sum, values of other prompts everywhere do not."""
    plain = PlainCheck(arithmetic, 128)
    zeros, others = (Together(component="L0H0", others=("L0H3", "L0H5"), **how) for how in (ZEROED, {}))
    assert check(zeros, lab).verdict == "supported"
    assert plain.outcome("together", zeros.text) == "holds"
    assert check(others, lab).verdict == "undecided"
    assert plain.outcome("together", others.text) == "borderline"
    whole = Together(component="L1H0", others=tuple(name for name in A if name != "L1H0"))
    assert check(whole, lab).verdict == "supported"
    assert plain.outcome("together", whole.text) == "holds"


@pytest.mark.parametrize("kind", [Primary, BackupOf, Together, Redundant])
def test_others_must_be_others(lab: NaturalLab, kind: type) -> None:
    fields = {"primary": {"role": "operand A", "over": ["L1H0"]}, "backup_of": {"of": ["L1H0"]}}
    name = kind.model_fields["kind"].default
    with pytest.raises(BadInput, match=f"{name} L1H0: name one or more other components"):
        check(kind(component="L1H0", **fields.get(name, {"others": []})), lab)


def test_a_planted_head_that_the_lens_shows_is_not_called_causal() -> None:
    planted = arithmetic_with_planted_head()
    lab = NaturalLab.draw(planted, n=96, circuit=[Component.parse(PLANTED), Component(2, None)])
    assert check(WritesAnswer(component=PLANTED), lab).verdict == "supported"
    assert check(LensOnly(component=PLANTED), lab).verdict == "supported"
    assert check(Necessary(component=PLANTED), lab).verdict == "refuted"
    assert check(LensOnly(component="L2_MLP"), lab).verdict == "refuted"
    assert check(LensOnly(component="L3H1"), lab).verdict == "refuted"  # it writes nothing


@pytest.mark.slow
def test_the_built_in_scientist_names_the_established_roles(arithmetic: Specimen) -> None:
    """Every operand's route is named, no head that backs another up is called necessary, and hooks alone confirm every
    supported claim on other prompts.
    """
    explanation = explain(arithmetic, n=128, no_ladder=True)
    roles = {part.id: part.role or "" for part in explanation.components}
    assert roles["L0H3"] == "primary mover of operand B"
    for letter in "ABC":
        named = [name for name, role in roles.items() if f"operand {letter}" in role]
        assert len(named) >= 3
        assert all(KEY["components"][name]["logits gained"][letter] > 2 for name in named)
    heads = [name for name in roles if "H" in name and name != "L0H3"]
    assert all(re.search("redundant (mover|carrier) of operand", roles[name]) for name in heads)
    for part in explanation.components:
        stand = {claim.kind for claim in part.claims if claim.verdict == "supported"}
        assert not {"necessary", "not_needed_alone"} <= stand
        assert "backup_of" not in stand
    plain = PlainCheck(arithmetic, 128)
    false = [
        claim.text
        for part in explanation.components
        for claim in part.claims
        if claim.verdict == "supported" and plain.holds(claim.kind, claim.text, claim.prediction) is not True
    ]
    assert false == []


@pytest.mark.slow
def test_the_planted_head_gets_its_role() -> None:
    (planted,) = explain(arithmetic_with_planted_head(), [PLANTED], n=128, no_ladder=True).components
    assert planted.role == "lens-positive but redundant"


@pytest.mark.parametrize("seed", [0, 3])
def test_controls_that_are_left_out_would_change_nothing_that_is_supported(
    arithmetic: Specimen, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Beside a run with every control and every replacement. *Not needed alone* takes the mean where zeros were not
    put in, so its sentence may be another.
    """
    names = ["L0H3", "L1H2", "L1H3", "L0_MLP", "L2H1"]
    fewer = explain(arithmetic, names, n=16, seed=seed, no_ladder=True)
    for module in (base, movers):
        monkeypatch.setattr(module, "exceeds", lambda *values, **options: True)
    monkeypatch.setattr(necessary, "_needs_controls", lambda *values: True)
    monkeypatch.setattr(necessary, "_is_settled", lambda lab, shown, kinds: necessary._shows(lab, shown, least=2))
    every = explain(arithmetic, names, n=16, seed=seed, no_ladder=True)
    assert supported_in(fewer) == supported_in(every)
    assert [part.role for part in fewer.components] == [part.role for part in every.components]
    assert (fewer.rows or 0) < (every.rows or 0)


def supported_in(explanation: Explanation) -> set[str]:
    """The sentences of supported claims, but those that a part is not needed alone."""
    claims = [claim for part in explanation.components for claim in part.claims]
    return {claim.text for claim in claims if claim.verdict == "supported" and claim.kind != "not_needed_alone"}
