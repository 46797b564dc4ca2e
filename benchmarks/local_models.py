"""A small language model beside the built-in scientist: what it adds, and what it costs, on the 84 circuits.

    vesalius bench circuits --out RUN
    python -m benchmarks.local_models RUN --backbone local:FILE.gguf --out STUDY --protocol hybrid > study.json

takes the built-in explanations of RUN one by one, in the order of the circuits' numbers, and lets the model name what
they found and propose for what they left open (`hybrid`), or study the circuit by itself (`typed`, compact prompts).
Calls are recorded in STUDY, one directory per circuit, so the same command continues where it was stopped. After
`--minutes` no further circuit is begun; the figures are those of the circuits that are done, in both columns.
"""

import argparse
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vesalius.api import load
from vesalius.documents.explanation import Explanation
from vesalius_agents.hyve import HyveResult, explain_hybrid, explain_hyve
from vesalius_agents.hyve.explain import IN_WORDS
from vesalius_backbones import open_backbone
from vesalius_truth.grading.circuits import grade


def explained(circuit: str, first: Explanation, place: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One circuit: what the model made of it, and what that took."""
    done = place / "row.json"
    if done.is_file():
        return json.loads(done.read_text())
    calls = {"record": place, "base_url": options.base_url, "max_tokens": options.max_tokens, "timeout": 1800.0}
    specimen, started = load(circuit), time.monotonic()
    with open_backbone(options.backbone, **calls, reasks=options.reasks) as opened:
        backbone = opened.within(circuit)
        if options.protocol == "hybrid":
            found = explain_hybrid(specimen, backbone=backbone, first=first, compact=True)
        else:
            found = explain_hyve(specimen, backbone=backbone, compact=True)
    row = {
        "circuit": circuit,
        "components": len(first.components),
        "built_in": {"supported": supported(first), "named": named(first), "seconds": first.seconds},
        "with_model": {
            "supported": supported(found.explanation),
            "named": sum(IN_WORDS in part.note for part in found.explanation.components),
            "seconds": round(time.monotonic() - started, 1),
            **usage(found),
        },
        "words": {part.id: words(part.note) for part in found.explanation.components},
        "task": words(found.explanation.task_description),
    }
    found.explanation.write(place / "explanation.json")
    found.trace.write(place / "trace.json")
    done.write_text(json.dumps(row, indent=1))
    return row


def graded(row: dict[str, Any], first: Explanation, found: Explanation) -> dict[str, Any]:
    """The row with right tags, and whether the program gives every output, in both columns."""
    before = grades(first)
    same = (tags(found), found.executable) == (tags(first), first.executable)
    after = before if same else grades(found)
    return {**row, "built_in": {**row["built_in"], **before}, "with_model": {**row["with_model"], **after}}


def grades(explanation: Explanation) -> dict[str, int]:
    """Right tags, and whether the program gives every output."""
    result = grade(explanation)
    right = sum(row["tag"] == row["true"] for row in result.components.values())
    return {"tags": right, "task_exact": int(result.programs[explanation.specimen].task_exact)}


def tags(explanation: Explanation) -> list[str | None]:
    """The tags, in the order of the components."""
    return [part.tag for part in explanation.components]


def supported(explanation: Explanation) -> int:
    """Components that experiments support."""
    return sum(part.verdict == "supported" for part in explanation.components)


def named(explanation: Explanation) -> int:
    """Components whose table, or whose way of finding a position, the built-in scientist names."""
    return sum(part.operation is not None for part in explanation.components)


def words(text: str) -> str:
    """What the model said, where that is set beside what was established."""
    return text.partition(IN_WORDS)[2].strip() or text


def usage(found: HyveResult) -> dict[str, Any]:
    """Calls and tokens, and what went wrong."""
    used = found.trace.usage
    return {
        "calls": used.calls,
        "input_tokens": used.input_tokens,
        "cached_tokens": used.cached_tokens,
        "output_tokens": used.output_tokens,
        "malformed": used.malformed,
        "failed": used.failed,
    }


def summed(rows: Sequence[dict[str, Any]], column: str) -> dict[str, Any]:
    """The sums over circuits of everything that was counted."""
    fields = rows[0][column] if rows else {}
    return {name: round(sum(row[column][name] for row in rows), 1) for name in fields}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a finished or unfinished run of the built-in scientist")
    parser.add_argument("--backbone", required=True)
    parser.add_argument("--base-url")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--protocol", choices=["hybrid", "typed"], default="hybrid")
    parser.add_argument("--max-tokens", type=int, default=120)
    parser.add_argument("--reasks", type=int, default=0)
    parser.add_argument("--sample", type=int, help="so many circuits, drawn with the seed, instead of all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60.0)
    options = parser.parse_args()
    begun = time.monotonic()
    rows: list[Any] = []
    numbers = sorted(int(path.stem) for path in (options.run / "explanations").glob("*.json"))
    if options.sample is not None:
        everything = sorted(map(int, json.loads((options.run / "run.json").read_text())["places"]))
        numbers = sorted(random.Random(options.seed).sample(everything, options.sample))
    for number in numbers:
        place = options.out / str(number)
        if time.monotonic() - begun > 60 * options.minutes and not (place / "row.json").is_file():
            break
        place.mkdir(parents=True, exist_ok=True)
        first = Explanation.read(options.run / "explanations" / f"{number}.json")
        rows.append((explained(str(number), first, place, options), first, place))
    rows = [graded(row, first, Explanation.read(place / "explanation.json")) for row, first, place in rows]
    report = {
        "benchmark": "local models",
        "backbone": options.backbone.rpartition("/")[2],
        "protocol": options.protocol,
        "max_tokens": options.max_tokens,
        "circuits": [row["circuit"] for row in rows],
        "components": sum(row["components"] for row in rows),
        "built_in": summed(rows, "built_in"),
        "with_model": summed(rows, "with_model"),
        "rows": rows,
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
