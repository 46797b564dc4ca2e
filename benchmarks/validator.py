"""How often the rules of claims are wrong: planted claims about the 84 benchmark circuits, with the answer key open.

    python -m benchmarks.validator --resume validator.jsonl > validator.json

`computes`: true claims are the key's program and carriers; near misses change one thing: a position, a table entry or
token, a comparison, an upstream variable, the component, or (`place`) where a position comes in: the value is said to
hold the position or not to, against what the key says, where moved outputs follow the key. A near miss whose
predictions coincide with the truth on all of 8,192 fresh pairs of inputs is no miss; it is left out and counted as
equivalent. The other kinds are planted by `validator_kinds`: true ones follow from the key, false ones name another
variable, leave an argument out, add a spurious one, or name another position or component.

The key describes the program. A trained model may do otherwise, so power is what is left after that. Prints one JSON
document with the share of near misses that were supported (false support) and of true claims that were (power), by
kind, with Wilson intervals. `--limit N` takes the first N circuits, `--every K` every K-th; with `--resume FILE`
finished circuits are kept and not run again.
"""

import argparse
import json
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import torch

from benchmarks.validator_kinds import KINDS, planted
from vesalius.api import load
from vesalius.components import Component
from vesalius.explanations.claims import Computes, Hypothesis, check
from vesalius.explanations.claims.moved import outcome_of
from vesalius.explanations.claims.rivals import RIVAL_KINDS, rival_contestants, rivals
from vesalius.explanations.laboratory import CircuitLab
from vesalius.rasp import Program
from vesalius.statistics import share_interval
from vesalius_truth.key import all_tasks
from vesalius_truth.key import task as task_of
from vesalius_truth.key.task import Task

NEAR_MISS_SEED = 20_001  # not the seed of the rivals that the rule itself looks at
PER_COMPONENT = 4
FRESH_SEED = 30_001
FRESH_PAIRS = (1024, 8192)

Carriers = dict[str, tuple[str, ...]]


def near_misses(
    task: Task, lab: CircuitLab, component: Component
) -> Iterator[tuple[str, str, Component, Program, Carriers]]:
    """(kind, what was changed, component, program, carriers) of each planted falsehood about one component."""
    program = task.program()
    carriers: Carriers = {str(c): variables for c, variables in task.components}
    own = carriers[str(component)]
    for rival in rivals(program, own, seed=NEAR_MISS_SEED, limit=PER_COMPONENT, kinds=RIVAL_KINDS):
        yield rival.kind, rival.label, component, rival.program, carriers
    others = [c for c, _ in task.components if c != component]
    for other in others[:1]:
        swapped = {**carriers, str(component): carriers[str(other)], str(other): own}
        yield "component", f"what {other} carries", component, program, swapped
    for other in lab.matched(component, k=1):
        moved = {**{c: v for c, v in carriers.items() if c != str(component)}, str(other): own}
        yield "component", f"moved from {component}", other, program, moved


def predictions(lab: CircuitLab, program: Program, carried: tuple[str, ...], inputs: tuple[list, list]) -> torch.Tensor:
    """A program's answers, plain and after the interchange of the carried variables, on pairs of inputs."""
    tokens, lengths = program.encode([*inputs[0], *inputs[1]])
    n = len(inputs[0])
    base, source = program.run(tokens[:n], lengths[:n]), program.run(tokens[n:], lengths[n:])
    changed = program.interchange(base, source, torch.ones(n, 1, dtype=torch.bool), carriers=[carried])
    answers = torch.stack([lab.answers(program, base.output), lab.answers(program, changed)])
    return answers.masked_fill(base.tokens < 0, 0)


