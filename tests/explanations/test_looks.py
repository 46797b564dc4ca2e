"""A growing laboratory: what it measures on more prompts is what one laboratory on all of them measures, nothing is run
twice, and a claim stops at the first look that decides it.
"""

import numpy as np
import pytest
import torch

from tests.behaviours.word_tokenizer import word_tokenizer
from tests.explanations.induction_model import as_specimen, induction_model
from vesalius.components import Component
from vesalius.documents.claims import TOO_CLOSE
from vesalius.documents.explanation import Evidence
from vesalius.explanations.claims import Attends, Necessary, ReadsFrom, Uses, WritesAnswer, check
from vesalius.explanations.claims.base import may_decide, mean_evidence
from vesalius.explanations.laboratory import CLAIM_SEED, END, GrowingLab, NaturalLab, growing_lab

PREVIOUS, INDUCTION = Component(0, 0), Component(1, 0)
SIZE = word_tokenizer().size


def first_look(most: int = 32, *circuit: Component) -> GrowingLab:
    lab = growing_lab(as_specimen(induction_model(SIZE)), most, circuit=circuit)
    assert isinstance(lab, GrowingLab)
    return lab


@pytest.fixture(scope="module")
def both() -> tuple[GrowingLab, NaturalLab]:
    """The second look, and one laboratory on the same 16 prompts."""
    lab = first_look()
    second = list(lab.looks())[1]
    plain = NaturalLab.on(as_specimen(lab.model), lab._material.take(slice(16)), seed=CLAIM_SEED, circuit=())
    return second, plain


def test_a_look_has_the_first_prompts_of_the_draw() -> None:
    looks = list(first_look(40).looks())
    assert [look.n for look in looks] == [8, 16, 24, 32, 40]
    for look in looks:
        assert torch.equal(look.prompts.tokens, looks[-1].prompts.tokens[: look.n])
        assert torch.equal(look.clean_scores, looks[-1].clean_scores[: look.n])
    few = growing_lab(as_specimen(induction_model(SIZE)), 6)
    assert not isinstance(few, GrowingLab)
    assert [one.n for one in few.looks()] == [6]


@pytest.mark.parametrize("part", [PREVIOUS, INDUCTION])
def test_two_parts_measure_what_one_laboratory_does(both: tuple[GrowingLab, NaturalLab], part: Component) -> None:
    """Means and moved outputs are those of a part, so resampling and zeros are compared."""
    second, plain = both
    assert second.scale == pytest.approx(plain.scale, rel=1e-5)

    def same(first: torch.Tensor, other: torch.Tensor) -> None:
        assert torch.allclose(first, other, atol=1e-4)

    same(second.effect([part], "resample"), plain.effect([part], "resample"))
    same(second.effect([part], "zero"), plain.effect([part], "zero"))
    same(second.at_role(part), plain.at_role(part))
    same(second.path(part, None), plain.path(part, None))
    same(second.path(part, None, n=5), plain.path(part, None, n=5))
    same(second.lens(part), plain.lens(part))
    same(second.pattern(part), plain.pattern(part))
    same(second.mass(part, second.target("induction")), plain.mass(part, plain.target("induction")))
    for one, other in zip(second.losses([part], "resample", END), plain.losses([part], "resample", END), strict=True):
        same(one, other)
    target = second.target("previous")
    asked = target.any(-1)
    same(second.without_keys(part, target, positions=asked), plain.without_keys(part, target, positions=asked))
    role = next(iter(second.prompts.roles))
    for one, other in zip(second.cut([part], role, END), plain.cut([part], role, END), strict=True):
        same(one.score, other.score)


