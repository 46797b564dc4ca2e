"""The circuit drawn by layer: where each box stands and how each arrow runs.

A layered drawing in four steps. Ranks: sources on top, then heads and MLP of each layer, sinks at the bottom. An
arrow that skips ranks gets a waypoint in each of them, so it never runs through a box. The order inside a rank
settles by barycentres. The places settle by least squares: every node is pulled to the mean of its neighbours,
neighbours in a rank keep their distance (isotonic regression). Templates only print what is computed here.

A gap stays visible: a component that no measured edge enters or leaves gets an open end there, never a line.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from vesalius.components import Component
from vesalius.errors import BadInput

BOX_WIDTH, BOX_HEIGHT = 124.0, 46.0
WAYPOINT_WIDTH = 16.0
NODE_GAP, RANK_GAP = 26.0, 46.0
#: Room for the layer's name on the left, and air around the drawing.
GUTTER, MARGIN = 62.0, 16.0
#: A layer with more heads than this continues in the next rank, so that the drawing stays readable on a phone.
PER_RANK = 6
#: More figures than this would hide the arrows; the table of edges has them all.
LABELLED = 16
SWEEPS, SETTLING = 12, 160
#: Pulls everything to the middle, so that parts of a circuit without an edge between them do not drift apart.
TO_THE_MIDDLE = 0.2
SINKS = {"logits", "output", "outputs", "unembed"}
#: How far an open end stands out of its box.
OPEN_END = 13.0

EdgeTriple = tuple[str, str, float]


@dataclass(frozen=True)
class Box:
    """A component (or an end of the circuit, where `component` is None), centred at `x`, `top` down to `bottom`."""

    name: str
    component: Component | None
    x: float
    top: float

    left = property(lambda self: self.x - BOX_WIDTH / 2)
    bottom = property(lambda self: self.top + BOX_HEIGHT)


@dataclass(frozen=True)
class Arrow:
    """A measured edge: an SVG path, its head, its line width and, where there is room, the place of its label.

    `port` says by which input of a head it was established; an edge of no measured strength has NaN.
    """

    sender: str
    receiver: str
    strength: float
    path: str
    head: str
    width: float
    label: tuple[float, float] | None
    port: str = ""

    @property
    def text(self) -> str:
        """The input and the strength, as far as they are known."""
        return " ".join(filter(None, (self.port, f"{self.strength:.2f}" if math.isfinite(self.strength) else "")))


@dataclass(frozen=True)
class OpenEnd:
    """Where nothing is established: a short dotted line above a box (what it reads) or below it (what it writes to)."""

    x: float
    top: float
    above: bool

    bottom = property(lambda self: self.top + OPEN_END)


@dataclass(frozen=True)
class Band:
    """The strip behind the ranks of one layer."""

    title: str
    top: float
    height: float


@dataclass(frozen=True)
class Diagram:
    """Everything the template draws; `undrawn` counts edges that do not lead downwards."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    bands: tuple[Band, ...]
    undrawn: int
    open_ends: tuple[OpenEnd, ...] = ()


@dataclass
class _Node:
    """A box or a waypoint while the layout settles."""

    key: tuple[str, int]
    width: float
    x: float = 0.0
    above: list["_Node"] = field(default_factory=list)
    below: list["_Node"] = field(default_factory=list)


def draw_circuit(
    components: Sequence[str],
    edges: Sequence[EdgeTriple],
    *,
    ports: Mapping[tuple[str, str], str] | None = None,
    show_gaps: bool = False,
) -> Diagram:
    """Lay out components and measured edges; an end of an edge that is not a component is a source or a sink.

    `ports` names the input by which an edge was established and adds the edges that are not among the measured ones.
    With `show_gaps` components get open ends where no edge enters or leaves them.
    """
    ports = ports or {}
    edges = [*edges, *((*link, math.nan) for link in ports if link not in {edge[:2] for edge in edges})]
    if not components and not edges:
        return Diagram(width=0.0, height=0.0, boxes=(), arrows=(), bands=(), undrawn=0)
    ranks = _ranks(components, edges)
    rank_of = {name: height for height, names in enumerate(ranks) for name in names}
    downward = [edge for edge in edges if rank_of[edge[0]] < rank_of[edge[1]]]
    rows, chains = _nodes(ranks, rank_of, downward)
    _order(rows)
    _place(rows)
    left = min(node.x - node.width / 2 for row in rows for node in row)
    right = max(node.x + node.width / 2 for row in rows for node in row)
    for row in rows:
        for node in row:
            node.x += GUTTER + MARGIN - left
    boxes = {
        node.key[0]: Box(node.key[0], _component(node.key[0]), node.x, _top(height))
        for height, row in enumerate(rows)
        for node in row
        if node.key[1] == height and node.key[0] in rank_of
    }
    arrows = [
        replace(arrow, port=ports.get((arrow.sender, arrow.receiver), "")) for arrow in _arrows(chains, boxes, rank_of)
    ]
    return Diagram(
        width=right - left + GUTTER + 2 * MARGIN,
        height=_top(len(rows) - 1) + BOX_HEIGHT + MARGIN,
        boxes=tuple(boxes.values()),
        arrows=tuple(arrows),
        bands=tuple(_bands(ranks)),
        undrawn=len(edges) - len(downward),
        open_ends=tuple(_open_ends(boxes.values(), arrows)) if show_gaps else (),
    )


