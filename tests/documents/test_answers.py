"""The first line of results: Yes, Partly or No by rule, and the command to run next."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vesalius.documents.answers import (
    HALF_WIDTH,
    Effect,
    agreement_answer,
    beyond_chance,
    cells_answer,
    effects_answer,
    groups_answer,
    kept_answer,
    names_answer,
    program_answer,
    ranked_answer,
    replaced_answer,
)
from vesalius.documents.claims import Evidence
from vesalius.documents.metric import Metric
from vesalius.documents.performance import Contrast
from vesalius.documents.request import Request
from vesalius.documents.whole import MORE

EMPTY = Contrast(
    full=Metric(value=3.6, low=3.0, high=4.2, n=28),
    replaced=Metric(value=4.2, low=3.5, high=4.9, n=28),
    range=Metric(value=-0.6, low=-1.0, high=0.2, n=28),
    against=0.6,
    unit="logits",
    verdict="empty",
)
figures = st.floats(-5, 5, allow_nan=False)


def metric(value: float, low: float | None, high: float | None, n: int = 16) -> Metric:
    return Metric(value=value, low=low, high=high, n=n)


@st.composite
def metrics(draw: st.DrawFn) -> Metric:
    low, value, high = sorted(draw(st.tuples(figures, figures, figures)))
    return metric(value, low, high, draw(st.integers(2, 64)))


def swept(values: np.ndarray) -> list[Effect]:
    """The effects of a sweep, prompt by component, with the intervals that resampling the prompts tends to."""
    means, half = values.mean(axis=0), HALF_WIDTH * values.std(axis=0) / len(values) ** 0.5
    return [(f"L{i}H0", float(m), float(m - h), float(m + h)) for i, (m, h) in enumerate(zip(means, half, strict=True))]


@pytest.mark.parametrize("heavy", [False, True])
def test_pure_noise_is_rarely_called_an_effect(heavy: bool) -> None:
    random = np.random.default_rng(5)
    draw = random.laplace if heavy else random.normal
    noise = [swept(draw(size=(16, 300))) for _ in range(300)]
    clear = np.mean([sum(one[2] > 0 or one[3] < 0 for one in effects) for effects in noise])  # type: ignore[operator]
    assert clear > 15  # what a reader of single intervals would have believed
    assert sum(bool(beyond_chance(effects, 16)) for effects in noise) <= 300 * 0.08


def test_an_effect_far_from_noise_is_found() -> None:
    values = np.random.default_rng(6).normal(size=(16, 300))
    values[:, 7] += 3
    assert [one[0] for one in beyond_chance(swept(values), 16)] == ["L7H0"]


def test_few_prompts_need_larger_effects() -> None:
    """At t = 10 two prompts (one degree of freedom) leave 6 % to chance, and 16 prompts next to nothing."""
    for n, found in ((2, 0), (16, 1)):
        half = HALF_WIDTH * ((n - 1) / n) ** 0.5 * 0.1
        assert len(beyond_chance([("L0H0", 1.0, 1.0 - half, 1.0 + half)], n)) == found


def test_the_words_of_a_sweep() -> None:
    clear: Effect = ("L1H2", 0.97, 0.92, 1.0)
    nothing: Effect = ("L0H0", 0.1, -0.2, 0.4)
    near: Effect = ("L0H1", 0.3, 0.01, 0.6)

    def said(*effects: Effect, n: int = 16, contrast: Contrast | None = None) -> str:
        return str(effects_answer(effects, "frac_prevs", kind="zero", n=n, contrast=contrast))

    assert said(clear, nothing) == (
        "Yes: 1 of 2 components changes the score beyond chance (zero ablation, 16 prompts of frac_prevs): "
        "L1H2 +0.97 [+0.92, +1]"
    )
    assert said(nothing).startswith("No: none of 1 component changes the score beyond chance")
    assert said(near, nothing).startswith("Partly: 1 of 2 components has an effect whose interval is clear of 0")
    assert said(("L1H2", 0.97, None, None), n=1).startswith("Partly: one prompt of frac_prevs gives no intervals")
    assert said(clear, contrast=EMPTY).startswith("No: nothing can be said of frac_prevs: the contrast is empty")
    assert said(("L0H0", 0.0, 0.0, 0.0)).endswith("largest: all are 0")


@given(metrics(), st.sampled_from([None, "raises the answer"]), st.sampled_from([None, EMPTY]))
def test_a_replacement_is_said_to_matter_only_where_its_interval_is_clear_of_0(
    effect: Metric, acts: str | None, contrast: Contrast | None
) -> None:
    assert effect.low is not None
    assert effect.high is not None
    said = replaced_answer(effect, "1 -> 0", "L1H2", acts=acts, contrast=contrast)
    clear = contrast is None and not effect.low <= 0 <= effect.high
    assert said.verdict == ("no" if not clear else "yes" if effect.n >= 6 else "partly")


def test_one_prompt_is_never_more_than_partly() -> None:
    assert replaced_answer(metric(0.9, None, None, 1), "1 -> 0.1", "L1H2", acts=None, contrast=None).verdict == "partly"


@pytest.mark.parametrize(("n", "verdict"), [(2, "partly"), (5, "partly"), (6, "yes"), (16, "yes")])
def test_a_few_prompts_that_agree_exactly_are_not_beyond_chance(n: int, verdict: str) -> None:
    """Scores in shares of outputs are often equal on all prompts, whose interval then has no width. Six coins show one
    side in 1 of 32 throws, five in 1 of 16.
    """
    said = replaced_answer(metric(1.0, 1.0, 1.0, n), "1 -> 0", "L0_MLP", acts=None, contrast=None)
    assert said.verdict == verdict
    others: list[Effect] = [(f"L1H{i}", 0.0, 0.0, 0.0) for i in range(9)]
    swept = effects_answer([("L0_MLP", 1.0, 1.0, 1.0), *others], "frac_prevs", kind="zero", n=n)
    assert swept.verdict == verdict


@given(metrics(), st.sampled_from([None, 0.1, 0.5]))
def test_a_set_keeps_a_share_only_where_its_figure_and_interval_do(kept: Metric, random: float | None) -> None:
    said = kept_answer("5 of 10 keep it", kept, keep=0.8, random=random)
    value, low, high = kept.value or 0.0, kept.low or 0.0, kept.high or 0.0
    if said.verdict == "yes":
        assert 0.7 <= low <= value <= high <= 1.3
        assert 0.8 <= value <= 1.2
        assert (kept.n >= 8, random != 0.5) == (True, True)
    assert (said.verdict == "no") == (high < 0.8 or low <= 0)


def test_a_set_that_chance_would_match_is_no_circuit() -> None:
    kept = metric(0.9, 0.85, 0.95)
    assert kept_answer("s", kept, keep=0.8, random=0.1).verdict == "yes"
    assert str(kept_answer("s", kept, keep=0.8, random=0.5)) == "Partly: s, but as many at random keep 0.50"
    little = metric(0.13, 0.05, 0.22)  # where 0.01 was asked for
    assert kept_answer("s", little, keep=0.01, random=0.12).verdict == "partly"
    assert kept_answer("s", little, keep=0.01, random=0.01).verdict == "yes"


@pytest.mark.parametrize(
    ("value", "low", "high", "supported", "verdict"),
    [
        (1.0, 0.996, 1.0, 2, "yes"),
        (1.0, 0.996, 1.0, 1, "partly"),  # one of two components is not established
        (0.96, 0.94, 0.97, 2, "partly"),  # the interval reaches below 0.95
        (0.80, 0.77, 0.82, 2, "no"),
        (1.0, 0.996, 1.0, 0, "no"),  # a table of all inputs would agree too
    ],
)
def test_a_program_explains_a_circuit_that_it_agrees_with(
    value: float, low: float, high: float, supported: int, verdict: str
) -> None:
    agreement = Evidence(
        experiment="program", measure="agreement", value=value, low=low, high=high, n=1000, seed=0, rule="all"
    )
    said = program_answer("It counts.", agreement, supported=supported, components=2)
    assert said.verdict == verdict
    assert said.text.startswith(f"It counts. Its program agrees with the model on {value:.3f} [")
    assert program_answer("It counts.", None, supported=supported, components=2).verdict in ("partly", "no")


def test_the_next_command_is_about_the_same_model_and_behaviour() -> None:
    asked = Request(
        command="sweep",
        specimen="my model",
        behaviour="past tense.jsonl",
        options={"kind": "resample", "n": 4, "dtype": "bfloat16"},
        seed=3,
    )
    assert asked.followed_by("discover") == (
        "vesalius discover 'my model' --behaviour 'past tense.jsonl' --dtype bfloat16"
    )
    assert (
        asked.with_options(n=8)
        == asked.model_copy(update={"options": {"kind": "resample", "n": 8, "dtype": "bfloat16"}}).command_line()
    )
    given_in_python = asked.model_copy(update={"options": {"material": "0a1b"}})
    assert given_in_python.followed_by("discover") is None
    assert given_in_python.with_options(n=8) is None


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (None, "vesalius what-if frac_prevs --n 8"),
        ("induction", "vesalius what-if frac_prevs --behaviour induction --n 8"),
        (
            "addition:answers=0..99,shots=0",
            "vesalius what-if frac_prevs --behaviour addition:answers=0..99,shots=0 --n 8",
        ),
        ('{"prompt": "a"}', 'vesalius behaviours frac_prevs --behaviour \'{"prompt": "a"}\''),
        ("my rows.jsonl", "vesalius behaviours frac_prevs --behaviour 'my rows.jsonl'"),  # it may have no more
    ],
)
def test_more_prompts_are_asked_for_where_there_are_more(behaviour: str | None, said: str) -> None:
    asked = Request(command="what-if", specimen="frac_prevs", behaviour=behaviour, options={"n": 2})
    assert asked.on_more_prompts(2) == said


def test_a_share_whose_interval_holds_0_is_a_no_and_so_is_an_empty_contrast() -> None:
    wide = metric(0.9, -0.2, 2.0)
    said = kept_answer("5 neurons keep 0.9", wide, keep=0.8, random=0.0)
    assert str(said) == f"No: 5 neurons keep 0.9, but that holds 0: {MORE} or another contrast"
    assert (
        kept_answer("s", metric(0.9, 0.85, 0.95), keep=0.8, random=0.0, empty="the contrast is empty").verdict == "no"
    )


def test_scores_without_a_circuit_are_a_part_of_an_answer_at_most() -> None:
    assert ranked_answer("3 of 9", empty=None, doubt="nothing was checked").verdict == "partly"
    said = ranked_answer("3 of 9", empty="the contrast is empty", doubt="nothing was checked")
    assert str(said) == "No: 3 of 9, but the contrast is empty"


@pytest.mark.parametrize(
    ("named", "unmeasured", "verdict"),
    [(0, False, "no"), (4, False, "partly"), (5, False, "yes"), (10, True, "partly")],
)
def test_standard_names_describe_a_model_from_half_of_its_heads_on(named: int, unmeasured: bool, verdict: str) -> None:
    assert names_answer("named", named, 10, unmeasured=unmeasured).verdict == verdict


def test_a_survey_says_yes_only_where_every_cell_is_performed() -> None:
    assert [cells_answer("cells", performed, 4).verdict for performed in (0, 1, 4)] == ["no", "partly", "yes"]
    assert cells_answer("cells", 0, 0).verdict == "no"


def test_heads_stand_in_for_each_other_where_prompts_are_enough_and_it_is_known_how() -> None:
    def verdict(groups: int = 1, n: int = 32, *, known: bool = True, empty: str | None = None) -> str | None:
        return groups_answer("they do", n, groups=groups, known=known, complete=True, empty=empty).verdict

    assert (verdict(), verdict(known=False), verdict(n=5)) == ("yes", "partly", "partly")  # 2 ** -4 is chance
    assert (verdict(0), verdict(empty="the contrast is empty")) == ("no", "no")
    early = groups_answer("none", 32, groups=0, known=False, complete=False, empty=None)
    assert str(early) == "No: none before the budget ended (--budget)"


def test_a_model_agrees_only_where_it_was_compared_and_every_limit_was_reached() -> None:
    verdicts = [agreement_answer("it", agrees, unreached=False).verdict for agrees in (True, None, False)]
    assert verdicts == ["yes", None, "no"]
    assert agreement_answer("it", True, unreached=True).verdict == "partly"
