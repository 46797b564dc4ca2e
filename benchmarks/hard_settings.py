"""Every discovery method with its best setting, on the hard models and on the 84 circuits.

    OMP_NUM_THREADS=1 python -m benchmarks.hard_settings --jobs 16 --out benchmarks/results/hard_settings.json

Settings are chosen on hard models by hand that no reported figure is about (seeds 100 and on): the one with the highest
mean of node AUROC and, where the method scores edges, edge AUROC; of equals the one with fewer passes. Reported are the
models of `vesalius bench discovery --hard` (seeds 0 to 19, as they are and with wrong answers) and, with `--limit`, as
many of the 84 circuits: median and mean of each area with a 95 % interval over models, and the passes of a model.
"""

import argparse
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from vesalius.circuits.specimens import benchmark_cards, benchmark_directory
from vesalius.discovery.discover import circuit_method
from vesalius.documents.scorecard import AREAS, DiscoveryFigures
from vesalius.errors import BadInput
from vesalius.files import write_json
from vesalius_bench.circuits.selection import CircuitCase
from vesalius_bench.discovery.cases import DiscoveryCase, hard_circuits, run_case
from vesalius_truth.grading.discovery import median_and_mean

PROMPTS, TUNED_ON, TUNED_MODELS = 8, 100, 16
#: The settings of each method that are tried.
SETTINGS: dict[str, tuple[str, ...]] = {
    "sweep": ("sweep",),
    "eap": ("eap",),
    "eap-ig": ("eap-ig", "eap-ig:steps=10", "eap-ig:steps=20"),
    "relp": ("relp",),
    "relp-qk": ("relp-qk",),
    "gim": ("gim",),
    "masks": ("masks", "masks:steps=300", "masks:steps=300:sparsity=0.2", "masks:steps=300:sparsity=1.0"),
    "edge-masks": (
        "edge-masks",
        "edge-masks:steps=300",
        "edge-masks:steps=300:sparsity=0.2",
        "edge-masks:steps=300:sparsity=1.0",
    ),
    "ensemble": ("ensemble", "ensemble:methods=sweep+eap-ig", "ensemble:methods=sweep+eap-ig+relp-qk"),
    "elimination": (
        "elimination",
        "elimination:by=gradient",
        "elimination:start=eap-ig",
        "elimination:start=eap-ig:by=gradient",
    ),
    "acdc": ("acdc", "acdc:candidates=100"),
}
Ran = tuple[str, str, DiscoveryFigures | None]


def ran(case: DiscoveryCase) -> Ran:
    """The figures of one case; None where the method refuses it."""
    try:
        return case.label, case.id, run_case(case)
    except BadInput:
        return case.label, case.id, None


def figures_of(labels: Sequence[str], circuits: Sequence[CircuitCase], hard: bool, jobs: int) -> list[Ran]:
    """Every method on every model."""
    cases = [
        DiscoveryCase(
            circuit_method(label, parameter="methods"), c.id, c.directory, PROMPTS, 0, hard, c.wrong_answers, label
        )
        for label in labels
        for c in circuits
    ]
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(ran, cases))


def best_setting(labels: Sequence[str], results: Sequence[Ran]) -> str:
    """The setting with the highest mean area, then with the fewest passes."""

    def worth(label: str) -> tuple[float, float]:
        known = [one for name, _, one in results if name == label and one is not None]
        areas = [area for one in known for area in (one.node_auroc, one.edge_auroc) if area is not None]
        passes = sum(one.forwards for one in known) / max(1, len(known))
        return (sum(areas) / len(areas) if areas else -1.0), -passes

    return max(labels, key=worth)


def rows_of(results: Sequence[Ran], models: str) -> list[dict[str, Any]]:
    """One row for each method and area."""
    rows = []
    for label in dict.fromkeys(name for name, _, _ in results):
        known = [one for name, _, one in results if name == label and one is not None]
        passes = sum(one.forwards for one in known) / max(1, len(known))
        for area in AREAS:
            summary = median_and_mean([value for one in known if (value := getattr(one, area)) is not None])
            if summary is None:
                continue
            median, mean = (metric.as_data() for metric in summary)
            rows.append(
                {"models": models, "method": label, "figure": area, "median": median, "mean": mean, "passes": passes}
            )
            print(
                f"{models}, {label}: {area} {mean['value']:.3f} ({mean['low']:.3f} to {mean['high']:.3f})", flush=True
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--tuned", type=int, default=TUNED_MODELS, help="hard models that settings are chosen on")
    parser.add_argument("--models", type=int, default=20, help="hard models that are reported")
    parser.add_argument("--limit", type=int, default=84, help="how many of the 84 circuits")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        unreported = hard_circuits(folder / "tuned", arguments.tuned, first=TUNED_ON)
        tried = [label for name in arguments.methods for label in SETTINGS[name] if len(SETTINGS[name]) > 1]
        tuning = figures_of(tried, unreported, False, arguments.jobs)
        best = {name: best_setting(SETTINGS[name], tuning) for name in arguments.methods}
        print("chosen:", ", ".join(best.values()), flush=True)
        reported = hard_circuits(folder / "reported", arguments.models)
        rows = rows_of(figures_of(list(best.values()), reported, True, arguments.jobs), "hard")
        places = [(card, benchmark_directory(card.id)) for card in benchmark_cards()[: arguments.limit]]
        circuits = [CircuitCase(card.id, card.name, place) for card, place in places if place is not None]
        if circuits:
            rows += rows_of(figures_of(list(best.values()), circuits, False, arguments.jobs), "circuits")
    if arguments.out:
        data = {"prompts": PROMPTS, "seed": 0, "tuned_on": f"seeds {TUNED_ON} to {TUNED_ON + arguments.tuned - 1}"}
        write_json(arguments.out, {"benchmark": "hard_settings", **data, "settings": best, "rows": rows})


if __name__ == "__main__":
    main()
