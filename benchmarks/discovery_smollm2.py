"""Three discoveries of SmolLM2-135M with their checks: what docs/background/discovery.md says of ten components.

    python -m benchmarks.discovery_smollm2 --out benchmarks/results/discovery_smollm2.json

The same as `vesalius discover smollm2-135m -b BEHAVIOUR --method METHOD --n N`, with the strongest of the 123,211 edges
only. Every run is written as soon as it is there; a file that holds some of them already is completed.
"""

import argparse
import platform
import time
from pathlib import Path
from typing import Any

import torch

import vesalius as ves
from vesalius.discovery.checks import run_checks
from vesalius.discovery.discover import discover
from vesalius.files import read_json, write_json

RUNS = (("induction", "eap-ig", 8), ("ioi", "eap-ig", 8), ("induction", "sweep", 4))
SEED, EDGES_KEPT = 0, 20


def measured(behaviour: str, method: str, n: int) -> dict[str, Any]:
    """One discovery and its checks; `cpu_seconds` count the loading too."""
    start = time.process_time()
    specimen = ves.load("smollm2-135m", behaviour=behaviour)
    found = discover(specimen, method, n=n, seed=SEED)
    checks = run_checks(specimen, found, seed=SEED)
    edges = found.circuit.ranked_edges()
    return {
        "behaviour": behaviour,
        "method": method,
        "n": n,
        "seed": SEED,
        "components": [{"id": str(part), "score": score} for part, score in found.circuit.ranked()],
        "edges": [{"id": str(edge), "score": score} for edge, score in edges[:EDGES_KEPT]],
        "n_edges": len(edges),
        "metrics": checks.metrics,
        "checks": checks.as_data(),
        "rows": found.forwards * n,
        "checks_rows": checks.rows,
        "cpu_seconds": time.process_time() - start,
    }


def main() -> None:
    """Make the runs that are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    runs = read_json(out)["runs"] if out.exists() else []
    done = {(run["behaviour"], run["method"], run["n"]) for run in runs}
    machine = {"processor": platform.machine(), "torch": torch.__version__, "threads": torch.get_num_threads()}
    for wanted in RUNS:
        if wanted not in done:
            runs.append(measured(*wanted))
            write_json(out, {"benchmark": "discovery_smollm2", "schema": 1, "machine": machine, "runs": runs})


if __name__ == "__main__":
    main()
