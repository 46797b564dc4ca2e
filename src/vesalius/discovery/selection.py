"""Which edges (or components) of a scored model are the circuit: rules that keep at most a budget of them.

| rule             | value of an edge                           | chosen by                                    |
|------------------|--------------------------------------------|----------------------------------------------|
| `top`            | magnitude of its score                     | largest first; what is on no path is dropped |
| `greedy`         | the same                                   | from the logits backwards, largest first     |
| `exact`          | the same                                   | integer program: the best connected circuit  |
| `bootstrap`      | magnitude that 97.5 % of resamples reach   | as `greedy`                                  |
| `positive-ratio` | the score for 80 % of the budget, then     | as `greedy`                                  |
|                  | the magnitude                              |                                              |

An edge counts only on a path from the embedding to the logits (`networks`). `bootstrap` resamples the prompts and drops
what changes its sign; it needs scores that are means over prompts. `positive-ratio` fills most of the budget with what
helps the behaviour and the rest with whatever is strong. Components have no paths of their own (each reads and writes
the residual stream), so that `greedy` and `exact` choose among edges only.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.behaviours.trial import NothingUnseen, Trial
from vesalius.discovery.faithfulness import CircuitPart, NothingToKeep, circuit_curves, default_sizes
from vesalius.discovery.method import Method
from vesalius.discovery.networks import Network, exact_edges, greedy_edges, top_edges
from vesalius.discovery.pruning import MAX_EDGES
from vesalius.documents.checks import RULES, CircuitCut, Curve, RuleFigures
from vesalius.documents.circuit import Circuit
from vesalius.errors import BadInput, choices, require_whole
from vesalius.intervene.edges import EdgeGraph
from vesalius.model.transformer import Transformer
from vesalius.statistics import bootstrap_means

#: The share of the budget that `positive-ratio` gives to positive scores.
POSITIVE_SHARE = 0.8
#: Without a budget: the smallest circuit that keeps this share of the behaviour.
LEAST_KEPT = 0.9
RESAMPLES = 500
#: Edges resampled at once, to bound memory.
_AT_ONCE = 4_096


@dataclass(frozen=True)
class Scored:
    """What can be selected, with its scores; `per_prompt` are those of every prompt where scores are means."""

    parts: Sequence[CircuitPart]
    scores: Float[np.ndarray, " part"]
    per_prompt: Float[Tensor, "prompt part"] | None
    network: Network | None

    @classmethod
    def of(cls, circuit: Circuit, per_prompt: Tensor | None = None) -> "Scored":
        """The scores of a circuit: of its edges where it has them, else of its components."""
        if not circuit.edge_scores:
            components = circuit.components
            usable = per_prompt if per_prompt is not None and per_prompt.ndim == 2 else None
            return cls(list(components), np.array(list(components.values()), dtype=float), usable, None)
        graph = EdgeGraph(circuit.n_layers, circuit.n_heads, circuit.parallel)
        known = circuit.edge_scores
        scores = np.array([known.get(edge, 0.0) for edge in graph.edges], dtype=float)
        if per_prompt is not None:
            rows, columns = graph.places.T
            per_prompt = per_prompt[:, rows, columns] if per_prompt.ndim == 3 else None
        return cls(graph.edges, scores, per_prompt, Network.of(graph))

    @property
    def by_edges(self) -> bool:
        """Whether edges are selected."""
        return self.network is not None

    @cached_property
    def magnitudes(self) -> Float[np.ndarray, " part"]:
        """How strong each part is."""
        return np.abs(self.scores)

    @cached_property
    def reached(self) -> Float[np.ndarray, " part"]:
        """The magnitude that 97.5 % of the resamples of the prompts reach with the sign of the mean, else 0."""
        if self.per_prompt is None or len(self.per_prompt) < 2:
            raise BadInput(
                "select bootstrap: the scores are not means over two or more prompts, so that they cannot be "
                "resampled; select top, greedy or exact"
            )
        least = []
        for part in self.per_prompt.double().split(_AT_ONCE, dim=1):
            signed = bootstrap_means(part, resamples=RESAMPLES) * part.mean(0).sign()
            least.append(torch.quantile(signed, 0.025, dim=0).clamp(min=0))
        return torch.cat(least).numpy()

    def chosen(self, rule: str, budget: int) -> frozenset[CircuitPart]:
        """What a rule keeps within a budget."""
        kept = self._edges(rule, budget) if self.network is not None else self._components(rule, budget)
        return frozenset(self.parts[place] for place in np.flatnonzero(kept).tolist())

    def _edges(self, rule: str, budget: int) -> np.ndarray:
        assert self.network is not None
        if rule == "positive-ratio":
            helping = greedy_edges(self.network, np.maximum(self.scores, 0), round(POSITIVE_SHARE * budget))
            return greedy_edges(self.network, self.magnitudes, budget, start=helping)
        values = self.reached if rule == "bootstrap" else self.magnitudes
        choose = {"top": top_edges, "exact": exact_edges}.get(rule, greedy_edges)
        return choose(self.network, values, budget)

    def _components(self, rule: str, budget: int) -> np.ndarray:
        values = self.reached if rule == "bootstrap" else self.magnitudes
        kept = np.zeros(len(values), dtype=bool)
        if rule == "positive-ratio":
            kept |= _strongest(np.maximum(self.scores, 0), round(POSITIVE_SHARE * budget))
        return kept | _strongest(np.where(kept, 0.0, values), budget - int(kept.sum()))


def _strongest(values: np.ndarray, budget: int) -> np.ndarray:
    kept = np.zeros(len(values), dtype=bool)
    kept[np.argsort(-values, kind="stable")[:budget]] = True
    return kept & (values > 0)


def parse_rules(select: str | Sequence[str] | None, size: int | None = None) -> tuple[str, ...]:
    """The rules that a caller names: none, one, or several with commas, of which the first makes the circuit."""
    require_whole(size=1 if size is None else size)
    names = select.split(",") if isinstance(select, str) else select or ()
    rules = tuple(name.strip() for name in names)
    if select is not None and not rules:
        raise BadInput(f"`select` names no rule; choose from {choices(RULES)}")
    for rule in rules:
        if rule not in RULES:
            raise BadInput(f"`select` {rule!r} does not exist; choose from {choices(RULES)}")
    if len(set(rules)) < len(rules):
        raise BadInput(f"`select` {','.join(rules)} names a rule twice; name each once")
    if size is not None and not rules:
        raise BadInput("`size` is the budget of `select`; name a rule, such as exact")
    return rules


def selectable_parts(model: Transformer, method: Method) -> Sequence[CircuitPart]:
    """What a method scores in a model: edges, components, or heads alone."""
    if method.scores_edges:
        return EdgeGraph.of(model.config).edges
    return [part for part in model.components if part.is_head or not method.heads_only]


def require_selectable(rules: Sequence[str], size: int | None, *, by_edges: bool, candidates: int) -> None:
    """Refuse rules and sizes that do not fit what is scored, before the work."""
    if not by_edges and (rule := next((rule for rule in rules if rule in ("greedy", "exact")), None)):
        raise BadInput(f"`select` {rule} chooses among edges, and this method scores components; select top, or eap-ig")
    if size is None and candidates > MAX_EDGES:
        raise BadInput(f"`select` needs a `size`: {candidates:,} edges are too many to try sizes")
    if size is not None and not 1 <= size <= candidates:
        kind = "edges" if by_edges else "components"
        raise BadInput(f"`size` {size} does not fit; this model has {candidates:,} {kind}, choose 1 to {candidates:,}")


def selection_sizes(candidates: int, size: int | None) -> tuple[list[int], list[int]]:
    """The sizes that are tried on the discovery's prompts (none where the `size` is given), and those of the curves on
    held-out prompts (none of a model of too many edges).
    """
    usual = default_sizes(candidates)
    return usual if size is None else [], sorted({size or 0, *usual}) if candidates <= MAX_EDGES else []


def select_circuit(
    model: Transformer,
    circuit: Circuit,
    rules: Sequence[str],
    *,
    size: int | None = None,
    per_prompt: Tensor | None = None,
    seen: Trial | None = None,
    held_out: Callable[[], Trial] | None = None,
) -> tuple[Circuit, CircuitCut]:
    """The circuit cut by the first rule, and the figures of all.

    `size` is the budget; without it the smallest circuit is taken that keeps `LEAST_KEPT` of the behaviour on the
    prompts `seen` by the discovery. Curves are read on the `held_out` prompts.
    """
    start, scored = time.perf_counter(), Scored.of(circuit, per_prompt)
    require_selectable(rules, size, by_edges=scored.by_edges, candidates=len(scored.parts))
    if not scored.magnitudes.any():
        raise BadInput("`select`: nothing scores other than 0, so that there is nothing to keep; use more prompts")
    runs, least_kept = _Runs(model, scored), None
    if size is None:
        size, least_kept = runs.smallest(rules[0], seen), LEAST_KEPT
    kept = {rule: scored.chosen(rule, size) for rule in rules}
    curves, missing = runs.curves(kept, size, held_out)
    selection = CircuitCut(
        by="edges" if scored.by_edges else "components",
        budget=size,
        candidates=len(scored.parts),
        least_kept=least_kept,
        rules=tuple(_figures(scored, rule, kept[rule], curves.get(rule), size) for rule in rules),
        missing=missing,
        seconds=time.perf_counter() - start,
    )
    return circuit.cut_to(kept[rules[0]]), selection


@dataclass(frozen=True)
class _Runs:
    """What the model does with selected circuits only."""

    model: Transformer
    scored: Scored

    def smallest(self, rule: str, seen: Trial | None) -> int:
        """The smallest budget of the usual ones at which a rule keeps enough on these prompts."""
        if seen is None:
            raise BadInput("`select` needs a `size`: there are no prompts to try sizes on")
        sizes, _ = selection_sizes(len(self.scored.parts), None)
        (curve,) = self._curves(seen, {rule: {}}, sizes)
        enough = (size for size, kept in zip(sizes, curve.faithfulness, strict=True) if kept >= LEAST_KEPT)
        return next(enough, sizes[-1])

    def curves(
        self, kept: Mapping[str, frozenset[CircuitPart]], size: int, held_out: Callable[[], Trial] | None
    ) -> tuple[dict[str, Curve], str | None]:
        """The curve of every rule, or why there is none."""
        if held_out is None:
            return {}, "checks were left out"
        _, sizes = selection_sizes(len(self.scored.parts), size)
        if not sizes:
            return {}, f"this model has {len(self.scored.parts):,} edges and up to {MAX_EDGES:,} are cut"
        try:
            curves = self._curves(held_out(), {rule: {size: circuit} for rule, circuit in kept.items()}, sizes)
        except (NothingToKeep, NothingUnseen) as error:
            return {}, str(error)
        return dict(zip(kept, curves, strict=True)), None

    def _curves(
        self, material: Trial, known: Mapping[str, Mapping[int, frozenset[CircuitPart]]], sizes: Sequence[int]
    ) -> list[Curve]:
        """The curves of rules over budgets; at 0 and at all parts there is nothing to choose."""
        parts = self.scored.parts
        fixed = {0: frozenset(), len(parts): frozenset(parts)}
        rows = [
            [{**fixed, **circuits}.get(size) or self.scored.chosen(rule, size) for size in sizes[1:]]
            for rule, circuits in known.items()
        ]
        return circuit_curves(self.model, material, [[frozenset(), *row] for row in rows], sizes, parts)


def _figures(scored: Scored, rule: str, kept: frozenset[CircuitPart], curve: Curve | None, size: int) -> RuleFigures:
    inside = np.array([part in kept for part in scored.parts])
    return RuleFigures(
        rule=rule,
        size=len(kept),
        value=float(scored.magnitudes[inside].sum()),
        faithfulness=None if curve is None else curve.faithfulness[curve.sizes.index(size)],
        curve=curve,
    )
