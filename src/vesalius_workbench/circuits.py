"""Circuits on the page: the graph of a result, how faithful a pruned circuit is, and files of pruned circuits.

The page sends what was pruned from a result (`least`, `pin`, `prune`), never a circuit of its own, so that a request
stays small and the server and the command line prune by the same rule.
"""

import os
import re
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from vesalius import api
from vesalius.api.kept_circuits import MAX_EDGES, edges_in, explained_circuit
from vesalius.documents import Circuit, Discovery, Explanation
from vesalius.documents.discovery import DISCOVERY_FILE
from vesalius.documents.explanation import EXPLANATION_FILE
from vesalius.documents.request import Request
from vesalius.errors import BadInput
from vesalius_workbench.models import Models
from vesalius_workbench.store import Store

#: Edges that the page is sent, the strongest first.
MOST_EDGES = 20_000
#: Prompts of one question.
MOST_PROMPTS = 128
#: Prompts of a discovery that are drawn again, so that none of them is measured on.
MOST_SEEN = 4_096
#: Where a page that was just opened starts: about so many edges, or the components worth explaining.
FIRST_EDGES = 40
#: Options of a request that decide which model and which score is meant.
OF_THE_MODEL = ("metric", "tokenizer", "revision", "dtype")
#: Files that hold a circuit.
SHOWN = (DISCOVERY_FILE, EXPLANATION_FILE)
#: What explanations call the ends of a circuit.
ENDS = {"tokens": "input", "indices": "input", "logits": "logits", "output": "logits"}
#: Names by which a directory is known as something else than a discovery.
RESERVED = (EXPLANATION_FILE, "run.json", "study.json", "job.json", "under_way.json")
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}\.json")
Name = Annotated[str, Field(min_length=1, max_length=200)]
Names = Annotated[list[Name], Field(max_length=5_000)]
Score = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Place = Annotated[str, Field(min_length=1, max_length=2_000)]


class Edits(BaseModel):
    """What was pruned from the circuit of a result. `edges`: the circuit of an explanation is that of the paths that
    were measured, not only of its components.
    """

    model_config = ConfigDict(extra="forbid")

    path: Place
    edges: bool = False
    least: Score = 0.0
    pin: Names = []
    prune: Names = []

    @property
    def keywords(self) -> dict[str, Any]:
        """As `Circuit.pruned` takes them."""
        return {"least": self.least, "pin": self.pin, "prune": self.prune}


class FaithfulnessQuestion(Edits):
    """How much of the behaviour it keeps."""

    n: Annotated[int, Field(ge=1, le=MOST_PROMPTS)] = 12
    seed: Annotated[int, Field(ge=0, le=2**62)] = 0


class SaveQuestion(Edits):
    """A pruned circuit as a file beside its result."""

    name: Annotated[str, Field(max_length=90)] = "pruned.json"


def routes(app: FastAPI, store: Store, models: Models, results: "Results") -> None:
    """The questions about circuits."""

    @app.get("/api/circuit")
    def circuit(path: Annotated[str, Query(max_length=2_000)]) -> dict[str, Any]:
        return graph(results.read(path))

    @app.post("/api/faithfulness")
    def faithfulness(asked: FaithfulnessQuestion) -> Any:
        result = results.read(asked.path)
        if isinstance(result, Discovery) and (edges := len(result.circuit.edges)) > MAX_EDGES:
            raise BadInput(
                f"{asked.path!r:.80}: this model has {edges:,} edges and at most {MAX_EDGES:,} are cut here; "
                f"in a terminal: vesalius faithfulness {result.specimen} --circuit DIR --least {asked.least:g}"
            )
        if isinstance(result, Discovery) and result.n > MOST_SEEN:
            raise BadInput(
                f"{asked.path!r:.80}: saw {result.n:,} prompts, and at most {MOST_SEEN:,} are told apart here"
            )
        with models.turn():
            specimen = models.specimen(*subject(result))
            paths = result if asked.edges and isinstance(result, Explanation) else None
            place = store.place(asked.path)
            if paths is not None and (edges := edges_in(specimen)) > MAX_EDGES:
                raise BadInput(
                    f"{asked.path!r:.80}: this model has {edges:,} edges and at most {MAX_EDGES:,} are cut here; save "
                    "the circuit, and measure it with `vesalius faithfulness` in a terminal"
                )
            given = {"components": explained_circuit(paths, specimen)} if paths else _given(result, place)
            options = {**asked.keywords, "n": asked.n, "seed": asked.seed}
            document = api.faithfulness(specimen, **given, **options, progress=models.report)
        # The paths of an explanation are a circuit that no file holds until it is saved.
        command = None if paths else document.request.command_line()
        return {"document": document.as_data(), "command": command}

    @app.post("/api/circuit/save")
    def save(asked: SaveQuestion) -> dict[str, Any]:
        return results.save(asked, circuit_of(results.read(asked.path), models, edges=asked.edges))

    @app.get("/api/circuit/file")
    def file(
        path: Annotated[str, Query(max_length=2_000)],
        least: Annotated[float, Query(ge=0, allow_inf_nan=False)] = 0.0,
        pin: Annotated[str, Query(max_length=50_000)] = "",
        prune: Annotated[str, Query(max_length=50_000)] = "",
        edges: bool = False,
    ) -> Response:
        named = {"pin": list(filter(None, pin.split(","))), "prune": list(filter(None, prune.split(",")))}
        pruned = circuit_of(results.read(path), models, edges=edges).pruned(least=least, **named)
        return JSONResponse(pruned.as_data(), headers={"content-disposition": 'attachment; filename="pruned.json"'})


