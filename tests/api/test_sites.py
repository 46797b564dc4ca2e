"""Sites through the verbs: the map of layers and positions, its picture and lines, what-if, plans, refusals."""

from pathlib import Path

import pytest
import torch

import vesalius as ves
from vesalius import api
from vesalius.behaviours.trial import Trial, aligned, places_of, trial
from vesalius.cli.terminal import lines_of
from vesalius.documents.sweep import Sweep
from vesalius.documents.view import Grid
from vesalius.errors import BadInput, Note
from vesalius.intervene import Batch, Readout
from vesalius.model.specimen import Specimen


@pytest.fixture(scope="module")
def arithmetic() -> Specimen:
    return ves.load("arithmetic", behaviour="addition:signs=-+,high=99,shots=0")


def test_a_map_of_layers_and_positions(arithmetic: Specimen, tmp_path: Path) -> None:
    """The last column is the end of the prompt; its first cell equals a plain patched run."""
    report = api.sweep_report(arithmetic, sites="resid", by="position", n=4, seed=2, force=True, out=tmp_path)
    material = trial(arithmetic, 4, seed=2)
    assert material.prompts is not None
    width, layers = material.batch.tokens.shape[1], arithmetic.model.config.n_layers
    assert len(report.components) == layers * width
    assert report.of == "site"
    assert list(report.columns) == [str(at) for at in range(width)]
    assert report.columns[str(width - 1)].endswith("end")
    (grid,) = [one for one in report.view().sections if isinstance(one, Grid)]
    assert list(grid.rows) == [f"L{layer}" for layer in range(layers)]
    hook = "blocks.0.hook_resid_post"
    _, other = arithmetic.model.run_with_cache(material.counterfactual.tokens)
    at = width - 1

    def patch(value: torch.Tensor, point: object) -> torch.Tensor:
        value = value.clone()
        value[:, at] = other[hook][:, at]
        return value

    edited = arithmetic.model.run_with_hooks(material.batch.tokens, fwd_hooks=[(hook, patch)])
    clean = arithmetic.model(material.batch.tokens)
    rows, read = torch.arange(4), material.prompts
    difference = [x[rows, at, read.correct] - x[rows, at, read.wrong] for x in (clean, edited)]
    assert grid.values[0][at] == pytest.approx(float((difference[0] - difference[1]).mean()), rel=1e-4)
    assert Sweep.read(tmp_path / "sweep.json") == report
    assert (tmp_path / "heatmap.png").stat().st_size > 1000
    lines = "\n".join(lines_of(report.view(), width=60))
    assert "layers down, positions across" in lines
    assert all(len(line) <= 60 for line in lines.splitlines() if line.startswith("L0"))
    assert "sites resid" in report.request.command_line()
    assert "by position" in report.request.command_line()
    page = report.page(tmp_path / "page").read_text()
    assert "layers down, positions across" in page


def test_heads_by_role_and_single_names(arithmetic: Specimen) -> None:
    report = api.sweep_report(arithmetic, sites="k", n=3, force=True)
    (grid,) = [one for one in report.view().sections if isinstance(one, Grid)]
    assert len(grid.columns) == arithmetic.model.config.n_heads
    by_role = api.sweep_report(arithmetic, components="L1_MLP,L0H0", by="role", n=3, force=True)
    assert {row.id.partition("@")[0] for row in by_role.components} == {"L1_MLP", "L0H0"}
    assert "end" in by_role.columns
    one = ves.sweep(arithmetic, components=["L0H0->L1H0.q", ves.Edge.parse("m0->logits")], n=3, force=True)
    assert [str(sites[0]) for sites in one.sets] == ["L0H0->L1H0.q", "L0_MLP->logits"]


