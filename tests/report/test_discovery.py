"""The page of a discovered circuit: geometry by hand, files that stand alone, and hostile names."""

import json
import math
import shutil
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import vesalius as ves
from vesalius import api
from vesalius.cli.console import print_view
from vesalius.discovery.checks import run_checks
from vesalius.discovery.discover import discover
from vesalius.documents import Checks, Discovery, Performance, Request
from vesalius.documents.checks import Curve, faithfulness_chart
from vesalius.documents.kinds import kind_in
from vesalius.documents.view import HeadMap, cell, interval
from vesalius.errors import BadInput
from vesalius.report.charts import draw_chart
from vesalius.report.maps import draw_headmap
from vesalius.report.pages import render_discovery
from vesalius_mechrl.methods import HeadSearch

AREAS = dict.fromkeys(("cmd", "cmd_low", "cmd_high", "cpr", "cpr_low", "cpr_high"), 0.5)
CURVE = Curve(
    sizes=(0, 1, 4),
    shares=(0.0, 0.25, 1.0),
    faithfulness=(0.0, 0.5, 1.0),
    **AREAS,
    full=1.0,
    ablated=0.0,
    unit="logits",
    n=12,
    forwards=3.0,
)


GOLDEN = Path(__file__).parents[1] / "documents" / "golden"


def curve(*faithfulness: float) -> Curve:
    return CURVE.model_copy(update={"faithfulness": faithfulness})


@cache
def found() -> Discovery:
    """A discovery of frac_prevs with its checks."""
    specimen = ves.load("frac_prevs")
    scores = discover(specimen, "eap", n=8)
    return Discovery(
        request=Request(command="discover", specimen="frac_prevs", method="eap", options={"n": 8}, seed=0),
        circuit=scores.circuit,
        unit=scores.unit,
        metrics={"auroc": 1.0},
        forwards=scores.forwards,
        seconds=0.1,
        checks=Checks.model_validate(run_checks(specimen, scores).as_data()),
    )


def written(directory: Path, *, edges: bool = True, asked: dict[str, Any] | None = None, **changes: Any) -> Path:
    """A directory as `vesalius discover` leaves it; `asked` changes the request, `edges=False` leaves them out."""
    circuit = found().circuit
    changes["request"] = found().request.model_copy(update=asked or {})
    changes["circuit"] = circuit if edges else circuit.model_copy(update={"edges": {}})
    found().model_copy(update=changes).save(directory)
    return directory


def damaged(directory: Path, **changes: Any) -> Path:
    """The same with fields of `discovery.json` changed afterwards."""
    path = written(directory) / "discovery.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}), encoding="utf-8")
    return directory


def test_curve_by_hand() -> None:
    """A quarter of the model stands at half of the axis, half of the behaviour at half of the height."""
    chart = draw_chart(faithfulness_chart({"circuit": CURVE, "random order": curve(0.0, 0.0, 1.0)}))
    (start, middle, end), control = (line.points for line in chart.lines)
    assert start[:2] == (chart.left, chart.bottom)
    assert end[:2] == (chart.right, chart.top)
    assert middle[:2] == pytest.approx(((chart.left + chart.right) / 2, (chart.top + chart.bottom) / 2), abs=0.1)
    assert control[1][:2] == (middle[0], chart.bottom)
    assert chart.whole == chart.top
    assert [line.kind for line in chart.lines] == ["circuit", "control"]
    assert abs(chart.lines[0].label_y - chart.lines[1].label_y) >= 15


def test_curves_beyond_the_picture_are_cut_at_its_edge() -> None:
    chart = draw_chart(faithfulness_chart({"circuit": curve(0.0, 9.0, 1.0)}))
    assert chart.lines[0].points[1][1] == chart.top
    assert chart.y_ticks[-1] == (chart.top, "2")
    assert "9.000" in chart.lines[0].points[1][2]