def _given(result: Discovery | Explanation, place: Path) -> dict[str, Any]:
    """A circuit as `faithfulness` takes it; that of a benchmark's case is told by its components."""
    if isinstance(result, Discovery):
        return {"components": result}
    if place.is_file() and place.name != EXPLANATION_FILE:
        return {"components": [part.id for part in result.components]}
    return {"circuit": place}


class Results:
    """Discoveries and explanations below the directory that is open."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def read(self, path: str) -> Discovery | Explanation:
        """The discovery or the explanation of a directory, or the explanation of a file."""
        place = self.store.place(path)
        inside = place.name in SHOWN or place.parent.name == "explanations"
        files = [place] if inside else [place / name for name in SHOWN]
        file = next((self.store.place(str(one)) for one in files if one.is_file()), None)
        if file is None:
            raise BadInput(
                f"{path!r:.80}: holds no circuit; name a result of `vesalius discover` or `vesalius explain`"
            )
        kind = Discovery if file.name == DISCOVERY_FILE else Explanation
        return self.store.reader.read(file, kind)

    def explanation(self, path: str) -> Explanation:
        """The explanation of a directory or of a file, which knows its place."""
        place = self.store.place(path)
        file = place if place.is_file() else place / EXPLANATION_FILE
        if not file.is_file():
            raise BadInput(f"{path!r:.80}: holds no explanation; name a result of `vesalius explain`")
        found = self.read(str(file.relative_to(self.store.directory)))
        if not isinstance(found, Explanation):
            raise BadInput(f"{path!r:.80}: is no explanation; name a result of `vesalius explain`")
        return found if file.name != EXPLANATION_FILE else found.model_copy(update={"directory": str(file.parent)})

    def save(self, asked: SaveQuestion, circuit: Circuit) -> dict[str, Any]:
        """Write a circuit, pruned, beside its result, never over another file."""
        if not FILE_NAME.fullmatch(asked.name):
            raise BadInput(
                f"name {asked.name!r:.100}: is no file name; use letters, digits, - and _, such as pruned.json"
            )
        if asked.name in RESERVED:
            raise BadInput(f"{asked.name}: would make the result look like another; choose another name")
        pruned = circuit.pruned(**asked.keywords)
        place = self.store.place(asked.path)
        directory = place.parent if place.is_file() else place
        file = directory / asked.name
        try:
            os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        except FileExistsError:
            raise BadInput(f"{asked.name}: is there already; choose another name") from None
        except OSError as error:
            raise BadInput(f"{asked.name}: cannot be written ({error.strerror})") from None
        pruned.write(file)
        result = self.read(asked.path)
        command = "explain" if isinstance(result, Discovery) else "faithfulness"
        then = Request(command=command, **_names(result), circuit=str(file))
        inside = str(file.relative_to(self.store.directory))
        return {"path": inside, "file": str(file), "command": then.command_line()}


def subject(result: Discovery | Explanation) -> tuple[str, str | None, dict[str, Any]]:
    """The specimen that a result is about, its behaviour, and how the model was read."""
    names = _names(result)
    if not names["specimen"]:
        raise BadInput("the result does not say which specimen it is about; make it again with this version")
    options = {} if result.request is None else result.request.options
    return str(names["specimen"]), names["behaviour"], {name: options[name] for name in OF_THE_MODEL if name in options}


def _names(result: Discovery | Explanation) -> dict[str, Any]:
    asked = result.request
    return {"specimen": (asked and asked.specimen) or result.specimen, "behaviour": result.behaviour}


def circuit_of(result: Discovery | Explanation, models: Models, *, edges: bool) -> Circuit:
    """The circuit of a discovery, or that of the components or the paths of an explanation, whose model says how wide
    it is.
    """
    if isinstance(result, Discovery):
        return result.circuit
    with models.turn():
        return explained_circuit(result, models.specimen(*subject(result)), edges=edges)


def graph(result: Discovery | Explanation) -> dict[str, Any]:
    """What the page draws: components and edges with their scores, the strongest edges first."""
    common = {**_names(result), "unit": getattr(result, "unit", "")}
    if isinstance(result, Explanation):
        return {**common, "kind": "explanation", "by": "components", **_explained(result)}
    edges: list[tuple[str, float]] = [
        (edge.format(), score) for edge, score in result.circuit.ranked_edges() if result.circuit.edges[edge].in_graph
    ]
    by_edges, members = bool(result.circuit.edges), result.circuit.nodes
    nodes = [
        {"id": str(part), "score": score}
        for part, score in result.circuit.ranked()
        if by_edges or members[part].in_graph
    ]
    chosen = [abs(result.circuit.components[part]) for part in result.circuit.chosen()]
    least = abs(edges[min(FIRST_EDGES, len(edges)) - 1][1]) if edges else min(chosen, default=0.0)
    return {
        **common,
        "kind": "discovery",
        "by": "edges" if by_edges else "components",
        "title": f"circuit by {result.method}",
        "nodes": nodes,
        "edges": edges[:MOST_EDGES],
        "n_edges": len(edges),
        "least": least,
    }


def _explained(result: Explanation) -> dict[str, Any]:
    """Connections that the scientist measured; the circuit is that of its components, or on request of these."""
    edges = [
        [f"{ENDS.get(sender, sender)}->{ENDS.get(receiver, receiver)}", strength]
        for sender, receiver, strength in sorted(result.edges, key=lambda edge: -abs(edge[2]))
    ]
    nodes = [
        {"id": part.id, "score": None, "role": part.role or part.tag or "", "verdict": part.verdict}
        for part in result.components
    ]
    title = f"explained by {result.scientist}"
    return {"title": title, "nodes": nodes, "edges": edges[:MOST_EDGES], "n_edges": len(edges), "least": 0.0}
