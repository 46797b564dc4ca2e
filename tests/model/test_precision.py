"""Where half precision is slow a model is kept in float32, with a sentence, and results name the format."""

import json
from pathlib import Path

import pytest
import torch

import vesalius as ves
from tests.models import random_model, small_config
from vesalius.errors import Note
from vesalius.model import precision
from vesalius.model.states import save_model


@pytest.fixture
def half(tmp_path: Path) -> Path:
    model = random_model(small_config())
    save_model(model.to(torch.bfloat16), tmp_path / "half")
    return tmp_path / "half"


def test_a_slow_format_is_exchanged_with_a_sentence_and_named(half: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "slowness", lambda dtype: 86.0)
    with pytest.warns(Note, match="kept in float32.*bfloat16 is 86 times slower"):
        specimen = ves.load(half, device="cpu")
    assert {weight.dtype for weight in specimen.model.parameters()} == {torch.float32}
    assert specimen.dtype == "float32"
    stored = ves.load(half, dtype="float32", device="cpu").model
    tokens = torch.arange(5)[None]
    assert torch.equal(specimen.model(tokens), stored(tokens))


def test_a_format_that_was_asked_for_stays_and_is_remarked_on(half: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "slowness", lambda dtype: 86.0)
    with pytest.warns(Note, match="86 times slower.*--dtype float32"):
        specimen = ves.load(half, dtype="bfloat16", device="cpu")
    assert specimen.model.W_E.dtype == torch.bfloat16


@pytest.mark.filterwarnings("error")
def test_a_fast_format_stays_as_it_is_and_is_named(half: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "slowness", lambda dtype: 1.9)
    specimen = ves.load(half, device="cpu")
    assert (specimen.model.W_E.dtype, specimen.dtype) == (torch.bfloat16, "bfloat16")


def test_weights_stay_where_float32_would_not_fit(half: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "slowness", lambda dtype: 86.0)
    monkeypatch.setattr(precision, "available_bytes", lambda device: 10)
    with pytest.warns(Note, match="more than there is free"):
        assert ves.load(half, device="cpu").model.W_E.dtype == torch.bfloat16


def test_the_ratio_is_measured_once_for_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VESALIUS_CACHE", str(tmp_path))
    measured: list[torch.dtype] = []
    monkeypatch.setattr(precision, "measured", lambda dtype: measured.append(dtype) or 3.0)
    assert [precision.slowness(torch.bfloat16) for _ in "ab"] == [3.0, 3.0]
    assert precision.format_in_use(torch.bfloat16, "cpu") == torch.float32
    assert measured == [torch.bfloat16]
    precision.slowness(torch.float16)
    file = tmp_path / precision.FILE
    assert json.loads(file.read_text())["ratios"] == {"bfloat16": 3.0, "float16": 3.0}
    monkeypatch.setattr(precision, "_processor", lambda: "another")
    precision.slowness(torch.bfloat16)
    file.write_text("[]")
    precision.slowness(torch.bfloat16)
    assert len(measured) == 4


def test_a_product_in_half_precision_can_be_measured() -> None:
    assert 0.01 < precision.measured(torch.bfloat16) < 10_000
