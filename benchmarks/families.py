"""What the scientist owes to its grammar: tags of the components of each family, with the family left out.

    vesalius bench circuits --out RUN
    python -m benchmarks.families RUN --out benchmarks/results/families.json

A family's components are those whose variable in RUN, with the whole grammar, is of that family. Its circuits are then
explained again without the family (the runs stay beside RUN, as RUN-without-FAMILY, and are taken up where they
stopped), and the tags of the same components are graded again.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from vesalius.documents.explanation import Explanation
from vesalius.documents.metric import Metric
from vesalius_programs.hypotheses import FAMILIES
from vesalius_truth.grading import grade


def explanations(run: Path) -> list[Explanation]:
    """Every explanation of a run."""
    paths = sorted((run / "explanations").glob("*.json"))
    return [Explanation.model_validate_json(path.read_text(encoding="utf-8")) for path in paths]


def without(run: Path, family: str, ids: list[str]) -> Path:
    """Explain circuits again without a family."""
    out = run.with_name(f"{run.name}-without-{family}")
    command = [sys.executable, "-m", "vesalius", "bench", "circuits", "--ids", ",".join(ids)]
    subprocess.run(
        [*command, "--leave-out", family, "--out", str(out), "--json"], check=True, stdout=subprocess.DEVNULL
    )
    return out


def accuracy(found: list[Explanation], components: set[str]) -> dict[str, Any]:
    """Tags right among the chosen components, with the conventions and by experiment; and how many stay supported."""
    rows = {name: row for name, row in grade(found, programs=False).components.items() if name in components}
    right = {
        column: Metric.of_share(sum(row[column] == row["true"] for row in rows.values()), len(rows)).model_dump()
        for column in ("tag", "by_experiment")
    }
    supported = sum(row["verdict"] == "supported" for row in rows.values())
    return {**right, "supported": Metric.of_share(supported, len(rows)).model_dump()}


def main() -> None:
    """Leave out one family after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--family", action="append", choices=FAMILIES, help="only these families; repeat it for more")
    given = parser.parse_args()
    whole = explanations(given.run)
    report = {}
    for family in given.family or FAMILIES:
        chosen = {f"{e.specimen}/{part.id}" for e in whole for part in e.components if part.family == family}
        if not chosen:
            continue
        circuits = sorted({name.split("/")[0] for name in chosen}, key=int)
        left = explanations(without(given.run, family, circuits))
        report[family] = {
            "circuits": len(circuits),
            "components": len(chosen),
            "whole_grammar": accuracy([e for e in whole if e.specimen in circuits], chosen),
            "left_out": accuracy(left, chosen),
        }
        print(json.dumps({family: report[family]}), flush=True)
    if given.out is not None:
        given.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
