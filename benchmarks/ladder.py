"""The ladder of explanations that run: what attention programs keep in the place of the strongest heads.

    OMP_NUM_THREADS=1 python -m benchmarks.ladder capitals greater-than ioi induction --out FILE
    python -m benchmarks.ladder addition:signs=-+,high=99,answers=0..99,shots=0 --model arithmetic --out FILE
    python -m benchmarks.ladder docstring --false --out FILE

For each behaviour the 30 heads (of a small model the stronger half) and 10 MLPs with the largest EAP-IG scores on 8
training prompts are taken; programs are fitted to the heads on 24 training prompts, plain text and repeated random
tokens. The ladder is measured on 64 other prompts of the same templates and on 64 of other templates, with its
controls; behaviours with fewer unseen prompts give fewer, and each figure says how many. Then false explanations are
put in the model's place: all programs in the opposite order, and one head looking `1 back` (or `3 back`), the strongest
whose program reads tokens, and the strongest whose word is `program`. Each behaviour is written as it ends, and before
its false explanations. With `--false` only those that the row in FILE lacks are run, with its heads and programs, on
the first `--n` of its prompts.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

import vesalius as ves
from vesalius.behaviours.trial import trial
from vesalius.components import Component
from vesalius.discovery.account import SPLIT, NamedSet
from vesalius.discovery.attribution import EAPIG
from vesalius.discovery.head_tests import bos_of
from vesalius.discovery.method import MethodInput, signed_scores
from vesalius.discovery.shares import Shares
from vesalius.discovery.whole import PromptSets
from vesalius.documents.running import AttentionProgram
from vesalius.explanations.running.explained import FIT, ladder_prompts, put_in_place
from vesalius.explanations.running.ladder import pattern_edits
from vesalius.explanations.running.programs import Program, parse_program
from vesalius.explanations.running.rules import Tokens
from vesalius.files import read_json, write_json
from vesalius.intervene import Plan, run
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
    return found | false_explanations(specimen, found, n, prompts)


def false_explanations(
    specimen: Specimen, row: dict[str, Any], n: int, prompts: PromptSets | None = None
) -> dict[str, Any]:
    """What the false explanations that a row lacks keep on the first `n` of its held-out prompts, beside the row's
    programs, and how much more these keep, prompt by prompt.
    """
    cpu = time.process_time()
    if prompts is None:
        prompts = ladder_prompts(specimen, row["n"], seed=0, fit=trial(specimen, row["n_fit"], split=SPLIT))
    own = {Component.parse(one["head"]): parse_program(one["program"]) for one in row["heads"]}
    strongest = [Component.parse(name) for name in row["strongest"]]
    words = {Component.parse(one["head"]): one["word"] for one in row["heads"]}
    by_tokens = [part for part in strongest if own[part].reads_tokens] or strongest
    named = [part for part in strongest if words[part] == "program"]
    wrong: dict[str, tuple[dict[str, Any], Mapping[Component, Program]]] = {
        "false_programs": ({}, dict(zip(own, reversed(own.values()), strict=True)))
    }
    for key, heads in (("false_program", by_tokens), ("false_named_program", named)):
        if heads:
            rule = next(rule for rule in BACK if rule not in own[heads[0]].rules)
            wrong[key] = {"head": str(heads[0]), "program": rule}, own | {heads[0]: parse_program(rule)}
    shares = Shares(specimen.model, prompts.report.take(slice(0, n)))
    tokens = Tokens.of(specimen, shares.material.batch, len(bos_of(specimen)))
    true = _scores(shares, tokens, own)
    found = {}
    for key, (what, programs) in wrong.items():
        if key not in row:
            scores = _scores(shares, tokens, programs)
            more = shares.nothing + true - scores
            found[key] = what | {"kept": _figures(shares, scores), "programs_keep_more": _figures(shares, more)}
    return found | {
        "programs_again": _figures(shares, true),
        "false_cpu_seconds": round(time.process_time() - cpu, 1),
        "false_device": str(specimen.model.device),
    }


@torch.no_grad()
def _scores(shares: Shares, tokens: Tokens, programs: Mapping[Component, Program]) -> Float[Tensor, " prompt"]:
    """The score of every prompt with programs in the place of these heads' attention, and no other head."""
    heads = list(programs)
    others = tuple(part for part in shares.model.components if part.is_head and part not in programs)
    plan = Plan.grid(shares.model.config, [others], choices=shares.replacement.choices, positions=shares.material.where)
    looks = {head: program.pattern(tokens) for head, program in programs.items()}
    plan = replace(plan, patterns=pattern_edits(shares.model, heads, looks))
    return run(shares.recordings, plan, shares.replacement.values).cpu()


def _figures(shares: Shares, scores: Float[Tensor, " prompt"]) -> dict[str, Any]:
    return shares.share(scores).metric().as_data()


def brief(one: AttentionProgram) -> dict[str, Any]:
    """A program with its word and the figures that gave it."""
    return {"head": one.head, "program": one.program, "word": one.word, "grade": one.decisive.as_data()}


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("behaviours", nargs="+")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--n", type=int, default=64)
    parser.add_argument("--heads", type=int, default=HEADS, help="at most half of all heads")
    parser.add_argument("--fit", type=int, default=FIT, help="how many prompts programs are fitted to")
    parser.add_argument("--false", action="store_true", help="run the false explanations of the row in --out alone")
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
        if given.false:
            row = next(one for one in rows if (one["model"], one["behaviour"]) == (specimen.name, behaviour))
            row |= false_explanations(specimen, row, given.n)
        else:
            row = measure(specimen, given.n, given.heads, given.fit, write)
        write(row)
        print(f"{behaviour}: {row['answer']}; {row['doubt']}; {row['words']}; {row['cpu_seconds']} CPU-s", flush=True)
        for one in (*row["rungs"], *row["controls"]):
            there = one.get("elsewhere", {}).get("value")
            elsewhere = "" if there is None else f", elsewhere {there:.2f}"
            print(f"  {one['step']}: {one['kept']['value']:.2f}{elsewhere}", flush=True)


if __name__ == "__main__":
    main()
