"""What if: replaced components against plain hooks on the same prompts, and documents that ask again."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import vesalius as ves
from vesalius.documents.experiments import WhatIf
from vesalius.errors import BadInput
from vesalius.model.specimen import Specimen
from vesalius.model.transformer import metered


@pytest.fixture(scope="module")
def specimen() -> Specimen:
    return ves.load("frac_prevs")


def test_zeroed_components_equal_plain_hooks(specimen: Specimen) -> None:
    result = ves.what_if(specimen, "L0_MLP,L1H2", n=6, seed=3)
    inputs = specimen.sample(6, 3)
    tokens = specimen.tokenize(inputs)

    def zero_head(z: torch.Tensor, hook: Any) -> torch.Tensor:
        z = z.clone()
        z[:, :, 2] = 0
        return z

    hooks = [("blocks.0.mlp.hook_post", lambda x, hook: torch.zeros_like(x)), ("blocks.1.attn.hook_z", zero_head)]
    with torch.no_grad():
        clean, edited = specimen.model(tokens), specimen.model.run_with_hooks(tokens, fwd_hooks=hooks)
    for row, given, before, after in zip(
        result.rows, inputs, specimen.decode(clean), specimen.decode(edited), strict=True
    ):
        assert row.prompt == " ".join(map(str, given))
        assert row.clean == pytest.approx([float(str(x)) for x in before[: len(given)]], abs=0.0051)
        assert row.edited == pytest.approx([float(str(x)) for x in after[: len(given)]], abs=0.0051)
    assert result.clean.value == pytest.approx(1.0)
    assert result.effect.value == pytest.approx(1.0 - (result.edited.value or 0.0))
    assert result.effect.n == 6


@pytest.mark.parametrize("kind", ["zero", "mean", "resample"])
def test_the_effect_is_that_of_a_sweep(specimen: Specimen, kind: str) -> None:
    for name in ("L1H2", "L0_MLP@1", "L0.mlp_out"):
        effects = ves.sweep(specimen, kind=kind, components=[name], n=8, seed=1)
        result = ves.what_if(specimen, name, kind=kind, n=8, seed=1)
        assert result.effect.value == pytest.approx(float(effects.mean[0]), abs=1e-6)


def test_patching_brings_the_other_prompts_answer(specimen: Specimen) -> None:
    """With what marks x taken from a prompt of x alone, the model counts x everywhere."""
    result = ves.what_if(specimen, ["L0_MLP"], kind="patch", prompt=["a", "x", "b"], source=["x", "x", "x"])
    (row,) = result.rows
    assert row.clean == pytest.approx([0.0, 0.5, 0.33], abs=0.011)
    assert row.edited == pytest.approx([1.0, 1.0, 1.0], abs=0.011)
    assert row.changed
    assert result.effect.low is None


def test_one_position_alone(specimen: Specimen) -> None:
    """Position 1 is the first token: the fraction of x changes there and in all later positions."""
    result = ves.what_if(specimen, ["L0_MLP"], kind="patch", at=1, prompt=["a", "a", "b"], source=["x", "x", "x"])
    assert result.rows[0].edited == pytest.approx([1.0, 0.5, 0.33], abs=0.02)


def test_a_saved_question_is_asked_again(specimen: Specimen, tmp_path: Path) -> None:
    first = ves.what_if("frac_prevs", "L1H2", kind="mean", n=5, seed=2, out=tmp_path / "a")
    file = tmp_path / "a" / "what_if.json"
    assert WhatIf.read(file).effect == first.effect
    again = ves.api.what_if_again(file)
    assert again.rows == first.rows
    assert again.request == first.request
    rerun = ves.rerun(first)
    assert isinstance(rerun, WhatIf)
    assert rerun.rows == first.rows
    own = ves.what_if(specimen, "L1H2", prompt=["x", "a"], out=tmp_path / "b")
    assert own.request.options["prompt"] == '["x", "a"]'
    assert ves.api.what_if_again(tmp_path / "b" / "what_if.json").rows == own.rows


def test_saved_answers_get_names_of_their_own(specimen: Specimen, tmp_path: Path) -> None:
    answer = ves.what_if(specimen, "L0_MLP,L1H2", n=2)
    hostile = answer.request.model_copy(update={"specimen": "../<b>/x", "behaviour": "a/../../b.jsonl"})
    files = [ves.api.save_what_if(answer.model_copy(update={"request": hostile}), tmp_path) for _ in range(2)]
    assert [file.parent.name for file in files] == [
        "b-x-a-b-jsonl-zero-L0_MLP-L1H2",
        "b-x-a-b-jsonl-zero-L0_MLP-L1H2-2",
    ]
    assert all(file.parent.parent == tmp_path for file in files)
    assert WhatIf.read(files[1]).rows == answer.rows
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be used as a directory"):
        ves.api.save_what_if(answer, tmp_path / "file")


def test_a_file_that_asks_something_else(specimen: Specimen, tmp_path: Path) -> None:
    answer = ves.what_if(specimen, "L0_MLP", n=2)
    wrong = {
        "not one of `vesalius what-if` .*'circuit'": {"circuit": "x"},
        "not one of `vesalius what-if` .*'components'": {"components": None},
        "does not name what it is about": {"specimen": None},
        "was asked by `vesalius explain`": {"command": "explain"},
    }
    for reason, changes in wrong.items():
        request = answer.request.model_copy(update=changes)
        answer.model_copy(update={"request": request}).write(tmp_path / "what_if.json")
        with pytest.raises(BadInput, match=f"^{re.escape(str(tmp_path))}.*{reason}"):
            ves.api.what_if_again(tmp_path)


def test_a_place_that_cannot_be_used_is_refused_before_the_work(
    specimen: Specimen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*_: object) -> None:
        raise AssertionError("began")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "vesalius-runs").write_text("")  # also root is refused here
    with metered(specimen.model, work):
        with pytest.raises(BadInput, match="results go to vesalius-runs by default; give another `out`"):
            ves.what_if(specimen, "L0_MLP", n=2, out=True)
        for out in ("x" * 300, "a\0b", "vesalius-runs"):
            with pytest.raises(BadInput, match="cannot be used as a directory"):
                ves.what_if(specimen, "L0_MLP", n=2, out=out)


def test_a_natural_model(tmp_path: Path) -> None:
    specimen = ves.load("arithmetic", behaviour="addition:signs=-+,high=99,shots=0")
    result = ves.what_if(specimen, ["L0_MLP"], n=4)
    assert len(result.rows[0].clean_likely) == 5
    assert result.rows[0].clean == result.rows[0].clean_likely[0].token
    assert 0 <= (result.changed.value or 0.0) <= 1
    at_end = ves.what_if(specimen, ["L2_MLP"], at="end", n=4)
    assert at_end.request.options["at"] == "end"
    assert len(repr(result)) < 500


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "nothing"}, "kind 'nothing' does not exist"),
        ({"kind": "patch"}, "give `prompt` and `source`"),
        ({"source": ["x"]}, "give `prompt` too"),
        ({"prompt": ["x"], "kind": "mean"}, "give `source`"),
        ({"prompt": ["x"], "source": ["x", "a"], "kind": "patch"}, "2 tokens and `prompt` has 1"),
        ({"at": "subject"}, "no such role"),
        ({"at": 99}, "positions 0 to"),
        ({"prompt": ["q"]}, "q"),
        ({"n": 0}, "0 prompts"),
    ],
)
def test_bad_questions_are_refused(options: dict[str, Any], message: str, specimen: Specimen) -> None:
    with pytest.raises(BadInput, match=message):
        ves.what_if(specimen, ["L1H2"], **options)


def test_unknown_components_are_refused(specimen: Specimen) -> None:
    with pytest.raises(BadInput, match="L9H0"):
        ves.what_if(specimen, ["L9H0"])
    with pytest.raises(BadInput, match="component"):
        ves.what_if(specimen, [])


def test_the_usual_replacement_is_that_of_a_sweep(specimen: Specimen) -> None:
    """Zeros where tokens are listed and on one prompt; counterfactuals for the behaviour of a natural model."""
    assert ves.what_if(specimen, "L1H2", n=2).request.options["kind"] == "zero"
    natural = ves.load("arithmetic")
    swept = ves.sweep(natural, components=["L0H3"], n=4)
    asked = ves.what_if(natural, "L0H3", n=4)
    assert asked.request.options["kind"] == swept.kind == "resample"
    assert asked.effect.value == pytest.approx(float(swept.mean[0]), rel=1e-4)
    one, other = "1 - 2 + 3 =", "1 - 2 + 4 ="
    kinds = {None: "zero", other: "patch"}
    for source, kind in kinds.items():
        assert ves.what_if(natural, "L0H3", prompt=one, source=source).request.options["kind"] == kind
