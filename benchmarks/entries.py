"""How many entries of explanations of natural models say nothing.

    python -m benchmarks.entries before/explanation.json after/explanation.json

An entry says nothing if its role is *no role established*, *builds features* (as it was called before), *necessary*
without a place or a path (*by a way that was not found*), or *a small part* and no more. One that says only where it
acts (*necessary at the answer*, *necessary upstream*) is counted apart. MLPs are counted as well by themselves, and so
are the passes.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from vesalius.documents.explanation import ComponentExplanation, Explanation
from vesalius.explanations.natural.roles import NO_ROLE, NOT_FOUND
from vesalius.statistics import share_interval

#: Roles that say nothing of where, along which path or with what content a component acts.
SILENT = (NO_ROLE, "builds features", "necessary", NOT_FOUND, "a small part")
ONLY_WHERE = re.compile(r"necessary (upstream|at [^,]+)")


def summary(explanation: Explanation) -> dict[str, Any]:
    """The shares of one explanation."""
    parts = explanation.components
    mlps = [part for part in parts if part.id.endswith("_MLP")]
    return {
        "behaviour": explanation.behaviour,
        "passes": explanation.rows,
        "say nothing": _share(parts, says_nothing),
        "say only where": _share(parts, lambda part: ONLY_WHERE.fullmatch(part.role or "") is not None),
        "MLPs that say nothing": _share(mlps, says_nothing),
        "MLPs": {part.id: part.role for part in mlps},
    }


def says_nothing(part: ComponentExplanation) -> bool:
    """Whether a role is none."""
    return part.role is None or part.role in SILENT


def _share(parts: Any, counts: Any) -> dict[str, float | int | None]:
    hits = sum(map(counts, parts))
    low, high = share_interval(hits, len(parts)) if parts else (None, None)
    return {"share": hits / len(parts) if parts else None, "low": low, "high": high, "entries": len(parts)}


def main() -> None:
    """Print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("explanations", nargs="+", type=Path)
    given = parser.parse_args().explanations
    print(json.dumps({str(path): summary(Explanation.read(path)) for path in given}, indent=2))


if __name__ == "__main__":
    main()
