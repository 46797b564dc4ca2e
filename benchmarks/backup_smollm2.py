"""Do the induction heads of SmolLM2-135M back each other up? The figures of docs/background/sets.md.

    OMP_NUM_THREADS=1 python -m benchmarks.backup_smollm2 --out benchmarks/results/backup_smollm2.json

Mean ablation, behaviour `induction`. Five parts: all pairs of twelve heads on 16 prompts of the validation split;
eleven sets among them on 48 prompts of the test split, judged together; group testing on the same twelve heads; pruning
of the four heads that attend like induction heads, on 16 prompts and on 48.

The twelve heads were chosen by their effects on the train split (and two because they attend like induction heads), the
eleven sets after the pairs were seen on the validation split and before the test split was touched.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import vesalius as ves
from vesalius.behaviours.trial import trial
from vesalius.files import write_json
from vesalius.model.specimen import Specimen
from vesalius_mechrl.sets.discover import SetDiscovery, search_sets
from vesalius_mechrl.sets.sources import LiveSource, head_pool
from vesalius_mechrl.sets.synergy import judge, synergy_rows

TWELVE = ["L16H0", "L16H7", "L17H0", "L17H3", "L17H4", "L17H5", "L18H6", "L18H7", "L19H3", "L19H8", "L23H7", "L29H1"]
FOUR = ("L17H3", "L17H4", "L17H5", "L18H6")
ELEVEN = (
    ("L17H5", "L18H6"),
    ("L17H3", "L17H5"),
    ("L17H5", "L18H7"),
    ("L17H5", "L19H8"),
    ("L17H4", "L18H6"),
    ("L17H3", "L17H4"),
    ("L17H4", "L17H5"),
    ("L17H3", "L18H6"),
    ("L17H4", "L17H5", "L18H6"),
    ("L17H3", "L17H5", "L18H6"),
    ("L17H3", "L17H4", "L17H5", "L18H6"),
)
PROMPTS, MORE_PROMPTS = 16, 48
SHARE, LOWER_SHARE = 0.1, 0.05


def _summary(found: SetDiscovery) -> dict[str, Any]:
    whole = found.document()
    kept = ("metrics", "backup_groups", "tested", "least_synergy", "unit")
    return {"prompts": len(next(iter(found.queries.rows.values()))), **{name: whole[name] for name in kept}}


def all_pairs(specimen: Specimen) -> dict[str, Any]:
    """Every pair of the twelve heads on the validation split."""
    found = search_sets(specimen, "pairs", pool=TWELVE, n=PROMPTS, least=SHARE)
    return {**_summary(found), "synergies": [pair.document() for pair in found.synergies]}


def eleven_sets(specimen: Specimen) -> dict[str, Any]:
    """The sets chosen beforehand on the test split; all intervals hold at once."""
    heads = head_pool(specimen, TWELVE)
    source = LiveSource(specimen, trial(specimen, MORE_PROMPTS, split="test"), heads)
    sets = [frozenset(source.heads.index(head) for head in members) for members in ELEVEN]
    known: dict[frozenset[int], Any] = {}
    judged = judge(synergy_rows(source, sets, known), ELEVEN, least=SHARE * source.clean)
    rows = [
        {
            **found.document(),
            "together": float(known[members].mean()),
            "sum_alone": float(sum(known[frozenset({head})].mean() for head in members)),
        }
        for members, found in zip(sets, judged, strict=True)
    ]
    alone = {source.heads[head]: float(rows.mean()) for (head, *more), rows in known.items() if not more}
    return {"prompts": MORE_PROMPTS, "clean": source.clean, "alone": alone, "sets": rows}


def group_testing(specimen: Specimen) -> dict[str, Any]:
    """Half the usual least synergy, because no pair reaches the usual one."""
    return _summary(search_sets(specimen, "group", pool=TWELVE, n=PROMPTS, least=LOWER_SHARE))


def pruning(specimen: Specimen, n: int = PROMPTS) -> dict[str, Any]:
    """From the four induction heads."""
    return _summary(search_sets(specimen, "prune", pool=FOUR, n=n, least=SHARE))


PARTS: dict[str, Callable[[Specimen], dict[str, Any]]] = {
    "pairs": all_pairs,
    "eleven_sets": eleven_sets,
    "group": group_testing,
    "prune": pruning,
    "prune_on_more_prompts": partial(pruning, n=MORE_PROMPTS),
}


def main() -> None:
    """Measure all parts and say what each took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    specimen = ves.load("smollm2-135m", behaviour="induction")
    document: dict[str, Any] = {"benchmark": "backup_smollm2", "kind": "mean", "seed": 0, "pool": TWELVE}
    for name, part in PARTS.items():
        start = time.process_time()
        document[name] = {**part(specimen), "cpu_seconds": round(time.process_time() - start, 1)}
        print(json.dumps({name: document[name]}), flush=True)
    if given.out:
        write_json(given.out, document)


if __name__ == "__main__":
    main()
