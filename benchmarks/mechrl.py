"""What MechRL costs in forward passes: effect matrices measured once, against the published procedure.

    OMP_NUM_THREADS=1 python -m benchmarks.mechrl

The published run counts 487,560 forward passes of 32 rows for one policy (K = 1: 400,000 in training, the rest in
evaluation). Here the model runs only for the matrices: every row of every pool, once per head, from where the head
stands (counted by the engine on one prompt), and one forward and backward pass for what is known beforehand. Training
and evaluation look numbers up. Both are counted in rows (one row = one prompt through the whole model once).
"""

import argparse
import json
from pathlib import Path

import vesalius as ves
from vesalius.behaviours.trial import trial
from vesalius.components import Component
from vesalius.intervene import effects
from vesalius.model.specimen import Specimen
from vesalius_mechrl.suite import CONTROL, SIZES
from vesalius_mechrl.tables import ATTRIBUTION_PASSES

PUBLISHED_FORWARDS, PUBLISHED_ROWS = 487_560, 32
RESULT = Path("benchmarks/results/mechrl.json")


def row_passes(specimen: Specimen, heads: list[list[Component]]) -> float:
    """Whole forward passes that all heads of one prompt cost, the clean run included."""
    drawn = trial(specimen, 1)
    return effects(specimen.model, drawn.batch, drawn.readout, kind="value-bias", sets=heads).forwards


def main() -> None:
    """Count, print and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--size", default="full", choices=SIZES)
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    plan = SIZES[given.size]
    rows = {source: sum(plan.pools_of(source).values()) for source in plan.sources}
    specimen = ves.load(given.model, behaviour="capitals")
    heads = [[part] for part in specimen.model.components if part.is_head]
    each = row_passes(specimen, heads)
    ours = sum(rows.values()) * (each + ATTRIBUTION_PASSES + 1)
    trained = sum(rows[name] for name in (*plan.training, CONTROL)) * (each + ATTRIBUTION_PASSES + 1)
    published = PUBLISHED_FORWARDS * PUBLISHED_ROWS
    document = {
        "schema": 1,
        "model": given.model,
        "size": given.size,
        "heads": len(heads),
        "rows": rows,
        "passes_per_row": each,
        "row_passes": ours,
        "row_passes_for_training": trained,
        "forwards_of_32_rows": ours / PUBLISHED_ROWS,
        "ppo_forwards": 0,
        "published_forwards": PUBLISHED_FORWARDS,
        "published_row_passes": published,
        "ratio": published / ours,
        "ratio_training_only": published / trained,
        "note": "published: GPT-2 small (144 heads), rows of 60 tokens, one policy; ours: any number of policies",
    }
    given.out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