def _open_ends(boxes: Iterable[Box], arrows: Sequence[Arrow]) -> Iterator[OpenEnd]:
    entered, left = {arrow.receiver for arrow in arrows}, {arrow.sender for arrow in arrows}
    for box in boxes:
        if box.component is not None and box.name not in entered:
            yield OpenEnd(box.x, box.top - OPEN_END, above=True)
        if box.component is not None and box.name not in left:
            yield OpenEnd(box.x, box.bottom, above=False)


def _component(name: str) -> Component | None:
    try:
        return Component.parse(name)
    except BadInput:
        return None


def _top(rank: int) -> float:
    return MARGIN + rank * (BOX_HEIGHT + RANK_GAP)


def _ranks(components: Sequence[str], edges: Sequence[EdgeTriple]) -> list[list[str]]:
    """Names by height: sources, heads and MLP of each layer, sinks."""
    names = list(dict.fromkeys([*components, *(name for edge in edges for name in edge[:2])]))
    senders = {edge[0] for edge in edges}
    sources, sinks, parts = [], [], []
    for name in names:
        part = _component(name)
        if part is not None:
            parts.append((part, name))
        elif name.lower() in SINKS or name not in senders:
            sinks.append(name)
        else:
            sources.append(name)
    by_rank: dict[tuple[int, bool], list[str]] = defaultdict(list)
    for part, name in sorted(parts):
        by_rank[part.layer, not part.is_head].append(name)
    wrapped = [row[i : i + PER_RANK] for _, row in sorted(by_rank.items()) for i in range(0, len(row), PER_RANK)]
    return [row for row in (sources, *wrapped, sinks) if row]


def _nodes(
    ranks: Sequence[Sequence[str]], rank_of: Mapping[str, int], edges: Sequence[EdgeTriple]
) -> tuple[list[list[_Node]], list[tuple[EdgeTriple, list[_Node]]]]:
    """Boxes and waypoints by rank, and for every edge the nodes it passes."""
    rows = [[_Node((name, height), BOX_WIDTH) for name in names] for height, names in enumerate(ranks)]
    boxes = {node.key[0]: node for row in rows for node in row}
    chains = []
    for number, edge in enumerate(edges):
        chain = [boxes[edge[0]]]
        for height in range(rank_of[edge[0]] + 1, rank_of[edge[1]]):
            waypoint = _Node((f"waypoint {number}", height), WAYPOINT_WIDTH)
            rows[height].append(waypoint)
            chain.append(waypoint)
        chain.append(boxes[edge[1]])
        for upper, lower in pairwise(chain):
            upper.below.append(lower)
            lower.above.append(upper)
        chains.append((edge, chain))
    return rows, chains


def _order(rows: list[list[_Node]]) -> None:
    """Sort each rank by the mean place of its neighbours, downwards and upwards in turn."""
    for sweep in range(SWEEPS):
        places = {id(node): i - (len(row) - 1) / 2 for row in rows for i, node in enumerate(row)}
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            targets = {id(node): _mean_place(node.above if down else node.below, places, node) for node in row}
            row.sort(key=lambda node: targets[id(node)])
            places |= {id(node): i - (len(row) - 1) / 2 for i, node in enumerate(row)}


def _mean_place(neighbours: Sequence[_Node], places: Mapping[int, float], node: _Node) -> float:
    if not neighbours:
        return places[id(node)]
    return sum(places[id(other)] for other in neighbours) / len(neighbours)


def _place(rows: list[list[_Node]]) -> None:
    """Let every node move to the mean of its neighbours, as far as its rank allows."""
    for sweep in range(SETTLING):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            targets = []
            for node in row:
                pulls = [(_stiffness(node, other), other.x) for other in node.above + node.below]
                total = TO_THE_MIDDLE + sum(pull for pull, _ in pulls)
                targets.append(sum(pull * x for pull, x in pulls) / total)
            for node, x in zip(row, _spaced(targets, [node.width for node in row]), strict=True):
                node.x = x


def _stiffness(node: _Node, other: _Node) -> float:
    """How strongly a piece of line is kept straight: a long arrow most, so that it bends at its ends if at all."""
    waypoints = (node.width == WAYPOINT_WIDTH) + (other.width == WAYPOINT_WIDTH)
    return (3.0, 1.0, 8.0)[waypoints]


