"""Whether the same question gets the same bytes: explanations made again and again, in processes of their own.

    python -m benchmarks.repetitions --ids 3,4 --times 20 > repetitions.json

Every circuit is explained `--times` times with one job and as often with two at a time, each in a fresh process with
one thread, because where arrays lie in memory decides the last bits of their sums. Prints for each circuit how many
different explanations there were, the seconds they took left out.
"""

import argparse
import hashlib
import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import torch

from vesalius.api import load
from vesalius_programs.explain import explain_specimen


def digest(name: str) -> str:
    """The hash of one explanation without the seconds it took."""
    torch.set_num_threads(1)
    explanation = explain_specimen(load(name))
    return hashlib.sha256(explanation.model_dump_json(exclude={"seconds"}).encode()).hexdigest()


def digests(name: str, times: int, jobs: int) -> list[str]:
    """The hashes of several explanations, each made by a process of its own."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, max_tasks_per_child=1) as pool:
        return list(pool.map(digest, [name] * times))


def main() -> None:
    """Parse the options, repeat, print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--ids", default="3", help="circuits, comma-separated")
    parser.add_argument("--times", type=int, default=20)
    options = parser.parse_args()
    rows = []
    for name in options.ids.split(","):
        found = {jobs: digests(name, options.times, jobs) for jobs in (1, 2)}
        different = len({each for made in found.values() for each in made})
        rows.append({"circuit": name, "repetitions": {str(j): len(made) for j, made in found.items()}})
        rows[-1]["different"] = different
    print(json.dumps({"circuits": rows, "identical": all(row["different"] == 1 for row in rows)}, indent=1))


if __name__ == "__main__":
    main()
