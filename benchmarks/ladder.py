"""The ladder of explanations that run: what attention programs keep in the place of the strongest heads.

    OMP_NUM_THREADS=1 python -m benchmarks.ladder capitals greater-than ioi induction --out FILE

For each behaviour the 30 heads and 10 MLPs with the largest EAP-IG scores on 8 training prompts are taken; programs are
fitted to the heads on 24 training prompts, plain text and repeated random tokens. The ladder is measured on 64 other
prompts of the same templates and on 64 of other templates, with its controls. Then one program is exchanged for a false
one, which the ladder has to refute: the heads' programs in the opposite order. Each behaviour is written as it ends.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import vesalius as ves
from vesalius.behaviours.trial import trial
from vesalius.discovery.account import NamedSet
from vesalius.discovery.attribution import EAPIG
from vesalius.discovery.method import MethodInput, signed_scores
from vesalius.explanations.running.explained import ladder_prompts, put_in_place
from vesalius.explanations.running.programs import parse_program
from vesalius.files import read_json, write_json

HEADS, MLPS, RANK = 30, 10, 8


def measure(model: str, behaviour: str, n: int) -> dict[str, Any]:
    """The figures of one behaviour."""
    started, specimen = time.process_time(), ves.load(model, behaviour=behaviour)
    parts = list(specimen.model.components)
    ranked = signed_scores(
        specimen.model,
        parts,
        EAPIG().score(MethodInput(specimen, trial(specimen, RANK, split="train"), 0)),
    ).mean(0)
    order = [parts[i] for i in ranked.abs().argsort(descending=True).tolist()]
    heads = [part for part in order if part.is_head][:HEADS]
    mlps = [part for part in order if not part.is_head][:MLPS]
    named = NamedSet(tuple(sorted([*heads, *mlps])), ladder_prompts(specimen, n, seed=0), len(parts))
    running = put_in_place(specimen, named)
    assert running is not None
    seconds = time.process_time() - started
    programs = [one.program for one in running.heads]
    heads_in_order = [part for part in named.components if part.is_head]
    given = {head: parse_program(text) for head, text in zip(heads_in_order, reversed(programs), strict=True)}
    false = put_in_place(specimen, named, given=given)
    assert false is not None
    return {
        "model": model,
        "behaviour": behaviour,
        "n": n,
        "answer": running.score(),
        "doubt": running.doubt(0.8),
        "words": running.counted(),
        "faults": running.faults,
        "not_beaten": running.beaten_by,
        "not_beaten_elsewhere": running.beaten_elsewhere,
        "rungs": [one.as_data() for one in running.rungs],
        "controls": [one.as_data() for one in running.controls],
        "heads": [one.as_data() for one in running.heads],
        "mlps": list(running.mlps),
        "false_programs": {"kept": false.claimed.kept.as_data(), "not_beaten": false.beaten_by},
        "rows": running.rows,
        "cpu_seconds": round(seconds, 1),
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("behaviours", nargs="+")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--n", type=int, default=64)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    rows = read_json(given.out)["rows"] if given.out.is_file() else []
    for behaviour in given.behaviours:
        row = measure(given.model, behaviour, given.n)
        print(f"{behaviour}: {row['answer']}; {row['doubt']}; {row['words']}; {row['cpu_seconds']} CPU-s", flush=True)
        for one in (*row["rungs"], *row["controls"]):
            print(f"  {one['step']}: {one['kept']['value']:.2f}, elsewhere {one['elsewhere']['value']:.2f}", flush=True)
        rows = [one for one in rows if one["behaviour"] != behaviour] + [row]
        write_json(given.out, {"benchmark": "ladder", "rows": rows})


if __name__ == "__main__":
    main()
