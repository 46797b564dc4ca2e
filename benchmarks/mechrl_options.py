"""What two options of `bench mechrl` change: one unit for the reward, and a learned code of the prompts for the label.

    options="--training ioi,capitals --held-out greater-than --context prompts"
    vesalius bench mechrl smollm2-135m $options --out logits
    vesalius bench mechrl smollm2-135m $options --reward nats --out nats
    python -m benchmarks.mechrl_options logits nats

Keeps the figures of both runs in one file, and prints the table of benchmarks/results/tables.md, which a test compares
with the file. Regrets are shares of the best reward of an episode, so that logits and nats can be read side by side.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from vesalius_mechrl.documents import MechrlStudy, TaskRegret
from vesalius_mechrl.matrices import load_matrix
from vesalius_mechrl.trainings import is_learned

RESULT = Path("benchmarks/results/mechrl_options.json")
POLICIES = ("one-hot", "per-head", "prompt-encoder")
BUDGETS = (10.0, 50.0)
KEPT = ("unit", "seeds", "steps", "episodes", "heads", "rows_per_episode", "training_tasks", "held_out", "control")


def shares(task: TaskRegret) -> dict[str, dict[str, list[float | None]]]:
    """Regret over the best reward by method and budget: mean and interval."""
    return {
        row.method: {
            f"{budget:g}": [
                None if bound is None else round(bound[row.budgets.index(budget)] / task.oracle, 4)
                for bound in (row.mean, row.low, row.high)
            ]
            for budget in BUDGETS
        }
        for row in task.methods
    }


def record(run: Path, matrices: Path) -> dict[str, Any]:
    """The figures of one run, and what its matrices cost in forward passes of all their rows."""
    study = MechrlStudy.read(run / "mechrl-corrected.json")
    results = [verdict.result for verdict in study.verdicts]
    return {
        **{name: study.as_data()[name] for name in KEPT},
        "forwards": {place.name: load_matrix(place).forwards for place in sorted(matrices.iterdir())},
        "verdicts": {result: results.count(result) for result in ("wins", "draw", "loses")},
        "tasks": {task.task: {"best": round(task.oracle, 4), "regret": shares(task)} for task in study.regret},
    }


def table(records: dict[str, dict[str, Any]]) -> str:
    """The table of the page."""
    head = ["task", "reward", "best", *POLICIES, "best other strategy at 10"]
    lines = [head, ["---"] * len(head)]
    tasks = next(iter(records.values()))["tasks"]
    for task in tasks:
        for reward, figures in records.items():
            regret = figures["tasks"][task]["regret"]
            rival = min((name for name in regret if not is_learned(name)), key=lambda name: regret[name]["10"][0])
            held_out = " (held out)" if task in figures["held_out"] else ""
            cells = [cell(regret[name]) for name in POLICIES]
            best = f"{figures['tasks'][task]['best']:.2f}"
            lines.append([task + held_out, reward, best, *cells, f"{rival} {cell(regret[rival])}"])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(figures: dict[str, list[float | None]]) -> str:
    """Ten queries with the interval, then fifty."""
    mean, low, high = figures["10"]
    interval = "" if low is None else f" [{low:.2f}, {high:.2f}]"
    return f"{mean:.2f}{interval}, {figures['50'][0]:.2f}"


def main() -> None:
    """Read two runs, print the table and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs=2, type=Path, metavar="RUN", help="rewards in logits, and in nats")
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    records = {
        reward: record(run, run / "matrices") for reward, run in zip(("logits", "nats"), given.runs, strict=True)
    }
    given.out.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    print(table(records))


if __name__ == "__main__":
    main()
