"""Passes of what a discovery does besides its method: its checks, the search of the smallest circuit, and cutting it by
rules. What is found is not known yet; random circuits stand for it.
"""

import random
from collections.abc import Sequence

from vesalius.api.workloads import Case
from vesalius.components import Component
from vesalius.discovery.attribution import Best
from vesalius.discovery.checks import HELD_OUT_PROMPTS, LARGEST_CIRCUIT
from vesalius.discovery.checks import PROMPTS as GUARANTEE_PROMPTS
from vesalius.discovery.faithfulness import default_sizes
from vesalius.discovery.head_tests import ROWS as ATTENTION_ROWS
from vesalius.discovery.method import Method
from vesalius.discovery.pruning import MAX_EDGES
from vesalius.discovery.selection import selectable_parts, selection_sizes
from vesalius.discovery.specificity import PROMPTS as SPECIFICITY_PROMPTS
from vesalius.discovery.specificity import RANDOM_SETS, TEXT_ROWS
from vesalius.discovery.whole import (
    CHOOSE,
    EDGE_POINTS,
    EDGE_REFINED,
    RANDOM_CIRCUITS,
    REFINED,
    REPORT,
    SHARES,
    TRIM_PROMPTS,
)
from vesalius.documents.whole import LEAST_MOST, MOST_SHARE
from vesalius.intervene.edges import EdgeGraph
from vesalius.intervene.effects import ComponentSet
from vesalius.intervene.estimate import sweep_forwards


def check_rows(case: Case, method: Method) -> float:
    """Passes of one prompt for the checks: two curves, that of the edges where they are few, other behaviours, and the
    attention of every head. Which components the circuits hold is not known yet: random ones stand for them.
    """
    model, parts = case.model, case.model.components
    rng = random.Random(0)
    removed = _random_removed(rng, parts, default_sizes(len(parts)), orders=2)
    rows = HELD_OUT_PROMPTS * (1 + sweep_forwards(model, list(dict.fromkeys(removed))))
    n_edges = EdgeGraph.of(model.config).n_edges
    if method.scores_edges and n_edges <= MAX_EDGES:
        rows += HELD_OUT_PROMPTS * (2 + len(default_sizes(n_edges)))
    rows += GUARANTEE_PROMPTS * (1 + sweep_forwards(model, removed[:2]))
    if not case.finite:
        heads = [part for part in parts if part.is_head]
        circuits = [tuple(sorted(rng.sample(heads, min(len(heads), LARGEST_CIRCUIT)))) for _ in range(1 + RANDOM_SETS)]
        others = case.behaviours * SPECIFICITY_PROMPTS + TEXT_ROWS
        rows += TEXT_ROWS + others * sweep_forwards(model, circuits)
    return rows + ATTENTION_ROWS


def whole_rows(case: Case, method: Method) -> float:
    """Passes of one prompt for the search of the smallest circuit, about: how far a circuit can be trimmed, and whether
    a further ranking is needed, is not known before.
    """
    parts, rankings = len(case.model.components), 1 + (len(method.beside) if isinstance(method, Best) else 0)
    limit = min(parts, max(LEAST_MOST, round(MOST_SHARE * parts)))
    read = min(parts, len(SHARES) + 1) + REFINED
    ranked = rankings * (CHOOSE * (read + 2 * REFINED) + 2 * TRIM_PROMPTS * limit)
    edges = CHOOSE * (EDGE_POINTS + EDGE_REFINED + 2)
    return ranked + edges + 2 * CHOOSE + (3 + RANDOM_CIRCUITS) * REPORT + (0 if case.finite else 3 * CHOOSE)


def _random_removed(
    rng: random.Random, parts: Sequence[Component], sizes: Sequence[int], *, orders: int
) -> list[ComponentSet]:
    """What random circuits of these sizes leave out: stands for circuits that are not known yet."""
    return [
        tuple(sorted(order[size:]))
        for order in (rng.sample(parts, len(parts)) for _ in range(orders))
        for size in sizes
        if size < len(parts)
    ]


def selection_rows(case: Case, method: Method, rules: Sequence[str], size: int | None, *, checks: bool) -> float:
    """Passes of one prompt for a circuit cut by rules: the first at several sizes on the discovery's prompts, and the
    curves of all on held-out ones. Circuits that two rules share are run once, which is not known yet.
    """
    if not rules:
        return 0.0
    parts = selectable_parts(case.model, method)
    tried, compared = selection_sizes(len(parts), size)

    def passes(sizes: Sequence[int], orders: int) -> float:
        components = [part for part in parts if isinstance(part, Component)]
        if not sizes:
            return 0.0
        if not components:  # both runs without cuts, then every cut: nothing and all are the same for every rule
            return 2 + 2 + orders * (len(sizes) - 2)
        removed = _random_removed(random.Random(0), components, sizes, orders=orders)
        return 1 + sweep_forwards(case.model, list(dict.fromkeys(removed)))

    return case.sizes.n * passes(tried, 1) + (HELD_OUT_PROMPTS * passes(compared, len(rules)) if checks else 0.0)
