"""The passes of an alignment, before the model runs.

Recordings and the map follow from the pairs. They are exact where the model gives the algorithm's one answer; pairs
that it answers in another way are left out, and cost less, and where several answers are right the one that it gives
decides what is graded. What follows the map depends on what it shows: the most that it can take, of all pairs.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from vesalius.explanations.variables.algorithms import Algorithm
from vesalius.explanations.variables.align import Asked, prepared
from vesalius.explanations.variables.directions import PAIRS, STEPS
from vesalius.explanations.variables.search import MOST_CARRIERS, MOST_ROLES, Search
from vesalius.intervene.exchanging import AT_ONCE, Exchange, Place
from vesalius.model.specimen import Specimen


@dataclass(frozen=True)
class Cost:
    """Passes of one prompt: of recordings and the map, and at most of the search after it; how many prompts choose
    places, the longest of all, and numbers in memory.
    """

    mapped: float
    search: float
    n: int
    width: int
    numbers: int


def cost_of(specimen: Specimen, algorithm: Algorithm, asked: Asked, *, rival: Algorithm | None) -> Cost:
    """What an alignment costs; the algorithm runs on every pair, the model does not."""
    fitting, graded, search = prepared(specimen, algorithm, asked, rival=rival, run=False)
    exchanges = [search.fitting.exchange, search.held_out.exchange, *([search.held_out.exchange] if rival else [])]
    recorded = sum(len(one.bases.tokens) + len(one.sources.tokens) for one in exchanges)
    mapped = len(search.fitting.graded_rows()) * _passes(search, search.map_places())
    return Cost(
        mapped=recorded + mapped,
        search=len(search.fitting.variables) * _most_of_each(search)
        + len(search.fitting) * _passes(search, search.other_places())
        + (0.0 if rival is None else len(search.held_out.variables) * len(search.held_out) * _longest(search)),
        n=len(fitting.cases),
        width=max(len(one.base.tokens) for material in (fitting, graded) for one in material.cases),
        numbers=sum(map(_kept, exchanges)) + 4 * AT_ONCE,
    )


def _passes(search: Search, places: Iterable[Place]) -> float:
    """Passes of one row with each of these places exchanged."""
    n_layers = search.fitting.exchange.model.config.n_layers
    return sum(n_layers - place.first_layer for place in places) / n_layers


def _first(search: Search) -> float:
    """Passes of one row from the first layer at which is looked."""
    return _passes(search, [Place(search.roles[:1], layer=search.layers[0])])


def _longest(search: Search) -> float:
    """Passes of one row from the first layer of any place."""
    return max(_first(search), *(_passes(search, [one]) for one in search.given), 0.0)


def _most_of_each(search: Search) -> float:
    """The most that one variable takes after the map: candidates on held-out pairs with their controls, the components
    that bring it to each, and directions.
    """
    fitting, held_out, first = search.fitting, search.held_out, _first(search)
    rows, graded = len(fitting), len(held_out)
    on_held_out = 2 * graded + sum(held_out.nothing_differs)  # the place, another position, a source that is the same
    candidates = min(MOST_ROLES, len(search.roles))
    config = fitting.exchange.model.config
    between = range(search.layers[0], search.layers[-1])
    each = (config.n_heads + 1) * _passes(search, [Place(search.roles[:1], layer=layer) for layer in between])
    brought = rows * (each + (1 + 2 * MOST_CARRIERS) * first) + 3 * graded * first
    given = (rows + on_held_out) * _passes(search, search.given)
    several = [one for one in search.given if len(one.roles) > 1]
    most = max([search.together, *(len(one.roles) for one in several)])
    apart = (len(several) + (search.together > 1)) * len(fitting.variables) * most * graded * first
    subspaces = 0.0
    if search.k:
        starts = [_passes(search, [one]) for one in search.given if one.layer is not None and len(one.roles) == 1]
        steps = 2 * STEPS * min(PAIRS, rows)  # with the predictions, and with shuffled ones
        subspaces = sum(starts or [first]) * (2 * rows + steps + on_held_out + 2 * graded)
    return max(2, candidates) * on_held_out * first + given + candidates * brought + subspaces + apart


def _kept(exchange: Exchange) -> int:
    """Numbers that an exchange keeps of its recordings."""
    config = exchange.model.config
    bases = exchange.bases.tokens.numel() * (config.n_layers + 1) * config.d_model
    at_each = (config.n_layers + 1) * config.d_model + config.n_layers * (
        config.n_heads * config.d_value + config.d_model
    )
    return bases + len(exchange.base_of) * len(exchange.roles) * at_each
