"""Typed claims about roles, on models whose heads are set by hand: what is true is supported, what is not is not."""

import itertools
from dataclasses import replace

import pytest
import torch

from tests.behaviours.word_tokenizer import word_tokenizer
from tests.explanations.induction_model import (
    ANSWER,
    POSITION,
    PREVIOUS,
    WIDTH,
    as_specimen,
    induction_model,
    with_late_switch,
)
from vesalius.behaviours import builtin as words
from vesalius.behaviours.natural import with_behaviour
from vesalius.behaviours.trial import Trial
from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.explanations.claims import (
    NATURAL_KINDS,
    BackupOf,
    Claim,
    Feeds,
    Hinders,
    Inhibits,
    LensOnly,
    MovesRole,
    ReadsRole,
    Redundant,
    Suppresses,
    Together,
    WritesAnswer,
    check,
    claim_from,
)
from vesalius.explanations.laboratory import NaturalLab
from vesalius.explanations.natural.ideas import Reading, reading_from

HEADS = [Component(1, head) for head in range(4)]


def laboratory(
    strengths: dict[int, float], *, norm: str = "none", metric: str | None = None, n: int = 16
) -> NaturalLab:
    specimen = as_specimen(induction_model(word_tokenizer().size, strengths=strengths, norm=norm))
    if metric is not None:
        specimen = with_behaviour(specimen, None, metric=metric)
    return NaturalLab.draw(specimen, n=n, seed=5, circuit=[Component(1, head) for head in strengths])


@pytest.fixture(scope="module")
def single() -> NaturalLab:
    """One induction head, L1H0, and a weak one against the answer, L1H1."""
    return laboratory({0: 1.0, 1: -0.3})


@pytest.fixture(scope="module")
def backups() -> NaturalLab:
    """Three induction heads behind a norm; any one of them is enough."""
    return laboratory({0: 1.0, 1: 1.0, 2: 1.0}, norm="rms")


@pytest.fixture(scope="module")
def saturated() -> NaturalLab:
    """A strong and a weak induction head, measured by probability, which the strong one alone brings to 1; on enough
    prompts to bound what none of them loses below a twentieth.
    """
    return laboratory({0: 2.0, 1: 0.4}, metric="probability", n=96)


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        (ReadsRole(component="L1H0", role="B"), "supported"),
        (ReadsRole(component="L1H0", role="first A"), "refuted"),
        (ReadsRole(component="L1H3", role="B"), "refuted"),
        (ReadsRole(component="L0H0", role="first A", query="B"), "supported"),
        (MovesRole(component="L1H0", role="B"), "supported"),
        # By the first A the head finds B: its attention depends on that token, what it moves does not.
        (MovesRole(component="L1H0", role="first A"), "refuted"),
        (MovesRole(component="L1H3", role="B"), "refuted"),
        (MovesRole(component="L0H0", role="B"), "refuted"),
        (Inhibits(component="L1H1"), "supported"),
        (Inhibits(component="L1H0"), "refuted"),
        # Without L0H0 it no longer works against the answer; it gains by that, and costs nothing.
        (BackupOf(component="L1H1", of=("L0H0",), replacement="zero"), "refuted"),
        (BackupOf(component="L1H1", of=("L0H0",)), "refuted"),
        (Together(component="L1H1", others=("L0H0",), replacement="zero"), "refuted"),
        (Redundant(component="L1H1", others=("L0H0",), replacement="zero"), "refuted"),
        (WritesAnswer(component="L1H0"), "supported"),
        (WritesAnswer(component="L1H1"), "refuted"),
        (LensOnly(component="L1H0"), "refuted"),
        (LensOnly(component="L1H3"), "refuted"),
        (Feeds(component="L0H0", receiver="L1H0"), "supported"),
        (Feeds(component="L0H0", receiver="L1H0", port="k"), "supported"),
        (Feeds(component="L0H0", receiver="L1H0", port="q"), "refuted"),
        (Feeds(component="L0H2", receiver="L1H0"), "refuted"),
        # Its path makes the head that works against the answer: it matters, against the answer.
        (Feeds(component="L0H0", receiver="L1H1"), "refuted"),
        (Hinders(component="L0H0", receiver="L1H1"), "supported"),
        (Hinders(component="L0H0", receiver="L1H0"), "refuted"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.kind}-{value.component}",
)
def test_of_one_induction_head(single: NaturalLab, claim: Claim, verdict: str) -> None:
    assert check(claim, single).verdict == verdict


