"""What a sweep replaces components by: the usual kind of each model, and several side by side."""

import json
from pathlib import Path

import pytest

import vesalius as ves
from tests.behaviours.word_tokenizer import word_tokenizer
from tests.explanations.induction_model import as_specimen, induction_model
from vesalius.documents.sweep import Sweep, SweepRow, disagreement
from vesalius.errors import BadInput


def test_natural_models_are_resampled_as_in_discover_and_listed_ones_set_to_zero() -> None:
    natural = as_specimen(induction_model(word_tokenizer().size))
    usual, resampled = (ves.api.sweep_report(natural, n=2, **kind) for kind in ({}, {"kind": "resample"}))
    assert (usual.kind, usual.request.options["kind"]) == ("resample", "resample")
    assert usual.components == resampled.components
    assert "resample ablation" in usual.view().answer.text
    assert ves.api.sweep_report("frac_prevs", n=2).kind == "zero"


def test_several_kinds_stand_side_by_side(tmp_path: Path) -> None:
    kinds = ("mean", "zero", "resample")
    together = ves.api.sweep_report("frac_prevs", n=8, kind="mean, zero,resample", out=tmp_path / "all")
    alone = {kind: ves.api.sweep_report("frac_prevs", n=8, kind=kind) for kind in kinds}
    assert together.kind == "mean"
    assert together.components == alone["mean"].components
    assert dict(together.beside) == {kind: alone[kind].components for kind in kinds[1:]}
    assert together.forwards == pytest.approx(sum(one.forwards for one in alone.values()))
    read = Sweep.read(tmp_path / "all" / "sweep.json")
    assert read.beside == together.beside
    assert "beside" not in json.loads(alone["zero"].model_dump_json(by_alias=True))
    sheet = next(part for part in together.view().sections if getattr(part, "title", "").startswith("By replacement"))
    assert sheet.columns == ("component", *kinds, "disagree")
    again = ves.api.sweep_report("frac_prevs", n=8, kind="mean,zero,resample", out=tmp_path / "all")
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
