"""What results draw, write and show: pictures without pyplot, pages that stand alone, files that load again."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure

import vesalius as ves
from tests.behaviours.word_tokenizer import word_tokenizer
from tests.closeness import same_tensors
from tests.documents.test_view import GOLDEN, largest_circuit, largest_scorecard
from tests.explanations.induction_model import as_specimen, induction_model
from vesalius.components import all_components
from vesalius.documents import Circuit, Discovery, Explanation, Scorecard, Sweep
from vesalius.errors import BadInput
from vesalius.intervene.effects import Effects, pairs
from vesalius.model.states import read_tensors


@cache
def results() -> dict[str, Any]:
    """One of each kind."""
    specimen = ves.load("frac_prevs")
    explanation = Explanation.read(GOLDEN / "explanation.json")
    discovery = Discovery.read(GOLDEN / "discovery" / "discovery.json").model_copy(update={"directory": None})
    return {
        "specimen": specimen,
        "effects": ves.sweep(specimen, n=8, progress=False),
        "sweep": Sweep.read(GOLDEN / "sweep.json").model_copy(update={"directory": None}),
        "circuit": largest_circuit(),
        "discovery": discovery,
        "checks": discovery.checks,
        "explanation": explanation,
        "natural": Explanation.read(GOLDEN / "explanation_natural.json"),
        "scorecard": largest_scorecard(),
        "discovery scorecard": Scorecard.read(GOLDEN / "scorecard_discovery.json"),
        "functions scorecard": Scorecard.read(GOLDEN / "scorecard_functions.json"),
        "grade": ves.grade(explanation),
    }


NAMES = (
    "specimen",
    "effects",
    "sweep",
    "circuit",
    "discovery",
    "checks",
    "explanation",
    "natural",
    "scorecard",
    "discovery scorecard",
    "functions scorecard",
    "grade",
)


@pytest.mark.parametrize("name", NAMES)
def test_every_result_has_a_short_repr_and_a_picture(name: str) -> None:
    result = results()[name]
    assert 60 < len(repr(result)) < 500
    figure = result.plot()
    assert isinstance(figure, Figure)
    png = getattr(figure, "_repr_png_")()  # noqa: B009  (what a notebook calls)
    assert png.startswith(b"\x89PNG")
    assert len(result.table())


@pytest.mark.parametrize("name", NAMES)
def test_every_result_has_a_page_that_stands_alone(name: str, tmp_path: Path) -> None:
    page = results()[name].page(tmp_path / "new" / "place")
    assert page.parent == tmp_path / "new" / "place"
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert not any(loader in text for loader in ("<img", "<link", "@import", 'src="', "javascript:"))


def test_a_page_without_a_place_goes_to_a_temporary_directory() -> None:
    page = results()["grade"].page()
    assert page.is_file()
    assert "vesalius-" in page.parent.name


def test_pictures_leave_the_session_alone() -> None:
    """Neither the backend changes, which would end a notebook's own pictures, nor does a figure stay open."""
    code = (
        "import matplotlib; matplotlib.use('svg'); import matplotlib.pyplot as plt;"
        f"from vesalius.documents import Circuit; c = Circuit.read({str(GOLDEN / 'discovery/circuit.json')!r});"
        "c.plot()._repr_png_(); assert matplotlib.get_backend().lower() == 'svg'; assert not plt.get_fignums()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_effects_of_a_sweep_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two prompts, effects 1 and 3 of one head: mean 2, standard error 1, and Student's t for two samples 12.706."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    one, two = all_components(largest_circuit())[:2]
    effects = Effects(
        sets=((one,), (one, two)),
        baseline=torch.tensor([4.0, 6.0]),
        matrix=torch.tensor([[1.0, -5.0], [3.0, -5.0]]),
        kind="mean",
        unit="logits",
        forwards=2.0,
        seconds=0.1,
    )
    first, second = effects.table()
    assert first == {
        "component": "L0H0",
        "effect": 2.0,
        "low": pytest.approx(2 - 12.706, rel=1e-3),
        "high": pytest.approx(2 + 12.706, rel=1e-3),
        "n": 2,
    }
    assert second == {"component": "L0H0+L0H1", "effect": -5.0, "low": -5.0, "high": -5.0, "n": 2}
    assert repr(effects).startswith(
        "Partly: 1 of 2 sets has an effect whose interval is clear of 0 (mean ablation, 2 p"
    )
    assert "clean score: 5.000 logits" in repr(effects)
    assert repr(effects).index("L0H0+L0H1 -5") < repr(effects).index("L0H0 +2")


def test_all_pairs_of_a_large_model_are_looked_at_without_resampling_them_all() -> None:
    """300 components have 44,850 pairs; 2,000 resamples of all of them would be 700 MB for a repr of five."""
    sets = tuple(pairs(all_components(largest_circuit())))
    matrix = torch.zeros(6, len(sets))
    matrix[:, 7] = 1.0
    effects = Effects(sets, torch.ones(6), matrix, "zero", "logits", 1.0, 1.0)
    assert repr(effects).startswith("Yes: 1 of 44,850 sets changes the score beyond chance (zero ablation, 6 prompts")
    assert "L0H0+L0H8 +1 [+1, +1]" in repr(effects)
    assert "44838 more rows" in effects._repr_html_()


def test_files_load_again(tmp_path: Path) -> None:
    made = results()
    assert Circuit.read(made["circuit"].save(tmp_path / "c")) == made["circuit"]
    assert Explanation.read(made["natural"].save(tmp_path / "e")) == made["natural"]
    assert Scorecard.read(made["scorecard"].save(tmp_path / "s")) == made["scorecard"]
    assert Sweep.read(made["sweep"].save(tmp_path / "w")).components == made["sweep"].components
    discovery = Discovery.read(made["discovery"].save(tmp_path / "d"))
    assert discovery.model_copy(update={"directory": None}) == made["discovery"]
    specimen = ves.load(made["specimen"].save(tmp_path / "p").parent)
    assert specimen.predict([["a", "x"]])[0] == pytest.approx([0.0, 0.5], abs=1e-3)
    assert not list((tmp_path / "p").rglob("*key*"))
    assert json.loads(made["grade"].save(tmp_path / "g").read_text())["tag_accuracy"]["value"] == 1.0
    effects = made["effects"].save(tmp_path / "f")
    assert torch.equal(read_tensors(effects.with_suffix(".safetensors"))["matrix"], made["effects"].matrix)
    assert json.loads(effects.read_text())["components"][0]["component"] == "L0_MLP"


def test_a_natural_model_is_saved_with_its_tokenizer(tmp_path: Path) -> None:
    specimen = as_specimen(induction_model(word_tokenizer().size))
    directory = specimen.save(tmp_path / "model").parent
    again = ves.load(directory, behaviour="induction")
    texts = again.sample(3)
    assert torch.equal(again.tokenize(texts), specimen.tokenize(texts))
    tokens = specimen.tokenize(texts)
    assert same_tensors(again.model(tokens), specimen.model(tokens))


def test_an_abstention_has_a_page_and_a_picture_that_says_so(tmp_path: Path) -> None:
    nothing = results()["explanation"].model_copy(
        update={"components": (), "edges": (), "executable": None, "task_description": "Nothing was established."}
    )
    assert "nothing was established" in repr(nothing)
    assert nothing.plot().axes[0].texts[0].get_text() == "Nothing was established."
    page = nothing.page(tmp_path).read_text(encoding="utf-8")
    assert "No component was established, so there is no circuit to draw." in page
    assert "Nothing was established." in page


def test_what_cannot_be_drawn_says_so() -> None:
    from vesalius.report.pages import plot

    with pytest.raises(BadInput, match=r"a dict has no picture; use \.table\(\)"):
        plot({})
