"""What a discovery method hands over: components and edges with scores, in the file format of the MIB benchmark.

    {"schema": 1,
     "cfg": {"n_layers", "n_heads", "parallel_attn_mlp", "d_model"},
     "nodes": {"input" | "a0.h1" | "m0" | "m3.n17" | "logits": {"in_graph", "score"?, "ci_low"?, "ci_high"?, ...}},
     "edges": {"a0.h1->a5.h5<q>": {"score", "in_graph"}}}

`schema`, `ci_low` and `ci_high` are our own; files of the benchmark lack them. Whatever else a file says about a node
or an edge (neurons, for instance) is kept and written back.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, GetJsonSchemaHandler, model_serializer, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from vesalius.components import Component, Edge, Shape
from vesalius.documents.base import VERSION_FIELDS, FrozenDict, FrozenMap, JsonMap, Record, ShownDocument
from vesalius.documents.view import Answer, Facts, HeadMap, Row, Sheet, View, as_table, join_first
from vesalius.errors import BadInput, quoted
from vesalius.files import read_json, write_json
from vesalius.values import JsonObject

CIRCUIT_FILE = "circuit.json"
#: Heads and MLPs, and numbers of the residual stream, that a circuit may say a model has: far beyond any there is, and
#: so few that they can be listed. Checked before anything is listed.
MOST_PARTS = 1 << 20
Node = Component | Literal["input", "logits"]
Interval = tuple[float, float]
#: What nodes call the ends of the 95 % interval of their score.
LOW, HIGH = "ci_low", "ci_high"
#: A component is worth explaining from this share of the largest score on. Set on 27 generated specimens that no
#: reported figure is about (benchmarks/fresh.tgz, every second one, seed 7), where the sweep found 80 of 82 components
#: and nothing else, EAP-IG 81 of 82 and 14 others.
CHOSEN_SHARE = 0.1


class Score(Record):
    """A component or an edge by name, and its score."""

    id: str
    score: float

    def __repr__(self) -> str:
        return f"{self.id} {self.score:+.3g}"


class Member(Record):
    """A node or an edge: its score (None: it has none), whether it belongs to the circuit, and what else is known."""

    score: int | float | None = None
    in_graph: bool = True
    more: JsonMap = Field(default_factory=FrozenDict)

    def as_data(self) -> JsonObject:
        """The JSON of the MIB format; a missing score is left out."""
        score = {} if self.score is None else {"score": self.score}
        return {**score, "in_graph": self.in_graph, **self.more}


class Circuit(ShownDocument, kind="circuit"):
    """A circuit in a model of a certain shape. `edges` is empty where a method knows components only."""

    FILE = CIRCUIT_FILE
    RANK = None
    SCHEMA = 1

    schema_version: Literal[1] = 1
    n_layers: int
    n_heads: int
    d_model: int
    nodes: FrozenMap[Node, Member]
    edges: FrozenMap[Edge, Member]
    parallel: bool = False

    @classmethod
    def scored(
        cls,
        shape: Shape,
        d_model: int,
        components: Mapping[Component, float],
        edges: Mapping[Edge, float],
        *,
        intervals: Mapping[Component, Interval] = FrozenDict(),
    ) -> "Circuit":
        """A circuit from scores and, where given, their 95 % intervals; what scores exactly zero is not in it."""
        for name, score in [*components.items(), *edges.items()]:
            if not _is_number(score):
                raise BadInput(f"{name}: score {score!r} is not a finite number")
        nodes: dict[Node, Member] = {part: _scored(score, intervals.get(part)) for part, score in components.items()}
        return cls(
            n_layers=shape.n_layers,
            n_heads=shape.n_heads,
            d_model=d_model,
            nodes={"input": Member(), **nodes, "logits": Member()},
            edges={edge: _scored(score) for edge, score in edges.items()},
            parallel=bool(getattr(shape, "parallel", False)),
        )

    @property
    def components(self) -> dict[Component, float]:
        """Every component that has a score."""
        scores = ((node, member.score) for node, member in self.nodes.items() if isinstance(node, Component))
        return FrozenDict((node, score) for node, score in scores if score is not None)

    @property
    def intervals(self) -> dict[Component, Interval]:
        """The 95 % intervals of components whose scores have one."""
        return FrozenDict(
            (node, (member.more[LOW], member.more[HIGH]))
            for node, member in self.nodes.items()
            if isinstance(node, Component) and all(_is_number(member.more.get(end)) for end in (LOW, HIGH))
        )

    @property
    def edge_scores(self) -> dict[Edge, float]:
        """Every edge that has a score."""
        return FrozenDict((edge, member.score) for edge, member in self.edges.items() if member.score is not None)

    def ranked(self) -> list[tuple[Component, float]]:
        """Components with their scores, largest magnitude first."""
        return sorted(self.components.items(), key=lambda item: -abs(item[1]))

    def ranked_edges(self) -> list[tuple[Edge, float]]:
        """Edges with their scores, largest magnitude first."""
        return sorted(self.edge_scores.items(), key=lambda item: -abs(item[1]))

    def chosen(self, *, share: float = CHOSEN_SHARE) -> list[Component]:
        """The components worth explaining, in order of computation: those in the graph whose score reaches `share` of
        the largest magnitude.

        Where nodes have no scores, the largest magnitude among a node's outgoing edges in the graph is its score; where
        nothing has a score, every node in the graph is chosen.
        """
        inside = [node for node, member in self.nodes.items() if isinstance(node, Component) and member.in_graph]
        scores = {part: abs(score) for part, score in self.components.items() if part in inside}
        if not scores:
            for edge, member in self.edges.items():
                if edge.sender in inside and member.in_graph and member.score is not None:
                    scores[edge.sender] = max(scores.get(edge.sender, 0.0), abs(member.score))
        largest = max(scores.values(), default=0.0)
        if not scores:
            return sorted(inside)
        return sorted(part for part, score in scores.items() if score and score >= share * largest)

    @property
    def kept_edges(self) -> list[Edge]:
        """The edges in the graph whose ends are in it; an end that the circuit does not list is."""
        outside = {node for node, member in self.nodes.items() if not member.in_graph}
        return [
            edge
            for edge, member in self.edges.items()
            if member.in_graph and edge.sender not in outside and edge.receiver not in outside
        ]

    def pruned(
        self, *, least: float = 0.0, pin: Iterable[str | Component | Edge] = (), prune: Iterable[Any] = ()
    ) -> "Circuit":
        """The circuit without what scores less than `least` by magnitude, and without what `prune` names; what `pin`
        names stays whatever it scores.

        Where there are edges, `least` is about edges, and a component stays as long as an edge of it does. Otherwise it
        is about components. A component that is pruned takes its edges with it.
        """
        if not _is_number(least) or least < 0:
            raise BadInput(f"least={least!r}: is not a score; give a number of at least 0")
        pinned, removed = (self._named(names, what) for names, what in ((pin, "pin"), (prune, "prune")))
        if both := next((name for name in pinned if name in removed), None):
            raise BadInput(f"{both}: is pinned and pruned; choose one")

        def stays(name: Node | Edge, member: Member) -> bool:
            return name in pinned or (name not in removed and member.in_graph and abs(member.score or 0.0) >= least)

        edges = {
            edge: member.model_copy(
                update={"in_graph": stays(edge, member) and edge.sender not in removed and edge.receiver not in removed}
            )
            for edge, member in self.edges.items()
        }
        ends = {end for edge, member in edges.items() if member.in_graph for end in (edge.sender, edge.receiver)}
        nodes = {
            node: member.model_copy(
                update={
                    "in_graph": not isinstance(node, Component)
                    or (node in pinned or node in ends if edges else stays(node, member))
                }
            )
            for node, member in self.nodes.items()
        }
        return self.model_copy(update={"nodes": FrozenDict(nodes), "edges": FrozenDict(edges)})

    def cut_to(self, kept: Collection[Component | Edge]) -> "Circuit":
        """The circuit of these edges and their ends or, where it has no edges, of these components."""
        edges = {edge: member.model_copy(update={"in_graph": edge in kept}) for edge, member in self.edges.items()}
        ends = {end for edge in kept if isinstance(edge, Edge) for end in (edge.sender, edge.receiver)}
        inside = ends if edges else set(kept)
        nodes = {
            node: member.model_copy(update={"in_graph": not isinstance(node, Component) or node in inside})
            for node, member in self.nodes.items()
        }
        return self.model_copy(update={"nodes": FrozenDict(nodes), "edges": FrozenDict(edges)})

    def _named(self, names: Iterable[str | Component | Edge], what: str) -> set[Component | Edge]:
        """Components and edges of the circuit by name."""
        parsed = [_part(name) for name in names]
        known = {*self.nodes, *self.edges}
        if (stranger := next((name for name in parsed if name not in known), None)) is not None:
            raise BadInput(f"{what}: {stranger} is not in this circuit; name a component or an edge of it")
        return set(parsed)

    def require_fit(self, shape: Shape, d_model: int, *, source: str = "circuit") -> "Circuit":
        """This circuit, if it is one of a model of that shape."""
        given, needed = (self.n_layers, self.n_heads, self.d_model), (shape.n_layers, shape.n_heads, d_model)
        if given != needed:
            described = ["{} layers, {} heads and d_model {}".format(*sizes) for sizes in (given, needed)]
            raise BadInput(f"{source}: of a model with {described[0]}, the specimen has {described[1]}; discover again")
        return self

    @model_serializer
    def as_data(self) -> JsonObject:
        """The MIB document."""
        return {
            "schema": self.schema_version,
            "cfg": {
                "n_layers": self.n_layers,
                "n_heads": self.n_heads,
                "parallel_attn_mlp": self.parallel,
                "d_model": self.d_model,
            },
            "nodes": {node_name(node): member.as_data() for node, member in self.nodes.items()},
            "edges": {edge.format("eap"): member.as_data() for edge, member in self.edges.items()},
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any], *, source: str = "circuit") -> "Circuit":
        """Read a MIB document, with or without our version; `source` names it in errors."""
        version = next((data[name] for name in VERSION_FIELDS if name in data), cls.SCHEMA)
        if isinstance(version, int) and version > cls.SCHEMA:
            raise BadInput(f"{source}: schema {version} is newer than {cls.SCHEMA}, the latest that this version reads")
        for name in ("cfg", "nodes", "edges"):
            if not isinstance(data.get(name), Mapping):
                raise BadInput(
                    f"{source}: {name!r} is missing or not an object; a MIB circuit has cfg, nodes and edges"
                )
        sizes = _sizes(data["cfg"], source)
        shape = _Shape(sizes["n_layers"], sizes["n_heads"])
        try:
            nodes: dict[Node, Member] = {
                _node(name, shape): _member(name, entry) for name, entry in data["nodes"].items()
            }
            edges = {Edge.parse(name).within(shape): _member(name, entry) for name, entry in data["edges"].items()}
        except BadInput as error:
            raise BadInput(f"{source}: {error}") from None
        if len(nodes) < len(data["nodes"]) or len(edges) < len(data["edges"]):
            raise BadInput(f"{source}: a node or an edge is listed twice, in different notations; list each once")
        parallel = bool(data["cfg"].get("parallel_attn_mlp", False))
        return cls(
            n_layers=shape.n_layers,
            n_heads=shape.n_heads,
            d_model=sizes["d_model"],
            nodes=nodes,
            edges=edges,
            parallel=parallel,
        )

    def write(self, path: Path | str) -> None:
        """Write the MIB JSON file."""
        write_json(Path(path), self.as_data())

    @classmethod
    def read(cls, path: Path | str) -> "Circuit":
        """Read a MIB JSON file."""
        return cls.from_data(read_json(Path(path), unique=True), source=str(path))

    def table(self, *, edges: bool = False) -> Any:
        """Components with their scores, largest magnitude first; or edges."""
        return as_table(self._edge_rows() if edges else self.view().sheet().records())

    def view(self) -> View:
        """Its scores as a map and as a table, and its strongest edges."""
        ranked, chosen = self.ranked(), self.chosen()
        strongest = join_first([f"{part} {score:+.3g}" for part, score in ranked if score], 5)
        inside = set(chosen)
        edges = self.ranked_edges()
        return View(
            "Circuit",
            Answer(
                f"Circuit in a model of {self.n_layers} layers, {self.n_heads} heads, d_model {self.d_model}: "
                f"{len(ranked)} components and {len(self.edge_scores)} edges with scores"
            ),
            [
                Facts(
                    [
                        ("strongest", strongest or "none other than 0"),
                        (
                            "worth explaining (a tenth of the largest score)",
                            join_first(map(str, chosen), 8) or "none",
                        ),
                    ]
                ),
                *([] if any(part.is_unit for part, _ in ranked) else [self.head_map("score", title="Scores")]),
                Sheet(
                    ("component", "score", "chosen"),
                    [(str(part), score, part in inside) for part, score in ranked],
                    title="Components",
                ),
                *([self.edge_sheet(edges, title="Edges")] if edges else []),
            ],
        )

    def head_map(self, unit: str, **options: Any) -> HeadMap:
        """The scores by layer and head."""
        values = {str(part): score for part, score in self.components.items()}
        intervals = {str(part): ends for part, ends in self.intervals.items()}
        return HeadMap(values, self.n_layers, self.n_heads, unit=unit, intervals=intervals, **options)

    @staticmethod
    def edge_sheet(edges: Sequence[tuple[Edge, float]], **options: Any) -> Sheet:
        """Edges with their scores, by the names that components have."""
        rows = [(edge.format("canonical"), score) for edge, score in edges]
        return Sheet(("edge", "score"), rows, signed=("score",), **options)

    def _edge_rows(self) -> list[Row]:
        return [{"edge": str(edge), "score": score} for edge, score in self.ranked_edges()]

    @model_validator(mode="before")
    @classmethod
    def _of_mib(cls, data: object) -> object:
        if isinstance(data, Mapping) and "cfg" in data:
            return dict(cls.from_data(data))
        return data

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return MIB_SCHEMA


_MEMBERS = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "properties": {"score": {"type": "number"}, "in_graph": {"type": "boolean"}},
        "required": ["in_graph"],
    },
}
_SIZE = {"type": "integer", "minimum": 1}
#: JSON Schema of the MIB format.
MIB_SCHEMA: JsonSchemaValue = {
    "title": "Circuit",
    "description": "A circuit in the format of the MIB benchmark. Nodes are named `input`, `a0.h1`, `m0`, `m3.n17` (a "
    "neuron), `m3.e5` (an expert) or `logits`; "
    "edges `a0.h1->a5.h5<q>`. Further fields of a node or an edge are kept.",
    "type": "object",
    "properties": {
        "schema": {"type": "integer", "const": 1},
        "cfg": {
            "type": "object",
            "properties": {
                "n_layers": _SIZE,
                "n_heads": _SIZE,
                "parallel_attn_mlp": {"type": "boolean"},
                "d_model": _SIZE,
            },
            "required": ["n_layers", "n_heads", "d_model"],
        },
        "nodes": _MEMBERS,
        "edges": _MEMBERS,
    },
    "required": ["cfg", "nodes", "edges"],
}


@dataclass(frozen=True)
class _Shape:
    n_layers: int
    n_heads: int


def _sizes(config: Mapping[str, Any], source: str) -> dict[str, int]:
    names = ("n_layers", "n_heads", "d_model")
    for name in names:
        value = config.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise BadInput(f"{source}: cfg.{name} is {quoted(value, 60)}; a positive integer is needed")
    parts = config["n_layers"] * (config["n_heads"] + 1)
    if parts > MOST_PARTS or config["d_model"] > MOST_PARTS:
        size, most = ("its heads and MLPs", parts) if parts > MOST_PARTS else ("cfg.d_model", config["d_model"])
        counted = f"{most:,}" if most < 10**15 else "more than 10^15"
        raise BadInput(f"{source}: {size}: {counted}, and a circuit has at most {MOST_PARTS:,}; correct cfg")
    return {name: config[name] for name in names}


def _part(name: str | Component | Edge) -> Component | Edge:
    if isinstance(name, Component | Edge):
        return name
    return Edge.parse(name) if "->" in str(name) else Component.parse(name)


def _node(name: str, shape: Shape) -> Node:
    return name if name == "input" or name == "logits" else Component.parse(name).within(shape, neurons=True)


def node_name(node: Node) -> str:
    """The name that EAP and MIB give a node."""
    return node.format("eap") if isinstance(node, Component) else node


def _member(name: str, entry: object) -> Member:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("in_graph"), bool):
        raise BadInput(f"{name}: 'in_graph' must be true or false")
    score = entry.get("score")
    if score is not None and not _is_number(score):
        raise BadInput(f"{name}: score {repr(score)[:40]} is not a finite number")
    more = {name: value for name, value in entry.items() if name not in ("score", "in_graph")}
    return Member(score=score, in_graph=entry["in_graph"], more=more)


def _scored(score: float, interval: Interval | None = None) -> Member:
    more: FrozenDict[str, object] = (
        FrozenDict() if interval is None else FrozenDict({LOW: interval[0], HIGH: interval[1]})
    )
    return Member(score=score, in_graph=score != 0, more=more)


def _is_number(value: object) -> bool:
    try:
        return not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:  # an integer beyond what a float holds
        return False
