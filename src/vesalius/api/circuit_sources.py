"""Where the circuit of an explanation comes from: names, an object, a file, a directory or a finished benchmark.

| given                                     | explained                                                              |
|-------------------------------------------|------------------------------------------------------------------------|
| `Circuit`, `Discovery`                    | what scores at least a tenth of its largest score                      |
| names, or one name                        | those components; of none, that nothing was established                |
| a circuit in MIB form, `discovery.json`   | the same                                                               |
| an attribution graph of heads and MLPs    | the same                                                               |
| a directory of `vesalius discover`        | its discovery                                                          |
| a run of `vesalius bench discovery`       | what one of its methods chose in this specimen                         |
| a run of `vesalius bench circuits`        | the circuit that was discovered there in this specimen                 |

A circuit that lies beside its discovery must have been found in the weights that are explained.
"""

from collections.abc import Iterable
from pathlib import Path

from vesalius.components import Component, split_names
from vesalius.documents.attribution_graph import circuit_of, is_graph
from vesalius.documents.circuit import Circuit, Member
from vesalius.documents.discovery import CIRCUIT_FILE, DISCOVERY_FILE, Discovery
from vesalius.errors import BadInput, choices, note
from vesalius.files import read_json
from vesalius.model.specimen import Specimen
from vesalius.model.states import fingerprint
from vesalius.runs.directory import CIRCUITS, is_run, read_run, read_scorecard
from vesalius.values import JsonObject

Named = Iterable[str | Component] | str | Component
Given = Circuit | Discovery | Named | None
Source = Circuit | Discovery | str | Path | None


def circuit_fields(specimen: Specimen, components: Given, circuit: Source, circuit_from: str | None) -> JsonObject:
    """What is explained, as fields of a task."""
    if components is not None and not (circuit is None and circuit_from is None):
        raise BadInput("`components` does not go with `circuit` or `circuit_from`: all say what to explain; choose one")
    if isinstance(circuit, Circuit | Discovery):
        if circuit_from is not None:
            raise BadInput(f"`circuit_from` {circuit_from!r} discovers a circuit and one is given; leave one out")
        components = circuit
    elif circuit is not None:
        if not isinstance(circuit, str | Path):
            raise BadInput(f"circuit {type(circuit).__name__} is none; give a path, a Circuit or a Discovery")
        path = Path(circuit)
        return {
            "circuit": _fitting(specimen, read_circuit(path, specimen, method=circuit_from), str(path)),
            "circuit_file": str(path),
            "circuit_from": circuit_from,
        }
    if isinstance(components, Discovery):
        where = "discovery" if components.directory is None else str(Path(components.directory) / CIRCUIT_FILE)
        _require_model(components.model, specimen, f"{where}: found", str(components.specimen))
        file = None if components.directory is None else where
        return {"circuit": _fitting(specimen, components.circuit, where), "circuit_file": file}
    if isinstance(components, Circuit):
        return {"circuit": _fitting(specimen, components, "circuit")}
    if components is None:
        return {"circuit_from": circuit_from}
    config = specimen.model.config
    return {"components": tuple(str(Component.parse(name).within(config)) for name in split_names(components))}


def read_circuit(path: Path, specimen: Specimen, *, method: str | None = None) -> Circuit:
    """The circuit of this specimen in a file, a directory or a run; `method` chooses within `bench discovery`."""
    if path.is_dir() and is_run(path):
        return _from_run(path, specimen, method)
    if method is not None:
        raise BadInput(f"`circuit_from` {method} chooses a method of a `bench discovery` run; {path} is not one")
    if path.is_dir():
        files = [path / name for name in (DISCOVERY_FILE, CIRCUIT_FILE) if (path / name).is_file()]
        if not files:
            raise BadInput(
                f"{path}: holds neither {DISCOVERY_FILE} nor {CIRCUIT_FILE}; make them with: vesalius discover"
            )
        path = files[0]
    data = read_json(path)
    if is_graph(data):
        config = specimen.model.config
        return circuit_of(data, shape=config, d_model=config.d_model, source=str(path))
    if {"cfg", "nodes"} & data.keys():
        _require_own(path, specimen)
        return Circuit.read(path)
    if not {"method", "forwards"} <= data.keys():
        raise BadInput(
            f"{path}: is neither a circuit nor a discovery; give a circuit in MIB form (cfg, nodes and edges), a "
            f"{DISCOVERY_FILE}, or a directory of `vesalius discover`"
        )
    discovery = Discovery.read(path)
    _require_model(discovery.model, specimen, f"{path}: found", str(discovery.specimen))
    _note_behaviour(path, discovery.behaviour, specimen)
    return discovery.circuit


def _from_run(run: Path, specimen: Specimen, method: str | None) -> Circuit:
    """The circuit that a finished benchmark discovered in this specimen."""
    if read_run(run)["settings"].get("benchmark") != "discovery":
        path = run / CIRCUITS / f"{specimen.id}.json"
        if not path.is_file():
            raise BadInput(
                f"{run}: has no discovered circuit of specimen {specimen.id}; give a run of `bench discovery`, "
                "or of `bench circuits --circuit-from METHOD`"
            )
        return Circuit.read(path)
    rows = {row.id: row.methods for row in read_scorecard(run).cases or ()}
    if specimen.id not in rows:
        raise BadInput(f"{run}: has no specimen {specimen.id}; it has {choices(rows)}")
    methods = rows[specimen.id]
    if method is None and len(methods) == 1:
        method = next(iter(methods))
    if method not in methods:
        problem = "several methods" if method is None else f"no circuit by {method}"
        raise BadInput(f"{run}: {problem} for specimen {specimen.id}; give `circuit_from` {choices(methods)}")
    config = specimen.model.config
    return Circuit(
        n_layers=config.n_layers,
        n_heads=config.n_heads,
        d_model=config.d_model,
        nodes={Component.parse(name): Member() for name in methods[method].chosen},
        edges={},
    )


def _fitting(specimen: Specimen, circuit: Circuit, source: str) -> Circuit:
    config = specimen.model.config
    return circuit.require_fit(config, config.d_model, source=source)


def _require_own(circuit: Path, specimen: Specimen) -> None:
    """Where a discovery lies beside its circuit, refuse that of other weights."""
    numbers = circuit.with_name(DISCOVERY_FILE)
    if circuit.name != CIRCUIT_FILE or not numbers.is_file():
        return
    data = read_json(numbers)
    _require_model(data.get("model"), specimen, f"{circuit}: found", str(data.get("specimen")))
    _note_behaviour(circuit, data.get("behaviour"), specimen)


def _note_behaviour(path: Path, behaviour: str | None, specimen: Specimen) -> None:
    if behaviour != specimen.behaviour:
        note(f"{path} was found for {behaviour} and is explained for {specimen.behaviour}")


def _require_model(model: str | None, specimen: Specimen, what: str, name: str) -> None:
    if model and model != (own := fingerprint(specimen.model)):
        raise BadInput(
            f"{what} in model {model} ({name}), not in this one ({own}); discover again or copy the circuit elsewhere "
            "to explain it all the same"
        )
