"""The page of a discovered circuit: geometry by hand, files that stand alone, and hostile names."""

import json
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import vesalius as ves
from vesalius.components import Component
from vesalius.discovery.methods import discover
from vesalius.discovery.trust import examine
from vesalius.errors import BadInput
from vesalius.report.discovery import is_discovery, render_discovery
from vesalius.report.faithfulness import draw_curve
from vesalius.report.headmap import draw_headmap

CURVE = {"sizes": [0, 1, 4], "shares": [0.0, 0.25, 1.0], "faithfulness": [0.0, 0.5, 1.0]}


def written(directory: Path, **changes: Any) -> Path:
    """A directory as `vesalius discover` leaves it."""
    specimen = ves.load("frac_prevs")
    found = discover(specimen, "eap", n=8)
    edges = sorted(found.circuit.edge_scores.items(), key=lambda item: -abs(item[1]))
    document = {
        "specimen": "frac_prevs",
        "behaviour": None,
        "method": "eap",
        "n": 8,
        "seed": 0,
        "components": [{"id": str(part), "score": score} for part, score in found.circuit.ranked()],
        "edges": [{"id": str(edge), "score": score} for edge, score in edges],
        "metrics": {"auroc": 1.0},
        "forwards": found.forwards,
        "seconds": 0.1,
        "layers": 2,
        "heads": 4,
        "trust": examine(specimen, found).as_data(),
        "trust_forwards": 6.0,
        **changes,
    }
    (directory / "discovery.json").write_text(json.dumps(document), encoding="utf-8")
    return directory


def test_curve_by_hand() -> None:
    """A quarter of the model stands at half of the axis, half of the behaviour at half of the height."""
    chart = draw_curve({"circuit": CURVE, "random order": {**CURVE, "faithfulness": [0.0, 0.0, 1.0]}})
    (start, middle, end), control = (line.points for line in chart.lines)
    assert start[:2] == (chart.left, chart.bottom)
    assert end[:2] == (chart.right, chart.top)
    assert middle[:2] == pytest.approx(((chart.left + chart.right) / 2, (chart.top + chart.bottom) / 2), abs=0.1)
    assert control[1][:2] == (middle[0], chart.bottom)
    assert chart.whole == chart.top
    assert [line.kind for line in chart.lines] == ["circuit", "control"]
    assert abs(chart.lines[0].label_y - chart.lines[1].label_y) >= 15


def test_curves_beyond_the_picture_are_cut_at_its_edge() -> None:
    chart = draw_curve({"circuit": {**CURVE, "faithfulness": [0.0, 9.0, 1.0]}})
    assert chart.lines[0].points[1][1] == chart.top
    assert chart.y_ticks[-1] == (chart.top, "2")
    assert "9.000" in chart.lines[0].points[1][2]


def test_headmap_by_hand() -> None:
    """A score of a quarter of the largest has half of the shades; zero has none and carries no rank."""
    scores = [(Component(1, 0), -4.0), (Component(0), 1.0), (Component(0, 1), 0.0)]
    drawn = draw_headmap(scores, n_layers=2, n_heads=2)
    assert [(shade, negative) for shade, negative, _ in drawn.shades] == [
        (round(9 * math.sqrt(0.25)), False),
        (9, True),
    ]
    assert [rank for _, _, rank, _ in drawn.ranks] == [1, 2]
    (x, y, _, dark), (mlp_x, mlp_y, _, _) = drawn.ranks
    assert (dark, x - mlp_x, mlp_y - y) == (True, drawn.cell, 2 * drawn.cell + 8)
    assert [text for _, text in drawn.rows] == ["H0", "H1", "MLP"]


