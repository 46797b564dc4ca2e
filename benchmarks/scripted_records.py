"""Circuits 97 and 113 explained by a scripted language model that says what a strong one would say.

    vesalius explain 97 --scientist hyve --backbone scripted:benchmarks/scripted_records.py
    python -m benchmarks.scripted_records > scripted_records.json

The replies are written by hand. On both circuits the typed protocol once refuted what is true: that L1H0 of 97 counts
(the same program was supported as `computes`), and that L0H1 of 113 copies the token before (one rare argument had a
low accuracy by chance). On 113 the model first writes a program without a rule for the first position, with which L0H0
is supported, and mends it for all later components: who carries what in the program that is kept has to be checked
again. The benchmark prints every claim with its verdict, the carriers of the kept program, and how they are graded.
"""

import argparse
import json
import time
from typing import Any

PROGRAM_97: dict[str, Any] = {
    "variables": [
        {"name": "apart", "op": "sequence_map", "of": ["tokens", "indices"], "formula": "x + y / 100"},
        {"name": "everywhere", "op": "select", "of": ["tokens", "tokens"], "comparison": "TRUE"},
        {"name": "length", "op": "selector_width", "of": ["everywhere"]},
        {"name": "not_above", "op": "select", "of": ["apart", "apart"], "comparison": "LEQ"},
        {"name": "rank", "op": "selector_width", "of": ["not_above"]},
        {"name": "last", "op": "select", "of": ["rank", "length"], "comparison": "EQ"},
        {"name": "largest", "op": "aggregate", "of": ["last", "tokens"]},
        {"name": "share", "op": "sequence_map", "of": ["tokens", "largest"], "formula": "x / y if y > 0 else 0.0"},
    ],
    "output": "share",
}
CARRIERS_97 = {
    "L0H0": ["length_head"],
    "L0_MLP": ["length", "apart"],
    "L1H0": ["rank_head"],
    "L1_MLP": ["rank"],
    "L2H0": ["largest"],
    "L2_MLP": ["share"],
}
SAID_97 = {
    "L0H0": ("AGGREGATOR", "L0H0 counts the tokens of the input: it attends evenly to all of them."),
    "L0_MLP": ("COMBINER", "L0_MLP decodes the length and holds token and position together, so that ties are broken."),
    "L1H0": ("AGGREGATOR", "L1H0 counts the positions whose token is not above the token here."),
    "L1_MLP": ("MAPPER", "L1_MLP decodes that count: the rank of the token from below."),
    "L2H0": ("AGGREGATOR", "L2H0 fetches the token whose rank equals the length: the largest one."),
    "L2_MLP": ("COMBINER", "L2_MLP divides the token by the largest token."),
}

ONE_BACK = [[position, position + 1] for position in range(8)]
CARRIERS_113 = {
    "L0H0": ["length_head"],
    "L0H1": ["before"],
    "L0_MLP": ["length"],
    "L1_MLP": ["middle", "rises"],
    "L2H0": ["breaks_head"],
    "L2_MLP": ["distance", "breaks"],
    "L3_MLP": ["sign"],
    "L4_MLP": ["signed"],
    "L5_MLP": ["goal"],
    "L6H0": ["moved"],
}
SAID_113 = {
    "L0H0": ("AGGREGATOR", "L0H0 counts the tokens of the input."),
    "L0H1": ("ROUTER", "L0H1 copies the token before; the first position reads itself."),
    "L0_MLP": ("MAPPER", "L0_MLP decodes the length."),
    "L1_MLP": ("COMBINER", "L1_MLP compares the token with the one before, and finds the middle of the input."),
    "L2H0": ("AGGREGATOR", "L2H0 counts the places where the tokens fall."),
    "L2_MLP": ("COMBINER", "L2_MLP decodes that count and takes the distance from the middle."),
    "L3_MLP": ("MAPPER", "L3_MLP turns the count into a sign: -1 where the input rises throughout."),
    "L4_MLP": ("COMBINER", "L4_MLP multiplies the distance by the sign."),
    "L5_MLP": ("COMBINER", "L5_MLP adds the middle: the position to read from."),
    "L6H0": ("ROUTER", "L6H0 fetches the token that is destined for this position."),
}


def program_113(*, mended: bool) -> dict[str, Any]:
    """Reverse the input if it rises throughout; only the mended version says what the first position reads."""
    pairs = [[0, 0], *ONE_BACK] if mended else ONE_BACK
    return {
        "variables": [
            {"name": "everywhere", "op": "select", "of": ["indices", "indices"], "comparison": "TRUE"},
            {"name": "length", "op": "selector_width", "of": ["everywhere"]},
            {"name": "one_back", "op": "select", "of": ["indices", "indices"], "pairs": pairs},
            {"name": "before", "op": "aggregate", "of": ["one_back", "tokens"]},
            {"name": "zero", "op": "map", "of": ["indices"], "formula": "0"},
            {"name": "middle", "op": "map", "of": ["length"], "formula": "(x - 1) / 2"},
            {"name": "rises", "op": "sequence_map", "of": ["before", "tokens"], "formula": "1 if x <= y else 0"},
            {"name": "distance", "op": "sequence_map", "of": ["indices", "middle"], "formula": "x - y"},
            {"name": "falling", "op": "select", "of": ["rises", "zero"], "comparison": "EQ"},
            {"name": "breaks", "op": "selector_width", "of": ["falling"]},
            {"name": "sign", "op": "map", "of": ["breaks"], "formula": "-1 if x == 0 else 1"},
            {"name": "signed", "op": "sequence_map", "of": ["sign", "distance"], "formula": "x * y"},
            {"name": "goal", "op": "sequence_map", "of": ["middle", "signed"], "formula": "x + y"},
            {"name": "destined", "op": "select", "of": ["goal", "indices"], "comparison": "EQ"},
            {"name": "moved", "op": "aggregate", "of": ["destined", "tokens"]},
        ],
        "output": "moved",
    }