def _spaced(targets: Sequence[float], widths: Sequence[float]) -> list[float]:
    """The places nearest to `wanted` (least squares) that keep the order and `NODE_GAP` between neighbours."""
    offsets = [0.0]
    for left, right in pairwise(widths):
        offsets.append(offsets[-1] + (left + right) / 2 + NODE_GAP)
    blocks: list[tuple[float, int]] = []
    for x, offset in zip(targets, offsets, strict=True):
        mean, size = x - offset, 1
        while blocks and blocks[-1][0] > mean:
            other, count = blocks.pop()
            mean, size = (mean * size + other * count) / (size + count), size + count
        blocks.append((mean, size))
    flat = [mean for mean, size in blocks for _ in range(size)]
    return [mean + offset for mean, offset in zip(flat, offsets, strict=True)]


def _arrows(
    chains: Sequence[tuple[EdgeTriple, list[_Node]]], boxes: Mapping[str, Box], rank_of: Mapping[str, int]
) -> list[Arrow]:
    strongest = max((abs(edge[2]) for edge, _ in chains if math.isfinite(edge[2])), default=0.0) or 1.0
    leaving, arriving = _ports(chains, below=True), _ports(chains, below=False)
    by_strength = sorted(
        range(len(chains)), key=lambda i: -abs(chains[i][0][2]) if math.isfinite(chains[i][0][2]) else 0.0
    )
    labelled, taken = set(by_strength[:LABELLED]), []
    arrows = []
    for number, (edge, chain) in enumerate(chains):
        strength = abs(edge[2]) / strongest if math.isfinite(edge[2]) else 0.0
        width = 1.2 + 4.3 * strength
        start = (boxes[edge[0]].x + leaving[number], boxes[edge[0]].bottom)
        end = (boxes[edge[1]].x + arriving[number], boxes[edge[1]].top - 2)
        tall, half = 6 + 1.1 * width, 3 + 0.9 * width
        head = (
            f"{end[0] - half:.1f},{end[1] - tall:.1f} {end[0] + half:.1f},{end[1] - tall:.1f} {end[0]:.1f},{end[1]:.1f}"
        )
        corners = [start]
        for height, node in enumerate(chain[1:-1], rank_of[edge[0]] + 1):
            corners += [(node.x, _top(height)), (node.x, _top(height) + BOX_HEIGHT)]
        corners.append((end[0], end[1] - tall + 1))
        label = _label(corners, taken) if number in labelled else None
        # Vertical at every corner, curved between ranks, straight beside the boxes of a rank it passes.
        words = [f"M{corners[0][0]:.1f} {corners[0][1]:.1f}"]
        for (x0, y0), (x1, y1) in pairwise(corners):
            bend = (y1 - y0) / 2
            words.append(f"C{x0:.1f} {y0 + bend:.1f} {x1:.1f} {y1 - bend:.1f} {x1:.1f} {y1:.1f}")
        arrows.append(Arrow(*edge, "".join(words), head, round(width, 2), label))
    return arrows


def _ports(chains: Sequence[tuple[EdgeTriple, list[_Node]]], *, below: bool) -> dict[int, float]:
    """Where on its box each edge leaves (or arrives), from the middle: spread so that arrows do not run together."""
    by_box: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for number, (edge, chain) in enumerate(chains):
        by_box[edge[0] if below else edge[1]].append(((chain[1] if below else chain[-2]).x, number))
    ports = {}
    for ends in by_box.values():
        step = min(24.0, 0.7 * BOX_WIDTH / len(ends))
        for place, (_, number) in enumerate(sorted(ends)):
            ports[number] = (place - (len(ends) - 1) / 2) * step
    return ports


def _label(corners: Sequence[tuple[float, float]], taken: list[tuple[float, float]]) -> tuple[float, float] | None:
    """A place on the line where no other figure stands yet; None if there is none."""
    for share in (0.5, 0.36, 0.64, 0.25, 0.75):
        for (x0, y0), (x1, y1) in list(pairwise(corners))[::2]:
            eased = share * share * (3 - 2 * share)
            x, y = x0 + (x1 - x0) * eased, y0 + (y1 - y0) * share
            if all(abs(x - other[0]) > 34 or abs(y - other[1]) > 13 for other in taken):
                taken.append((x, y))
                return round(x, 1), round(y, 1)
    return None


def _bands(ranks: Sequence[Sequence[str]]) -> list[Band]:
    by_layer: dict[int, list[int]] = defaultdict(list)
    for height, names in enumerate(ranks):
        part = _component(names[0])
        if part is not None:
            by_layer[part.layer].append(height)
    pad = 10.0
    return [
        Band(f"layer {layer}", _top(heights[0]) - pad, _top(heights[-1]) + BOX_HEIGHT + 2 * pad - _top(heights[0]))
        for layer, heights in sorted(by_layer.items())
    ]
