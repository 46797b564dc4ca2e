#!/usr/bin/env python3
"""A scientist that is a program: it looks at the outputs, tests whether each component matters, and guesses the tags.

Run it with `vesalius explain frac_prevs --scientist "command:python examples/command/scientist.py"`. It uses nothing of
the package: lines of JSON go to stdout, lines of JSON come back on stdin. docs/how-to/commands.md has the protocol.
"""

import json
import sys


def ask(**request):
    print(json.dumps(request), flush=True)
    return json.loads(sys.stdin.readline())


task = json.loads(sys.stdin.readline())
inputs = [example["input"] for example in task["examples"]]
outputs = ask(call="predict", arguments={"inputs": inputs})["result"]
parts = []
for name in task["components"]:
    changed = ask(call="ablate", arguments={"component": name, "how": "mean"})["result"]["share_changed"]
    reply = ask(claim={"kind": "necessary", "component": name})
    verdict = reply["records"][0]["verdict"] if "records" in reply else reply["error"]
    note = f"replacing it by its mean changes {changed:.0%} of the outputs; that it is necessary is {verdict}"
    parts.append({"id": name, "tag": "MAPPER" if name.endswith("_MLP") else "AGGREGATOR", "note": note})
ask_nothing_more = {
    "components": parts,
    "information_flow": "not examined",
    "task_description": f"from {inputs[0]} the model makes {outputs[0]}",
}
print(json.dumps({"explanation": ask_nothing_more}), flush=True)
