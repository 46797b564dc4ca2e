"""Causal variables by interchange: where a model holds the variables of an algorithm, and a false one refuted.

    OMP_NUM_THREADS=1 python -m benchmarks.alignments capitals greater-than ioi induction --out FILE
    python -m benchmarks.alignments addition:signs=-+,high=99,answers=0..99,shots=0 --model arithmetic --out FILE

For each behaviour `vesalius align` tries the residual stream before every layer at every role. Places are chosen on 64
prompts with all their kinds of sources, and graded on 64 prompts of other templates and words with theirs, beside a
source in which no variable differs and another position. The false algorithm of each behaviour is held against the
answers of the same prompts, and against the places that were found. A behaviour is written as it ends.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import vesalius as ves
from vesalius.files import read_json, write_json

#: A false algorithm for each behaviour, by how its label begins.
FALSE = {
    "addition": "arithmetic-last-two",
    "capitals": "capitals-next",
    "docstring": "docstring-skipping",
    "greater-than": "greater-than-earlier",
    "induction": "induction-before",
    "ioi": "ioi-first",
}


def measure(model: str, behaviour: str, n: int, device: str, options: dict[str, Any]) -> dict[str, Any]:
    """The figures of one behaviour."""
    cpu, wall = time.process_time(), time.perf_counter()
    specimen = ves.load(model, behaviour=behaviour, device=device)
    false = FALSE[behaviour.partition(":")[0]]
    found = ves.align(specimen, n=n, held_out=n, against=false, **options)
    assert found.against is not None
    return {
        "model": Path(model).name,
        "behaviour": behaviour,
        "n": n,
        "answer": str(found.answered()),
        "algorithm": found.algorithm,
        "agreement": found.agreement.as_data(),
        "false_algorithm": found.against.model_copy(update={"program": ""}).as_data(),
        "kinds": dict(found.kinds),
        "roles": list(found.roles),
        "pairs": found.pairs,
        "held_out": found.held_out,
        "variables": [one.as_data() for one in found.variables],
        "paths": {one.name: one.path() for one in found.variables},
        "notes": list(found.notes),
        "forwards": round(found.forwards, 1),
        "search_forwards": round(found.search_forwards, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "seconds": round(time.perf_counter() - wall, 1),
        "device": str(specimen.model.device),
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("behaviours", nargs="+")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--n", type=int, default=64)
    parser.add_argument("--layers", help="before which layers is looked: 15..25, 0..30/2; all of them if left out")
    parser.add_argument("--together", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    rows = read_json(given.out)["rows"] if given.out.is_file() else []
    for behaviour in given.behaviours:
        options = {"layers": given.layers, "together": given.together}
        row = measure(given.model, behaviour, given.n, given.device, options)
        print(f"{behaviour}: {row['answer']} ({row['cpu_seconds']} CPU-s)", flush=True)
        for name, path in row["paths"].items():
            print(f"  {name}: {path}", flush=True)
        false = row["false_algorithm"]
        print(f"  {false['algorithm']}: {false['agreement']['value']:.2f} of the answers", flush=True)
        rows = [one for one in rows if (one["model"], one["behaviour"]) != (row["model"], behaviour)] + [row]
        write_json(given.out, {"benchmark": "alignments", "rows": rows})


if __name__ == "__main__":
    main()
