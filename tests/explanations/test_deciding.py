"""Which measure decides a claim, and that tokens are exchanged on purpose: rules on values written by hand."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.looks import AS_ASKED, LOST, RULES, Look, joint_errors

from tests.behaviours.word_tokenizer import word_tokenizer
from tests.explanations.induction_model import as_specimen, induction_model
from vesalius.components import Component
from vesalius.explanations.claims import Attends, MovesRole, SmallPart, check
from vesalius.explanations.claims.attending import PUT_IN
from vesalius.explanations.claims.base import either
from vesalius.explanations.claims.necessary import MOST_SMALL, costs_nothing
from vesalius.explanations.laboratory import NaturalLab, growing_lab
from vesalius.explanations.natural.grouping import lower_end_of

INDUCTION = "L1H0"
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def spread(mean: float, n: int, *, width: float = 0.01) -> torch.Tensor:
    """Values with exactly this mean and hardly any spread."""
    return torch.tensor([mean - width, mean + width] * (n // 2))


def answers(lost: int, n: int) -> torch.Tensor:
    return torch.tensor([1.0] * lost + [0.0] * (n - lost))


@pytest.mark.parametrize(
    ("score", "lost", "look", "verdict"),
    [
        (0.20, 0, 1, "supported"),  # by the score
        (0.00, 12, 2, "supported"),  # by the answers: 12 of 24
        (0.00, 0, 1, "refuted"),
        (0.00, 1, 2, "refuted"),  # 1 of 24 decides nothing by itself, and does not speak against the score
        (0.00, 2, 2, "undecided"),  # 2 of 24 lie above the bar
        (0.00, 1, 0, "undecided"),  # 8 answers say nothing
        (0.05, 0, 1, "undecided"),  # the score lies at the bar, whatever the answers say
    ],
)
def test_a_loss_is_shown_by_either_measure_and_refuted_by_the_score(
    score: float, lost: int, look: int, verdict: str
) -> None:
    lab = Look(look)
    values = (spread(score, lab.n), answers(lost, lab.n))
    found, evidence = either(lab, "e", values, dict, least=0.05, level=0.95)
    assert found == verdict
    assert [one.measure for one in evidence] == ["effect", "right answers lost"]
    assert all(one.rule.endswith("either shows it, and the score refutes it") for one in evidence)


def test_that_nothing_is_lost_needs_both_measures_and_either_refutes_it() -> None:
    part, lab = Component(0, 0), Look(7)
    for score, lost, verdict in (
        (0.0, 0, "supported"),
        (0.0, 4, "undecided"),
        (0.2, 0, "refuted"),
        (0.0, 40, "refuted"),
    ):
        lab.draws, lab.given = {"zero": spread(score, lab.n)}, answers(lost, lab.n)
        assert costs_nothing(lab, part, ["zero"], level=0.95)[0] == verdict, (score, lost)
    few = Look(2)
    few.draws, few.given = {"zero": spread(0.0, few.n)}, answers(0, few.n)
    assert costs_nothing(few, part, ["zero"], level=0.95)[0] == "undecided"  # none lost of 24 may be an eighth


@pytest.mark.parametrize(
    ("effect", "verdict"),
    [
        (0.10, "supported"),
        (0.02, "supported"),
        (0.0, "undecided"),
        (-0.1, "refuted"),
        (0.149, "undecided"),
        (0.3, "refuted"),
    ],
)
def test_a_small_part_lies_between_nothing_and_three_times_the_least(effect: float, verdict: str) -> None:
    lab = Look(2)
    lab.draws = {"resample": spread(effect, lab.n)}
    found, (low, high) = SmallPart(component="L0H0").examine(lab, level=0.95)
    assert found == verdict
    assert (low.bar, high.bar) == (0.0, MOST_SMALL)
    assert (low.low, low.high) == (high.low, high.high)


def test_no_joint_rule_errs_more_than_it_says() -> None:
    """As recorded by the benchmark: each claim with its true figures at the bar, where every decision is wrong."""
    recorded = json.loads((RESULTS / "looks.json").read_text())["joint"]
    assert recorded["repetitions"] == 1000
    as_asked = {f"{AS_ASKED}, {share:.0%} of answers lost" for share in LOST}
    assert all(set(rules) == {*RULES, *as_asked} for rules in recorded["noise"].values())
    for rule, found in recorded["noise"]["normal"].items():
        assert found["supported"]["value"] <= 0.05, rule
        assert found["refuted"]["value"] <= 0.05, rule


def test_the_benchmark_runs_the_rules_themselves() -> None:
    found = joint_errors(1)["noise"]["normal"]
    assert all(sum(share["value"] for share in shares.values()) == 1 for shares in found.values())


def test_a_screening_subtracts_a_standard_error() -> None:
    values = torch.tensor([0.0, 0.2, 0.4, 0.6])
    assert lower_end_of(values) == pytest.approx(0.3 - math.sqrt(np.var([0, 0.2, 0.4, 0.6], ddof=1) / 4))
    assert lower_end_of(torch.tensor([0.5])) == 0.5


@pytest.fixture(scope="module")
def lab() -> NaturalLab:
    return NaturalLab.draw(as_specimen(induction_model(word_tokenizer().size)), 16)


@pytest.mark.slow
def test_a_token_that_changes_nothing_is_followed_by_others(lab: NaturalLab) -> None:
    """The twin tries every value that the role has in the draw, one plain run each: a prompt is without a change only
    where six further tokens, those at its other roles first, change nothing.
    """
    role = next(iter(lab.prompts.roles))
    place, rows = lab.place(role), torch.arange(lab.n)
    clean = lab.model(lab.prompts.tokens)[rows, lab.prompts.position].argmax(-1)
    corrupted = lab.corrupted(role)
    tokens = corrupted._batch.tokens
    changed = lab.model(tokens)[rows, lab.prompts.position].argmax(-1) != clean
    assert torch.equal(changed, corrupted.differs)
    assert bool((tokens[rows, place] != lab.prompts.tokens[rows, place]).all())
    elsewhere = torch.ones_like(tokens, dtype=torch.bool).scatter_(1, place[:, None], False)
    assert torch.equal(tokens[elsewhere], lab.prompts.tokens[elsewhere])
    values = lab.prompts.tokens[rows, place].unique()
    assert set(tokens[rows, place].tolist()) <= set(values.tolist())
    possible = torch.zeros(lab.n, dtype=torch.bool)
    for value in values:
        other = lab.prompts.tokens.clone()
        other[rows, place] = value
        possible |= lab.model(other)[rows, lab.prompts.position].argmax(-1) != clean
    first = own = lab.prompts.tokens[rows, place]
    for step in range(1, lab.n):
        first = torch.where(first == own, own.roll(-step), first)
    once = lab.prompts.tokens.clone()
    once[rows, place] = first
    by_the_first = lab.model(once)[rows, lab.prompts.position].argmax(-1) != clean
    assert bool((by_the_first <= changed).all())
    assert bool((changed <= possible).all())
    assert torch.equal(tokens[by_the_first], once[by_the_first])


def test_the_places_of_another_prompt_are_a_control_where_they_differ() -> None:
    """A role that sits at the same place in every prompt would be compared with itself, so it is moved instead."""
    lab = growing_lab(as_specimen(induction_model(word_tokenizer().size)), 32)
    fixed = [role for role, target in lab.answer_targets.items() if bool((target == target[:1]).all())]
    own = [role for role in fixed if role in lab.prompts.roles]
    for role in own:
        record = check(Attends(component=INDUCTION, role=role), lab)
        assert "places of another prompt" not in record.evidence[0].controls
        assert (record.evidence[-1].experiment == PUT_IN) or record.verdict != "supported"
    moving = next(role for role in lab.prompts.roles if role not in fixed and role in lab.answer_targets)
    record = check(Attends(component=INDUCTION, role=moving), lab)
    assert "places of another prompt" in record.evidence[0].controls
    assert MovesRole.tested_in is NaturalLab
