"""The rule that says Yes, Partly or No of a circuit, on figures written by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vesalius.documents.metric import Metric
from vesalius.documents.view import Facts
from vesalius.documents.whole import Says, WholeCircuit, WithMLPs, answer, first_doubt, sections


def _metric(value: float, low: float | None = None, high: float | None = None, n: int = 32) -> Metric:
    return Metric(
        value=value, low=value - 0.05 if low is None else low, high=value + 0.05 if high is None else high, n=n
    )


def _whole(**changes: object) -> WholeCircuit:
    fields = {
        "method": "eap-ig",
        "tried": (),
        "keep": 0.8,
        "most": 60,
        "candidates": 300,
        "found": True,
        "components": tuple(f"L{i}H0" for i in range(30)),
        "edges": ("input->a0.h0<v>",),
        "connected": True,
        "kept": _metric(0.87),
        "elsewhere": _metric(0.84),
        "random": _metric(0.01),
        "stable": 0.8,
        "curve": (),
        "n_rank": 32,
        "n_choose": 16,
        "forwards": 1.0,
        "seconds": 1.0,
    }
    return WholeCircuit.model_validate({**fields, **changes})


def test_a_circuit_that_meets_every_condition_is_a_yes() -> None:
    said = answer(_whole(), "greater-than")
    assert said.verdict == "yes"
    assert said.text == (
        "30 of 300 components keep 0.87 [0.82, 0.92] of greater-than on 32 prompts that chose nothing, the "
        "rest replaced from the counterfactual prompts, 0.84 [0.79, 0.89] on other templates"
    )


def test_of_given_components_it_is_not_said_that_the_prompts_chose_nothing() -> None:
    """They may have been found on these very rows."""
    said = answer(_whole(method="given"), "sums")
    assert said.text.startswith("30 of 300 components keep 0.87 [0.82, 0.92] of sums on 32 prompts, the rest replaced")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kept": _metric(0.75, 0.65, 0.85)}, "less than 0.8"),
        ({"kept": _metric(1.6, 1.5, 1.7)}, "more than 1.2"),
        ({"kept": _metric(1.01, 0.72, 1.55)}, "too wide"),
        ({"kept": _metric(0.85, 0.65, 1.0)}, "too wide"),
        ({"elsewhere": _metric(0.5)}, "0.50 on other templates"),
        ({"random": _metric(0.45)}, "random circuits"),
        (
            {"keep": 0.01, "kept": _metric(0.13, 0.05, 0.22), "elsewhere": None, "random": _metric(0.12)},
            "random circuits",
        ),
        ({"stable": 0.3}, "halves of the prompts"),
        ({"candidates": 59}, "more than half of the model"),
        ({"kept": _metric(1.0, 1.0, 1.0, n=7)}, "7 prompts are too few to report"),
        ({"n_rank": 3, "stable": None}, "3 prompts are too few to rank"),
        ({"shared": "the same prompts ranked, chose and report"}, "the same prompts"),
    ],
)
def test_each_condition_that_fails_makes_it_partly_and_is_named(changes: dict[str, object], words: str) -> None:
    said = answer(_whole(**changes), "ioi")
    assert said.verdict == "partly"
    assert words in said.text


def test_prompts_that_chose_are_not_said_to_have_chosen_nothing() -> None:
    shared = _whole(shared="the same prompts ranked, chose and report: give more rows", n_rank=6)
    assert "chose nothing" not in answer(shared, "sums").text
    facts = sections(shared)[0]
    assert isinstance(facts, Facts)
    assert dict(facts.rows)["kept"].endswith("on 32 prompts that ranked and chose as well")


def test_what_keeps_enough_here_is_not_said_to_keep_too_little() -> None:
    """None was found by two standard errors on the choosing prompts; the first of the order keep enough on others."""
    said = answer(_whole(found=False, reached=40, kept=_metric(0.98)), "sums")
    assert said.verdict == "no"
    assert "keeps 0.8 of sums for certain where it is chosen (30 keep 0.98 [0.93, 1.03] on 32 prompts" in said.text


def test_the_second_answer_with_all_mlps_stands_beside_a_partly() -> None:
    said = answer(_whole(stable=0.3, with_mlps=WithMLPs(heads=20, kept=_metric(1.14))), "ioi")
    assert said.text.endswith("with all MLPs kept, 20 heads keep 1.14 [1.09, 1.19]")


def test_a_figure_just_below_a_bar_does_not_look_equal_to_it() -> None:
    """0.7996 is not "0.80 ... but that is less than 0.8"."""
    below = answer(_whole(kept=_metric(0.7996)), "ioi").text
    assert "keep 0.7996 [0.7496, 0.8496] of ioi" in below
    assert "but that is less than 0.8" in below
    assert "keep 0.80 [0.75, 0.85]" in answer(_whole(kept=_metric(0.8)), "ioi").text
    above = answer(_whole(kept=_metric(1.2004)), "ioi").text
    assert "keep 1.2004 [1.1504, 1.2504]" in above
    wide = answer(_whole(kept=_metric(0.87, 0.6999, 0.92)), "ioi").text
    assert "[0.6999, 0.9200]" in wide
    assert "inside [0.7, 1.3]" in wide
    assert "0.599 on other templates" in answer(_whole(elsewhere=_metric(0.599)), "ioi").text
    assert "similarity 0.499)" in answer(_whole(stable=0.499), "ioi").text


@pytest.mark.parametrize("kept", [_metric(0.87), _metric(0.75, 0.65, 0.85), _metric(0.4, 0.3, 0.5)])
def test_the_first_line_says_how_often_the_circuit_alone_says_the_right_answer(kept: Metric) -> None:
    """To keep 0.87 of a difference of logits is not to be right on 0.87 of the prompts."""
    says = Says(alone=Metric.of_share(3, 32), model=Metric.of_share(30, 32))
    plain, with_says = answer(_whole(kept=kept), "ioi"), answer(_whole(kept=kept, says=says), "ioi")
    assert with_says.verdict == plain.verdict
    assert with_says.text == (
        f"{plain.text}; alone they say the right answer on 0.09 [0.03, 0.24] of the prompts, the whole model on 0.94"
    )
    facts = sections(_whole(kept=kept, says=says))[0]
    assert isinstance(facts, Facts)
    assert dict(facts.rows)["says it"] == says.text()


def test_a_weak_contrast_allows_partly_at_most() -> None:
    assert first_doubt(_whole()) is None
    assert answer(_whole(), "ioi", weak="the contrast is weak").verdict == "partly"


def test_no_circuit_within_the_limit_is_a_no_with_the_size_that_does() -> None:
    said = answer(_whole(found=False, reached=124, kept=_metric(0.46)), "induction")
    assert (said.verdict, said.text) == (
        "no",
        "no circuit of up to 60 of 300 components keeps 0.8 of induction (30 keep 0.46 [0.41, 0.51]; 124 do), the rest "
        "replaced from the counterfactual prompts",
    )


def test_a_circuit_that_fails_clearly_on_other_prompts_is_a_no() -> None:
    said = answer(_whole(kept=_metric(-0.08, -1.45, 0.23)), "addition")
    assert said.verdict == "no"
    assert "keep -0.08 [-1.45, 0.23] on 32 other prompts" in said.text


def test_an_interval_that_holds_0_is_a_no_with_what_to_do() -> None:
    """Addition on SmolLM2, which read "Partly"."""
    said = answer(_whole(kept=_metric(0.60, -0.94, 2.90)), "addition")
    assert (said.verdict, said.text) == (
        "no",
        "it cannot be said that 30 of 300 components keep anything of addition: 0.60 [-0.94, 2.90] on 32 prompts holds "
        "0, the rest replaced from the counterfactual prompts; use more prompts (--n, or more rows of "
        "your own) or another contrast",
    )


def test_one_prompt_without_an_interval_is_a_no() -> None:
    said = answer(_whole(kept=Metric(value=1.0, low=None, high=None, n=1)), "ioi")
    assert said.verdict == "no"
    assert "1.00 on 1 prompt has no interval" in said.text
    assert answer(_whole(found=False, kept=Metric(value=0.98, low=None, high=None, n=1)), "ioi").text.startswith(
        "it cannot"
    )


def test_an_empty_contrast_is_a_no_however_much_is_kept() -> None:
    said = answer(_whole(), "past tense", weak="the contrast is empty", empty="the contrast is empty")
    assert (said.verdict, said.text) == ("no", "nothing can be said of past tense: the contrast is empty")


@given(
    ends=st.tuples(*[st.floats(-3, 3) for _ in range(3)]),
    n=st.integers(1, 64),
    found=st.booleans(),
    empty=st.booleans(),
    stable=st.none() | st.floats(0, 1),
    random=st.floats(-1, 1),
    bare=st.booleans(),
)
def test_nothing_is_a_yes_or_partly_whose_interval_holds_0_or_whose_contrast_is_empty(
    ends: tuple[float, float, float],
    n: int,
    found: bool,
    empty: bool,
    stable: float | None,
    random: float,
    bare: bool,
) -> None:
    low, value, high = sorted(ends)
    kept = Metric(value=value, low=None if bare else low, high=None if bare else high, n=n)
    whole = _whole(kept=kept, found=found, stable=stable, random=_metric(random))
    doubt = "the contrast is empty" if empty else None
    verdict = answer(whole, "x", weak=doubt, empty=doubt).verdict
    if empty or bare or low <= 0 or not found:
        assert verdict == "no"
    if verdict == "yes":
        assert low >= 0.7
        assert 0.8 <= value <= 1.2
        assert high <= 1.3
