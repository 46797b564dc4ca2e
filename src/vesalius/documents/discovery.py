"""A discovered circuit: its scores, what they cost, the checks of it, and what was asked.

On disk it is `discovery.json`, with `circuit.json` (the whole circuit, in MIB form) beside it. The file repeats the
request's main fields and lists the components and edges by strength, so that it can be read on its own.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal, Self

from pydantic import (
    Field,
    computed_field,
    field_serializer,
)

from vesalius.components import Edge
from vesalius.documents.answers import ranked_answer
from vesalius.documents.base import Answered, FrozenDict, FrozenMap
from vesalius.documents.checks import ROLES, Checks, CircuitCut
from vesalius.documents.circuit import CIRCUIT_FILE, Circuit, Score
from vesalius.documents.difference import Compared, ComponentDifference, figure_of_both, figure_pairs, rank_correlation
from vesalius.documents.metric import Metric
from vesalius.documents.neurons import LatentSet
from vesalius.documents.performance import Performance
from vesalius.documents.request import PromptedDocument
from vesalius.documents.rivals import Rivals
from vesalius.documents.view import (
    Answer,
    Facts,
    Graph,
    Group,
    Node,
    Section,
    Several,
    Sheet,
    Text,
    View,
    duration,
    figure,
    join_first,
    made,
    prompts,
    subject_of,
    title_of,
    words,
)
from vesalius.documents.whole import LEAST_RANKING, WholeCircuit, answer, shows_nothing, too_few
from vesalius.documents.whole import sections as whole_sections
from vesalius.errors import BadInput
from vesalius.files import read_json
from vesalius.values import JsonObject

DISCOVERY_FILE, DISCOVERY_PAGE = "discovery.json", "discovery.html"
#: Connections that are drawn, out of so many of the strongest edges; edges that a view lists; connections of the
#: whole circuit that are drawn.
CONNECTIONS, DRAWN_FROM, LISTED_IN_VIEW, DRAWN_WHOLE = 18, 360, 20, 60
#: Edges below this part of the strongest are not drawn.
WORTH_DRAWING = 0.02
#: A model with more edges than this has only its strongest edges listed; circuit.json has all.
MAX_LISTED_EDGES, LISTED_EDGES = 6_000, 1_000
#: What a file lists of a search's options, and of EAP-IG's `steps` (0: the usual number), where they are left out.
SEARCH_DEFAULTS: JsonObject = {"budget": None, "paper": False, "seeds": 1, "steps": 0}


class Discovery(Answered, PromptedDocument, kind="discovery"):
    """The circuit that a method found, with the checks of it (None where they were left out).

    `metrics` has one figure per check and, where the true circuit is known, the areas against it. `unit` is what scores
    are measured in, `forwards` the cost in forward passes of all prompts, `model` a fingerprint of the weights,
    `directory` where the files are. `whole` is the smallest connected circuit that keeps a share of the behaviour, from
    which `answer`, `kept`, `size` and `connected` follow (None where it was not searched). `selection` says how the
    circuit was cut by a rule (None: by none), `rivals` which other circuits keep the behaviour, `latents` the smallest
    set of latents, heads and error terms that does, where dictionaries were given.
    `quirks` says what a reproduction of a published method does that others do not, `notes` what the method cannot see,
    `meaning` what a score is.
    """

    FILE = DISCOVERY_FILE
    RANK = 30
    BESIDE = (CIRCUIT_FILE,)
    COMMAND = VERB = "discover"
    RECOGNISED_BY = ("forwards", "method")
    SCHEMA = 2
    REMEDY = "run `vesalius discover` again"
    ABSENT_IF_DEFAULT = (
        "edges",
        "n_edges",
        "quirks",
        "notes",
        "meaning",
        "checks_forwards",
        "selection",
        "rivals",
        "latents",
        "whole",
        "answer",
        "kept",
        "size",
        "connected",
    )

    schema_version: Literal[2] = Field(default=2, alias="schema")
    circuit: Circuit
    unit: str = ""
    performance: Performance | None = None
    metrics: FrozenMap[str, float] = Field(default_factory=FrozenDict)
    forwards: float
    seconds: float
    model: str = ""
    checks: Checks | None = None
    selection: CircuitCut | None = None
    rivals: Rivals | None = None
    latents: LatentSet | None = None
    whole: WholeCircuit | None = None
    quirks: FrozenMap[str, str] = Field(default_factory=FrozenDict)
    notes: tuple[str, ...] = ()
    meaning: str = ""
    directory: str | None = Field(default=None, exclude=True)

    @computed_field
    @property
    def method(self) -> str:
        """The discovery method; of several that were asked, the one whose ranking made the circuit."""
        named = self.request.method or "sweep"
        return named if self.whole is None else self.whole.method

    @computed_field
    @property
    def kept(self) -> Metric | None:
        """The share of the behaviour that the circuit keeps on prompts that chose nothing."""
        return None if self.whole is None else self.whole.kept

    @computed_field
    @property
    def size(self) -> int | None:
        """How many components the circuit has."""
        return None if self.whole is None else self.whole.size

    @computed_field
    @property
    def connected(self) -> bool | None:
        """Whether every component lies on a path of its edges from the tokens to the logits."""
        return None if self.whole is None else self.whole.connected

    def answered(self) -> Answer:
        """Whether a circuit of this size carries the behaviour, and what to do next."""
        subject = title_of(self.behaviour) if self.behaviour else "the outputs"
        weak, empty = (self.performance.weak, self.performance.empty) if self.performance else (None, None)
        if self.whole is None:
            return self._ranked(subject, empty)
        said = answer(self.whole, subject, weak=weak, empty=empty)
        return replace(said, then=self._next(said.verdict, self.whole))

    def _ranked(self, subject: str, empty: str | None) -> Answer:
        """The answer where no circuit was searched: none was asked for, a rule cut one, or nothing can be kept."""
        strongest = [f"{row.id} {row.score:+.3g}" for row in self.components if row.score]
        said = (
            f"{len(strongest)} of {len(self.components)} components have a score for {subject} by {self.method} on "
            f"{prompts(self.n)} (largest: {join_first(strongest, 3, total=min(3, len(strongest))) or 'none'})"
        )
        if not strongest or (self.checks is not None and "faithfulness" in self.checks.missing):
            empty = empty or "everything replaced scores the same, so that no circuit can keep anything"
        doubt = f"no circuit was searched{' and nothing was checked (--quick)' if self.checks is None else ''}"
        if cut := self.selection:
            kept = cut.rule.faithfulness
            share = "was not measured" if kept is None else f"is {kept:.3f} without an interval"
            doubt = f"the {cut.rule.size} {cut.by} were cut by the rule {cut.rule.rule}, and what they keep {share}"
        answer = ranked_answer(said, empty=empty, doubt=doubt)
        if answer.verdict == "no":
            return replace(answer, then=self.request.followed_by("behaviours" if self.behaviour else "sweep"))
        if cut and self.directory is not None:
            return replace(answer, then=self.request.followed_by("faithfulness", "--circuit", self.directory))
        return replace(answer, then=self.request.with_options(quick=None, select=None, size=None))

    def _next(self, verdict: str | None, whole: WholeCircuit) -> str | None:
        """Explain a circuit that there is; where there is none, ask for the size that was found to be enough, and where
        nothing is shown, for more prompts.
        """
        empty = self.performance and self.performance.empty
        few = whole.n_rank < LEAST_RANKING or too_few(whole.kept)
        if not empty and ((whole.found and shows_nothing(whole.kept)) or (few and verdict != "yes")):
            return self.request.on_more_prompts(max(self.n, whole.kept.n) if shows_nothing(whole.kept) else self.n)
        if verdict != "no":
            place = [] if self.directory is None else ["--circuit", self.directory]
            return self.request.followed_by("explain", *place)
        if whole.reached is not None:
            return self.request.followed_by("discover", "--most", str(whole.reached))
        return self.request.followed_by("behaviours") if self.behaviour else None

    @computed_field
    @property
    def search(self) -> JsonObject:
        """The options of a search, and the `steps` of EAP-IG; of another method, the defaults."""
        return {name: self.request.options.get(name, default) for name, default in SEARCH_DEFAULTS.items()}

    @computed_field
    @property
    def components(self) -> tuple[Score, ...]:
        """Every component with its score, largest magnitude first."""
        return Several(Score(id=str(part), score=score) for part, score in self.circuit.ranked())

    @computed_field
    @property
    def edges(self) -> tuple[Score, ...]:
        """Edges with their scores, largest magnitude first: all, or the strongest of a large model."""
        ranked = self.circuit.ranked_edges()
        shown = ranked if len(ranked) <= MAX_LISTED_EDGES else ranked[:LISTED_EDGES]
        return Several(Score(id=str(edge), score=score) for edge, score in shown)

    @computed_field
    @property
    def n_edges(self) -> int:
        """How many edges have a score."""
        return len(self.circuit.edge_scores)

    @computed_field
    @property
    def layers(self) -> int:
        """Layers of the model."""
        return self.circuit.n_layers

    @computed_field
    @property
    def heads(self) -> int:
        """Heads of a layer."""
        return self.circuit.n_heads

    @computed_field
    @property
    def checks_forwards(self) -> float | None:
        """Cost of the checks in forward passes of all prompts."""
        return None if self.checks is None else self.checks.rows / max(1, self.n)

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read `discovery.json` and the circuit beside it."""
        path = Path(path)
        data = read_json(path)
        beside = path.with_name(CIRCUIT_FILE)
        if beside.is_file():
            data["circuit"] = Circuit.read(beside)
        elif not isinstance(data.get("circuit"), dict):
            raise BadInput(f"{path}: {CIRCUIT_FILE} is not beside it; run `vesalius discover` again")
        rows = data.get("components")
        components = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        scores = {str(row.get("id")): row.get("score") for row in components}
        discovery = cls.from_data({**data, "directory": str(path.parent)}, source=str(path))
        if scores != {row.id: row.score for row in discovery.components}:
            raise BadInput(f"{path}: {CIRCUIT_FILE} beside it has other scores; run `vesalius discover` again")
        return discovery

    def save(self, directory: Path | str) -> Path:
        """Write `circuit.json` and `discovery.json` into a directory and return the path of the latter."""
        place = made(directory)
        path = place / DISCOVERY_FILE
        path.unlink(missing_ok=True)  # the one of an earlier discovery does not belong to this circuit
        self.circuit.write(place / CIRCUIT_FILE)
        self.model_copy(update={"directory": str(place)}).write(path)
        return path

    def compared(self, other: "Discovery") -> Compared:
        """How another discovery differs: which components are among the strongest of one circuit alone."""
        both = (self, other)
        size = min(
            one.checks.size if one.checks is not None else sum(bool(row.score) for row in one.components)
            for one in both
        )
        scores = [{row.id: row.score for row in one.components} for one in both]
        first, second = ({row.id for row in one.components[:size] if row.score} for one in both)
        moved = [
            ComponentDifference(
                component=name,
                what=f"among the strongest {size}",
                a="yes" if name in first else "no",
                b="yes" if name in second else "no",
            )
            for name in sorted(first ^ second)
        ]
        shared = [name for name in scores[0] if name in scores[1]]
        figures = [{**one.metrics, **({} if one.checks is None else one.checks.metrics)} for one in both]
        correlation = rank_correlation(*([one[name] for name in shared] for one in scores))
        return Compared(
            components_moved=moved,
            components_same=len(first & second),
            rule=f"among the {size} strongest components of one circuit alone",
            metrics={
                **figure_pairs(*figures),
                "shared among the strongest": figure_of_both(len(first & second)),
                "rank correlation of scores": figure_of_both(correlation),
            },
        )

    def listed_as(self) -> str:
        """What it is a result of, as lists of results name it."""
        return f"{subject_of(self.specimen, self.behaviour)}, {self.method}"

    def view(self) -> View:
        """Which components, which edges, how far to trust them, and which other circuits would do."""
        subject = subject_of(self.specimen, self.behaviour)
        areas = ", ".join(
            f"{words(name)} {self.metrics[name]:.3f}" for name in ("auroc", "edge_auroc") if name in self.metrics
        )
        strongest = [f"{row.id} {row.score:+.3g}" for row in self.components if row.score]
        checks = "checks: left out" if self.checks is None else str(self.checks.view().answer)
        described = (
            f"Discovery in {subject} by {self.method} on {prompts(self.n)}, {len(self.components)} components"
            f"{f' and {self.n_edges} edges' if self.n_edges else ''} ({self.unit}){f'; {areas}' if areas else ''}"
        )
        sections: list[Section] = [
            Facts([("", described)]),
            Facts([("strongest", join_first(strongest, 5) or "none other than 0"), ("", checks)]),
            Facts(self._facts()),
            *([Text(self.notes, bullets=True)] if self.notes else []),
            *self._whole_sections(),
            *self._latents(),
            Group(self._components(), title="Which components"),
            Group(self._edges(), title="Which edges"),
        ]
        if self.selection is not None:
            sections.append(Group(self.selection.sections(), title="Which of them are the circuit"))
        if self.checks is not None:
            sections.append(Group(self.checks.sections(self.behaviour or ""), title="Can it be trusted?"))
        if self.rivals is not None:
            sections.append(Group(self.rivals.sections(), title="Rival circuits"))
        sections.append(Text([self._what_files_hold()], title="All scores", pages_only=True))
        return View(
            f"{subject}: discovered circuit",
            self.answered(),
            sections,
            command=self.request.command_line(),
            place=self.directory and str(Path(self.directory) / DISCOVERY_PAGE),
            files=[("circuit", str(Path(self.directory) / CIRCUIT_FILE))] if self.directory else [],
        )

    def _whole_sections(self) -> list[Section]:
        """The circuit as a drawing, what it keeps and how it was found."""
        if self.whole is None:
            return []
        merged: dict[tuple[str, str], float] = {}
        for edge in self.circuit.kept_edges:
            ends = _ends(edge)
            merged[ends] = max(merged.get(ends, 0.0), abs(self.circuit.edges[edge].score or 0.0))
        strongest = sorted(merged, key=lambda ends: -merged[ends])[:DRAWN_WHOLE]
        count = f"The {len(strongest)} strongest of {len(merged)}" if len(strongest) < len(merged) else "All"
        caption = f"{count} connections of the circuit; q, k and v of a head are drawn as one."
        drawing = self._graph({ends: merged[ends] for ends in strongest}, caption)
        found = [drawing] if self.whole.found and self.whole.connected and strongest else []
        return [Group([*whole_sections(self.whole), *found], title="The circuit")]

    def _latents(self) -> list[Section]:
        """What a set of latents keeps, and which they are."""
        if self.latents is None:
            return []
        empty = None if self.performance is None else self.performance.empty
        said = Facts([("latents", str(self.latents.judged(empty))), *self.request.remarks()])
        return [Group([said, *self.latents.sections()], title="Which latents")]

    def _facts(self) -> list[tuple[str, str]]:
        """How the circuit was found, how well the model performs, and the areas against a known circuit."""
        searched = self._heads_only()
        facts = [("method", f"{self.method}, seed {self.seed}, {prompts(self.n)}")]
        if performance := self.performance:
            facts += performance.facts()
        facts.append(("discovery", f"{self.forwards:.1f} forward-equivalents, {duration(self.seconds)}"))
        if checks := self.checks:
            fewer = "" if checks.n == checks.asked else f" (all that are unseen; {checks.asked} were asked for)"
            cost = f"{self.checks_forwards or 0.0:.1f} forward-equivalents, {duration(checks.seconds)}"
            words = f"{checks.n} held-out prompts{fewer}, circuit of {checks.size}, {cost} (--quick leaves them out)"
            facts.append(("checks", words))
        names = {"auroc": "head AUROC" if searched else "node AUROC", "edge_auroc": "edge AUROC"}
        facts += [(words, figure(self.metrics[name])) for name, words in names.items() if name in self.metrics]
        facts += [(name, figure(value)) for name, value in self.metrics.items() if name.endswith("_all")]
        if "seeds_jaccard" in self.metrics:
            alike = f"similarity of the ten strongest heads of {self.search['seeds']} searches"
            facts.append(("seeds_jaccard", f"{self.metrics['seeds_jaccard']:.3f}, {alike}"))
        return facts

    def _components(self) -> list[Section]:
        """The map, and every component with what is known of it, strongest first."""
        checks, ranked = self.checks, self.circuit.ranked()
        flagged = checks.detectors.flagged if checks and checks.detectors else {}
        published = checks.known_heads.roles if checks and checks.known_heads else {}
        intervals, chosen = self.circuit.intervals, set(self.circuit.chosen())
        names = ["component", "score", "chosen"]
        names += ["low", "high"] if intervals else []
        names += ["attention"] if flagged else []
        names += ["published as"] if published else []
        rows = []
        for part, score in ranked:
            row: list[object] = [str(part), score, part in chosen]
            row += intervals.get(part, (None, None)) if intervals else ()
            row += [_named(flagged, str(part))] if flagged else []
            row += [published.get(str(part))] if published else []
            rows.append(row)
        ask = {"specimen": self.specimen or "", "behaviour": self.behaviour or "", "kind": "resample"}
        none = "nothing scores other than 0 on these prompts; use more of them (--n) or another method"
        return [
            self.circuit.head_map(self._unit(), ask=ask, title="Head map", caption=self._meaning()),
            *([] if any(score for _, score in ranked) else [Text([none])]),
            Sheet(names, rows, title=f"Components: {self._unit()}", signed=("score",)),
        ]

    def _unit(self) -> str:
        return f"score ({self.unit})" if self.unit else "score"

    def _meaning(self) -> str:
        """What a score is."""
        if not self.meaning and self.circuit.edge_scores:
            return "A component's score is the largest magnitude among its outgoing edges."
        return self.meaning or f"A component's score is what the method {self.method} gave it."

    def _heads_only(self) -> bool:
        return all(part.is_head for part in self.circuit.components)

    def _edges(self) -> list[Section]:
        """The strongest connections as a drawing, and the strongest edges as a table."""
        edges = self.circuit.ranked_edges()[:DRAWN_FROM]
        if not edges:
            scored = "heads" if self._heads_only() else "components"
            return [Text([f"The method {self.method} scores {scored} only."], pages_only=True)]
        merged: dict[tuple[str, str], float] = {}
        for edge, score in edges:
            if abs(score) > WORTH_DRAWING * abs(edges[0][1]) and len(merged) < CONNECTIONS:
                merged.setdefault(_ends(edge), score)
        caption = (
            f"The {len(merged)} strongest connections of {self.n_edges:,} edges. Where two components are joined by "
            "several inputs (q, k, v), the strongest stands for all. Dashed: negative."
        )
        return [
            self._graph(merged, caption),
            self.circuit.edge_sheet(edges[:LISTED_IN_VIEW], title=f"Edges: {self._unit()}"),
        ]

    def _graph(self, connections: Mapping[tuple[str, str], float], caption: str) -> Graph:
        """Connections as a drawing, their components with their scores."""
        scores = {str(part): f"{score:.3g}" for part, score in self.circuit.ranked()}
        shown = dict.fromkeys(end for ends in connections for end in ends if end in scores)
        edges = [(*ends, score) for ends, score in connections.items()]
        return Graph([Node(name, scores[name]) for name in shown], edges, caption=caption)

    def _what_files_hold(self) -> str:
        listed = len(self.edges)
        if listed < self.n_edges:
            return (
                f"discovery.json has the score of every component and of the {listed:,} strongest edges, circuit.json "
                f"that of all {self.n_edges:,} in the format of the MIB benchmark."
            )
        edges = " and every edge" if self.n_edges else ""
        return (
            f"discovery.json has the score of every component{edges}, circuit.json the same in the format of the MIB "
            "benchmark."
        )

    @field_serializer("circuit")
    def _circuit_place(self, circuit: Circuit) -> str | JsonObject:
        """The path of the file beside; the circuit itself where there is none."""
        return circuit.as_data() if self.directory is None else str(Path(self.directory) / CIRCUIT_FILE)


def _named(flagged: Mapping[str, tuple[str, ...]], head: str) -> str | None:
    """What the attention of a head makes it."""
    return ", ".join(ROLES[role] for role, heads in flagged.items() if head in heads) or None


def _ends(edge: Edge) -> tuple[str, str]:
    """The sender and the receiver of an edge, as a drawing names them."""
    return str(edge.sender or "embedding"), str(edge.receiver or "logits")