def test_headmap_by_hand() -> None:
    """A score of a quarter of the largest has half of the shades; zero has none and carries no rank."""
    drawn = draw_headmap(HeadMap({"L1H0": -4.0, "L0_MLP": 1.0, "L0H1": 0.0}, 2, 2, unit="logits"))
    assert [(shade, negative) for shade, negative, _ in drawn.shades] == [
        (round(9 * math.sqrt(0.25)), False),
        (9, True),
    ]
    assert [rank for _, _, rank, _ in drawn.ranks] == [1, 2]
    (x, y, _, dark), (mlp_x, mlp_y, _, _) = drawn.ranks
    assert (dark, x - mlp_x, mlp_y - y) == (True, drawn.cell, 2 * drawn.cell + 8)
    assert [text for _, text in drawn.rows] == ["H0", "H1", "MLP"]


def test_a_component_whose_interval_holds_zero_is_grey_and_has_no_rank() -> None:
    """However large its mean: nothing says that it matters. The scale says which value each colour stands for."""
    values, intervals = {"L0H0": 4.0, "L0H1": -1.0}, {"L0H0": (-1.0, 9.0), "L0H1": (-2.0, -0.5)}
    drawn = draw_headmap(HeadMap(values, 1, 2, unit="effect, logits", intervals=intervals))
    assert [(shade, negative) for shade, negative, _ in drawn.shades] == [(round(9 * math.sqrt(0.25)), True)]
    assert drawn.unclear.count("M") == 1
    assert [rank for _, _, rank, _ in drawn.ranks] == [1]
    assert drawn.bar is not None
    assert [text for _, text in drawn.bar.ticks] == ["-4.000", "-1.000", "0.000", "1.000", "4.000"]
    assert drawn.bar.unit == "effect, logits"


def test_the_scale_of_values_that_are_never_negative_begins_at_zero() -> None:
    drawn = draw_headmap(HeadMap({"L0H0": 0.8, "L0H1": 0.0}, 1, 2, unit="attention"))
    assert drawn.bar is not None
    assert [text for _, text in drawn.bar.ticks] == ["0.000", "0.200", "0.800"]
    assert [(shade, negative) for _, shade, negative in drawn.bar.steps] == [(shade, False) for shade in range(10)]
    assert drawn.bar.steps[0][0] < drawn.bar.ticks[0][0] < drawn.bar.steps[1][0]


