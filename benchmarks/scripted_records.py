"""Five circuits explained by a scripted language model that says what a strong one would say.

    vesalius explain 97 --scientist hyve --backbone scripted:benchmarks/scripted_records.py
    python -m benchmarks.scripted_records > scripted_records.json

The replies are written by hand: the decisions of a strong model, not its words. It looks at a component by scoring
candidate variables, says what it takes from that, and puts one claim about the whole circuit to the engine. The output
compares calls and input tokens per component (four bytes each) with those of a strong model that had no such claim, was
asked for plans, and studied every component (`BEFORE`). With `--apart` it claims of one component at a time instead: on
97 and 113 the typed protocol once refuted what is true that way: that L1H0 of 97 counts (the same program was supported
as `computes`), and that L0H1 of 113 copies the token before (one rare argument had a low accuracy by chance). On 113
the model first writes a program without a rule for the first position, with which L0H0 is supported, and mends it for
all later components: who carries what in the program that is kept has to be checked again.
"""

import argparse
import json
import time
from typing import Any

#: Components, calls and thousands of input tokens of a strong model that explained each component by itself.
BEFORE = {"7": (2, 16, 29), "60": (1, 9, 14), "39": (2, 14, 24), "97": (6, 57, 173), "113": (10, 75, 227)}
PROGRAM_7: dict[str, Any] = {
    "variables": [
        {"name": "alike", "op": "select", "of": ["tokens", "tokens"], "comparison": "EQ"},
        {"name": "count", "op": "selector_width", "of": ["alike"]},
    ],
    "output": "count",
}
SAID_7 = {
    "L0H0": ("AGGREGATOR", "L0H0 attends to the positions with the same token and counts them."),
    "L0_MLP": ("MAPPER", "L0_MLP decodes that count."),
}
PROGRAM_39: dict[str, Any] = {
    "variables": [
        {"name": "is_x", "op": "map", "of": ["tokens"], "formula": "1 if x == 'x' else 0"},
        {"name": "so_far", "op": "select", "of": ["indices", "indices"], "comparison": "LEQ"},
        {"name": "share", "op": "aggregate", "of": ["so_far", "is_x"], "numerical": True},
    ],
    "output": "share",
}
SAID_39 = {
    "L0_MLP": ("INDICATOR", "L0_MLP says whether the token is 'x'."),
    "L1H0": ("AGGREGATOR", "L1H0 averages that over the positions up to its own."),
}
PROGRAM_60: dict[str, Any] = {
    "variables": [{"name": "next", "op": "map", "of": ["tokens"], "formula": "x + 1"}],
    "output": "next",
}
SAID_60 = {"L0_MLP": ("MAPPER", "L0_MLP adds one to the token.")}
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


#: By circuit: what is said of each component, what each one carries, and the task.
SAID = {"7": SAID_7, "39": SAID_39, "60": SAID_60, "97": SAID_97, "113": SAID_113}
CARRIERS = {
    "7": {"L0H0": ["count_head"], "L0_MLP": ["count"]},
    "39": {"L0_MLP": ["is_x"], "L1H0": ["share"]},
    "60": {"L0_MLP": ["next"]},
    "97": CARRIERS_97,
    "113": CARRIERS_113,
}
TASKS = {
    "7": "counts at every position how often its token occurs",
    "39": "gives the share of 'x' among the tokens so far",
    "60": "adds one to every token",
    "97": "divides every token by the largest one",
    "113": "reverses the input if it rises throughout",
}
CANDIDATES = {
    "token": "tokens[i]",
    "position": "i",
    "length": "len(tokens)",
    "token before": "tokens[i - 1] if i else tokens[0]",
    "how often it occurs": "tokens.count(tokens[i])",
    "rank from below": "sum(str(t) <= str(tokens[i]) for t in tokens)",
}


def program_of(circuit: str, component: str) -> dict[str, Any]:
    """The program that the model has in mind when it claims something of a component; mended after 113's first."""
    if circuit == "113":
        return program_113(mended=component != "L0H0")
    return {"7": PROGRAM_7, "39": PROGRAM_39, "60": PROGRAM_60, "97": PROGRAM_97}[circuit]


def claims_of(circuit: str, component: str, *, apart: bool) -> list[dict[str, Any]]:
    """What the model claims in one stage: the whole circuit, or of this component alone what it carries; some heads
    also aggregate.
    """
    shared = {"program": program_of(circuit, component), "carriers": CARRIERS[circuit]}
    if not apart:
        return [{"kind": "circuit", **shared}]
    also = (circuit, component) in (("97", "L1H0"), ("97", "L2H0"), ("113", "L0H1"))
    kinds = ["computes", "aggregates"] if also else ["computes"]
    return [{"kind": kind, "component": component, **shared} for kind in kinds]


