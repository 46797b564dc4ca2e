"""*Necessary* in natural models: replacements are made until two show it, against controls that do not matter."""

from itertools import product
from typing import get_args

import pytest
import torch

import vesalius as ves
from tests.behaviours.word_tokenizer import word_tokenizer
from tests.explanations.induction_model import as_specimen, induction_model, with_late_switch
from vesalius.components import Component
from vesalius.documents.explanation import ClaimRecord, Evidence
from vesalius.explanations.claims import Necessary, check
from vesalius.explanations.claims.base import MIN_EFFECT, above, first_interval, mean_evidence
from vesalius.explanations.claims.necessary import (
    SHOWN_LEVEL,
    _is_settled,
    _needs_controls,
    _verdict,
    effect_bar,
    is_inert,
    measure_necessary,
    order_of,
    shows_early,
)
from vesalius.explanations.laboratory import FIRST_LOOK, NaturalLab, Replacement
from vesalius.model import Transformer

SIZE = word_tokenizer().size
KINDS = {"zero replacement", "mean replacement", "resample replacement", "moved replacement"}
#: Every bar that controls can make.
BARS = torch.linspace(MIN_EFFECT, 2 * MIN_EFFECT, 51).tolist()
PREVIOUS, INDUCTION, SWITCH = Component(0, 0), Component(1, 0), Component(0, 1)


def lab_of(model: Transformer, *circuit: Component) -> NaturalLab:
    return NaturalLab.draw(as_specimen(model), n=12, circuit=circuit)


def by_kind(record: ClaimRecord) -> dict[str, Evidence]:
    return {one.experiment: one for one in record.evidence}


@pytest.mark.parametrize("head", ["L0H0", "L1H0"])
def test_heads_of_the_circuit_are_necessary_by_every_replacement(head: str) -> None:
    lab = lab_of(induction_model(SIZE), PREVIOUS, INDUCTION)
    kinds: tuple[Replacement, ...] = get_args(Replacement)
    records = [check(Necessary(component=head, replacement=kind), lab) for kind in kinds]
    assert [record.verdict for record in records] == ["supported"] * 4
    shown = by_kind(check(Necessary(component=head), lab))
    assert set(shown) == {"resample replacement", "mean replacement"}, "no more are made than it takes"
    assert all(one.passed for one in shown.values()), shown
    assert all(
        "interval above 0.05" in one.rule and "the least effect that counts" in one.rule for one in shown.values()
    )


def test_components_are_measured_until_their_verdict_is_known() -> None:
    lab = lab_of(induction_model(SIZE, junk=0.0), PREVIOUS, INDUCTION, Component(1, 3))
    assert measure_necessary(lab, [PREVIOUS, INDUCTION, Component(1, 3)]) == [Component(1, 3)]
    cost = lab.cost.rows
    verdicts = [check(Necessary(component=name), lab).verdict for name in ("L0H0", "L1H0", "L1H3")]
    assert verdicts == ["supported", "supported", "refuted"]
    assert lab.cost.rows == cost, "the claims need no run of their own"


def test_a_first_look_and_the_rest_are_one_measurement() -> None:
    pieces, whole = (lab_of(induction_model(SIZE), PREVIOUS, INDUCTION) for _ in range(2))
    for kind in whole.replacements:
        first = pieces.first_effect([PREVIOUS], kind)
        assert first is not None
        assert len(first) == FIRST_LOOK
        assert torch.allclose(pieces.effect([PREVIOUS], kind), whole.effect([PREVIOUS], kind), atol=1e-4)
        assert torch.allclose(first, whole.effect([PREVIOUS], kind)[:FIRST_LOOK], atol=1e-4)


def test_a_head_of_the_position_alone_is_necessary_though_resampling_does_nothing() -> None:
    lab = lab_of(with_late_switch(SIZE), PREVIOUS, INDUCTION, SWITCH)
    record = check(Necessary(component="L0H1"), lab)
    shown = by_kind(record)
    assert record.verdict == "supported"
    # The counterfactual has the same length, so its value at the same position is the same.
    assert shown["resample replacement"].value == pytest.approx(0.0, abs=1e-3)
    zeros = check(Necessary(component="L0H1", replacement="zero"), lab).evidence[0].value
    assert zeros is not None
    assert zeros > 0.5
    assert shown["moved replacement"].value is not None
    assert shown["moved replacement"].value > 0.1
    assert not is_inert(record.evidence)
    assert check(Necessary(component="L0H1", replacement="resample"), lab).verdict == "refuted"


def test_a_strong_component_outside_the_circuit_is_no_control_and_the_rule_says_so() -> None:
    lab = lab_of(induction_model(SIZE), INDUCTION)
    for kind in lab.replacements:
        bar = effect_bar(lab, INDUCTION, kind)
        assert "L0H0 matters too much to be a control" in bar.rule
        assert "L0H0" not in bar.controls
        assert bar.rule.startswith("interval above 0.05")
        assert all(abs(value or 0.0) <= 0.05 for value in bar.controls.values())


