"""`discover` and `bench discovery`: circuits by their scores, for one specimen or for all that have a key."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from vesalius.api import discover, load
from vesalius.api.notes import note_unperformed as warn_unperformed
from vesalius.api.places import directory_for as out_directory
from vesalius.api.places import removed_if_empty as leaving_nothing_empty
from vesalius.circuits.making import KEY_FILE, KEY_FOLDER
from vesalius.circuits.specimens import benchmark_directory
from vesalius.cli.console import print_json, stdout
from vesalius.cli.trusting import checked, draw, print_trust
from vesalius.discovery.mechrl.environment import PAPER_QUIRKS
from vesalius.discovery.methods import Discovery, require_method
from vesalius.discovery.pruning import MAX_EDGES
from vesalius.discovery.search.model_search import SearchOptions
from vesalius.documents.circuit import Circuit
from vesalius.errors import note
from vesalius.files import write_json
from vesalius.grading.discovery import grade_circuit_scores, true_circuit
from vesalius.model.states import fingerprint
from vesalius.progress import shown
from vesalius.report.discovery import CIRCUIT, NUMBERS

SCHEMA = 1
#: Of a model of more edges than `MAX_EDGES`, the document lists this many.
EDGES_LISTED = 1000


@dataclass(frozen=True)
class Request:
    """Everything the scores depend on, apart from the weights."""

    specimen: str
    behaviour: str | None
    method: str
    n: int
    seed: int
    search: SearchOptions = field(default_factory=SearchOptions)

    def words(self, name: str) -> tuple[str | None, ...]:
        """The parts of the directory's name, where none was asked for: whatever decides the scores."""
        given = self.search
        return (
            "discover",
            name,
            self.behaviour,
            self.method,
            "paper" if given.paper else None,
            None if given.budget is None else f"budget{given.budget}",
            f"steps{given.steps}" if given.steps else None,
            f"seeds{given.seeds}" if given.seeds > 1 else None,
            f"n{self.n}",
            f"seed{self.seed}",
        )


def discover_one(
    request: Request,
    *,
    out: str | None,
    top: int,
    device: str,
    as_json: bool,
    force: bool = False,
    quick: bool = False,
) -> None:
    """Run one method on one specimen, write the circuit and report the scores; `quick` leaves the checks out."""
    require_method(request.method, request.search)
    specimen = load(request.specimen, behaviour=request.behaviour, device=device)
    directory = out_directory(out, *request.words(specimen.name))
    with leaving_nothing_empty(directory), shown() as tell:
        found = discover(
            specimen,
            request.method,
            n=request.n,
            seed=request.seed,
            search=request.search,
            force=force,
            progress=tell,
        )
    warn_unperformed(specimen.name, request.behaviour, found.performance)
    (directory / NUMBERS).unlink(missing_ok=True)  # those of an earlier discovery are not this circuit's
    found.circuit.write(directory / CIRCUIT)
    metrics = {**_metrics(request.specimen, found.circuit), **found.metrics}
    document = _document(request, found, metrics, directory, fingerprint(specimen.model))
    if request.search.paper:
        document["quirks"] = PAPER_QUIRKS
        note(f"paper mode: {'; '.join(PAPER_QUIRKS)}; see docs/background/mechrl.md")
    if not quick:
        document |= checked(specimen, found, n=request.n, seed=request.seed)
        document["metrics"] |= document.pop("trust_metrics")
    write_json(directory / NUMBERS, document)
    document |= draw(directory)
    if as_json:
        return print_json(document)
    _print(document, top)
    return None


def _metrics(specimen: str, circuit: Circuit) -> dict[str, float]:
    """The areas where the true circuit is known; `auroc` is that of the nodes."""
    shipped = benchmark_directory(specimen)
    directory = shipped or Path(specimen).expanduser()
    if shipped is None and not (directory / KEY_FOLDER / KEY_FILE).is_file():
        return {}
    areas = grade_circuit_scores(circuit, true_circuit(specimen, directory)).model_dump()
    return {name: area for name, area in {"auroc": areas["node_auroc"], **areas}.items() if area is not None}


def _document(
    request: Request, found: Discovery, metrics: dict[str, float], directory: Path, model: str
) -> dict[str, Any]:
    edges = found.circuit.ranked_edges()
    listed = [{"id": str(edge), "score": score} for edge, score in edges[: _edges_listed(len(edges))]]
    return {
        "schema": SCHEMA,
        **asdict(request),
        "components": [{"id": str(part), "score": score} for part, score in found.circuit.ranked()],
        **({"edges": listed, "n_edges": len(edges)} if listed else {}),
        "unit": found.unit,
        "performance": found.performance and asdict(found.performance),
        "metrics": metrics,
        "forwards": found.forwards,
        "seconds": found.seconds,
        "layers": found.circuit.n_layers,
        "heads": found.circuit.n_heads,
        "model": model,
        "circuit": str(directory / CIRCUIT),
    }


def _edges_listed(n: int) -> int:
    """All edges of a model whose edges can be cut one by one; of a larger one the strongest (circuit.json has all)."""
    return n if n <= MAX_EDGES else EDGES_LISTED


def _print(document: dict[str, Any], top: int) -> None:
    for what in ("components", "edges"):
        if what in document:
            table = Table(what, f"score ({document['unit']})", box=None)
            for row in document[what][:top]:
                table.add_row(row["id"], f"{row['score']:+.4f}")
            stdout.print(table)
    if not any(row["score"] for row in document["components"]):
        stdout.print("nothing scores other than 0 on these prompts; take more of them (--n) or another method")
    if "seeds_jaccard" in document["metrics"]:
        seeds, alike = document["search"]["seeds"], document["metrics"]["seeds_jaccard"]
        stdout.print(
            f"seeds_jaccard {alike:.3f}: likeness of the ten strongest heads of {seeds} searches", soft_wrap=True
        )
    for name, value in document["metrics"].items():
        if name.endswith(("_auroc", "_all")):
            stdout.print(f"{name} {value:.3f}")
    stdout.print(
        f"{document['method']}, {document['n']} prompts, {document['forwards']:.1f} forward-equivalents, "
        f"{document['seconds']:.1f} s"
    )
    if "trust" in document:
        print_trust(document)
    stdout.print(f"circuit: {document['circuit']}", soft_wrap=True)
    stdout.print(f"page: {document['page']}", soft_wrap=True)