def is_equivalent(
    lab: CircuitLab, truth: Program, true: tuple[str, ...], other: Program, claimed: tuple[str, ...]
) -> bool:
    """Whether two claims about one component predict the same on every one of many fresh pairs of inputs."""
    for n in FRESH_PAIRS:
        n = max(n * lab.n // 1536, 256)
        inputs = lab.specimen.sample(n, FRESH_SEED), lab.specimen.sample(n, FRESH_SEED + 1)
        pair = [predictions(lab, p, c, inputs) for p, c in ((truth, true), (other, claimed))]
        if not bool(lab.same(*pair).all()):
            return False
    return True


def examine(task: Task) -> dict:
    """Every true claim and every near miss of one circuit with its verdict."""
    began = time.perf_counter()
    lab, program = CircuitLab(load(task.id)), task.program()
    carriers: Carriers = {str(c): variables for c, variables in task.components}
    rows = []
    for component, own in task.components:
        claim = Computes(component=str(component), hypothesis=Hypothesis(program=program, carriers=carriers))
        record = check(claim, lab)
        row = {"component": str(component), "kind": "true", "change": "", "verdict": record.verdict}
        rows.append(row | {"moved": outcome_of(record.evidence)})
        if outcome_of(record.evidence) == "free":
            for rival in rival_contestants(program, own):
                idea = Hypothesis(program=rival.program, carriers={**carriers, str(component): rival.carried})
                verdict = check(Computes(component=str(component), hypothesis=idea), lab).verdict
                rows.append({"component": str(component), "kind": "place", "change": rival.label, "verdict": verdict})
        for kind, change, about, other, theirs in near_misses(task, lab, component):
            claimed = theirs[str(about)]
            if about == component and is_equivalent(lab, program, own, other, claimed):
                rows.append({"component": str(about), "kind": kind, "change": change, "verdict": "equivalent"})
                continue
            claim = Computes(component=str(about), hypothesis=Hypothesis(program=other, carriers=theirs))
            verdict = check(claim, lab).verdict
            rows.append({"component": str(about), "kind": kind, "change": change, "verdict": verdict})
        for claim, change, is_true in planted(program, carriers, component, lab):
            row: dict[str, object] = {
                "component": claim.component,
                "claim": claim.kind,
                "true": is_true,
                "change": change,
            }
            rows.append(row | {"kind": "planted", "verdict": check(claim, lab).verdict})
    return {"id": task.id, "seconds": round(time.perf_counter() - began, 1), "claims": rows}


def examine_id(id_: str) -> dict:
    """Examine the circuit with this id, in a process of its own."""
    torch.set_num_threads(1)
    return examine(task_of(id_))


def share(rows: list[dict], verdict: str) -> dict:
    """Share of claims with a verdict, with its Wilson interval."""
    hits = sum(row["verdict"] == verdict for row in rows)
    low, high = share_interval(hits, len(rows))
    value = hits / len(rows) if rows else None
    open_ = sum(row["verdict"] in ("undecided", "untested") for row in rows)
    return {"value": value, "low": low, "high": high, "hits": hits, "n": len(rows), "untested": open_}


def summary(circuits: list[dict]) -> dict:
    """Power, false support in all and by kind, and what was left out."""
    rows = [row | {"circuit": circuit["id"]} for circuit in circuits for row in circuit["claims"]]
    true = [row for row in rows if row["kind"] == "true"]
    misses = [row for row in rows if row["kind"] not in ("true", "planted") and row["verdict"] != "equivalent"]
    kinds = (*RIVAL_KINDS, "component", "place")
    others = {kind: [row for row in rows if row.get("claim") == kind] for kind in KINDS}
    return {
        "circuits": len(circuits),
        "power": share(true, "supported"),
        "false_support": share(misses, "supported"),
        "false_support_by_kind": {k: share([r for r in misses if r["kind"] == k], "supported") for k in kinds},
        "other_kinds": {
            kind: {
                "power": share([r for r in planted_rows if r["true"]], "supported"),
                "false_support": share([r for r in planted_rows if not r["true"]], "supported"),
            }
            for kind, planted_rows in others.items()
        },
        "all_false_support": share([*misses, *(r for rs in others.values() for r in rs if not r["true"])], "supported"),
        "all_power": share([*true, *(r for rs in others.values() for r in rs if r["true"])], "supported"),
        "moved": {o: sum(r.get("moved") == o for r in true) for o in ("free", "fixed", "dependent", "untested")},
        "equivalent": {k: sum(r["kind"] == k and r["verdict"] == "equivalent" for r in rows) for k in kinds},
        "wrong": [r for r in true if r["verdict"] != "supported"]
        + [r for r in misses if r["verdict"] == "supported"]
        + [r for rs in others.values() for r in rs if r["true"] != (r["verdict"] == "supported")],
        "seconds": round(sum(circuit["seconds"] for circuit in circuits), 1),
    }


def main() -> None:
    """Parse the options, run what is missing, print the summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--limit", type=int, default=None, help="the first N circuits only")
    parser.add_argument("--every", type=int, default=1, help="every K-th circuit only")
    parser.add_argument("--resume", type=Path, default=None, help="JSONL file of finished circuits, read and added to")
    parser.add_argument("--jobs", type=int, default=1, help="circuits at a time")
    options = parser.parse_args()
    kept = options.resume.read_text().splitlines() if options.resume and options.resume.exists() else []
    done = {circuit["id"]: circuit for circuit in map(json.loads, kept)}
    tasks = all_tasks()[:: options.every][: options.limit]
    missing = [task.id for task in tasks if task.id not in done]
    with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for circuit in as_completed(pool.submit(examine_id, id_) for id_ in missing):
            done[circuit.result()["id"]] = circuit.result()
            if options.resume:
                with options.resume.open("a") as file:
                    file.write(json.dumps(circuit.result()) + "\n")
    print(json.dumps(summary([done[task.id] for task in tasks]), indent=1))


if __name__ == "__main__":
    main()
