"""What a sweep replaces components by: the usual kind of each model, and several side by side."""

import json
from pathlib import Path

import pytest

import vesalius as ves
from tests.behaviours.word_tokenizer import word_tokenizer
from tests.explanations.induction_model import as_specimen, induction_model
from vesalius.api.sweeps import sweep_report
from vesalius.behaviours.trial import Trial, trial
from vesalius.documents.sweep import Sweep, SweepRow, disagreement
from vesalius.documents.view import Sheet
from vesalius.errors import BadInput


def test_natural_models_are_resampled_as_in_discover_and_listed_ones_set_to_zero() -> None:
    natural = as_specimen(induction_model(word_tokenizer().size))
    usual, resampled = (sweep_report(natural, n=2, **kind) for kind in ({}, {"kind": "resample"}))
    assert (usual.kind, usual.request.options["kind"]) == ("resample", "resample")
    assert usual.components == resampled.components
    assert "resample ablation" in usual.view().answer.text
    assert sweep_report("frac_prevs", n=2).kind == "zero"


def test_several_kinds_stand_side_by_side(tmp_path: Path) -> None:
    kinds = ("mean", "zero", "resample")
    together = sweep_report("frac_prevs", n=8, kind="mean, zero,resample", out=tmp_path / "all")
    alone = {kind: sweep_report("frac_prevs", n=8, kind=kind) for kind in kinds}
    assert together.kind == "mean"
    assert together.components == alone["mean"].components
    assert dict(together.beside) == {kind: alone[kind].components for kind in kinds[1:]}
    assert together.forwards == pytest.approx(sum(one.forwards for one in alone.values()))
    read = Sweep.read(tmp_path / "all" / "sweep.json")
    assert read.beside == together.beside
    assert "beside" not in json.loads(alone["zero"].model_dump_json(by_alias=True))
    sheet = next(part for part in together.view().sections if getattr(part, "title", "").startswith("By replacement"))
    assert isinstance(sheet, Sheet)
    assert sheet.columns == ("component", *kinds, "disagree")
    again = sweep_report("frac_prevs", n=8, kind="mean,zero,resample", out=tmp_path / "all")
    assert again.components == together.components
    assert again.beside == together.beside
    with pytest.raises(BadInput, match="kind 'median' does not exist; choose one of"):
        ves.sweep("frac_prevs", n=2, kind="zero,median")


@pytest.mark.parametrize(
    ("intervals", "said"),
    [
        ([(0.1, 0.3), (0.2, 0.4)], ""),
        ([(-0.1, 0.3), (-0.2, 0.4)], ""),
        ([(0.1, 0.3), (-0.2, 0.4)], "only zero"),
        ([(-0.1, 0.3), (-0.4, -0.2)], "only mean"),
        ([(0.1, 0.3), (-0.4, -0.2)], "in sign"),
        ([(None, None), (0.1, 0.2)], ""),
    ],
)
def test_where_two_kinds_disagree(intervals: list, said: str) -> None:
    rows = [SweepRow(id="L0H0", effect=0.0, ci_low=low, ci_high=high) for low, high in intervals]
    assert disagreement(("zero", "mean"), rows) == said


def test_effects_of_two_answers_have_a_sign_for_each(tmp_path: Path) -> None:
    """A sweep and a what-if of the same prompts say the same, and the score is right minus wrong."""
    natural = as_specimen(induction_model(word_tokenizer().size))
    swept = sweep_report(natural, n=8, kind="zero", out=tmp_path / "swept")
    for row in swept.components:
        assert row.effect_right is not None
        assert row.effect_wrong is not None
        assert row.effect == pytest.approx(row.effect_right - row.effect_wrong, abs=1e-4)
    head = next(row for row in swept.components if row.id == "L1H0")
    asked = ves.what_if(natural, "L1H0", kind="zero", n=8)
    for side in ("right", "wrong", "rest"):
        metric = getattr(asked, f"effect_{side}")
        assert metric.value == pytest.approx(getattr(head, f"effect_{side}"), abs=1e-4)
        assert metric.low == pytest.approx(getattr(head, f"effect_{side}_low"), abs=1e-4)
    assert (head.acts, asked.acts) == ("raises the answer", "raises the answer")
    assert asked.view().answer.text.endswith("; what is replaced raises the answer")
    sheet = swept.view().sheet()
    assert {"right", "wrong", "rest", "acts"} <= set(sheet.columns)
    again = sweep_report(natural, n=8, kind="zero", out=tmp_path / "swept")  # from the scores kept there
    assert again.components == swept.components


def test_other_metrics_have_no_sides() -> None:
    natural = as_specimen(induction_model(word_tokenizer().size))
    drawn = trial(natural, 4).prompts
    assert drawn is not None
    prompts = drawn.with_metric("log-probability")
    material = Trial(prompts.batch, prompts.counterfactual_batch, prompts.readout(), prompts)
    by_probability = sweep_report(natural, kind="zero", material=material)
    for document in (by_probability, sweep_report("frac_prevs", n=4)):
        row = json.loads(document.model_dump_json(by_alias=True))["components"][0]
        assert set(row) == {"id", "effect", "ci_low", "ci_high"}
        assert "right" not in document.view().sheet().columns
    assert "effect_right" not in json.loads(ves.what_if("frac_prevs", "L0_MLP", n=4).model_dump_json())
