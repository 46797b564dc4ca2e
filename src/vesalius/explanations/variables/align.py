"""The whole alignment of an algorithm with a model: pairs of two splits, the search, and the rival."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from vesalius.behaviours.behaviour import Behaviour
from vesalius.behaviours.registry import behaviour_of
from vesalius.documents.alignment import AlignedPlace, Alignment, RivalAlgorithm, RivalAt
from vesalius.documents.base import FrozenDict
from vesalius.documents.metric import Metric
from vesalius.documents.request import Request
from vesalius.errors import BadInput, choices
from vesalius.explanations.variables.algorithms import Algorithm, Runner
from vesalius.explanations.variables.pairs import Pairs, make_pairs
from vesalius.explanations.variables.places import parse_places
from vesalius.explanations.variables.search import Search
from vesalius.explanations.variables.sides import END, Case, Sources, sources_of
from vesalius.intervene.exchanging import Exchange, Place
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.progress import Progress

FITTING, HELD_OUT = "train", "test"


@dataclass(frozen=True)
class Asked:
    """How much is tried: cases that choose places and cases that grade them, layers, roles, sets and directions."""

    n: int
    held_out: int
    seed: int
    layers: str | None
    together: int
    directions: int
    roles: tuple[str, ...]
    at: tuple[str, ...]
    unsafe: bool = False


@dataclass(frozen=True)
class Material:
    """The cases of one split."""

    sources: Sources
    cases: list[Case]

    @property
    def roles(self) -> list[str]:
        """The roles that every case has."""
        common = [role for role in self.cases[0].base.roles if all(role in case.base.roles for case in self.cases)]
        return sorted(common, key=lambda role: role == END)


def align_variables(
    specimen: Specimen,
    algorithm: Algorithm,
    asked: Asked,
    *,
    rival: Algorithm | None,
    request: Request,
    progress: Progress,
) -> Alignment:
    """Place the variables of an algorithm in a model."""
    start = time.perf_counter()
    config = specimen.model.config
    progress("running bases and sources", 0, 0)
    fitting, graded, search = prepared(specimen, algorithm, asked, rival=rival)
    fitting_pairs, held_out, roles = search.fitting, search.held_out, search.roles
    grades = search.map(progress)
    mapped = fitting_pairs.exchange.forwards + held_out.exchange.forwards
    variables = tuple(search.variables(grades, progress))
    exchanges = [fitting_pairs.exchange, held_out.exchange]
    against = None
    if rival is not None:
        progress(f"comparing with {rival.name}", 0, 0)
        with rival.runner(unsafe=asked.unsafe) as runner:
            theirs = _pairs(specimen, runner, graded, roles)
        exchanges.append(theirs.exchange)
        mapped += theirs.exchange.forwards
        places = {one.name: parse_places(one.place, config, roles)[0] for one in variables if one.place is not None}
        against = RivalAlgorithm(
            algorithm=rival.name,
            program=rival.source,
            agreement=theirs.agreement,
            places=tuple(compared(held_out, theirs, name, place) for name, place in places.items()),
        )
    return Alignment(
        request=request,
        algorithm=algorithm.name,
        program=algorithm.source,
        agreement=held_out.agreement,
        variables=variables,
        kinds=fitting.sources.kinds,
        roles=roles,
        layers=search.layers,
        pairs=sum(fitting_pairs.usable),
        held_out=sum(held_out.usable),
        against=against,
        shared=_shared(fitting, graded),
        alike=alike(held_out, algorithm.variables),
        notes=_notes(held_out, fitting_pairs),
        forwards=(forwards := sum(one.forwards for one in exchanges)),
        search_forwards=forwards - mapped,
        seconds=time.perf_counter() - start,
    )


def prepared(
    specimen: Specimen, algorithm: Algorithm, asked: Asked, *, rival: Algorithm | None, run: bool = True
) -> tuple[Material, Material, Search]:
    """The cases that choose places, those that grade them, and the search with their pairs; without `run` as if the
    model answered as the algorithm says.
    """
    behaviour, config = behaviour_of(specimen), specimen.model.config
    layers = layers_named(asked.layers, config.n_layers)
    fitting = _material(specimen, behaviour, FITTING, asked.n, asked.seed)
    graded = _material(specimen, behaviour, HELD_OUT, asked.held_out, asked.seed)
    roles = _roles(fitting.roles, asked.roles)
    for one in (algorithm, *([] if rival is None else [rival])):
        one.require_inputs(fitting.cases[0].base.inputs, f"behaviour {behaviour.label}")
    given = parse_places(asked.at, config, roles)
    whole = _to_run(algorithm, given, together=asked.together)
    with whole.runner(unsafe=asked.unsafe) as runner:
        fitting_pairs, held_out = (_pairs(specimen, runner, one, roles, run=run) for one in (fitting, graded))
    search = Search(fitting_pairs, held_out, layers, asked.together, asked.directions, given, asked.seed, algorithm)
    return fitting, graded, search


@dataclass(frozen=True)
class GivenPlaces:
    """Variables at the places that were named for them, how often the algorithm gives the model's answer, and the
    passes.
    """

    agreement: Metric
    places: Mapping[str, AlignedPlace]
    forwards: float


def grade_places(
    specimen: Specimen,
    algorithm: Algorithm,
    places: Mapping[str, str],
    *,
    split: str = HELD_OUT,
    n: int,
    seed: int,
    unsafe: bool = False,
) -> GivenPlaces:
    """Grade variables at places that somebody named, with their controls, on pairs of one split; nothing is chosen."""
    behaviour = behaviour_of(specimen)
    material = _material(specimen, behaviour, split, n, seed)
    roles = tuple(material.roles)
    algorithm.require_inputs(material.cases[0].base.inputs, f"behaviour {behaviour.label}")
    parsed = {name: parse_places(text, specimen.model.config, roles) for name, text in places.items()}
    if several := [name for name, found in parsed.items() if len(found) != 1]:
        raise BadInput(f"variable {several[0]!r}: name one place, such as resid3@{roles[-1]}")
    with _to_run(algorithm, [place for (place,) in parsed.values()]).runner(unsafe=unsafe) as runner:
        pairs = _pairs(specimen, runner, material, roles)
    if not any(pairs.usable):  # the model answers no pair as the algorithm says: nothing can be exchanged
        nowhere = {name: _ungraded(place, specimen.model.config.n_layers) for name, (place,) in parsed.items()}
        return GivenPlaces(pairs.agreement, nowhere, pairs.exchange.forwards)
    search = Search(pairs, pairs, (), 1, 0, (), seed, algorithm)
    graded = {name: search.at(name, place) for name, (place,) in parsed.items()}
    return GivenPlaces(pairs.agreement, graded, pairs.exchange.forwards)


def _ungraded(place: Place, n_layers: int) -> AlignedPlace:
    """A place for which no pair says anything."""
    none = Metric.of_share(0, 0)
    return AlignedPlace(
        place=str(place),
        words=place.words(n_layers),
        accuracy=none,
        kept=none,
        fitted=none,
        control=none,
        controls=FrozenDict({}),
        kinds=(),
        verdict="no",
    )


@dataclass(frozen=True)
class BestPlace:
    """The place of the map that does best for a variable on the pairs that choose it, its score there, and passes."""

    place: str
    score: float
    forwards: float


def best_place(
    specimen: Specimen, algorithm: Algorithm, variable: str, *, split: str, n: int, seed: int, unsafe: bool = False
) -> BestPlace:
    """Look for a variable in the residual stream between the embedding and the output, at every role."""
    material = _material(specimen, behaviour_of(specimen), split, n, seed)
    roles = tuple(material.roles)
    with algorithm.runner(unsafe=unsafe) as runner:
        pairs = _pairs(specimen, runner, material, roles)
    rows, found = pairs.graded_rows(), []
    for layer in range(1, specimen.model.config.n_layers if len(rows) else 1):
        for role in roles:
            place = Place((role,), layer=layer)
            graded = pairs.grade(variable, pairs.exchange.answers(place, rows), rows)
            found.append((graded.score, str(place)))
    score, place = max(found, key=lambda one: one[0], default=(0.0, f"resid0@{roles[-1]}"))
    return BestPlace(place, score, pairs.exchange.forwards)


def layers_named(given: str | None, n_layers: int) -> tuple[int, ...]:
    """The layers before which the residual stream is looked at: `15..25`, `0..30/2`, `3,7,12`; None: before every one,
    and after the last.
    """
    if given is None:
        return tuple(range(n_layers + 1))
    layers: set[int] = set()
    for part in filter(None, given.split(",")):
        ends, _, step = part.partition("/")
        first, _, last = ends.partition("..")
        layers |= set(range(int(first), int(last or first) + 1, int(step or 1)))
    if not layers or max(layers) > n_layers:
        raise BadInput(f"layers {given}: the model has {n_layers} layers; name some from 0 to {n_layers}")
    return tuple(sorted(layers))


def _material(specimen: Specimen, behaviour: Behaviour, split: str, n: int, seed: int) -> Material:
    sources = sources_of(specimen, behaviour, split, n=n, seed=seed)
    cases = sources.cases(n, f"{behaviour.name}/{split}/{seed}")
    if not cases:
        raise BadInput(
            f"behaviour {behaviour.label}: no base with all its sources could be drawn from the {split} split"
        )
    return Material(sources, cases)


def _roles(known: list[str], asked: tuple[str, ...]) -> tuple[str, ...]:
    """The roles to look at, the last position among them."""
    if unknown := [role for role in asked if role not in known]:
        raise BadInput(f"role {unknown[0]!r} does not exist here; roles are {choices(known)}")
    return tuple(role for role in known if not asked or role in asked or role == END)


def _pairs(
    specimen: Specimen, runner: Runner, material: Material, roles: tuple[str, ...], *, run: bool = True
) -> Pairs:
    assert isinstance(specimen.vocabulary, TextVocabulary)
    pad = specimen.vocabulary.tokenizer.bos or 0
    return make_pairs(specimen.model, runner, material.cases, material.sources.token_of, roles=roles, pad=pad, run=run)


def compared(ours: Pairs, theirs: Pairs, variable: str, place: Place) -> RivalAt:
    """Two algorithms at a place, where their predictions differ; the rival's variable that does best there."""
    exchange: Exchange = ours.exchange
    rows = torch.tensor(ours.usable).nonzero()[:, 0]
    answers = exchange.answers(place, rows).tolist() if len(rows) else []
    best: tuple[float, str, int, int, int] = (-1.0, "", 0, 0, 0)
    for other in theirs.variables:
        here = [
            (answer in mine, answer in its)
            for row, answer in zip(rows.tolist(), answers, strict=True)
            if (mine := ours.wanted[variable][row]) is not None
            and (its := theirs.wanted[other][row]) is not None
            and not mine & its
        ]
        us, them = (sum(one[i] for one in here) for i in (0, 1))
        best = max(best, (them / len(here) if here else 0.0, other, us, them, len(here)))
    _, other, us, them, n = best
    return RivalAt(
        place=str(place),
        variable=variable,
        rival_variable=other,
        ours=Metric.of_share(us, n),
        theirs=Metric.of_share(them, n),
    )


