"""A scripted language model that explains frac_prevs as the HyVE paper's appendix D tells it, in our words.

    vesalius explain frac_prevs --scientist hyve --backbone scripted:examples/hyve_frac_prevs.py

It answers by the label of the call and by how often it has spoken in the conversation, so a run that was killed and is
run again hears the same. The paper follows one component, L0_MLP. For L1H2 it first proposes what the paper rates as
partly wrong (a head that prefers 'x'), is refuted, and mends that.
"""

import json

PROGRAM = {
    "variables": [
        {"name": "is_x", "op": "map", "of": ["tokens"], "formula": "x == 'x'"},
        {"name": "so_far", "op": "select", "of": ["indices", "indices"], "comparison": "LEQ"},
        {"name": "share", "op": "aggregate", "of": ["so_far", "is_x"], "numerical": True},
    ],
    "output": "share",
}
CARRIERS = {"L0_MLP": ["is_x"], "L1H2": ["share"]}


def plan(stage, component, goal, procedure, inputs, expected):
    return {
        "stage": f"{stage} PLAN for {component}",
        "goal": goal,
        "procedure": procedure,
        "inputs": inputs,
        "expected_result": expected,
    }


def tool(name, **arguments):
    return {"tool_calls": [{"id": f"{name}-1", "name": name, "arguments": arguments}]}


def claim(**fields):
    return tool("check_claim", claim=fields)


LOOK = [tool("list_directory", path="."), tool("read_file", path="observation_tools.py")]
INDICATOR = (
    "We hypothesise that L0_MLP is a detector of 'x': at every position, whatever the position, it writes a two-valued "
    "signal that says whether the token there is 'x', for later components to read."
)
PREFERS = (
    "We hypothesise that L1H2 attends preferentially to positions that hold 'x' and collapses them into the share of "
    "'x' seen so far."
)
UNIFORM = (
    "We hypothesise that L1H2 attends equally to all positions up to its own and averages the x-signal that L0_MLP "
    "wrote there, which gives the share of 'x' seen so far."
)
PATCH_BOTH_WAYS = """
there, back = [], []
for other in [t for t in vocab if t != "x"]:
    for base in (["a", "x", "b"], ["x", "c"], ["b", "x", "x", "a"]):
        at = base.index("x")
        source = [*base[:at], other, *base[at + 1 :]]
        there.append(patch("L0_MLP", base, source, at=[at])["effect"])
        back.append(patch("L0_MLP", source, base, at=[at])["effect"])
result = {"x_to_other": sum(there) / len(there), "other_to_x": sum(back) / len(back)}
"""
ABLATE_HEAD = 'result = {"mean": ablate("L1H2", inputs)["share_changed"], "profile": attention_profile("L1H2", inputs)}'
EXCHANGE_HEAD = """
def share(tokens):
    return [tokens[: i + 1].count("x") / (i + 1) for i in range(len(tokens))]

same = [n for n in range(1, max_len + 1)]
by_length = {n: [row for row in inputs if len(row) == n] for n in same}
pairs = [pair for rows in by_length.values() for pair in zip(rows, rows[1:])]
found = interchange("L1H2", [b for b, _ in pairs], [s for _, s in pairs], lambda base, source: share(source))
result = {"exchange": found, "unevenness": attention_profile("L1H2", inputs)["unevenness"]}
"""

