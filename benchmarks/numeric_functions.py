"""The built-in interpreter of numeric functions without the families that a function is made of.

    python -m benchmarks.numeric_functions --out benchmarks/results/numeric_left_out.json

Every function is interpreted by somebody who knows nothing of its families: what is left is what the list of families
does not explain. Nets, which are of no family, are left aside. With all families, `vesalius bench functions` measures.
"""

import argparse
import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from vesalius.sandbox import Sandbox
from vesalius_functions import Box
from vesalius_functions.numeric import NumericFunction, grade, interpret, oracle, sample
from vesalius_functions.numeric.expressions import operands

BUDGET = 400
#: Two names for one family are left out together.
TWINS = {"sin": {"sin", "cos"}, "cos": {"sin", "cos"}}


def left_out(function: NumericFunction) -> frozenset[str]:
    """The families a function is made of."""
    names = {atom.family for atom in operands(function.expression)}
    return frozenset(names.union(*(TWINS.get(name, set()) for name in names)))


def rows(functions: list[NumericFunction]) -> list[dict[str, Any]]:
    """One row of figures per function."""
    found = []
    with Sandbox() as sandbox:
        for function in functions:
            start = time.process_time()
            answer = interpret(Box(function, budget=BUDGET), without=left_out(function))
            seconds = time.process_time() - start
            row: dict[str, Any] = dict(grade(function, answer, sandbox=sandbox).metrics)
            row["oracle"] = grade(function, oracle(function), sandbox=sandbox).metrics["success"]
            row |= {"queries": answer.queries, "cpu_seconds": seconds}
            found.append({"id": function.id, "kind": function.kind, "family": function.family, **row})
    return found


def summary(found: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Means over all functions, by kind, by family, and over clean functions of one family."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in found:
        names = ["all", row["kind"], f"family {row['family']}"]
        if row["kind"] == "clean" and row["family"] not in ("sum", "product"):
            names.append("clean, one family")
        for name in names:
            groups[name].append(row)
    return {name: {"n": len(group), **_means(group)} for name, group in sorted(groups.items())}


def _means(group: list[dict[str, Any]]) -> dict[str, float]:
    means = {}
    for metric in [key for key in group[0] if key not in ("id", "kind", "family", "nmse", "held_out_nmse")]:
        known = [row[metric] for row in group if row[metric] is not None]
        if known:
            means[metric] = round(float(np.mean(known)), 4)
    return means


def main() -> None:
    """Measure and write down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    functions = [function for function in sample(asked.count, seed=asked.seed) if function.kind != "mlp"]
    start = time.perf_counter()
    found = summary(rows(functions))
    document = {
        "count": asked.count,
        "seed": asked.seed,
        "seconds": round(time.perf_counter() - start, 1),
        "groups": found,
    }
    asked.out.write_text(json.dumps(document, indent=1) + "\n")
    for name, means in found.items():
        print(name, means)


if __name__ == "__main__":
    main()
