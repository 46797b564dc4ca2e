"""What a run of the circuits benchmark was asked: what decides its results, what only limits them, and on
which circuits.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from vesalius.backbones import MAX_TOKENS, TIMEOUT, SpendingCap, open_backbone
from vesalius.circuits.making import key_file
from vesalius.circuits.originals import ORIGINAL, WEIGHTS, holds_originals, original_folders
from vesalius.circuits.specimens import SPECIMEN_FILE, Card, benchmark_cards, benchmark_directory, known_names
from vesalius.discovery.discover import circuit_method
from vesalius.documents.request import Request
from vesalius.errors import BadInput, choices, note, quoted
from vesalius.explanations.scientists import BUILTIN, Scientist, chosen_scientist, protocol_of, scientist_named
from vesalius.files import sha256
from vesalius.grading.keys import ANNOTATIONS, annotation_file, published_key
from vesalius.model.sources import download
from vesalius.model.states import WEIGHTS_FILE
from vesalius.options import Ask, Spend, Who
from vesalius.options.objects import listed
from vesalius.plugins import JUDGES, find_plugin, loaded_plugin, plugin_names
from vesalius.version import __version__

# Which circuits a benchmark runs on: the 84 that ship, some of them, a folder of trained specimens, or the original
# InterpBench models with the annotations of AgenticInterpBench.


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


BENCHMARK = "circuits"


@dataclass(frozen=True)
class RunLimits:
    """What may change when a run is resumed: the results do not depend on it."""

    max_cost: float | None = None
    sandbox_unsafe: bool = False
    #: Seconds to wait for an answer of a language model.
    timeout: float = TIMEOUT
    #: Where the scientist's language model is served, if not at its provider.
    base_url: str | None = None

    def __post_init__(self) -> None:
        if self.max_cost is not None:
            SpendingCap(self.max_cost)  # refuses a cap that buys nothing

    @classmethod
    def of(cls, spend: Spend, *, base_url: str | None = None) -> "RunLimits":
        """The limits that options state."""
        return cls(spend.max_cost, spend.unsafe_sandbox, spend.timeout, base_url)

    def as_data(self) -> dict[str, Any]:
        """The limits as run.json holds them."""
        limits = {"max_cost": self.max_cost, "sandbox_unsafe": self.sandbox_unsafe, "timeout": self.timeout}
        return limits if self.base_url is None else {**limits, "base_url": self.base_url}

    def check_models(self, models: Iterable[str], prices: str | None) -> None:
        """Refuse an unknown provider, a missing key or package, or a price that the cap needs, before work begins; the
        first model is the one at `base_url`, if there is one.
        """
        for number, model in enumerate(models):
            address = None if number else self.base_url
            open_backbone(model, base_url=address, prices=prices, cap=self.max_cost, timeout=self.timeout).close()


@dataclass(frozen=True)
class BenchmarkSettings:
    """What decides the results of a run."""

    circuits: tuple[CircuitCase, ...]
    scientist: str = BUILTIN
    seed: int = 0
    leave_out: str | None = None
    backbone: str | None = None
    protocol: str | None = None
    judges: tuple[str, ...] = ()
    prices: str | None = None
    circuit_from: str | None = None
    compact: bool = False
    max_tokens: int = MAX_TOKENS

    def __post_init__(self) -> None:
        self.explainer.require_model(self.backbone is not None)
        if self.circuit_from is not None:
            circuit_method(self.circuit_from)
        for judge in self.judges:
            if loaded_plugin(JUDGES, judge, ()) is None and ":" not in judge:
                names = choices([*plugin_names(JUDGES, ()), "PROVIDER:MODEL"])
                raise BadInput(f"`judge` {quoted(judge, 80)} does not exist; use {names}")
        if not self.circuits:
            raise BadInput("a benchmark of no circuits says nothing; choose at least one")
        if self.prices is not None and not self.models:
            raise BadInput("`prices`: no language model is asked; leave it out")
        if self.backbone is None and (self.compact or self.max_tokens != MAX_TOKENS):
            raise BadInput("`compact` and `max_tokens`: no language model is asked; leave them out")

    @classmethod
    def of(
        cls, circuits: Iterable[CircuitCase], who: Who, ask: Ask, judges: tuple[str, ...], circuit_from: str | None
    ) -> "BenchmarkSettings":
        """The settings that options state: who explains, and how a language model is asked."""
        own = {"leave_out": who.leave_out, "protocol": ask.protocol, "compact": ask.compact or None}
        scientist = chosen_scientist(who.scientist, ask.backbone is not None, **own)
        if fixed := set(scientist.options) - {*own, "program", "function"}:
            raise BadInput(f"{listed(sorted(fixed))}: a benchmark has its own; leave it out of the scientist")
        return cls(
            tuple(circuits),
            scientist.label,
            who.seed,
            getattr(scientist, "leave_out", None),
            backbone=ask.backbone,
            protocol=protocol_of(scientist),
            judges=judges,
            prices=None if ask.prices is None else str(ask.prices),
            circuit_from=circuit_from,
            compact=getattr(scientist, "compact", False),
            max_tokens=ask.max_tokens,
        )

    @property
    def explainer(self) -> Scientist:
        """Who explains, with its options."""
        own = {"leave_out": self.leave_out, "protocol": self.protocol, "compact": self.compact or None}
        return scientist_named(self.scientist, **own)

    @property
    def models(self) -> tuple[str, ...]:
        """Every language model of the run, the scientist's first."""
        judges = (judge for judge in self.judges if find_plugin(JUDGES, judge, ()) is None)
        return (*(() if self.backbone is None else (self.backbone,)), *judges)

    @property
    def _asking(self) -> dict[str, Any]:
        """How the scientist's language model is asked, where that is not as usual."""
        given = {"compact": True} if self.compact else {}
        return given if self.max_tokens == MAX_TOKENS else {**given, "max_tokens": self.max_tokens}

    def request(self) -> Request:
        """What was asked, so that it can be asked again."""
        options: dict[str, JsonValue] = {
            **selection_options(self.circuits),
            "judge": list(self.judges) or None,
            "leave_out": self.leave_out,
            "circuit_from": self.circuit_from,
            "prices": self.prices,
            **self._asking,
        }
        return Request(
            command="bench circuits",
            method=self.scientist,
            options={name: value for name, value in options.items() if value is not None},
            seed=self.seed,
            backbone=self.backbone,
            protocol=self.protocol,
        )

    def as_data(self) -> dict[str, Any]:
        """The settings as run.json holds and compares them."""
        return {
            "benchmark": BENCHMARK,
            "scientist": self.scientist,
            "seed": self.seed,
            "leave_out": self.leave_out,
            "circuit_from": self.circuit_from,
            "backbone": self.backbone,
            "protocol": self.protocol,
            "judges": list(self.judges) or None,
            "prices": None if self.prices is None else sha256(Path(self.prices))[:16],
            "version": __version__,
            "specimens": {circuit.id: circuit.fingerprint for circuit in self.circuits},
            **self._asking,
        }

    def notes(self) -> dict[str, Any]:
        """Where the specimens and prices were, for pages made later and for replay."""
        places = {circuit.id: str(circuit.directory) for circuit in self.circuits}
        annotated = {c.id: str(c.annotation) for c in self.circuits if c.annotation is not None}
        return {
            "places": places,
            **({"annotations": annotated} if annotated else {}),
            "names": {circuit.id: circuit.name for circuit in self.circuits},
            "prices": self.prices,
        }

    @classmethod
    def of_run(cls, data: dict[str, Any]) -> "BenchmarkSettings":
        """The settings of a run from its run.json; refused where this version would not do the same."""
        asked, places, names = data["settings"], data.get("places", {}), data.get("names", {})
        if asked.get("version") != __version__:
            raise BadInput(f"the run was made by version {asked.get('version')}, this is {__version__}; use that one")
        keys = data.get("annotations", {})
        selection = tuple(
            CircuitCase(
                case, names.get(case, case), Path(places[case]), annotation=Path(keys[case]) if case in keys else None
            )
            for case in asked["specimens"]
            if case in places
        )
        settings = cls(
            circuits=selection,
            scientist=asked["scientist"],
            seed=asked["seed"],
            leave_out=asked["leave_out"],
            backbone=asked.get("backbone"),
            protocol=asked.get("protocol"),
            judges=tuple(asked.get("judges") or ()),
            prices=data.get("prices"),
            circuit_from=asked.get("circuit_from"),
            compact=asked.get("compact", False),
            max_tokens=asked.get("max_tokens", MAX_TOKENS),
        )
        now = {circuit.id: circuit.fingerprint for circuit in selection}
        changed = next((case for case, mark in asked["specimens"].items() if now.get(case) != mark), None)
        if changed is not None:
            raise BadInput(f"specimen {changed!r}: is not the one that was explained; put it back")
        return settings
