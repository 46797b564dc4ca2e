"""`discover` and `bench discovery`: circuits by their scores, for one specimen or for all that have a key."""

from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from vesalius.api import discover
from vesalius.circuits.making import KEY_FILE, KEY_FOLDER
from vesalius.circuits.specimens import benchmark_directory
from vesalius.cli.catalogue import open_specimen
from vesalius.cli.console import print_json, progress, stderr, stdout, steps
from vesalius.cli.places import out_directory
from vesalius.cli.trusting import checked, draw, print_trust
from vesalius.discovery.circuit import Circuit
from vesalius.discovery.methods import METHODS, Discovery
from vesalius.errors import BadInput, choices
from vesalius.grading.discovery import grade_circuit_scores, true_circuit
from vesalius.model.files import write_json
from vesalius.runs.directory import Run
from vesalius.runs.discovery import DiscoveryBenchmark, DiscoverySettings
from vesalius.runs.methods import AREAS
from vesalius.runs.selection import chosen_circuits, selection_word

SCHEMA = 1


@dataclass(frozen=True)
class Request:
    """Everything the scores depend on, apart from the weights."""

    specimen: str
    behaviour: str | None
    method: str
    n: int
    seed: int


@dataclass(frozen=True)
class BenchRequest:
    """What `bench discovery` is asked; None where an option was left out."""

    methods: tuple[str, ...]
    specimens: str | None
    ids: list[str] | None
    limit: int | None
    n: int
    seed: int

    def settings(self) -> DiscoverySettings:
        """What decides the results."""
        circuits = tuple(chosen_circuits(self.specimens, self.ids, self.limit))
        return DiscoverySettings(circuits, self.methods, self.n, self.seed)

    def words(self) -> tuple[str | None, ...]:
        """The parts of the run directory's name, where none was asked for."""
        selection = selection_word(self.specimens, self.ids, self.limit)
        methods = None if self.methods == tuple(METHODS) else "_".join(self.methods)
        return "bench-discovery", methods, selection, f"n{self.n}", f"seed{self.seed}"


def discover_one(
    request: Request, *, out: str | None, top: int, device: str, as_json: bool, quick: bool = False
) -> None:
    """Run one method on one specimen, write the circuit and report the scores; `quick` leaves the checks out."""
    if request.method not in METHODS:
        raise BadInput(f"method {request.method!r} does not exist; choose one of {choices([*METHODS, 'sets'])}")
    specimen = open_specimen(request.specimen, request.behaviour, device=device)
    with progress(f"{request.method} of {specimen.name}") as tell:
        found = discover(specimen, request.method, n=request.n, seed=request.seed, progress=tell)
    words = ("discover", specimen.name, request.behaviour, request.method, f"n{request.n}", f"seed{request.seed}")
    directory = out_directory(out, *words)
    found.circuit.write(directory / "circuit.json")
    document = _document(request, found, _metrics(request.specimen, found.circuit), directory)
    if not quick:
        document |= checked(specimen, found, n=request.n, seed=request.seed)
        document["metrics"] |= document.pop("trust_metrics")
    write_json(directory / "discovery.json", document)
    document |= draw(directory)
    if as_json:
        return print_json(document)
    _print(document, top)
    return None


def bench(request: BenchRequest, *, jobs: int, out: str | None, as_json: bool) -> None:
    """Run the methods on circuits with a key, or what is left of that, and print the scorecard."""
    settings = request.settings()
    directory = out_directory(out, *request.words())
    with Run(directory, settings=settings.as_data(), notes=settings.notes()) as run, steps() as tell:
        benchmark = DiscoveryBenchmark(run, settings)
        names = {circuit.id: circuit.name for circuit in settings.circuits}
        with closing(benchmark.work(jobs=jobs)) as work:
            for event in work:
                tell(f"{event.step}: {names[event.case]}", event.done, event.total)
        scorecard = benchmark.scorecard()
    if scorecard["errors"]:
        error = scorecard["errors"][0]
        stderr.print(
            f"{len(scorecard['errors'])} cases ended in an error and are not in the figures (the first, "
            f"{error['method']} on {error['case']}: {error['reason']}); the same command tries them again",
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
        "layers": found.circuit.n_layers,
        "heads": found.circuit.n_heads,
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


def _print_scorecard(scorecard: dict[str, Any]) -> None:
    columns = ("method", "figure", "median", "95 % interval", "mean", "95 % interval", "n", "chance")
    table = Table(*columns, box=None, pad_edge=False)
    for method, figures in scorecard["methods"].items():
        for name in AREAS:
            if (area := figures[name]) is not None:
                median = f"{area['median']:.3f}", f"{area['median_low']:.3f} to {area['median_high']:.3f}"
                mean = f"{area['mean']:.3f}", f"{area['mean_low']:.3f} to {area['mean_high']:.3f}"
                baseline = "" if area["baseline"] is None else f"{area['baseline']:.3f}"
                table.add_row(method, name, *median, *mean, str(area["n"]), baseline)
    stdout.print(table)
    for method, figures in scorecard["methods"].items():
        stdout.print(
            f"{method}: {figures['forwards']:.1f} forward-equivalents per circuit, {figures['seconds']:.1f} s in all, "
            f"{figures['n_error']} errors"
        )
