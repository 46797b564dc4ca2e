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
from vesalius.backbones import open_backbone
from vesalius.documents.explanation import Explanation
from vesalius.explanations.hyve import HyveResult, explain_hybrid, explain_hyve
from vesalius.explanations.hyve.hybrid import IN_WORDS
from vesalius.grading.circuits import grade


def explained(circuit: str, first: Explanation, place: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One circuit: what the model made of it, how it is graded beside the built-in explanation, and what it cost."""
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
    seconds = round(time.monotonic() - started, 1)
    before = graded(first)
    same = found.explanation.executable == first.executable
    row = {
        "circuit": circuit,
        "components": len(first.components),
        "built_in": {**before, "named": named(first), "seconds": first.seconds},
        "with_model": {
            **(before if same and tags(found.explanation) == tags(first) else graded(found.explanation)),
            "named": sum(IN_WORDS in part.note for part in found.explanation.components),
            "supported": sum(part.verdict == "supported" for part in found.explanation.components),
            "seconds": seconds,
            **usage(found),
        },
        "words": {part.id: words(part.note) for part in found.explanation.components},
        "task": words(found.explanation.task_description),
    }
    found.explanation.write(place / "explanation.json")
    found.trace.write(place / "trace.json")
    done.write_text(json.dumps(row, indent=1))
    return row


def graded(explanation: Explanation) -> dict[str, Any]:
    """Right tags, and whether the program gives every output."""
    grades = grade(explanation)
    right = sum(row["tag"] == row["true"] for row in grades.components.values())
    return {"tags": right, "task_exact": int(grades.programs[explanation.specimen].task_exact)}


def tags(explanation: Explanation) -> list[str | None]:
    """The tags, in the order of the components."""
    return [part.tag for part in explanation.components]


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
    begun, rows = time.monotonic(), []
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
        rows.append(explained(str(number), first, place, options))
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
