"""The contrast of a behaviour: its range by hand, against a plain run of the counterfactual, and what is refused."""

import pytest
import torch

import vesalius as ves
from vesalius.behaviours.contrast import contrast_of, measure_contrast, replaced_scores, require_contrast
from vesalius.behaviours.trial import trial
from vesalius.errors import BadInput


def _tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_the_range_is_the_mean_difference_of_the_two_scores() -> None:
    contrast = contrast_of(_tensor(4, 5, 6, 5), _tensor(1, 1, 2, 0))
    assert (contrast.full.value, contrast.replaced.value, contrast.range.value) == (5.0, 1.0, 4.0)
    assert contrast.verdict == "clear"
    assert contrast.doubt is None


@pytest.mark.parametrize(
    ("full", "replaced", "verdict"),
    [
        ((3.6, 3.5, 3.7, 3.6), (4.2, 4.1, 4.3, 4.2), "reversed"),
        ((3.6, 3.5, 3.7, 3.6), (3.0, 4.1, 3.2, 4.2), "empty"),
        ((3.6, 3.5, 3.7, 3.6), (3.6, 3.5, 3.7, 3.6), "empty"),
        ((10.0, 10.0, 10.0, 10.0), (7.0, 7.1, 6.9, 7.0), "weak"),
        ((4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0), (0, 0, 0, 0, 0, 0, 4.1, 4.1, 4.1)[:8], "clear"),
        ((4.0,), (1.0,), "weak"),
        ((4.0,), (4.0,), "empty"),
    ],
)
def test_the_verdict_follows_the_interval_of_the_range(
    full: tuple[float, ...], replaced: tuple[float, ...], verdict: str
) -> None:
    assert contrast_of(_tensor(*full), _tensor(*replaced)).verdict == verdict


def test_random_tokens_break_everything_and_are_never_a_clear_contrast() -> None:
    full, replaced = _tensor(7.3, 7.2, 7.4, 7.3), _tensor(0.9, 1.0, 0.8, 1.1)
    assert contrast_of(full, replaced, source="given").doubt is None
    drawn = contrast_of(full, replaced, source="random tokens")
    assert (drawn.verdict, drawn.usable) == ("weak", True)
    assert str(drawn.doubt).startswith("the counterfactuals are random tokens")
    assert contrast_of(full, full, source="random tokens").verdict == "empty"


def test_outputs_that_agree_by_chance_do_not_make_a_contrast_weak() -> None:
    full, replaced = _tensor(*[1.0] * 8), _tensor(1.0, 1.0, 1.0, 0.5, 0.5, 0.75, 0.5, 0.75)
    assert contrast_of(full, replaced, unit="nats").verdict == "weak"
    assert contrast_of(full, replaced, unit="share of outputs").verdict == "clear"
    assert contrast_of(full, full, unit="share of outputs").verdict == "empty"


def test_an_empty_contrast_is_refused_in_one_line_with_both_scores() -> None:
    contrast = contrast_of(_tensor(3.6, 3.5, 3.7, 3.6), _tensor(4.2, 4.1, 4.3, 4.2), unit="logits", source="given")
    with pytest.raises(BadInput, match=r"behaviour past: the contrast is reversed: the score is 3\.60 .* and 4\.20"):
        require_contrast(contrast, "past")
    require_contrast(contrast, "past", force=True)


def test_two_prompts_with_a_large_range_lack_prompts_and_not_a_contrast() -> None:
    few = contrast_of(_tensor(80.0, 147.0), _tensor(-92.0, -144.0), unit="logits", source="given")
    assert (few.verdict, few.few) == ("empty", True)
    with pytest.raises(BadInput, match=r"past: 2 prompts are too few to show a contrast: .*; give at least 24 rows"):
        require_contrast(few, "past")
    assert not contrast_of(_tensor(80.0, 10.0), _tensor(-92.0, 20.0), unit="logits").few  # one of them is against it


def test_with_everything_replaced_the_arithmetic_model_does_what_it_does_on_the_counterfactual() -> None:
    specimen = ves.load("arithmetic")
    material = trial(specimen, 6)
    assert material.prompts is not None
    prompts = material.prompts
    same = (prompts.tokens == prompts.counterfactual)[torch.arange(6), prompts.position]
    assert bool(same.all())
    with torch.no_grad():
        logits = (
            specimen.model(prompts.counterfactual, mask=prompts.mask)[torch.arange(6), prompts.position].cpu().double()
        )
    rows = torch.arange(6)
    twin = logits[rows, prompts.correct] - logits[rows, prompts.wrong]
    full, replaced = replaced_scores(specimen.model, material)
    assert torch.allclose(replaced, twin, rtol=1e-4, atol=1e-3)
    assert measure_contrast(specimen.model, material).range.value == pytest.approx(
        float((full - twin).mean()), rel=1e-4
    )