def reply(request: Any) -> dict[str, Any]:
    """The next line of a conversation about the circuit that the first message shows."""
    listed = request.messages[0].text.partition("The components of the circuit: ")[2].partition(". ")[0].split(", ")
    known = [circuit for circuit, said in SAID.items() if set(listed) <= set(said)]
    return line(request, min(known, key=lambda circuit: len(SAID[circuit])))


def line(request: Any, circuit: str, *, apart: bool = False) -> dict[str, Any]:
    """The next line of a conversation, by the label of the call and by how often the model has spoken."""
    said = SAID[circuit]
    component, *stage = request.label.split()
    spoken = sum(message.role == "assistant" for message in request.messages)
    if request.label == "classification":
        roles: dict[str, Any] = {name: {"tag": tag, "description": text} for name, (tag, text) in said.items()}
        flow = " ".join(text for _, text in said.values())
        task = f"The circuit {TASKS[circuit]}."
        return {"json": {**roles, "information_flow": flow, "derived_task_description": task}}
    if stage[0] == "observation":
        if spoken == 0:
            arguments: dict[str, Any] = {"candidates": CANDIDATES}
            return {"tool_calls": [{"id": "which", "name": "which_variable", "arguments": arguments}]}
        seen = f"Outputs, attention and moved values agree with this: {said[component][1]}"
        return {"json": {"observation": seen, "hypothesis": said[component][1]}}
    claims = claims_of(circuit, component, apart=apart)
    if spoken < len(claims):
        arguments = {"claim": claims[spoken]}
        return {"tool_calls": [{"id": f"claim-{spoken}", "name": "check_claim", "arguments": arguments}]}
    return {"json": {"explanation": "The engine has decided."}}


def explained(circuit: str, components: list[str] | None = None, *, apart: bool = False) -> dict[str, Any]:
    """Explain a circuit, or some of its components, with the script: claims, costs and the grade."""
    from vesalius.api import load
    from vesalius_agents.hyve import explain_hyve
    from vesalius_backbones import Scripted, open_backbone
    from vesalius_truth.grading import grade

    began = time.perf_counter()
    backbone = open_backbone(Scripted(lambda request: line(request, circuit, apart=apart)))
    result = explain_hyve(load(circuit), backbone=backbone, components=components)
    found, usage = result.explanation, result.trace.usage
    parts = [
        {
            "id": part.id,
            "verdict": part.verdict,
            "tag": part.tag,
            "tag_by_experiment": part.tag_by_experiment,
            "tag_by_model": part.tag_by_model,
            "operation": None if part.operation is None else part.operation.text,
            "claims": [{"kind": claim.kind, "text": claim.text, "verdict": claim.verdict} for claim in part.claims],
        }
        for part in found.components
    ]
    n, calls, tokens = BEFORE[circuit]
    document: dict[str, Any] = {
        "circuit": circuit,
        "components": parts,
        "carriers": {} if found.executable is None else {n: list(v) for n, v in found.executable.carriers.items()},
        "calls_per_component": {"now": round(usage.calls / len(parts), 2), "before": round(calls / n, 2)},
        "input_tokens_per_component": {"now": usage.input_tokens // len(parts), "before": 1000 * tokens // n},
        "problems": list(result.trace.problems),
    }
    if components is None:
        card = grade(found)
        names = ("tag_accuracy", "tag_accuracy_experiment_only", "component_iia", "task_exact")
        metrics = {name: getattr(card, name) for name in names}
        document["metrics"] = {
            name: metric and {"value": metric.value, "n": metric.n} for name, metric in metrics.items()
        }
    return {**document, "seconds": round(time.perf_counter() - began, 1)}


def main() -> None:
    """Explain the circuits and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", nargs="+", default=list(BEFORE), choices=list(BEFORE))
    parser.add_argument("--apart", action="store_true", help="claim of one component at a time")
    options = parser.parse_args()
    circuits = [explained(circuit, apart=options.apart) for circuit in options.only]
    claims = [claim for circuit in circuits for part in circuit["components"] for claim in part["claims"]]
    counts = {verdict: sum(claim["verdict"] == verdict for claim in claims) for verdict in ("supported", "refuted")}
    print(json.dumps({"benchmark": "scripted_records", "claims": counts, "circuits": circuits}, indent=1))


if __name__ == "__main__":
    main()
