"""Sites on the page: a question about one, and the map of a sweep as the page lays it out."""

from pathlib import Path

import pytest

import vesalius as ves
from vesalius import api
from vesalius.errors import Note
from vesalius_workbench.models import Models
from vesalius_workbench.showing import view_data


def test_the_page_asks_about_sites(tmp_path: Path) -> None:
    models = Models(tmp_path, {"frac_prevs"})
    asked = {"specimen": "frac_prevs", "kind": "zero", "n": 3, "seed": 1, "split": "test"}
    with models.turn():
        answer = models.what_if({**asked, "components": ["L0.resid@1", "L0_MLP->L1H2.k"]})
    same = ves.what_if("frac_prevs", ["L0.resid@1", "L0_MLP->L1H2.k"], kind="zero", n=3, seed=1)
    assert answer.effect == same.effect
    assert answer.request.components == ("L0.resid@1", "L0_MLP->L1H2.k")


def test_a_map_of_sites_is_drawn_on_the_page() -> None:
    with pytest.warns(Note, match="positions are compared among"):
        report = api.sweep_report("frac_prevs", sites="resid", by="position", kind="zero", n=12)
    assert report.aligned is not None
    assert report.prompted == report.aligned < report.n == 12
    (grid,) = [one for one in view_data(report.view())["sections"] if one["kind"] == "grid"]
    assert grid["title"].startswith("resid: effect, share of outputs")
    assert 'class="shade' in grid["svg"] or 'class="unclear' in grid["svg"]
    assert ">L0<" in grid["svg"]
    assert ">L1<" in grid["svg"]
