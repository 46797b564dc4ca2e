"""Which circuits a benchmark runs on: the 84 that ship, some of them, or a folder of trained specimens."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from vesalius.circuits.foreign_spec import key_file
from vesalius.circuits.specimens import SPECIMEN_FILE, Card, benchmark_cards, benchmark_directory, known_names
from vesalius.errors import BadInput
from vesalius.files import sha256
from vesalius.model.files import WEIGHTS_FILE


@dataclass(frozen=True)
class CircuitCase:
    """One circuit of a run. `id` names its files; `trained` is true of what `vesalius train` made."""

    id: str
    name: str
    directory: Path
    trained: bool = False

    @property
    def source(self) -> str:
        """The name or path that the specimen is loaded by."""
        return str(self.directory) if self.trained else self.id

    @property
    def fingerprint(self) -> str:
        """Changes with the weights, so that a run is not resumed on another model."""
        try:
            return sha256(self.directory / WEIGHTS_FILE)[:16]
        except OSError as error:
            raise BadInput(f"{self.directory / WEIGHTS_FILE}: {error.strerror}; put it back or leave it out") from None


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
        raise BadInput(f"`specimens` {folder}: no such directory")
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


def first(circuits: Sequence[CircuitCase], limit: int | None) -> list[CircuitCase]:
    """At most `limit` circuits."""
    return list(circuits if limit is None else circuits[:limit])


def chosen_circuits(specimens: str | None, ids: list[str] | None, limit: int | None) -> list[CircuitCase]:
    """What the options --specimens, --ids and --limit choose; None where one was left out."""
    if specimens is not None and ids is not None:
        raise BadInput("`ids` chooses among the benchmark circuits; leave it out with `specimens`")
    return first(trained_circuits(Path(specimens)) if specimens is not None else benchmark_circuits(ids), limit)


def selection_options(circuits: Sequence[CircuitCase]) -> dict[str, JsonValue]:
    """The options that choose these circuits again."""
    if not any(circuit.trained for circuit in circuits):
        return {} if len(circuits) == len(benchmark_cards()) else {"ids": [circuit.id for circuit in circuits]}
    if len(circuits) == 1:
        return {"specimens": str(circuits[0].directory)}
    folder = circuits[0].directory.parent
    shorter = len(circuits) < len(list(_specimens_in(folder)))
    return {"specimens": str(folder), **({"limit": len(circuits)} if shorter else {})}


def selection_word(specimens: str | None, ids: Sequence[str] | None, limit: int | None) -> str | None:
    """The choice as part of a directory's name."""
    words = [] if specimens is None else [Path(specimens).resolve().name]
    words += [] if ids is None else ["_".join(name.strip() for name in ids)[:60]]
    words += [] if limit is None else [f"first{limit}"]
    return "-".join(words) or None


def _specimens_in(folder: Path) -> Iterable[Path]:
    return (path for path in folder.iterdir() if (path / SPECIMEN_FILE).is_file())


def _directory(name: str) -> Path:
    directory = benchmark_directory(name.strip())
    if directory is None:
        raise BadInput(f"`ids`: benchmark circuit {name.strip()!r} does not exist; use {known_names(3)}")
    return directory