def test_what_a_head_reads_is_proposed_where_it_acts(single: NaturalLab) -> None:
    """At B the previous-token head looks at the A before it, in every prompt; another head looks nowhere by half."""
    assert reading_from(single, Component(0, 0), "B") == Reading("first A", "previous", clear=True)
    assert reading_from(single, Component(1, 0), "second A") == Reading("B", "induction", clear=True)
    assert reading_from(single, Component(0, 1), "B") is None


def test_what_reads_a_role_cites_the_score_that_the_model_computes(single: NaturalLab) -> None:
    """Read off the model's own scores: that of B less the mean of the other keys, without BOS."""
    *_, cited = check(ReadsRole(component="L1H0", role="B"), single).evidence
    assert (cited.measure, cited.n, cited.passed) == ("score beyond other keys", 4, None)
    scores = single.model.run_with_cache(single.batch.tokens)[1]["blocks.1.attn.hook_attn_scores"][:, 0]
    expected = []
    for row in range(4):
        end, key = int(single.place("end")[row]), int(single.place("B")[row])
        others = [place for place in range(single.runs.first, end + 1) if place != key]
        expected.append(float(scores[row, end, key] - scores[row, end, others].mean()))
    assert cited.value == pytest.approx(sum(expected) / 4, abs=1e-3)


def test_a_redundant_head_shows_once_all_it_stands_in_for_are_replaced(backups: NaturalLab) -> None:
    """Any of three equal heads is enough: none acts alone, so none is a backup; all are mutually redundant."""
    zeroed = {"replacement": "zero"}
    assert check(Together(component="L1H2", others=("L1H0", "L1H1"), **zeroed), backups).verdict == "supported"
    assert check(Redundant(component="L1H2", others=("L1H0", "L1H1"), **zeroed), backups).verdict == "supported"
    assert check(BackupOf(component="L1H2", of=("L1H0", "L1H1"), **zeroed), backups).verdict == "refuted"
    assert check(Redundant(component="L1H3", others=("L1H0", "L1H1"), **zeroed), backups).verdict == "refuted"
    alone, then = (
        check(ReadsRole(component="L1H2", role="B", suppressed=suppressed), backups)
        for suppressed in ((), ("L1H0", "L1H1"))
    )
    assert then.verdict == "supported"
    assert then.text == "L1H2 reads B from end once L1H0 and L1H1 are zeroed."
    effects = [record.evidence[2].value or 0.0 for record in (alone, then)]
    assert effects[0] == 0.0  # alone no right answer is lost
    assert effects[1] > 0.8