def test_page_and_pictures(tmp_path: Path) -> None:
    page = render_discovery(written(tmp_path))
    text = page.read_text(encoding="utf-8")
    for words in ("Can it be trusted?", "L1H2", "Jaccard", "random order", "vesalius discover frac_prevs --method eap"):
        assert words in text
    assert "http://www.w3.org/2000/svg" in text
    assert not any(loader in text for loader in ("<img", "src=", "<link", "@import", "url("))
    for name in ("heads.svg", "circuit.svg", "curve.svg"):
        root = ElementTree.fromstring((tmp_path / name).read_text(encoding="utf-8"))
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(" not in (tmp_path / name).read_text(encoding="utf-8"), "a file of its own has no page's colours"
    assert (tmp_path / "heads.png").read_bytes().startswith(b"\x89PNG")
    assert is_discovery(tmp_path)
    assert not is_discovery(tmp_path / "elsewhere")


def test_names_are_escaped(tmp_path: Path) -> None:
    text = render_discovery(written(tmp_path, specimen="<script>alert(1)</script>")).read_text(encoding="utf-8")
    assert "<script>alert(1)" not in text


def test_a_method_without_edges_and_checks(tmp_path: Path) -> None:
    text = render_discovery(written(tmp_path, method="sweep", edges=[], trust=None)).read_text(encoding="utf-8")
    assert "scores components only" in text
    assert "Can it be trusted?" not in text
    assert not (tmp_path / "curve.svg").exists()


def test_numbers_of_an_older_version(tmp_path: Path) -> None:
    (tmp_path / "discovery.json").write_text('{"components": []}', encoding="utf-8")
    with pytest.raises(BadInput, match="specimen: field required; run `vesalius discover` again"):
        render_discovery(tmp_path)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"components": []}, "components: list should have at least 1 item"),
        ({"components": [{"id": "L0H0"}]}, "components.0.score: field required"),
        ({"components": [{"id": "L9H0", "score": 1.0}]}, "L9H0 is not in this model"),
        ({"edges": [{"id": "m1->m0", "score": 1.0}]}, "runs backwards"),
        ({"layers": "two"}, "layers: input should be a valid integer"),
        ({"trust": {"size": 1}}, "trust.n: field required"),
    ],
)
def test_damaged_numbers(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        render_discovery(written(tmp_path, **changes))


def test_a_search_of_heads_says_so_and_how_to_repeat_it(tmp_path: Path) -> None:
    performance = {"accuracy": 0.51, "performs": False}
    search = {"budget": 7, "paper": True, "seeds": 3, "steps": 0}
    changes = {"method": "rl", "search": search, "behaviour": "ioi", "performance": performance, "edges": []}
    text = render_discovery(written(tmp_path, **changes)).read_text(encoding="utf-8")
    assert "MLPs were not searched" in text
    assert "outgoing edges" not in text, "a search scores heads by replacing them"
    assert "0.51: not performed, what is found may be noise" in text
    assert "--method rl --n 8 --seed 0 --budget 7 --seeds 3 --paper --force" in text


def test_a_used_up_vocabulary_shows_how_many_prompts_there_were(tmp_path: Path) -> None:
    whole = render_discovery(written(tmp_path)).read_text(encoding="utf-8")
    assert "Checked on 12 prompts that the discovery has not seen." in whole
    trust = {**json.loads((tmp_path / "discovery.json").read_text(encoding="utf-8"))["trust"], "n": 5}
    text = render_discovery(written(tmp_path, trust=trust)).read_text(encoding="utf-8")
    assert "5 prompts that the discovery has not seen (all there are; 12 were asked for)." in text


def test_pictures_of_an_earlier_discovery_are_taken_away(tmp_path: Path) -> None:
    render_discovery(written(tmp_path))
    assert (tmp_path / "curve.svg").exists()
    render_discovery(written(tmp_path, edges=[], trust=None))
    assert not (tmp_path / "curve.svg").exists()
    assert not (tmp_path / "circuit.svg").exists()


def test_a_part_of_the_edges_is_called_a_part(tmp_path: Path) -> None:
    text = render_discovery(written(tmp_path, n_edges=123_211)).read_text(encoding="utf-8")
    assert "strongest connections of 123,211 edges" in text
    assert "circuit.json that of all 123,211" in text