BOTH = {
    "L0_MLP observation plan": [
        plan(
            "OBSERVATION",
            "L0_MLP",
            "Characterise what L0_MLP writes for each kind of token; the examples suggest that 'x' is special.",
            ["Cache the output of L0_MLP on inputs with all tokens.", "Compare mean writes token by token."],
            "What L0_MLP adds to the residual stream.",
            "If it marks a token, that token's mean lies far from the others, which lie close together.",
        )
    ],
    "L0_MLP observation": [
        *LOOK,
        tool("execute_python", code='result = compare_writes("L0_MLP", inputs, by="token")'),
        {
            "observation": "L0_MLP writes something very different for 'x' than for the other tokens: the mean for 'x' "
            "lies about 2.4 from that of 'a', 'b' and 'c', which lie 0.2 to 0.4 from each other."
        },
    ],
    "L0_MLP hypothesis 1": [
        {
            "hypothesis": INDICATOR,
            "reasoning": "The writes for 'x' stand apart; the others are nearly alike, as a yes-or-no signal is.",
        }
    ],
    "L0_MLP validation plan 1": [
        plan(
            "VALIDATION",
            "L0_MLP",
            "If L0_MLP carries whether the token is 'x', exchanging that value must act as exchanging the token.",
            ["Patch L0_MLP at an 'x' from a run with another token.", "Patch in the reverse direction."],
            "The activations of L0_MLP at one position.",
            "The outputs move all the way to those of the other run, in both directions.",
        )
    ],
    "L1H2 observation plan": [
        plan(
            "OBSERVATION",
            "L1H2",
            "Find out where L1H2 looks and whether its write follows the output.",
            ["Average its attention.", "Group its writes by output."],
            "hook_pattern of layer 1, head 2.",
            "A head that gathers over the past spreads its attention over it.",
        )
    ],
    "L1H2 observation": [
        tool("execute_python", code="result = attention_profile(L1H2, inputs)"),
        tool("execute_python", code='result = attention_profile("L1H2", inputs)'),
        {
            "observation": "L1H2 gives little attention to BOS (0.08) and spreads the rest over the tokens up to its "
            "own position; its weights are nearly equal (unevenness 0.01)."
        },
    ],
    "L1H2 hypothesis 1": [{"hypothesis": PREFERS, "reasoning": "The output counts 'x' tokens seen so far."}],
    "L1H2 validation plan 1": [
        plan(
            "VALIDATION",
            "L1H2",
            "If L1H2 prefers 'x', most of its attention lies on 'x'.",
            ["Compare its attention on 'x' with that on other tokens.", "Ablate it."],
            "hook_pattern of layer 1, head 2.",
            "The mass on 'x' exceeds that on all other tokens.",
        )
    ],
    "L1H2 hypothesis 2": [
        {
            "hypothesis": UNIFORM,
            "reasoning": "The preference for 'x' was refuted; equal attention agrees with what was observed.",
        }
    ],
    "L1H2 validation plan 2": [
        plan(
            "VALIDATION",
            "L1H2",
            "If L1H2 carries the running share, exchanging it between inputs exchanges the outputs.",
            ["Exchange L1H2 between inputs of equal length.", "Compare with the source's running share."],
            "The activations of L1H2.",
            "The outputs become the running shares of the source.",
        )
    ],
    "classification": [
        {
            "L0_MLP": {
                "tag": "INDICATOR",
                "description": "At each position L0_MLP detects whether the token is 'x' and writes that as a "
                "two-valued feature into the residual stream.",
            },
            "L1H2": {
                "tag": "AGGREGATOR",
                "description": "At each position L1H2 averages the x-feature over all positions so far, with equal "
                "weights, which gives the running share of 'x'.",
            },
        }
    ],
    "summary": [
        {
            "information_flow": "L0_MLP marks every 'x'; L1H2 averages these marks over the positions up to its own "
            "and hands the mean to the output.",
            "derived_task_description": "At each position the model gives the proportion of tokens so far, the current "
            "one included and BOS left out, that are 'x'.",
        }
    ],
}
PAPER = {
    "L0_MLP validation 1": [
        tool("read_file", path="validation_tools.py"),
        tool("execute_python", code=PATCH_BOTH_WAYS),
        {
            "decision": "support",
            "explanation": "Patching L0_MLP at one position moves the outputs all the way to those of the other run: "
            "effect about 1 from 'x' to another token and about 1 back.",
        },
    ],
    "L1H2 validation 1": [
        tool("execute_python", code=ABLATE_HEAD),
        {
            "decision": "refute",
            "explanation": "The head matters, but its weights on 'x' are no larger than on other tokens.",
            "ruling_out": "That it attends preferentially to 'x'.",
        },
    ],
    "L1H2 validation 2": [
        tool("execute_python", code=EXCHANGE_HEAD),
        {
            "decision": "support",
            "explanation": "Exchanging L1H2 gives the running shares of the source, and its attention is nearly equal.",
        },
    ],
}
TYPED = {
    "L0_MLP validation 1": [
        claim(kind="depends_only_on", component="L0_MLP", program=PROGRAM, variables=["is_x"]),
        claim(kind="computes", component="L0_MLP", program=PROGRAM, carriers=CARRIERS),
        tool("execute_python", code=PATCH_BOTH_WAYS),
        {
            "explanation": "The engine supports both claims: L0_MLP depends only on whether the token is 'x', and "
            "exchanging it acts as the program says.",
            "own_code": "support",
        },
    ],
    "L1H2 validation 1": [
        claim(kind="reads_from", component="L1H2", tokens=["x"]),
        {
            "explanation": "The head does not put most of its attention on 'x'.",
            "ruling_out": "That it attends preferentially to 'x'.",
        },
    ],
    "L1H2 validation 2": [
        claim(kind="aggregates", component="L1H2", program=PROGRAM),
        claim(kind="aggregates", component="L1H2", program=PROGRAM, carriers=CARRIERS),
        {"explanation": "The engine supports that L1H2 carries the mean of the x-signal over the positions so far."},
    ],
}


def reply(request):
    """The next line of the conversation that a request belongs to."""
    spoken = sum(message.role == "assistant" for message in request.messages)
    typed = any("check_claim" in json.dumps(offered) for offered in request.tools)
    lines = {**BOTH, **(TYPED if typed else PAPER)}[request.label]
    line = lines[min(spoken, len(lines) - 1)]
    return line if "tool_calls" in line else {"json": line}