def test_page_and_pictures(tmp_path: Path) -> None:
    page = render_discovery(written(tmp_path))
    text = page.read_text(encoding="utf-8")
    for words in ("Can it be trusted?", "L1H2", "Jaccard", "random order", "vesalius discover frac_prevs --method eap"):
        assert words in text
    assert all(f'<svg class="{name}"' in text for name in ("headmap", "circuit", "chart"))
    assert not any(loader in text for loader in ("<img", "src=", "<link", "@import", "url("))
    for name in ("heads.svg", "circuit.svg", "curve.svg"):
        root = ElementTree.fromstring((tmp_path / name).read_text(encoding="utf-8"))
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(" not in (tmp_path / name).read_text(encoding="utf-8"), "a file of its own has no page's colours"
    assert (tmp_path / "heads.png").read_bytes().startswith(b"\x89PNG")
    assert kind_in(tmp_path) is Discovery
    assert kind_in(tmp_path / "elsewhere") is None


def test_names_are_escaped(tmp_path: Path) -> None:
    text = render_discovery(written(tmp_path, asked={"specimen": "<script>alert(1)</script>"})).read_text(
        encoding="utf-8"
    )
    assert "<script>alert(1)" not in text


def test_a_method_without_edges_and_checks(tmp_path: Path) -> None:
    text = render_discovery(written(tmp_path, edges=False, asked={"method": "sweep"}, checks=None)).read_text(
        encoding="utf-8"
    )
    assert "scores components only" in text
    assert "Can it be trusted?" not in text
    assert not (tmp_path / "curve.svg").exists()


def test_files_of_the_first_schema_have_a_page(tmp_path: Path) -> None:
    for name in ("discovery.json", "circuit.json"):
        shutil.copy(GOLDEN / "discovery" / name, tmp_path)
    text = render_discovery(tmp_path).read_text(encoding="utf-8")
    assert "vesalius discover frac_prevs --method eap-ig --n 8 --seed 0" in text
    assert "Can it be trusted?" in text


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"components": []}, "circuit.json beside it has other scores"),
        ({"components": [{"id": "L0H0"}]}, "circuit.json beside it has other scores"),
        ({"request": {"command": "discover", "seed": "x"}}, "request.seed: Input should be a valid integer"),
        ({"checks": {"size": 1}}, "checks.n: Field required; run `vesalius discover` again"),
        ({"forwards": "many"}, "forwards: Input should be a valid number"),
    ],
)
def test_damaged_numbers(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        render_discovery(damaged(tmp_path, **changes))


def test_components_that_are_not_a_list(tmp_path: Path) -> None:
    for number, components in enumerate((None, 5, [{"id": ["L0H0"]}])):
        with pytest.raises(BadInput, match=r"discovery.json: .*run `vesalius discover` again"):
            render_discovery(damaged(tmp_path / str(number), components=components))


def test_a_search_of_heads_says_so_and_how_to_repeat_it(tmp_path: Path) -> None:
    performance = Performance(
        accuracy=0.51,
        accuracy_low=0.4,
        accuracy_high=0.6,
        logit_difference=0.0,
        ld_low=-1.0,
        ld_high=1.0,
        top1=0.0,
        n=64,
        performs=False,
    )
    options = {"n": 8, "budget": 7, "seeds": 3, "paper": True, "force": True}
    asked = {"method": "rl", "behaviour": "ioi", "options": options}
    told = {"performance": performance, "meaning": HeadSearch.meaning}
    text = render_discovery(written(tmp_path, edges=False, asked=asked, **told)).read_text()
    assert "MLPs were not searched" in text
    assert "outgoing edges" not in text, "a search scores heads by replacing them"
    assert "0.51 [0.40, 0.60] of 64 prompts: not performed, what is found may be noise" in text
    assert "--behaviour ioi --method rl --n 8 --budget 7 --seeds 3 --paper --force --seed 0" in text


def test_a_used_up_vocabulary_shows_how_many_prompts_there_were(tmp_path: Path) -> None:
    whole = render_discovery(written(tmp_path)).read_text(encoding="utf-8")
    assert "Checked on 12 prompts that the discovery has not seen." in whole
    checks = found().checks
    assert checks is not None
    text = render_discovery(written(tmp_path, checks=checks.model_copy(update={"n": 5}))).read_text(encoding="utf-8")
    assert "5 prompts that the discovery has not seen (all there are; 12 were asked for)." in text


def test_scores_of_a_sweep_stand_with_the_intervals_that_the_sweep_gives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    discovery = ves.discover("frac_prevs", "sweep", n=8, checks=False, progress=False, out=tmp_path)
    swept = api.sweep_report("frac_prevs", kind="resample", n=8, progress=False)
    intervals = {str(part): interval for part, interval in discovery.circuit.intervals.items()}
    assert intervals == {row.id: pytest.approx((row.ci_low, row.ci_high)) for row in swept.components}
    strongest = max(swept.components, key=lambda row: abs(row.effect))
    page = (tmp_path / "discovery.html").read_text(encoding="utf-8")
    assert "95 % interval" in page
    print_view(discovery.view(), top=3)
    ends = interval(strongest.ci_low, strongest.ci_high, signed=True)
    assert ends == f"[{cell(strongest.ci_low, signed=True)}, {cell(strongest.ci_high, signed=True)}]"
    assert ends in capsys.readouterr().out
    assert ends in page
    # One prompt says nothing about others, and a score of edges is a largest magnitude, not a mean.
    assert not ves.discover("frac_prevs", "sweep", n=1, checks=False, progress=False).circuit.intervals
    assert not found().circuit.intervals


def test_pictures_of_an_earlier_discovery_are_taken_away(tmp_path: Path) -> None:
    render_discovery(written(tmp_path))
    assert (tmp_path / "curve.svg").exists()
    render_discovery(written(tmp_path, edges=False, checks=None))
    assert not (tmp_path / "curve.svg").exists()
    assert not (tmp_path / "circuit.svg").exists()


def test_a_part_of_the_edges_is_called_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vesalius.documents.discovery.MAX_LISTED_EDGES", 100)
    monkeypatch.setattr("vesalius.documents.discovery.LISTED_EDGES", 40)
    text = render_discovery(written(tmp_path)).read_text(encoding="utf-8")
    assert "strongest connections of 110 edges" in text
    assert "circuit.json that of all 110" in text
