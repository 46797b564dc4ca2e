"""What the search for string programs finds, on fresh functions and without the operation that they need.

    python -m benchmarks.string_search --seed 770003 --count 500
    python -m benchmarks.string_search --seed 770002 --leave-out 12 --each 5
    python -m benchmarks.string_search --published FOLDER

The first searches a sample as the benchmark does. The second draws operations and functions that contain them, and
searches those without that operation. The third counts for how many published functions, whose sources are missing,
some program agrees with all stored pairs: that says how well the operations are read, and is no interpretation.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from vesalius.sandbox import Sandbox
from vesalius_functions import Box
from vesalius_functions.strings import StringFunction, grade, interpret, load_published, recover, sample
from vesalius_functions.strings.program import library
from vesalius_functions.strings.search.space import space


def searched(functions: Sequence[StringFunction], seed: int, sandbox: Sandbox, **options: Any) -> dict[str, Any]:
    """Interpret and grade functions: means of all figures, queries, processor time and what kinds of answer came."""
    rows, queries, claims, started = [], [], [], time.process_time()
    for function in functions:
        box = Box(function, budget=100)
        answer = interpret(box, seed=seed, **options)
        queries.append(box.asked)
        claims.append("table" if answer.table else "part" if "only a part" in answer.description else "whole")
        rows.append(grade(function, answer, sandbox=sandbox, seed=seed).metrics)
    known = {name: [row[name] for row in rows if row[name] is not None] for name in rows[0]}
    return {
        "n": len(rows),
        **{name: round(sum(values) / len(values), 4) for name, values in known.items() if values},
        "queries": {"mean": round(sum(queries) / len(queries), 1), "most": max(queries)},
        "claims": {kind: claims.count(kind) for kind in ("whole", "part", "table")},
        "cpu_seconds_each": round((time.process_time() - started) / len(rows), 3),
    }


def left_out(seed: int, operations: int, each: int, sandbox: Sandbox) -> dict[str, Any]:
    """The figures of functions that contain an operation, searched without it; and of all of them together."""
    drawn = sample(1000, seed=seed)
    report: dict[str, Any] = {}
    for name in Random(0).sample(sorted(library("fixed")), operations):
        mine = [f for f in drawn if any(step.operation.name == name for step in f.program.steps)][:each]
        if mine:
            report[name] = searched(mine, seed, sandbox, without=[name], modes=("fixed",))
            space.cache_clear()
            print(json.dumps({name: report[name]}), flush=True)
    total = sum(row["n"] for row in report.values())
    means = {
        figure: round(sum(row[figure] * row["n"] for row in report.values()) / total, 4)
        for figure in ("exact_match", "exact_held_out", "understood", "unit_test")
    }
    kinds = {kind: sum(row["claims"][kind] for row in report.values()) for kind in ("whole", "part", "table")}
    return {"operations": report, "all": {"n": total, **means, "claims": kinds}}


def recovered(folder: Path) -> dict[str, Any]:
    """For how many published functions without source a program agrees with all stored pairs."""
    functions = [function for function in load_published(folder) if function.source == "missing"]
    missing = [function.id for function in functions if recover(function.tests) is None]
    return {"n": len(functions), "recovered": len(functions) - len(missing), "missing": missing}


def main() -> None:
    """Measure one of the three."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--mode", choices=["fixed", "published"], default="fixed")
    parser.add_argument("--leave-out", type=int, metavar="N", help="leave out N operations, one at a time")
    parser.add_argument("--each", type=int, default=5, help="functions for each operation left out")
    parser.add_argument("--published", type=Path, metavar="FOLDER")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with Sandbox() as sandbox:
        if given.published is not None:
            report = recovered(given.published)
        elif given.leave_out:
            report = left_out(given.seed, given.leave_out, given.each, sandbox)
        else:
            report = searched(sample(given.count, seed=given.seed, mode=given.mode), given.seed, sandbox)
    print(json.dumps(report, indent=1))
    if given.out is not None:
        given.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
