"""The circuit's drawing: layers run downwards, boxes keep apart, no arrow runs through a box."""

import math
import re
from itertools import combinations, pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.report.explanations import TEN, TEN_EDGES
from vesalius.components import Component
from vesalius.report.diagram import BOX_HEIGHT, BOX_WIDTH, NODE_GAP, OPEN_END, Diagram, _spaced, draw_circuit

NAMES = [name for name, *_ in TEN]


def points(path: str) -> list[tuple[float, float]]:
    """Places along an arrow's path, sampled from its Bézier pieces."""
    numbers = [list(map(float, re.findall(r"-?[\d.]+", piece))) for piece in re.split("[MC]", path)[1:]]
    start, sampled = (numbers[0][0], numbers[0][1]), []
    for x1, y1, x2, y2, x3, y3 in numbers[1:]:
        for t in (i / 20 for i in range(21)):
            u = 1 - t
            a, b, c, d = u**3, 3 * u * u * t, 3 * u * t * t, t**3
            sampled.append((a * start[0] + b * x1 + c * x2 + d * x3, a * start[1] + b * y1 + c * y2 + d * y3))
        start = (x3, y3)
    return sampled


def assert_sound(diagram: Diagram) -> None:
    for one, other in combinations(diagram.boxes, 2):
        assert abs(one.x - other.x) >= BOX_WIDTH or abs(one.top - other.top) >= BOX_HEIGHT
    for box in diagram.boxes:
        assert box.left >= 0
        assert box.left + BOX_WIDTH <= diagram.width
        assert box.bottom <= diagram.height
    for arrow in diagram.arrows:
        for x, y in points(arrow.path):
            for box in diagram.boxes:
                inside = box.left + 1 < x < box.left + BOX_WIDTH - 1 and box.top + 1 < y < box.bottom - 1
                assert not inside, f"{arrow.sender} -> {arrow.receiver} runs through {box.name}"


def test_ten_components() -> None:
    diagram = draw_circuit(NAMES, TEN_EDGES)
    assert_sound(diagram)
    assert {box.name for box in diagram.boxes} == {*NAMES, "tokens", "logits"}
    assert [band.title for band in diagram.bands] == [f"layer {layer}" for layer in range(7)]
    assert (len(diagram.arrows), diagram.undrawn) == (len(TEN_EDGES), 0)
    tops = {box.name: box.top for box in diagram.boxes}
    assert tops["tokens"] == min(tops.values())
    assert tops["logits"] == max(tops.values())
    assert tops["L0H0"] == tops["L0H1"] < tops["L0_MLP"] < tops["L1_MLP"] < tops["L2H0"] < tops["L2_MLP"]


def test_width_follows_strength() -> None:
    arrows = draw_circuit(["L0_MLP", "L1H2"], [("L0_MLP", "L1H2", -0.8), ("tokens", "L1H2", 0.2)]).arrows
    strong, weak = (arrow.width for arrow in arrows)
    assert strong == pytest.approx(1.2 + 4.3)
    assert weak == pytest.approx(1.2 + 4.3 / 4, abs=0.01)


def test_edges_that_cannot_be_drawn_are_counted() -> None:
    diagram = draw_circuit(["L0_MLP", "L1H2"], [("L1H2", "L0_MLP", 0.5), ("L0_MLP", "L1H2", math.nan)])
    assert (diagram.undrawn, len(diagram.arrows)) == (1, 1)
    assert diagram.arrows[0].width == pytest.approx(1.2)


def test_no_edges_and_an_end_that_is_no_component() -> None:
    assert draw_circuit(["L3H1"], []).arrows == ()
    diagram = draw_circuit(["L3H1"], [("L3H1", "position 4", 1.0)])
    assert {box.name: box.component for box in diagram.boxes} == {"L3H1": Component(3, 1), "position 4": None}


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.sampled_from([f"L{i}H{j}" for i in range(4) for j in range(4)] + ["L0_MLP", "L2_MLP"]),
        min_size=1,
        unique=True,
    ),
    st.randoms(),
)
def test_any_circuit_is_sound(names: list[str], random: Random) -> None:
    pairs = [(a, b) for a, b in combinations(sorted(names, key=Component.parse), 2) if random.random() < 0.3]
    assert_sound(draw_circuit(names, [(a, b, random.random()) for a, b in pairs]))


def test_layer_with_many_heads_wraps() -> None:
    diagram = draw_circuit([f"L0H{i}" for i in range(14)], [])
    assert_sound(diagram)
    assert len({box.top for box in diagram.boxes}) == 3
    assert len(diagram.bands) == 1


def test_spacing_is_least_squares() -> None:
    # Two boxes that both want 0 share the move; a third far away stays where it wants to be.
    step = BOX_WIDTH + NODE_GAP
    assert _spaced([0.0, 0.0, 1000.0], [BOX_WIDTH] * 3) == pytest.approx([-step / 2, step / 2, 1000.0])


@given(st.lists(st.tuples(st.floats(-500, 500), st.sampled_from([16.0, 124.0])), min_size=1, max_size=8))
def test_spacing_keeps_order_and_distance(nodes: list[tuple[float, float]]) -> None:
    widths = [width for _, width in nodes]
    places = _spaced([x for x, _ in nodes], widths)
    for (left, a), (right, b) in pairwise(zip(places, widths, strict=True)):
        assert right - left >= (a + b) / 2 + NODE_GAP - 1e-6


def test_figures_do_not_cover_each_other() -> None:
    labels = [arrow.label for arrow in draw_circuit(NAMES, TEN_EDGES).arrows if arrow.label]
    assert len(labels) >= 14
    assert all(abs(a[0] - b[0]) > 34 or abs(a[1] - b[1]) > 13 for a, b in combinations(labels, 2))


def test_gaps_are_open_ends_and_compositions_name_their_port() -> None:
    edges = [("tokens", "L0H0", 0.5), ("L3_MLP", "logits", 0.4)]
    diagram = draw_circuit(
        ["L0H0", "L1H1", "L3_MLP"],
        edges,
        ports={("L0H0", "L1H1"): "keys", ("tokens", "L0H0"): "values"},
        show_gaps=True,
    )
    assert_sound(diagram)
    assert [(arrow.sender, arrow.receiver, arrow.text) for arrow in diagram.arrows] == [
        ("tokens", "L0H0", "values 0.50"),
        ("L3_MLP", "logits", "0.40"),
        ("L0H0", "L1H1", "keys"),
    ]
    boxes = {box.name: box for box in diagram.boxes}
    below, above = boxes["L1H1"], boxes["L3_MLP"]
    assert [(end.x, end.top, end.above) for end in diagram.open_ends] == [
        (below.x, below.bottom, False),
        (above.x, above.top - OPEN_END, True),
    ]
    assert draw_circuit(["L0H0"], []).open_ends == ()