def _shared(fitting: Material, graded: Material) -> int:
    """How many prompts both choose and grade places, of rows that are not divided into splits."""
    chosen = {case.base.tokens for case in fitting.cases}
    return sum(case.base.tokens in chosen for case in graded.cases)


def _to_run(algorithm: Algorithm, places: Sequence[Place], *, together: int = 1) -> Algorithm:
    """The algorithm with its inputs as variables too, where several positions are exchanged at once: they may hold
    nothing but these.
    """
    several = together > 1 or any(len(place.roles) > 1 for place in places)
    return algorithm.with_inputs if several else algorithm


def alike(pairs: Pairs, variables: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Which variables no source separates: their predictions are the same for every pair."""
    groups: dict[tuple[frozenset[int] | None, ...], list[str]] = {}
    for variable in variables:
        wanted = pairs.wanted[variable]
        predicted = tuple(one for one, usable in zip(wanted, pairs.usable, strict=True) if usable)
        groups.setdefault(predicted, []).append(variable)
    return tuple(tuple(names) for names in groups.values() if len(names) > 1)


def _notes(held_out: Pairs, fitting: Pairs) -> tuple[str, ...]:
    """What the reader should know of the pairs."""
    notes = []
    for what, pairs in (("held-out pairs", held_out), ("pairs that choose places", fitting)):
        left = len(pairs) - sum(pairs.usable)
        if left:
            notes.append(
                f"{left} of {len(pairs)} {what} are left out: the model does not answer their base or source as the "
                "algorithm says."
            )
    return tuple(notes)
