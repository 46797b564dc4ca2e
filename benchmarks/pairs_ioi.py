"""How many synergistic pairs of heads a proposal by gradients finds, against a table of all pairs.

    python -m benchmarks.pairs_ioi TABLES --out benchmarks/results/pairs_ioi.json

TABLES is the directory that `vesalius sets MODEL -b BEHAVIOUR --search pairs --kind resample --out TABLES` writes. A
pair counts as synergistic where replacing both costs at least `LEAST` of the clean score more than the sum of the two,
and the 99 % interval (Student's) of that lies above 0; *beyond what helps* takes as the sum only what costs something
alone, as the claims do, so that a head that works against the answer makes no pair. The model proposes: with each of
the strongest heads replaced a gradient estimates what every other then costs (`discovery.redundancy`). Printed is how
many of the synergistic pairs are among the first proposals, and how many passes of all prompts that took; beside it the
same from the exact growth of the table.
"""

import argparse
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import stdtrit

import vesalius as ves
from vesalius.behaviours.trial import trial
from vesalius.discovery.rivals import PASSES, growing_pairs
from vesalius.files import write_json
from vesalius_mechrl.matrices import load_matrix
from vesalius_mechrl.sets.sources import GROWTH_PROMPTS, LiveSource, PairEffects

LEAST, LEVEL, SPLIT = 0.05, 0.99, "validation"
FIRST, PROPOSED = (12, 16, 32), (16, 32, 64, 128)


def synergistic(single: np.ndarray, pairs: np.ndarray, clean: float, *, helps: bool) -> set[tuple[int, int]]:
    """The pairs whose effect lies clearly beyond the sum; with `helps` a head that helps when replaced counts as 0."""
    n = single.shape[1]
    alone = single * (single.mean(0) > 0) if helps else single
    index = np.array(list(itertools.combinations(range(n), 2)))
    beyond = pairs - alone[:, index[:, 0]] - alone[:, index[:, 1]]
    error = beyond.std(0, ddof=1) / math.sqrt(len(beyond))
    low = beyond.mean(0) - stdtrit(len(beyond) - 1, (1 + LEVEL) / 2) * error
    chosen = (beyond.mean(0) >= LEAST * clean) & (low > 0)
    return {(int(a), int(b)) for a, b in index[chosen]}


def found_by(grown: np.ndarray, first: list[int], source: Any, true: set[tuple[int, int]]) -> dict[str, int]:
    """How many of the true pairs are among the first proposals."""
    heads, place = source.components, {part: i for i, part in enumerate(source.components)}
    pairs = growing_pairs(torch.from_numpy(grown), heads, [heads[i] for i in first], most=max(PROPOSED))
    ranked = [(place[a], place[b]) for a, b in pairs]
    return {str(most): len(true & set(ranked[:most])) for most in PROPOSED}


def measure(tables: Path, model: str, behaviour: str) -> dict[str, Any]:
    """The figures of one table."""
    effects = PairEffects(load_matrix(tables / "effects" / "heads"), load_matrix(tables / "effects" / "pairs"))
    table = effects.source(SPLIT)
    n, pool = len(table.heads), len(table.single)
    specimen = ves.load(model, behaviour=behaviour)
    heads = [part for part in specimen.model.components if part.is_head]
    given = trial(specimen, GROWTH_PROMPTS, seed=effects.single.identity.seed, split=SPLIT)
    source = LiveSource(specimen, given, heads, kind=effects.single.identity.kind)
    kinds = {"synergistic": False, "beyond what helps": True}
    true = {name: synergistic(table.single, table.pairs, table.clean, helps=helps) for name, helps in kinds.items()}
    order = sorted(range(n), key=lambda head: -abs(float(table.single[:, head].mean())))
    grown = source.growth(order[: max(FIRST)])
    exact = np.full((max(FIRST), n), -np.inf)
    for row, one in enumerate(order[: max(FIRST)]):
        others = [other for other in range(n) if other != one]
        both = table.effects([frozenset({one, other}) for other in others]).mean(0)
        exact[row, others] = both - table.single[:, one].mean() - table.single[:, others].mean(0)
    rows = []
    for first in FIRST:
        some = order[:first]
        reach = {name: sum(bool(set(pair) & set(some)) for pair in pairs) for name, pairs in true.items()}
        rows.append(
            {
                "first": first,
                "gradient_passes": PASSES * (1 + first),
                "within_reach": reach,
                "by_gradients": {name: found_by(grown[:first], some, source, pairs) for name, pairs in true.items()},
                "by_the_table": {name: found_by(exact[:first], some, source, pairs) for name, pairs in true.items()},
                "passes_of_the_table": first * (n - 1),
            }
        )
    return {
        "benchmark": "pairs_ioi",
        "model": model,
        "behaviour": behaviour,
        "kind": effects.single.identity.kind,
        "prompts": pool,
        "prompts_of_gradients": GROWTH_PROMPTS,
        "heads": n,
        "pairs": math.comb(n, 2),
        "true": {name: len(pairs) for name, pairs in true.items()},
        "strongest": [f"{table.heads[a]}+{table.heads[b]}" for a, b in sorted(true["beyond what helps"])],
        "rows": rows,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--behaviour", default="ioi")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    found = measure(asked.tables, asked.model, asked.behaviour)
    for row in found["rows"]:
        for name, total in found["true"].items():
            here = row["by_gradients"][name]
            print(
                f"{row['first']} strongest heads, {row['gradient_passes']} passes: {name}, {total} of {found['pairs']} "
                f"pairs; within reach {row['within_reach'][name]}; "
                + ", ".join(f"{n} in the first {most}" for most, n in here.items())
            )
    if asked.out:
        write_json(asked.out, found)


if __name__ == "__main__":
    main()
