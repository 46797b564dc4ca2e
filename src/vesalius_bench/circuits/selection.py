"""Which circuits a benchmark runs on: the 84 that ship, some of them, a folder of trained specimens, or the original
InterpBench models with the annotations of AgenticInterpBench.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from pathlib import Path

from pydantic import JsonValue

from vesalius.circuits.originals import ORIGINAL, WEIGHTS, holds_originals, original_folders
from vesalius.circuits.specimens import SPECIMEN_FILE, Card, benchmark_cards, benchmark_directory, known_names
from vesalius.errors import BadInput, choices, note
from vesalius.files import sha256
from vesalius.model.sources import download
from vesalius.model.states import WEIGHTS_FILE
from vesalius_truth.grading.keys import ANNOTATIONS, annotation_file, published_key
from vesalius_truth.making import key_file


@dataclass(frozen=True)
class CircuitCase:
    """One circuit of a run. `id` names its files; `trained` is true of what `vesalius train` made; `annotation` is the
    published key of an original, which grading alone reads; `wrong_answers` is the share of a noisy behaviour.
    """

    id: str
    name: str
    directory: Path
    trained: bool = False
    annotation: Path | None = None
    wrong_answers: float = 0.0

    @property
    def source(self) -> str:
        """The name or path that the specimen is loaded by."""
        return str(self.directory) if self.trained or self.annotation is not None else self.id

    @cached_property
    def card(self) -> Card | None:
        """What it says of itself; an original has no card."""
        path = self.directory / SPECIMEN_FILE
        return Card.read(path) if path.is_file() else None

    @property
    def size(self) -> float:
        """Components times length times width, which the time to explain a circuit roughly follows; unknown sizes are
        larger than any.
        """
        card = self.card
        return inf if card is None else len(card.components) * card.max_len * card.d_model

    @property
    def fingerprint(self) -> str:
        """Changes with the weights and with the annotation, so that a run is not resumed on another model or key."""
        if self.annotation is None:
            return self._digest(self.directory / WEIGHTS_FILE)
        return f"{self._digest(self.directory / WEIGHTS)}-{self._digest(self.annotation)}"

    @staticmethod
    def _digest(path: Path) -> str:
        try:
            return sha256(path)[:16]
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror}; put it back or leave it out") from None


def benchmark_circuits(ids: Iterable[str] | None = None) -> list[CircuitCase]:
    """Benchmark circuits by id or name, each once, in the order of the benchmark; None means all 84."""
    chosen = None if ids is None else {_directory(name).name for name in ids}
    if chosen is not None and not chosen:
        raise BadInput(f"`ids` names no circuit; give ids or names, comma-separated: {known_names(3)}")
    return [
        CircuitCase(card.id, card.name, _directory(card.id))
        for card in benchmark_cards()
        if chosen is None or card.id in chosen
    ]


def trained_circuits(folder: Path) -> list[CircuitCase]:
    """The specimens in a folder, or the folder itself if it is one; each needs its answer key."""
    if not folder.is_dir():
        raise BadInput(f"`specimens` {folder}: no such directory; with a hub id, give `annotations` as well")
    places = [folder] if (folder / SPECIMEN_FILE).is_file() else sorted(_specimens_in(folder))
    if not places:
        raise BadInput(
            f"`specimens` {folder}: holds no specimen; make one with: vesalius train SPEC.py --out {folder}/x"
        )
    circuits = []
    for place in places:
        card = Card.read(place / SPECIMEN_FILE)
        key_file(place)
        circuits.append(CircuitCase(place.resolve().name, card.name, place.resolve(), trained=True))
    return circuits


def original_circuits(
    source: str | Path, annotations: str | Path | None = None, ids: Sequence[str] | None = None
) -> list[CircuitCase]:
    """The published InterpBench models in a directory or on the hub (with `ids`, these cases), each with its published
    annotation; cases without one are left out, and named.

    `annotations` is a directory or a dataset of the hub; by default it is `annotations` in or beside `source`. Every
    annotation is read once before anything is explained, so that a wrong one is refused early; nothing of it is kept.
    """
    folders = original_folders(source, ids)
    place = _annotations(source, folders, annotations)
    files = {folder: annotation_file(place, folder.resolve().name) for folder in folders}
    cases = []
    for folder, file in files.items():
        if file is not None:
            published_key(folder, file)
            case = folder.resolve().name
            cases.append(CircuitCase(case, f"{ORIGINAL}{case}", folder.resolve(), annotation=file.absolute()))
    missing = [folder.resolve().name for folder, file in files.items() if file is None]
    if not cases:
        raise BadInput(f"`annotations` {place}: none for {choices(missing)}; expected files such as case_3.json")
    if missing:
        note(f"no annotation in {place}, so left out: {', '.join(missing)}")
    return cases


def _annotations(source: str | Path, folders: Sequence[Path], given: str | Path | None) -> Path:
    """The directory of the annotations: the one given, fetched from the hub if it is not on the disk, or the usual."""
    if given is not None:
        path = Path(given).expanduser()
        if path.exists():
            return path
        return download(str(given), allow=[f"{ANNOTATIONS}/*.json"], dataset=True)
    root = folders[0].parent if folders else Path(source)
    usual = [root / ANNOTATIONS, root.parent / ANNOTATIONS]
    found = next((place for place in usual if place.is_dir()), None)
    if found is None:
        raise BadInput(
            f"`specimens` {source}: no annotations in or beside it; give `annotations`, a directory or hub id"
        )
    return found


def first(circuits: Sequence[CircuitCase], limit: int | None) -> list[CircuitCase]:
    """At most `limit` circuits."""
    return list(circuits if limit is None else circuits[:limit])


def chosen_circuits(
    specimens: str | None, ids: list[str] | None, limit: int | None, annotations: str | None = None
) -> list[CircuitCase]:
    """What the options --specimens, --annotations, --ids and --limit choose; None where one was left out."""
    if specimens is not None and (annotations is not None or holds_originals(Path(specimens).expanduser())):
        return first(original_circuits(specimens, annotations, ids), limit)
    if annotations is not None:
        raise BadInput("`annotations` are for published models; give their directory or hub id in `specimens`")
    if specimens is not None and ids is not None:
        raise BadInput("`ids` chooses among the benchmark circuits; leave it out with `specimens`")
    return first(trained_circuits(Path(specimens)) if specimens is not None else benchmark_circuits(ids), limit)


def selection_options(circuits: Sequence[CircuitCase]) -> dict[str, JsonValue]:
    """The options that choose these circuits again."""
    annotated = [circuit.annotation for circuit in circuits if circuit.annotation is not None]
    if annotated:
        cases: list[JsonValue] = [circuit.id for circuit in circuits]
        folder = circuits[0].directory.parent
        return {"specimens": str(folder), "annotations": str(annotated[0].parent), "ids": cases}
    if not any(circuit.trained for circuit in circuits):
        return {} if len(circuits) == len(benchmark_cards()) else {"ids": [circuit.id for circuit in circuits]}
    if len(circuits) == 1:
        return {"specimens": str(circuits[0].directory)}
    folder = circuits[0].directory.parent
    shorter = len(circuits) < len(list(_specimens_in(folder)))
    return {"specimens": str(folder), **({"limit": len(circuits)} if shorter else {})}


def _specimens_in(folder: Path) -> Iterable[Path]:
    return (path for path in folder.iterdir() if (path / SPECIMEN_FILE).is_file())


def _directory(name: str) -> Path:
    directory = benchmark_directory(name.strip())
    if directory is None:
        raise BadInput(f"`ids`: benchmark circuit {name.strip()!r} does not exist; use {known_names(3)}")
    return directory
