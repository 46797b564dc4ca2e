"""Whether a given circuit, whole or pruned, keeps the behaviour."""

import hashlib
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from vesalius.api.circuit_sources import Given, Source, read_circuit
from vesalius.api.door import place_for, request_on, verb
from vesalius.behaviours.trial import Trial, trial
from vesalius.components import Component, Edge, parse_components, split_names
from vesalius.discovery.checks import HELD_OUT_SEED
from vesalius.discovery.faithfulness import RANDOM_CIRCUITS, candidates_of, kept_faithfulness
from vesalius.discovery.pruning import MAX_EDGES
from vesalius.discovery.selection import parse_rules, select_circuit
from vesalius.documents.circuit import CIRCUIT_FILE, Circuit, Member
from vesalius.documents.claims import LOGITS, TOKENS
from vesalius.documents.discovery import DISCOVERY_FILE, Discovery
from vesalius.documents.experiments import FAITHFULNESS_FILE, Faithfulness
from vesalius.documents.explanation import EXPLANATION_FILE, Explanation
from vesalius.documents.request import MATERIAL
from vesalius.errors import BadInput, result_kept
from vesalius.explanations.laboratory.runs import edges_between
from vesalius.intervene.ablations import ablation_named
from vesalius.model.specimen import Specimen
from vesalius.options import FAITHFUL, Draw, Out, Pruned, Selected
from vesalius.progress import Progress, silent

__all__ = ["MAX_EDGES", "edges_in", "explained_circuit", "faithfulness"]

#: What explanations call the ends of a circuit; earlier ones had other names.
ENDS = (TOKENS, LOGITS, "indices", "output")


@dataclass(frozen=True)
class _Subject:
    """A circuit, how a request names it, and the discovery that it comes from, where that is known."""

    circuit: Circuit
    named: dict[str, Any]
    discovery: Discovery | None = None


def require_pruned(pruned: Pruned) -> None:
    """Refuse a kind that does not exist."""
    ablation_named(pruned.kind)


@partial(verb, check=require_pruned)
def faithfulness(
    specimen: Specimen,
    components: Given = None,
    *,
    circuit: Source = None,
    pruned: Pruned,
    selected: Selected,
    draw: Draw = FAITHFUL,
    out: Out = None,
    progress: Progress = silent,
) -> Faithfulness:
    """Ablate everything that is not in a circuit and see how much of the behaviour stays: 0 nothing, 1 all of it.

    `components` is what `ves.discover` returned, a circuit, or names; `circuit` the same, or a file or a directory of
    one, or of an explanation. Where it lists edges, edges are cut, otherwise components are ablated (`kind`
    as in `ves.sweep`). Pruned first: what the rule `select` ("top", "greedy", "exact" or "positive-ratio",
    as in `ves.discover`) does not keep among `size`, what scores less than `least`, and what `prune` names; what `pin`
    names stays. The answer is whether it keeps the share `keep`. The prompts are those of the checks of a discovery: of
    another split than the discovery's, and for random inputs other ones where the discovery is known.
    """
    rules = _one_rule(selected)
    start = time.perf_counter()
    pruned = replace(pruned, pin=_texts(pruned.pin or ()), prune=_texts(pruned.prune or ()))
    subject = _subject(specimen, components, circuit)
    kept = _cut(specimen, subject.circuit, rules, selected.size)
    kept = kept.pruned(least=pruned.least, pin=pruned.pin, prune=pruned.prune)
    progress("ablating the rest", 0, 1)
    document = _measured(specimen, subject, kept, (pruned, selected, draw), start)
    progress("ablating the rest", 1, 1)
    if directory := place_for(out, specimen, document.request, draw, words=(f"{document.size}", _mark(document, kept))):
        with result_kept(document):
            if subject.named.get("circuit") is None and subject.named.get("components") is None:
                document = _with_circuit_beside(document, subject, directory)
            document.write(directory / FAITHFULNESS_FILE)
    return document