def claims_97(component: str) -> list[dict[str, Any]]:
    """What the model claims of one component of 97: heads also aggregate."""
    kinds = ["computes", "aggregates"] if component in ("L1H0", "L2H0") else ["computes"]
    return [{"kind": kind, "program": PROGRAM_97, "carriers": CARRIERS_97} for kind in kinds]


def claims_113(component: str) -> list[dict[str, Any]]:
    """What the model claims of one component of 113; the program is mended after the first component."""
    program = program_113(mended=component != "L0H0")
    kinds = ["computes", "aggregates"] if component == "L0H1" else ["computes"]
    return [{"kind": kind, "program": program, "carriers": CARRIERS_113} for kind in kinds]


def reply(request: Any) -> dict[str, Any]:
    """The next line of a conversation about either circuit; only the deeper one has a seventh layer."""
    return line(request, "113" if "L6H0" in request.messages[0].text else "97")


def line(request: Any, circuit: str) -> dict[str, Any]:
    """The next line of a conversation, by the label of the call and by how often the model has spoken."""
    deep = circuit == "113"
    said, claims_of = (SAID_113, claims_113) if deep else (SAID_97, claims_97)
    component, *stage = request.label.split()
    spoken = sum(message.role == "assistant" for message in request.messages)
    if request.label == "classification":
        return {"json": {name: {"tag": tag, "description": text} for name, (tag, text) in said.items()}}
    if request.label == "summary":
        task = "reverses the input if it rises throughout" if deep else "divides every token by the largest one"
        flow = " ".join(text for _, text in said.values())
        return {"json": {"information_flow": flow, "derived_task_description": f"The circuit {task}."}}
    if "plan" in stage:
        goal = f"See what {component} carries and test it by exchanging it between inputs."
        plan = {"goal": goal, "procedure": ["exchange it", "compare"], "inputs": "pairs of inputs"}
        return {"json": {**plan, "expected_result": "the outputs of the program with that value exchanged"}}
    if stage[0] == "observation":
        return {"json": {"observation": f"Outputs, attention and writes agree with this: {said[component][1]}"}}
    if stage[0] == "hypothesis":
        return {"json": {"hypothesis": said[component][1]}}
    claims = claims_of(component)
    if spoken < len(claims):
        arguments = {"claim": {**claims[spoken], "component": component}}
        return {"tool_calls": [{"id": f"claim-{spoken}", "name": "check_claim", "arguments": arguments}]}
    return {"json": {"explanation": "The engine has decided."}}


def explained(circuit: str, components: list[str] | None = None) -> dict[str, Any]:
    """Explain a circuit, or some of its components, with the script; every claim with its verdict, and the grade."""
    from vesalius.api import load
    from vesalius.backbones import Scripted, open_backbone
    from vesalius.explanations.hyve import explain_hyve
    from vesalius.grading import grade

    began = time.perf_counter()
    backbone = open_backbone(Scripted(lambda request: line(request, circuit)))
    found = explain_hyve(load(circuit), backbone=backbone, components=components).explanation
    parts = [
        {
            "id": part.id,
            "verdict": part.verdict,
            "tag": part.tag,
            "tag_by_model": part.tag_by_model,
            "operation": None if part.operation is None else part.operation.text,
            "claims": [{"kind": claim.kind, "text": claim.text, "verdict": claim.verdict} for claim in part.claims],
        }
        for part in found.components
    ]
    result: dict[str, Any] = {
        "circuit": circuit,
        "components": parts,
        "carriers": {} if found.executable is None else {n: list(v) for n, v in found.executable.carriers.items()},
    }
    if components is None:
        card = grade(found)
        names = ("tag_accuracy", "tag_accuracy_experiment_only", "component_iia", "task_exact")
        metrics = {name: getattr(card, name) for name in names}
        result["metrics"] = {
            name: metric and {"value": metric.value, "n": metric.n} for name, metric in metrics.items()
        }
    return {**result, "seconds": round(time.perf_counter() - began, 1)}


def main() -> None:
    """Explain both circuits and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", nargs="+", default=["97", "113"])
    circuits = [explained(circuit) for circuit in parser.parse_args().only]
    claims = [claim for circuit in circuits for part in circuit["components"] for claim in part["claims"]]
    counts = {verdict: sum(claim["verdict"] == verdict for claim in claims) for verdict in ("supported", "refuted")}
    print(json.dumps({"benchmark": "scripted_records", "claims": counts, "circuits": circuits}, indent=1))


if __name__ == "__main__":
    main()