def test_what_is_at_the_position_already_is_not_moved_there() -> None:
    """L1H1 attends to its own position and passes on what L0H1 brought there: the token before."""
    model = induction_model(word_tokenizer().size)
    first, second = (block.attn for block in model.blocks)
    with torch.no_grad():
        for weight in (second.W_Q, second.W_K, second.W_V):
            weight[1].zero_()
        second.W_Q[1][POSITION] = 60 * torch.eye(WIDTH)
        second.W_K[1][POSITION] = torch.eye(WIDTH)
        second.W_V[1][PREVIOUS] = torch.eye(WIDTH)
        second.W_O[1][:, ANSWER] = 2 * torch.eye(WIDTH)
        second.W_O[1][:, : ANSWER.start] = 0.0
        first.W_Q[1], first.W_K[1], first.W_V[1], first.W_O[1] = first.W_Q[0], first.W_K[0], first.W_V[0], first.W_O[0]
    rows = [
        {
            "prompt": " ".join(names),
            "answer": f" {names[2]}",
            "wrong": f" {names[0]}",
            "roles": {"before": f" {names[2]}"},
        }
        for names in itertools.islice(itertools.permutations(words.NAMES[:6], 4), 40)
    ]
    specimen = with_behaviour(as_specimen(model), rows)
    lab = NaturalLab.draw(specimen, n=16, seed=5, circuit=[Component(0, 1), Component(1, 1)])
    assert check(MovesRole(component="L0H1", role="before"), lab).verdict == "supported"
    assert check(MovesRole(component="L1H1", role="before"), lab).verdict == "refuted"


def test_what_a_head_moves_once_others_are_zeroed_is_asked_of_runs_without_them() -> None:
    """Without the switch that L0H1 writes at the end, the induction head attends to BOS and moves nothing."""
    specimen = as_specimen(with_late_switch(word_tokenizer().size))
    lab = NaturalLab.draw(specimen, n=16, seed=5, circuit=[Component(0, 1), Component(1, 0)])
    assert check(MovesRole(component="L1H0", role="B"), lab).verdict == "supported"
    assert check(MovesRole(component="L1H0", role="B", suppressed=("L0H1",)), lab).verdict == "refuted"
    assert check(MovesRole(component="L1H0", role="B", suppressed=("L0H2",)), lab).verdict == "supported"


def test_a_head_that_pushes_the_wrong_answer_down_is_no_mover() -> None:
    """L1H0 copies with a minus: asked for the other answer, all of the score is what it takes from the wrong one, and
    right minus wrong alone would call it the mover of the answer.
    """
    drawn = laboratory({0: -1.0}).prompts
    prompts = replace(drawn, correct=drawn.wrong, wrong=drawn.correct)
    material = Trial(prompts.batch, prompts.counterfactual_batch, prompts.readout(), prompts)
    model = induction_model(word_tokenizer().size, strengths={0: -1.0})
    lab = NaturalLab(model, material, seed=5, circuit=[Component(1, 0)])
    head = Component(1, 0)
    assert float(lab.lens(head).mean()) > 0.9
    assert lab.word(head) == "suppressor"
    assert check(WritesAnswer(component="L1H0"), lab).verdict != "supported"
    assert check(Suppresses(component="L1H0"), lab).verdict == "supported"
    assert check(Suppresses(component="L1H0", answer="right"), lab).verdict == "refuted"
    # The same by a plain zero of the head: the wrong logit rises, the right one stays where it was.
    rows = torch.arange(lab.n)

    def logits(scale: float) -> torch.Tensor:
        hook = ("blocks.1.attn.hook_z", lambda z, _: z * torch.tensor([scale, 1.0, 1.0, 1.0])[:, None])
        return model.run_with_hooks(prompts.tokens, mask=prompts.mask, fwd_hooks=[hook])[rows, prompts.position]

    lost, sides = logits(1.0) - logits(0.0), lab.sides([head], "zero")
    assert sides is not None
    torch.testing.assert_close(sides.right, lost[rows, prompts.correct], atol=1e-4, rtol=0)
    torch.testing.assert_close(sides.wrong, lost[rows, prompts.wrong], atol=1e-4, rtol=0)
    resampled = lab.sides([head], "resample")
    assert resampled is not None
    effect = lab.effect([head], "resample") * lab.scale
    torch.testing.assert_close(resampled.right - resampled.wrong, effect, atol=1e-4, rtol=0)


