"""What scorecards of `vesalius bench discovery --hard` say about pairs of methods, kinds of models, and stability.

    vesalius bench discovery --hard --limit 64 --n 8 --methods sweep,eap,eap-ig,relp,acdc --out run
    python -m benchmarks.hard_discovery run/scorecard.json [OTHER/scorecard.json ...] --out results.json

Kinds: the figures of every method on every kind of model, as the scorecard has them, with their n. Pairs: mean
difference over the same models without wrong answers, 95 % bootstrap interval over models, not corrected for their
number. Stability: mean Jaccard index of a method's circuits where the best faithful circuit is true
and where it is false, and the area by which the index tells true from false (0.5: not at all), with the interval of
resampled models. The pairs are those of the first scorecard.
"""

import argparse
import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vesalius.documents.scorecard import DiscoveryFigures, DiscoveryRow, Scorecard
from vesalius.files import write_json
from vesalius.statistics import mean_interval
from vesalius_bench.discovery.cases import kind_of
from vesalius_truth.grading.discovery import auroc

FIGURES = ("node_auroc", "node_precision", "edge_auroc", "edge_precision", "cmd", "edge_cmd")
KIND_FIGURES = (*FIGURES, "jaccard", "guarantee_coverage", "best_false", "false_rivals")
RESAMPLES = 1000


def figure(row: DiscoveryFigures, name: str) -> float | None:
    """A figure of one method on one model."""
    return getattr(row.hard if "precision" in name else row, name)


def paired(card: Scorecard) -> list[dict[str, Any]]:
    """Every pair of methods by every figure."""
    rows, cases = [], [case for case in card.cases or () if not kind_of(case.id).startswith("wrong")]
    for name in FIGURES:
        for one, other in combinations(card.methods or {}, 2):
            both = [[figure(case.methods[method], name) for method in (one, other)] for case in cases]
            apart = [first - second for first, second in both if first is not None and second is not None]
            if apart:
                low, high = (float(end) for end in mean_interval(torch.tensor(apart, dtype=torch.float64)[:, None]))
                mean = sum(apart) / len(apart)
                row: dict[str, Any] = {"figure": name, "methods": [one, other], "difference": mean, "low": low}
                rows.append(row | {"high": high, "n": len(apart), "apart": low > 0 or high < 0})
    return rows


def kinds(card: Scorecard) -> list[dict[str, Any]]:
    """Every method on every kind of model; one row per method where there is one kind."""
    names = list(dict.fromkeys(kind_of(case.id) for case in card.cases or ()))
    rows = []
    for kind in names:
        for method in card.methods or {}:
            prefix = f"{method}.{kind}." if len(names) > 1 else f"{method}."
            figures = {
                name: metric.as_data() for name in KIND_FIGURES if (metric := card.metrics.get(f"{prefix}{name}"))
            }
            rows.append({"kind": kind, "prompts": card.prompts, "method": method, **figures})
    return rows


def stability(card: Scorecard) -> list[dict[str, Any]]:
    """Jaccard indices of true and of false circuits: by kind (all of them together as well) and by method."""
    rows, cases = [], list(card.cases or ())
    chosen = {"all": cases}
    for case in cases:
        chosen.setdefault(kind_of(case.id), []).append(case)
    for kind, some in chosen.items():
        for methods in (*[(method,) for method in card.methods or {}], tuple(card.methods or {})):
            rows.append({"kind": kind, "prompts": card.prompts, "methods": methods, **_separation(some, methods)})
    return rows


def _separation(cases: Sequence[DiscoveryRow], methods: Sequence[str]) -> dict[str, Any]:
    """How far the index tells true circuits from false ones; the interval resamples models."""
    known = [_judged(case, methods) for case in cases]
    together = [pair for pairs in known for pair in pairs]
    row: dict[str, Any] = {"area": auroc(together), "low": None, "high": None}
    for name, wanted in (("true", True), ("false", False)):
        values = [index for index, is_true in together if is_true == wanted]
        row |= {name: sum(values) / len(values) if values else None, f"n_{name}": len(values)}
    random = np.random.default_rng(0)
    drawn = [random.integers(len(known), size=len(known)) for _ in range(RESAMPLES)] if known else []
    areas = [auroc([pair for place in draw for pair in known[place]]) for draw in drawn]
    if row["area"] is not None and (defined := [area for area in areas if area is not None]):
        row["low"], row["high"] = np.quantile(defined, [0.025, 0.975]).tolist()
    return row


def _judged(case: DiscoveryRow, methods: Sequence[str]) -> list[tuple[float, bool]]:
    figures = [case.methods[method] for method in methods if method in case.methods]
    return [
        (row.jaccard, not row.hard.best_false)
        for row in figures
        if row.hard is not None and row.hard.best_false is not None and row.jaccard is not None
    ]


def main() -> None:
    """Print and write the three tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scorecards", type=Path, nargs="+")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    cards = [Scorecard.read(path) for path in given.scorecards]
    document: dict[str, Any] = {"benchmark": "hard_discovery", "n": cards[0].n, "seed": cards[0].seed}
    document |= {"pairs": paired(cards[0]), "forwards": forwards(cards[0])}
    document |= {"kinds": [row for card in cards for row in kinds(card)]}
    document |= {"stability": [row for card in cards for row in stability(card)]}
    print(json.dumps(document, indent=1))
    if given.out:
        write_json(given.out, document)


def forwards(card: Scorecard) -> dict[str, float]:
    """Mean forward-equivalents of every method."""
    return {method: row.forwards for method, row in (card.methods or {}).items()}


if __name__ == "__main__":
    main()