def test_what_was_run_is_not_run_again() -> None:
    lab = first_look(16)
    looks = list(lab.looks())
    target = [look.target("previous") for look in looks]

    def ask(place: int) -> float:
        look, before = looks[place], lab.cost.rows
        look.effect([INDUCTION], "resample")
        look.at_role(INDUCTION)
        look.path(PREVIOUS, INDUCTION)
        look.answers([[PREVIOUS]], "resample", END)
        look.cut([INDUCTION], next(iter(look.prompts.roles)), END)
        look.without_keys(PREVIOUS, target[place], positions=target[place].any(-1))
        look.scores_attending(PREVIOUS, look.pattern(PREVIOUS))
        return lab.cost.rows - before

    first, again, second = ask(0), ask(0), ask(1)
    assert first > 0
    assert again == 0
    assert second == pytest.approx(first, rel=0.25), "the second look adds as many prompts as the first has"
    assert ask(1) == 0


def test_a_clear_claim_stops_at_the_first_look_and_says_its_prompts() -> None:
    lab = first_look(128, PREVIOUS, INDUCTION)
    for claim in (
        Necessary(component="L1H0"),
        Attends(component="L1H0", role="induction"),
        Uses(component="L1H0", role="induction"),
        WritesAnswer(component="L1H0"),
    ):
        record = check(claim, lab)
        assert record.verdict == "supported", record
        assert {one.n for one in record.evidence} == {8}, record
    # All of its attention lies there, on every prompt alike: equal values are looked at twice.
    reads = check(ReadsFrom(component="L0H0", offset=1), lab)
    assert (reads.verdict, {one.n for one in reads.evidence[:2]}) == ("supported", {16})


class Noisy:
    """A claim whose values are given, to see at which look it stops."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = torch.from_numpy(values)
        self.seen: list[int] = []

    def evidence(self, lab: GrowingLab) -> Evidence:
        self.seen.append(lab.n)
        values = self.values[: lab.n]
        return mean_evidence(lab, "e", measure="m", values=values, level=0.95, rule="r", bar=0.0)

    def run(self, lab: GrowingLab) -> Evidence:
        one, following = self.evidence(lab), lab.following
        if one.passed is not None or following is None or not may_decide([one], lab):
            return one
        return self.run(following)


@pytest.mark.parametrize(
    ("shift", "stops", "passed"),
    [(3.0, {8}, True), (-3.0, {8}, False), (0.7, {16, 24, 32, 48}, True), (0.0, {16, 24, 32, 48, 64}, None)],
)
def test_prompts_are_drawn_until_decided_or_hopeless(shift: float, stops: set[int], passed: bool | None) -> None:
    lab = first_look(128)
    noise = np.random.default_rng(5).normal(size=128)
    claim = Noisy(noise - noise[:64].mean() + shift)
    one = claim.run(lab)
    assert claim.seen == [8, 16, 24, 32, 48, 64, 96, 128][: len(claim.seen)]
    assert one.n in stops
    assert one.passed is passed


def test_answers_none_of_which_is_lost_say_nothing_on_eight_prompts() -> None:
    looks = first_look(32).looks()
    intervals = [look.ends(torch.zeros(look.n), 0.95) for look in looks]
    assert all(np.isnan(intervals[0]))
    assert intervals[1] == (0.0, 0.0)


def test_what_stays_open_is_called_so() -> None:
    """A head that does next to nothing under the lens, with a bar put where its mean lies."""
    lab = first_look(24, PREVIOUS, INDUCTION)
    values = lab.at_least(24).effect([INDUCTION], "resample")

    class AtTheBar(Necessary, frozen=True):
        def examine(self, lab, *, level):
            own, bar = values[: lab.n], float(values[: lab.n].mean())
            one = mean_evidence(lab, "e", measure="m", values=own, level=level, rule="r", bar=bar)
            return "undecided", (one,)

    record = check(AtTheBar(component="L1H0"), lab)
    assert record.verdict == "undecided"
    (one,) = record.evidence
    assert one.outcome == TOO_CLOSE
    assert one.n == 16, "the mean stays at the bar, so that no further prompts are drawn"
    assert one.bar is not None