def test_direct_effects_on_the_sides_are_the_lens_of_their_tokens(single: NaturalLab) -> None:
    head, prompts, rows = Component(1, 0), single.prompts, torch.arange(single.n)
    sides = single.direct_sides(head)
    assert sides is not None
    written = single.runs.output_of(head, single.runs.values)[rows, prompts.position] @ single.model.W_U  # no norm
    kept = torch.ones_like(written, dtype=torch.bool)
    kept[rows, prompts.correct] = kept[rows, prompts.wrong] = False
    torch.testing.assert_close(sides.right, written[rows, prompts.correct], atol=1e-4, rtol=0)
    torch.testing.assert_close(sides.wrong, written[rows, prompts.wrong], atol=1e-4, rtol=0)
    torch.testing.assert_close(sides.rest, (written * kept).sum(1) / kept.sum(1), atol=1e-4, rtol=0)
    assert (single.word(head), single.word(Component(1, 1))) == ("mover", "suppressor of the answer")


def test_without_a_wrong_answer_there_are_no_sides(saturated: NaturalLab) -> None:
    head = Component(1, 0)
    assert saturated.direct_sides(head) is None
    assert saturated.sides([head], "zero") is None
    assert saturated.word(head) is None
    with pytest.raises(BadInput, match="metric probability has no wrong answer"):
        check(Suppresses(component="L1H0"), saturated)


def test_a_head_that_only_the_lens_shows_is_not_called_necessary(saturated: NaturalLab) -> None:
    record = check(LensOnly(component="L1H1"), saturated)
    assert record.verdict == "supported"
    assert [one.mark for one in record.evidence] == ["pass"] * len(record.evidence)
    assert check(LensOnly(component="L1H0"), saturated).verdict == "refuted"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"kind": "reads_role", "component": "L1H0"}, "role"),
        ({"kind": "computes", "component": "L1H0"}, "claim cannot be read"),
        ({"kind": "backup_of", "component": "L1H0", "of": ["X"]}, "X"),
        ([], "claim cannot be read"),
    ],
)
def test_a_claim_that_cannot_be_read_is_refused(data: object, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        claim_from(data, NATURAL_KINDS)


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        (ReadsRole(component="L1H0", role="verb"), "role 'verb'"),
        (ReadsRole(component="L1_MLP", role="B"), "has no attention"),
        (MovesRole(component="L1H0", role="verb"), "role 'verb' does not exist"),
        (MovesRole(component="L1_MLP", role="B"), "name a head"),
        (BackupOf(component="L1H0", of=("L1H0",)), "other components"),
        (BackupOf(component="L1H0", of=()), "other components"),
        (Feeds(component="L1H0", receiver="L0H0"), "later receiver"),
        (Feeds(component="L0H0", receiver="L1H0", port="mlp"), "has no input"),
        (Feeds(component="L0H0", receiver="L7H0"), "L7H0"),
    ],
)
def test_a_claim_about_what_is_not_there_is_refused(single: NaturalLab, claim: Claim, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        check(claim, single)


def test_a_weak_head_behind_a_strong_one_is_its_backup_and_not_the_other_way_round(saturated: NaturalLab) -> None:
    """By probability the weak head adds nothing to what the strong one brings to 1, and something once that is gone."""
    zeroed = {"replacement": "zero"}
    assert check(BackupOf(component="L1H1", of=("L1H0",), **zeroed), saturated).verdict == "supported"
    assert check(BackupOf(component="L1H0", of=("L1H1",), **zeroed), saturated).verdict == "refuted"
    assert check(Redundant(component="L1H1", others=("L1H0",), **zeroed), saturated).verdict == "refuted"
    assert check(Together(component="L1H1", others=("L1H0",), **zeroed), saturated).verdict == "supported"


def test_components_that_do_the_same_are_no_controls_of_each_other(single: NaturalLab) -> None:
    controls = single.matched(HEADS[0], k=12)
    single.alike[HEADS[0]] = frozenset(controls[:2])
    try:
        assert single.matched(HEADS[0], k=12) == controls[2:]
        assert controls[0] in single.matched(HEADS[3], k=12)
    finally:
        single.alike.clear()
