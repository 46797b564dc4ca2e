"""The ladder of explanations that run: what attention programs keep in the place of the strongest heads.

    OMP_NUM_THREADS=1 python -m benchmarks.ladder capitals greater-than ioi induction --out FILE
    python -m benchmarks.ladder addition:signs=-+,high=99,answers=0..99,shots=0 --model arithmetic --out FILE

For each behaviour the 30 heads (of a small model the stronger half) and 10 MLPs with the largest EAP-IG scores on 8
training prompts are taken; programs are fitted to the heads on 24 training prompts, plain text and repeated random
tokens. The ladder is measured on 64 other prompts of the same templates and on 64 of other templates, with its
controls; behaviours with fewer unseen prompts give fewer, and each figure says how many. Then two false explanations
are put in the model's place: all programs in the opposite order, and one head, the strongest whose program reads
tokens, looking `1 back` (or `3 back`). Each behaviour is written as it ends, and before its false explanations.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import vesalius as ves
from vesalius.behaviours.trial import trial
from vesalius.components import Component
from vesalius.discovery.account import SPLIT, NamedSet
from vesalius.discovery.attribution import EAPIG
from vesalius.discovery.method import MethodInput, signed_scores
from vesalius.documents.running import AttentionProgram, Running
from vesalius.explanations.running.explained import FIT, ladder_prompts, put_in_place
from vesalius.explanations.running.programs import parse_program
from vesalius.files import read_json, write_json
from vesalius.model.specimen import Specimen

HEADS, MLPS, RANK = 30, 10, 8
BACK = ("1 back", "3 back")


def measure(specimen: Specimen, n: int, most: int, fit: int, write: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """The figures of one behaviour; `write` gets them before its false explanations are run."""
    cpu, wall = time.process_time(), time.perf_counter()
    parts = list(specimen.model.components)
    ranked = signed_scores(
        specimen.model,
        parts,
        EAPIG().score(MethodInput(specimen, trial(specimen, RANK, split="train"), 0)),
    ).mean(0)
    order = [parts[i] for i in ranked.abs().argsort(descending=True).tolist()]
    heads = [part for part in order if part.is_head]
    heads = heads[: min(most, max(1, len(heads) // 2))]
    mlps = [part for part in order if not part.is_head][:MLPS]
    prompts = ladder_prompts(specimen, n, seed=0, fit=trial(specimen, fit, split=SPLIT))
    named = NamedSet(tuple(sorted([*heads, *mlps])), prompts, len(parts))
    running = put_in_place(specimen, named)
    assert running is not None
    found = {
        "model": specimen.name,
        "behaviour": specimen.behaviour,
        "n": n,
        "n_heads": len(heads),
        "n_fit": running.n_fit,
        "answer": running.score(),
        "doubt": running.doubt(0.8),
        "words": running.counted(),
        "faults": running.faults,
        "not_beaten": running.beaten_by,
        "not_beaten_elsewhere": running.beaten_elsewhere,
        "rungs": [one.as_data() for one in running.rungs],
        "controls": [one.as_data() for one in running.controls],
        "heads": [brief(one) for one in running.heads],
        "lookups": [one.as_data() for one in running.lookups],
        "strongest": list(map(str, heads)),
        "mlps": list(running.mlps),
        "rows": running.rows,
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "seconds": round(time.perf_counter() - wall, 1),
        "device": str(specimen.model.device),
    }
    write(found)
    own = {Component.parse(one.head): parse_program(one.program) for one in running.heads}
    backwards = dict(zip(own, reversed(own.values()), strict=True))
    by_tokens = [part for part in heads if own[part].reads_tokens] or heads
    wrong = next(rule for rule in BACK if rule not in own[by_tokens[0]].rules)
    return found | {
        "false_programs": _refuted(put_in_place(specimen, named, given=backwards)),
        "false_program": {"head": str(by_tokens[0]), "program": wrong}
        | _refuted(put_in_place(specimen, named, given=own | {by_tokens[0]: parse_program(wrong)}), by_tokens[0]),
    }


def brief(one: AttentionProgram) -> dict[str, Any]:
    """A program with its word and the figures that gave it."""
    return {"head": one.head, "program": one.program, "word": one.word, "grade": one.decisive.as_data()}


def _refuted(false: Running | None, head: Component | None = None) -> dict[str, Any]:
    """What false programs keep, and of one head how its program is graded."""
    assert false is not None
    kept = {"kept": false.claimed.kept.as_data(), "not_beaten": false.beaten_by, "doubt": false.doubt(0.8)}
    one = next((one for one in false.heads if one.head == str(head)), None)
    return kept if one is None else kept | {"word": one.word, "grade": one.decisive.as_data()}


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("behaviours", nargs="+")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--n", type=int, default=64)
    parser.add_argument("--heads", type=int, default=HEADS, help="at most half of all heads")
    parser.add_argument("--fit", type=int, default=FIT, help="how many prompts programs are fitted to")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    rows = read_json(given.out)["rows"] if given.out.is_file() else []

    def write(row: dict[str, Any]) -> None:
        others = [
            one
            for one in rows
            if any(one.get(name) != row[name] for name in ("model", "behaviour", "n_heads", "n_fit"))
        ]
        rows[:] = [*others, row]
        write_json(given.out, {"benchmark": "ladder", "rows": rows})

    for behaviour in given.behaviours:
        specimen = ves.load(given.model, behaviour=behaviour, device=given.device)
        row = measure(specimen, given.n, given.heads, given.fit, write)
        write(row)
        print(f"{behaviour}: {row['answer']}; {row['doubt']}; {row['words']}; {row['cpu_seconds']} CPU-s", flush=True)
        for one in (*row["rungs"], *row["controls"]):
            there = one.get("elsewhere", {}).get("value")
            elsewhere = "" if there is None else f", elsewhere {there:.2f}"
            print(f"  {one['step']}: {one['kept']['value']:.2f}{elsewhere}", flush=True)


if __name__ == "__main__":
    main()
