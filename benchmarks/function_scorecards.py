"""The scorecards of functions runs in one small file: what docs/functions*.md quotes.

    vesalius bench functions --category numeric            # and so on: every run that is to be quoted
    python -m benchmarks.function_scorecards vesalius-runs --out benchmarks/results/function_scorecards.json

Of each run it keeps who interpreted what, every metric and, for numeric functions, the means by kind of function; what
is listed case by case stays with the run.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from vesalius.runs.steps import six_places

KEPT = ("subject", "category", "mode", "seed", "suite", "n", "n_error", "metrics", "families", "kinds")


def short(run: Path) -> dict[str, Any]:
    """The part of a run's scorecard that is quoted."""
    card = json.loads((run / "scorecard.json").read_text(encoding="utf-8"))
    kept = {name: card[name] for name in KEPT if card.get(name) is not None}
    if kept["suite"].startswith("published folder"):
        kept["suite"] = "published folder"  # where it lay is nobody's business
    return kept


def main() -> None:
    """Collect and write down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="a directory of runs")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    found = {path.parent.name: short(path.parent) for path in sorted(asked.runs.glob("*/scorecard.json"))}
    asked.out.write_text(json.dumps(six_places(found), indent=1) + "\n", encoding="utf-8")
    for name, card in found.items():
        first = next(iter(card["metrics"].items()))
        print(name, card["n"], first[0], round(first[1]["value"], 3))


if __name__ == "__main__":
    main()