def test_a_sweep_is_what_if_asked_one_by_one(arithmetic: Specimen) -> None:
    effects = ves.sweep(arithmetic, components=["L0.resid@end", "L1.attn_out@-1"], n=4, seed=1, force=True)
    for sites, mean in zip(effects.sets, effects.mean.tolist(), strict=True):
        asked = ves.what_if(arithmetic, [str(sites[0])], n=4, seed=1, force=True)
        assert asked.effect.value == pytest.approx(mean, rel=1e-4, abs=1e-4)
        assert asked.request.components == (str(sites[0]),)


def test_positions_are_compared_among_prompts_of_one_length() -> None:
    mask = torch.tensor([[True, True, False], [True, True, True], [True, True, True]])
    tokens = torch.arange(9).view(3, 3)
    material = Trial(Batch(tokens, mask), Batch(tokens, mask), Readout(lambda logits, row: logits))
    with pytest.warns(Note, match="2 of 3 with 3"):
        assert aligned(material).batch.tokens.tolist() == [[3, 4, 5], [6, 7, 8]]


def test_a_plan_counts_layers_and_positions(arithmetic: Specimen) -> None:
    layers = arithmetic.model.config.n_layers
    planned = ves.plan("sweep", arithmetic, sites="resid_pre", by="position", n=4, progress=False)
    measured = ves.sweep(arithmetic, sites="resid_pre", by="position", n=4, force=True)
    width = planned.tokens
    assert planned.forwards == pytest.approx(1 + width * sum(1 - layer / layers for layer in range(layers)))
    assert measured.forwards == pytest.approx(planned.forwards)


def test_a_position_is_one_of_every_prompt() -> None:
    """A position that is padding in a short prompt would read as one without effect there."""
    mask = torch.arange(6)[None] < torch.tensor([[6], [4]])
    batch = Batch(torch.ones(2, 6, dtype=torch.long), mask)
    material = Trial(batch, batch, Readout(lambda logits, _: logits[:, 0, 0], torch.tensor([[5], [3]])))
    assert places_of(material, 3).tolist() == [3, 3]
    assert places_of(material, -4).tolist() == [2, 0]
    for at in (4, -5):
        with pytest.raises(BadInput, match=f"position {at}: the shortest prompt has positions 0 to 3"):
            places_of(material, at)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sites": "rezid"}, "did you mean resid"),
        ({"sites": "resid", "by": "layer"}, "choose position or role"),
        ({"sites": "resid", "components": "L0H0"}, "give one of them"),
        ({"sites": "resid", "pairs": True}, "leave out `sites`"),
        ({"components": "L0.resid@S9"}, "no such role"),
        ({"components": "L0.resid@99"}, "positions 0 to"),
        ({"components": "L0.resid@-99"}, "positions 0 to"),
        ({"components": "L0.resid@1", "by": "position"}, "names its position already"),
        ({"sites": "pattern", "kind": "mean"}, "take resample or zero"),
        ({"sites": "resid", "jobs": 2}, "swept in this process"),
    ],
)
def test_what_cannot_be_swept_is_refused(arithmetic: Specimen, options: dict, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        ves.sweep(arithmetic, n=2, force=True, **options)


def test_a_place_is_named_once(arithmetic: Specimen) -> None:
    with pytest.raises(BadInput, match="names its position already"):
        ves.what_if(arithmetic, "L0.resid@1", kind="zero", at=2, n=2)
    with pytest.raises(BadInput, match=r"did you mean L0\.resid"):
        ves.what_if(arithmetic, "L0.redis", n=2)


def test_what_holds_all_that_the_logits_read_is_not_counted(arithmetic: Specimen) -> None:
    swept = ves.api.sweep_report(arithmetic, sites=["resid"], by="position", n=12)
    said = str(swept.answered())
    assert said.startswith("Yes: 1 of 20 sites changes the score beyond chance")
    assert said.endswith("; not counted: L2.resid@6, all that the logits read")
    whole = ves.api.sweep_report(arithmetic, sites=["resid"], n=4)
    assert str(whole.answered()).startswith("No: L0.resid holds all that the logits read, so its effect is the range")