def _mark(document: Faithfulness, kept: Circuit) -> str:
    """A few digits that stand for the circuit and for what takes the place of the rest."""
    members = kept.kept_edges or _components_of(kept)
    given = (*sorted(map(str, members)), document.request.options.get("kind"), document.keep)
    return hashlib.sha256(repr(given).encode()).hexdigest()[:6]


def _one_rule(selected: Selected) -> tuple[str, ...]:
    rules = parse_rules(selected.select, selected.size)
    if len(rules) > 1:
        raise BadInput(f"`select` {','.join(rules)}: one circuit is measured here; name one rule")
    if rules and selected.size is None:
        raise BadInput("`select` needs a `size` here: how many edges or components the circuit may have")
    return rules


def _cut(specimen: Specimen, circuit: Circuit, rules: Sequence[str], size: int | None) -> Circuit:
    """The circuit as the rule cuts it."""
    if not rules:
        return circuit
    if not circuit.components and not circuit.edge_scores:
        raise BadInput("`select`: the circuit has no scores to choose by; leave it out")
    return select_circuit(specimen.model, circuit, rules, size=size)[0]


def _with_circuit_beside(document: Faithfulness, subject: _Subject, directory: Path) -> Faithfulness:
    """A circuit that was in memory only is written below, with its discovery, so that the request can name it."""
    kept = subject.circuit if subject.discovery is None else subject.discovery
    place = {"circuit": str(kept.save(directory / "circuit").with_name(CIRCUIT_FILE))}
    return document.model_copy(update={"request": document.request.model_copy(update=place)})


def _measured(
    specimen: Specimen, subject: _Subject, circuit: Circuit, asked: tuple[Pruned, Selected, Draw], start: float
) -> Faithfulness:
    kind, draw = ablation_named(asked[0].kind), asked[2]
    model, by_edges = specimen.model, bool(circuit.edges)
    heads_only = not by_edges and _searched_heads_only(circuit)
    candidates = candidates_of(model, by_edges=by_edges, heads_only=heads_only)
    kept: Collection[Any] = circuit.kept_edges if by_edges else _components_of(circuit)
    seen = _seen(specimen, subject.discovery)
    material = trial(specimen, draw.n, seed=HELD_OUT_SEED + draw.seed, split=draw.split, apart_from=seen)
    measured = kept_faithfulness(model, material, kept, candidates, kind=kind.name, draw=f"random circuits/{draw.seed}")
    return Faithfulness(
        request=request_on(specimen, "faithfulness", *asked, **subject.named),
        by="edges" if by_edges else "components",
        size=len(kept),
        candidates=len(candidates),
        heads_only=heads_only,
        faithfulness=measured.faithfulness,
        random=measured.random,
        random_circuits=RANDOM_CIRCUITS,
        unit=material.readout.unit,
        score=measured.score,
        full=measured.full,
        ablated=measured.ablated,
        forwards=measured.forwards,
        seconds=time.perf_counter() - start,
    )


def _subject(specimen: Specimen, components: Given, circuit: Source) -> _Subject:
    """The circuit that is meant, checked against the model."""
    if (components is None) == (circuit is None):
        raise BadInput("give either `components` or `circuit`: a circuit, a file or a directory of one, or names")
    given = components if circuit is None else circuit
    config = specimen.model.config
    if isinstance(given, Discovery):
        file = None if given.directory is None else str(Path(given.directory) / CIRCUIT_FILE)
        fitting = given.circuit.require_fit(config, config.d_model, source=file or "discovery")
        return _Subject(fitting, {"circuit": file}, given)
    if isinstance(given, Circuit):
        return _Subject(given.require_fit(config, config.d_model), {})
    if circuit is not None:
        if not isinstance(circuit, str | Path):
            raise BadInput(f"circuit {type(circuit).__name__} is none; give a path, a Circuit or a Discovery")
        return _from_path(specimen, Path(circuit))
    named = parse_components(split_names(given), config)  # type: ignore[arg-type]
    return _Subject(_circuit_of(specimen, named), {"components": tuple(map(str, named))})


