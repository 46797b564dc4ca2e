"""`discover` and `bench discovery`: circuits by their scores, for one specimen or for all that have a key."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from vesalius.api import discover
from vesalius.behaviours.natural import require_performance
from vesalius.circuits.making import KEY_FILE, KEY_FOLDER
from vesalius.circuits.specimens import benchmark_directory
from vesalius.cli.catalogue import open_specimen
from vesalius.cli.console import print_json, progress, stderr, stdout, steps
from vesalius.cli.places import out_directory
from vesalius.discovery.circuit import Circuit
from vesalius.discovery.mechrl.environment import PAPER_QUIRKS
from vesalius.discovery.methods import Discovery, require_method
from vesalius.discovery.search.live import SEARCHES, SearchOptions
from vesalius.grading.discovery import grade_circuit_scores, true_circuit
from vesalius.model.files import write_json
from vesalius.runs.discovery import AREAS, discovery_scorecard
from vesalius.runs.selection import benchmark_circuits, first

SCHEMA = 1


@dataclass(frozen=True)
class Request:
    """Everything the scores depend on, apart from the weights."""

    specimen: str
    behaviour: str | None
    method: str
    n: int
    seed: int
    search: SearchOptions = field(default_factory=SearchOptions)


def discover_one(
    request: Request, *, out: str | None, top: int, device: str, as_json: bool, force: bool = False
) -> None:
    """Run one method on one specimen, write the circuit and report the scores."""
    require_method(request.method, request.search)
    specimen = open_specimen(request.specimen, request.behaviour, device=device)
    if request.method in SEARCHES:
        request.search.budget_of(sum(part.is_head for part in specimen.model.components))
    if request.behaviour is not None:
        require_performance(specimen, seed=request.seed, force=force, forced="go on all the same")
    with progress(f"{request.method} of {specimen.name}") as tell:
        found = discover(specimen, request.method, n=request.n, seed=request.seed, search=request.search, progress=tell)
    words = ("discover", specimen.name, request.behaviour, request.method, f"n{request.n}", f"seed{request.seed}")
    directory = out_directory(out, *words)
    found.circuit.write(directory / "circuit.json")
    metrics = {**_metrics(request.specimen, found.circuit), **found.metrics}
    document = _document(request, found, metrics, directory)
    if request.search.paper:
        document["quirks"] = PAPER_QUIRKS
        stderr.print(f"paper mode: {', '.join(PAPER_QUIRKS)}; docs/mechrl.md says what they are", soft_wrap=True)
    write_json(directory / "discovery.json", document)
    if as_json:
        return print_json(document)
    _print(document, top)
    return None


def bench(
    methods: Sequence[str],
    ids: list[str] | None,
    *,
    limit: int | None,
    n: int,
    seed: int,
    jobs: int,
    out: str | None,
    as_json: bool,
) -> None:
    """Run the methods on benchmark circuits and print the scorecard."""
    circuits = first(benchmark_circuits(ids), limit)
    with steps() as tell:
        scorecard = discovery_scorecard(methods, circuits, n=n, seed=seed, jobs=jobs, progress=tell)
    directory = out_directory(out, "bench-discovery", f"{len(circuits)}circuits", f"n{n}", f"seed{seed}")
    write_json(directory / "scorecard.json", scorecard)
    if scorecard["errors"]:
        error = scorecard["errors"][0]
        stderr.print(
            f"{len(scorecard['errors'])} cases ended in an error and are not in the figures (the first, "
            f"{error['method']} on {error['case']}: {error['reason']})",
            markup=False,
            soft_wrap=True,
        )
    if as_json:
        return print_json(scorecard)
    _print_scorecard(scorecard)
    stdout.print(f"numbers: {directory}/scorecard.json", soft_wrap=True)
    return None


def _metrics(specimen: str, circuit: Circuit) -> dict[str, float]:
    """The areas where the true circuit is known; `auroc` is that of the nodes."""
    shipped = benchmark_directory(specimen)
    directory = shipped or Path(specimen).expanduser()
    if shipped is None and not (directory / KEY_FOLDER / KEY_FILE).is_file():
        return {}
    areas = grade_circuit_scores(circuit, true_circuit(specimen, directory)).model_dump()
    return {name: area for name, area in {"auroc": areas["node_auroc"], **areas}.items() if area is not None}


def _document(request: Request, found: Discovery, metrics: dict[str, float], directory: Path) -> dict[str, Any]:
    edges = sorted(found.circuit.edge_scores.items(), key=lambda item: -abs(item[1]))
    listed = [{"id": str(edge), "score": score} for edge, score in edges]
    return {
        "schema": SCHEMA,
        **asdict(request),
        "components": [{"id": str(part), "score": score} for part, score in found.circuit.ranked()],
        **({"edges": listed} if listed else {}),
        "metrics": metrics,
        "forwards": found.forwards,
        "seconds": found.seconds,
        "circuit": str(directory / "circuit.json"),
    }


def _print(document: dict[str, Any], top: int) -> None:
    for what in ("components", "edges"):
        if what in document:
            table = Table(what, "score", box=None)
            for row in document[what][:top]:
                table.add_row(row["id"], f"{row['score']:+.4f}")
            stdout.print(table)
    for name, value in document["metrics"].items():
        if name != "auroc":
            stdout.print(f"{name} {value:.3f}")
    stdout.print(
        f"{document['method']}, {document['n']} prompts, {document['forwards']:.1f} forward-equivalents, "
        f"{document['seconds']:.1f} s"
    )
    stdout.print(f"circuit: {document['circuit']}", soft_wrap=True)


def _print_scorecard(scorecard: dict[str, Any]) -> None:
    table = Table("method", "figure", "median", "95 % interval", "mean", "95 % interval", "n", box=None, pad_edge=False)
    for method, figures in scorecard["methods"].items():
        for name in AREAS:
            if (area := figures[name]) is not None:
                median = f"{area['median']:.3f}", f"{area['median_low']:.3f} to {area['median_high']:.3f}"
                mean = f"{area['mean']:.3f}", f"{area['mean_low']:.3f} to {area['mean_high']:.3f}"
                table.add_row(method, name, *median, *mean, str(area["n"]))
    stdout.print(table)
    for method, figures in scorecard["methods"].items():
        stdout.print(
            f"{method}: {figures['forwards']:.1f} forward-equivalents per circuit, {figures['seconds']:.1f} s in all, "
            f"{figures['n_error']} errors"
        )
