"""The built-in interpreter of numeric functions against the oracle, by kind of function.

    python -m benchmarks.numeric_functions --out benchmarks/results/numeric_suite.json
    python -m benchmarks.numeric_functions --published DIRECTORY --out benchmarks/results/numeric_published.json
    python -m benchmarks.numeric_functions --count 400 --leave-out --out benchmarks/results/numeric_left_out.json

With --leave-out every function is interpreted by somebody who knows nothing of the families it is made of: what is left
is what the list of families does not explain.
"""

import argparse
import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from vesalius.functions import Box
from vesalius.functions.numeric import NumericFunction, grade, interpret, load_published, oracle, sample
from vesalius.functions.numeric.expressions import operands
from vesalius.sandbox import Sandbox

BUDGET = 400
#: Two names for one family are left out together.
TWINS = {"sin": {"sin", "cos"}, "cos": {"sin", "cos"}}


def left_out(function: NumericFunction) -> frozenset[str]:
    """The families a function is made of."""
    names = {atom.family for atom in operands(function.expression)}
    return frozenset(names.union(*(TWINS.get(name, set()) for name in names)))


def rows(functions: list[NumericFunction], *, leave_out: bool) -> list[dict[str, Any]]:
    """One row of figures per function."""
    found = []
    with Sandbox() as sandbox:
        for function in functions:
            start = time.process_time()
            without = left_out(function) if leave_out else frozenset[str]()
            answer = interpret(Box(function, budget=BUDGET), without=without)
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
    parser.add_argument("--published", type=Path, help="a published dataset folder, instead of a fresh suite")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mode", choices=("fixed", "published"), default="fixed")
    parser.add_argument("--leave-out", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    if asked.published:
        functions = load_published(asked.published)
    else:
        functions = sample(asked.count, seed=asked.seed, mode=asked.mode)
    if asked.leave_out:
        functions = [function for function in functions if function.kind != "mlp"]
    start = time.perf_counter()
    found = summary(rows(functions, leave_out=asked.leave_out))
    settings = {key: str(value) if isinstance(value, Path) else value for key, value in vars(asked).items()}
    document = {**settings, "seconds": round(time.perf_counter() - start, 1), "groups": found}
    asked.out.write_text(json.dumps(document, indent=1) + "\n")
    for name, means in found.items():
        print(name, means)


if __name__ == "__main__":
    main()