def _from_path(specimen: Specimen, path: Path) -> _Subject:
    explained = path if path.name == EXPLANATION_FILE else path / EXPLANATION_FILE
    if explained.is_file() and not (path / DISCOVERY_FILE).is_file():
        names = [part.id for part in Explanation.read(explained).components]
        if not names:
            raise BadInput(f"{path}: explains no component; give a circuit")
        return _Subject(_circuit_of(specimen, parse_components(names, specimen.model.config)), {"circuit": str(path)})
    config = specimen.model.config
    fitting = read_circuit(path, specimen).require_fit(config, config.d_model, source=str(path))
    beside = (path if path.is_dir() else path.parent) / DISCOVERY_FILE
    return _Subject(fitting, {"circuit": str(path)}, Discovery.read(beside) if beside.is_file() else None)


def _circuit_of(specimen: Specimen, components: Sequence[Component]) -> Circuit:
    config = specimen.model.config
    return Circuit(
        n_layers=config.n_layers,
        n_heads=config.n_heads,
        d_model=config.d_model,
        nodes=dict.fromkeys(components, Member()),
        edges={},
    )


def edges_in(specimen: Specimen) -> int:
    """How many edges a circuit of this model may have."""
    return len(candidates_of(specimen.model, by_edges=True))


def explained_circuit(explanation: Explanation, specimen: Specimen, *, edges: bool = True) -> Circuit:
    """The circuit that an explanation describes: its components and, with `edges`, the paths that were measured.

    A path is as many edges as its receiver has inputs: three for a head. What the components read and write beyond
    these paths is then not in the circuit, which `faithfulness` tells.
    """
    config = specimen.model.config
    components = parse_components([part.id for part in explanation.components], config)
    if not components:
        raise BadInput("explanation: explains no component; give another")
    if not edges:
        return _circuit_of(specimen, components)
    if not explanation.edges:
        raise BadInput("explanation: no path was measured, so that it has no edges; leave `edges` out")
    members: dict[Edge, Member] = {}
    ends: set[Component] = set(components)
    for names in explanation.edges:
        sender, receiver = (None if name in ENDS else Component.parse(name).within(config) for name in names[:2])
        ends |= {end for end in (sender, receiver) if end is not None}
        for edge in edges_between(sender, receiver):
            members[edge.within(config)] = Member(score=names[2])
    return Circuit(
        n_layers=config.n_layers,
        n_heads=config.n_heads,
        d_model=config.d_model,
        parallel=config.parallel,
        nodes=dict.fromkeys(sorted(ends), Member()),
        edges=members,
    )


def _components_of(circuit: Circuit) -> list[Component]:
    return [node for node, member in circuit.nodes.items() if isinstance(node, Component) and member.in_graph]


def _searched_heads_only(circuit: Circuit) -> bool:
    """Whether the circuit is one of heads among all heads: the method then searched no MLPs."""
    components = [node for node in circuit.nodes if isinstance(node, Component)]
    return all(node.is_head for node in components) and len(components) == circuit.n_layers * circuit.n_heads


def _seen(specimen: Specimen, discovery: Discovery | None) -> Trial | None:
    """The prompts that the discovery has seen, where its request says which."""
    if discovery is None or MATERIAL in discovery.request.options or not discovery.n:
        return None
    split = str(discovery.request.options.get("split", "test"))
    return trial(specimen, discovery.n, seed=discovery.seed, split=split)


def _texts(names: Iterable[str | Component | Edge] | str) -> list[str]:
    given = names.split(",") if isinstance(names, str) else names
    if not isinstance(given, Iterable):
        raise BadInput(f"{names!r}: names no components or edges; give names such as L1H2 and a0.h1->m1")
    return [text for name in given if (text := str(name).strip())]
