"""MIB's causal variable track where it can be reached: folders are written, read again and scored on held-out pairs.

    OMP_NUM_THREADS=1 python -m benchmarks.mib_variables --out FILE

- Rows in the layout of MIB's datasets, made by hand, of a model whose weights, set by hand, compute A - B + C by way of
  A - B: the place that holds A - B, two that do not, and a variable that the model does not compute (C - B).
- The sums of the packaged `arithmetic` model: its answer after the last block, before it, and within directions.

Pairs that train and pairs that grade are of different rows, or of different splits of the behaviour.
"""

import argparse
import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.discovery.test_mib_variables import PROGRAM, row
from tests.explanations.difference_model import difference_model
from tests.explanations.induction_model import as_specimen

import vesalius as ves
from vesalius import api
from vesalius.files import write_json
from vesalius_bench.mib.documents import MibInterchange

SUMS = "addition:signs=-+,high=99,answers=0..99,shots=0"
TRAINED, GRADED = 64, 200


def planted(place: Path) -> list[MibInterchange]:
    """The planted model on rows in MIB's layout."""
    rng, specimen = random.Random(0), as_specimen(difference_model(), None)
    rows = [row(rng, split) for split, n in (("train", TRAINED), ("test", GRADED)) for _ in range(n)]
    (place / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    rival = PROGRAM.replace("def answer(difference, number3)", "def answer(total, number1)")
    (place / "by_difference.py").write_text(PROGRAM, encoding="utf-8")
    (place / "by_total.py").write_text(rival.replace("return difference + number3", "return number1 + total"))
    given: dict[str, Any] = {"rows": place / "rows.jsonl", "task": "sums", "n": TRAINED, "held_out": GRADED}

    def scored(name: str, program: str, variable: str, **more: Any) -> MibInterchange:
        algorithm, out = place / f"{program}.py", place / name
        return api.align_mib(
            specimen, out, variable=variable, algorithm=algorithm, unsafe_sandbox=True, progress=False, **given, **more
        )

    return [
        scored("found", "by_difference", "difference"),
        scored("within", "by_difference", "difference", at=["resid1@number2"], directions=16),
        scored("elsewhere", "by_difference", "difference", at=["resid1@number1", "resid1@number3", "L0H1@end"]),
        scored("false", "by_total", "total"),
    ]


def arithmetic(place: Path) -> list[MibInterchange]:
    """The packaged model on its sums."""
    specimen = ves.load("arithmetic", behaviour=SUMS)
    at = ["resid3@end", "resid2@end"]
    return [
        api.align_mib(
            specimen, place / str(k), variable="answer", at=at, directions=k, n=32, held_out=64, progress=False
        )
        for k in (0, 24)
    ]


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    out, cpu = parser.parse_args().out, time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        found = [*planted(place), *arithmetic(place)]
    rows = []
    for one in found:
        folder_name = Path(one.folder).name
        rows.append(one.as_data() | {"folder": folder_name, "rows": one.rows and Path(one.rows).name})
        print(f"{folder_name}: {one.view().answer}", flush=True)
    for one in rows:
        one["algorithm"] = Path(one["algorithm"]).stem
    write_json(out, {"benchmark": "mib_variables", "rows": rows, "cpu_seconds": round(time.process_time() - cpu, 1)})


if __name__ == "__main__":
    main()
