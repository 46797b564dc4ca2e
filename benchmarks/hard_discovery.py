"""What a scorecard of `vesalius bench discovery --hard` says about pairs of methods, and about stability and truth.

    vesalius bench discovery --hard --limit 12 --n 8 --methods sweep,eap,eap-ig,relp --out run
    python -m benchmarks.hard_discovery run/scorecard.json

Pairs: mean difference over the same models, 95 % bootstrap interval over models, not corrected for their number.
Stability: mean Jaccard index of a method's circuits where the best faithful circuit is true and where it is false, and
the area by which the index tells true from false (0.5: not at all).
"""

import argparse
import json
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

from vesalius.documents.scorecard import DiscoveryFigures, Scorecard
from vesalius.files import write_json
from vesalius.grading.discovery import auroc
from vesalius.statistics import mean_interval

FIGURES = ("node_auroc", "node_precision", "edge_auroc", "edge_precision", "cmd", "edge_cmd")


def figure(row: DiscoveryFigures, name: str) -> float | None:
    """A figure of one method on one model."""
    return getattr(row.hard if "precision" in name else row, name)


def paired(card: Scorecard) -> list[dict[str, Any]]:
    """Every pair of methods by every figure."""
    rows, cases = [], card.cases or ()
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


def stability(card: Scorecard) -> list[dict[str, Any]]:
    """Jaccard indices of true and of false circuits, by method and over all."""
    rows = []
    for methods in (*[(method,) for method in card.methods or {}], tuple(card.methods or {})):
        figures = [case.methods[method] for case in card.cases or () for method in methods]
        known = [
            (row.jaccard, not row.hard.best_false)
            for row in figures
            if row.hard is not None and row.hard.best_false is not None and row.jaccard is not None
        ]
        row: dict[str, Any] = {"methods": methods, "area": auroc(known)}
        for name, wanted in (("true", True), ("false", False)):
            values = [index for index, is_true in known if is_true == wanted]
            row |= {name: sum(values) / len(values) if values else None, f"n_{name}": len(values)}
        rows.append(row)
    return rows


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scorecard", type=Path)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    card = Scorecard.read(given.scorecard)
    metrics = {name: metric.as_data() for name, metric in card.metrics.items()}
    document = {"benchmark": "hard_discovery", "n": card.n, "prompts": card.prompts, "seed": card.seed}
    document |= {"pairs": paired(card), "stability": stability(card), "metrics": metrics}
    print(json.dumps({name: document[name] for name in ("pairs", "stability")}, indent=1))
    if given.out:
        write_json(given.out, document)


if __name__ == "__main__":
    main()
