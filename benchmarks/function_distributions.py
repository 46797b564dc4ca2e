"""Are functions drawn in either mode distributed as the published ones? Numeric functions in detail.

    python -m benchmarks.function_distributions PUBLISHED --count 1000 --seed 1

Shares (kinds, families, noise, shapes of corruption) by the chi-squared test, numbers (scales, biases, lengths of
intervals) by the Kolmogorov-Smirnov test. Mode `published` follows the paper's words where the data depart from them
(scales, biases, intervals), so there a difference is meant; the default follows the data.
"""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats

from vesalius_functions.box import Mode
from vesalius_functions.numeric import load_published
from vesalius_functions.numeric.expressions import operands
from vesalius_functions.numeric.function import Kind, NumericFunction
from vesalius_functions.numeric.sampling import places_of, sample_at, suite_expressions

KINDS: tuple[Kind, ...] = ("clean", "noised", "corrupted", "mlp")
#: Families whose first two parameters are a scale and a bias.
SCALED = ("absolute", "root", "logarithm", "step", "relu")


class Draw:
    """What is compared of some functions: shares as lists of names, and numbers."""

    def __init__(self, functions: Sequence[NumericFunction], nets: Sequence[Any] = ()) -> None:
        expressions = [*(one.expression for one in functions), *nets]
        atoms = [part for one in expressions for part in operands(one)]
        corruptions = [one.corruption for one in functions if one.kind == "corrupted" and one.corruption is not None]
        self.n = len(expressions)
        self.shares: dict[str, list[str]] = {
            "kinds": [*(one.kind for one in functions), *("mlp" for _ in nets)],
            "families": [operands(one)[0].family for one in expressions if len(operands(one)) == 1],
            "composed": ["composed" if len(operands(one)) == 2 else "single" for one in expressions],
            "noise": [str(one.noise) for one in functions if one.kind == "noised"],
            "corrupted where": [one.shape for one in corruptions],
        }
        scaled = [atom.params for atom in atoms if atom.family in SCALED]
        finite = [one.boundary for one in corruptions if len(one.boundary) == 2]
        self.numbers: dict[str, list[float]] = {
            "scale": [float(params[0]) for params in scaled],
            "bias": [float(params[1]) for params in scaled],
            "length of a finite interval": [ends[1] - ends[0] for ends in finite],
            "threshold": [one.boundary[0] for one in corruptions],
        }


def drawn(count: int, *, seed: int, mode: Mode) -> Draw:
    """Functions drawn afresh; nets are counted by what they approximate, none is trained."""
    places = [place for kind in KINDS if kind != "mlp" for place in places_of(count, seed=seed, kind=kind, mode=mode)]
    nets = suite_expressions(count, seed=seed, kind="mlp", mode=mode)
    return Draw(sample_at(places, seed=seed, mode=mode), nets)


def compared(ours: Draw, theirs: Draw) -> list[dict[str, Any]]:
    """One row per property: how far the two differ, and the probability of that by chance."""
    rows: list[dict[str, Any]] = []
    for name, mine in ours.shares.items():
        counts = Counter(mine), Counter(theirs.shares[name])
        names = sorted({*counts[0], *counts[1]})
        table = np.array([[count[which] for which in names] for count in counts])
        p = float(np.asarray(scipy.stats.chi2_contingency(table)[1])) if len(names) > 1 else 1.0
        largest = max(abs(a / len(mine) - b / len(theirs.shares[name])) for a, b in table.T)
        rows.append({"property": name, "largest difference": largest, "p": p, "n": [len(mine), int(table[1].sum())]})
    for name, values in ours.numbers.items():
        statistic, p = map(float, np.asarray(scipy.stats.ks_2samp(values, theirs.numbers[name])))
        size = [len(values), len(theirs.numbers[name])]
        rows.append({"property": name, "largest difference": statistic, "p": p, "n": size})
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("published", type=Path, help="folder of the published dataset")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    published = Draw(load_published(options.published))
    results = {}
    for mode in ("published", "fixed"):
        results[mode] = compared(drawn(options.count, seed=options.seed, mode=mode), published)
        for row in results[mode]:
            print(f"{mode:10} {row['property']:28} {row['largest difference']:.3f}  p {row['p']:.3g}  n {row['n']}")
    Path("benchmarks/results/function_distributions.json").write_text(json.dumps(results, indent=2) + "\n")