@pytest.mark.parametrize("half_width", [0.01, 0.03, 0.1])
def test_controls_are_run_only_where_one_bar_supports_and_another_does_not(half_width: float) -> None:
    lab = lab_of(induction_model(SIZE), INDUCTION)
    needed = []
    for centre in torch.arange(-0.1, 0.3, 0.013).tolist():
        effects = torch.linspace(centre - 2 * half_width, centre + 2 * half_width, 12)
        evidence = mean_evidence(lab, "", measure="", values=effects, level=0.95, rule="")
        needed.append(len({above(evidence, bar) == "supported" for bar in BARS}) > 1)
        assert _needs_controls(lab, effects, 0.95) == needed[-1], evidence
    assert set(needed) == {True, False}


def test_no_replacement_is_made_that_cannot_change_the_verdict() -> None:
    lab = lab_of(induction_model(SIZE), INDUCTION)
    kinds = order_of(lab)
    figures = [(0.1, True), (0.1, None), (0.08, False), (0.01, None), (0.01, False)]
    some = mean_evidence(lab, "", measure="", values=torch.zeros(12), level=0.95, rule="")
    outcomes = [some.model_copy(update={"value": value, "passed": passed}) for value, passed in figures]
    for made in range(1, len(kinds)):
        for evidence in product(outcomes, repeat=made):
            later = product(outcomes, repeat=len(kinds) - made)
            verdicts = {_verdict(lab, [*evidence, *more], kinds) for more in later}
            assert _is_settled(lab, evidence, kinds) == (len(verdicts) == 1), evidence
            assert not _is_settled(lab, evidence, kinds) or verdicts == {_verdict(lab, evidence, kinds)}


def test_no_bar_of_a_natural_model_exceeds_twice_the_least_effect() -> None:
    lab = lab_of(induction_model(SIZE), INDUCTION)
    for kind in lab.replacements:
        for head in (PREVIOUS, INDUCTION, SWITCH):
            assert MIN_EFFECT <= effect_bar(lab, head, kind).value <= 2 * MIN_EFFECT


def test_a_second_replacement_shows_on_a_few_prompts_and_needs_no_controls() -> None:
    lab = lab_of(induction_model(SIZE), PREVIOUS, INDUCTION)
    shown = by_kind(check(Necessary(component="L1H0"), lab))
    assert (shown["resample replacement"].n, shown["mean replacement"].n) == (12, FIRST_LOOK)
    assert not shown["mean replacement"].controls
    early = shows_early(lab, INDUCTION, "moved")
    assert early is not None
    assert first_interval(early, level=SHOWN_LEVEL)[0] > MIN_EFFECT
    assert shows_early(lab, Component(1, 3), "moved") is None


def test_the_interval_of_a_few_prompts_is_students() -> None:
    """Six values 1 to 6: mean 3.5, standard error 0.7638, and 2.5706 is the 97.5 % quantile of t with 5 degrees."""
    lab = lab_of(induction_model(SIZE), INDUCTION)
    evidence = mean_evidence(lab, "", measure="", values=torch.arange(1.0, 7.0), level=0.95, rule="")
    assert (evidence.value, evidence.low, evidence.high) == (3.5, 1.5367, 5.4633)


def test_the_figure_of_necessary_is_of_all_prompts_though_a_first_look_shows_more() -> None:
    lab = lab_of(induction_model(SIZE), PREVIOUS, INDUCTION)
    first, second = check(Necessary(component="L0H0"), lab).evidence
    assert (first.n, second.n) == (12, FIRST_LOOK)
    assert (second.value or 0.0) > (first.value or 0.0)


@pytest.mark.slow
def test_inert_is_said_only_where_all_four_replacements_do_nothing() -> None:
    model = induction_model(SIZE, junk=0.0)
    explanation = ves.explain(as_specimen(model), ["L0H0", "L1H0", "L1H3"], n=8, no_ladder=True)
    part = next(part for part in explanation.components if part.id == "L1H3")
    (record,) = [claim for claim in part.claims if claim.kind == "necessary"]
    assert record.verdict == "refuted"
    assert {one.experiment for one in record.evidence} == KINDS
    assert {one.value for one in record.evidence} == {0.0}
    assert "It is inert here" in part.note
    for words in ("zeros", "its mean", "its values on other prompts", "its values at other positions"):
        assert words in part.note
    assert not is_inert(record.evidence[:3]), "one kind is missing"


def test_a_moved_output_is_that_of_another_position_of_the_same_prompt() -> None:
    lab = lab_of(induction_model(SIZE), PREVIOUS, INDUCTION)
    moves = lab._moves
    tokens, bos = lab.source.tokens, lab.model.config.bos_token
    places = torch.arange(moves.shape[1])
    assert all(sorted(row.tolist()) == places.tolist() for row in moves), "every output is used once"
    real = tokens != bos if lab.source.mask is None else lab.source.mask & (tokens != bos)
    assert bool((moves != places)[real].all()), "none stays"
    assert bool((moves == places)[~real].all()), "BOS and padding do"


def test_a_batch_of_replacements_gives_what_each_gives_alone() -> None:
    model = induction_model(SIZE)
    together, alone = (lab_of(model, PREVIOUS, INDUCTION) for _ in range(2))
    heads = [[head] for head in (PREVIOUS, INDUCTION, SWITCH)]
    together.measure(heads, together.replacements)
    for kind in together.replacements:
        for head in heads:
            assert torch.allclose(together.effect(head, kind), alone.effect(head, kind), atol=1e-4)
