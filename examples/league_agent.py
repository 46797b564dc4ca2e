"""A scripted language model for leagues: it asks the engine one question about every component and answers by rote.

    vesalius league submit LEAGUE --scientist hyve --backbone scripted:examples/league_agent.py

It looks at what the toolbox shows, claims that the component is necessary, believes the engine's verdict, and tags
heads AGGREGATOR and MLPs MAPPER. A language model takes its place without another change.
"""

import json
import re

PLAN = {"stage": "plan", "goal": "see what it does", "procedure": ["look", "ask"], "inputs": "inputs"}
PLAN["expected_result"] = "a verdict"


def tool(name, **arguments):
    return {"tool_calls": [{"id": f"{name}-1", "name": name, "arguments": arguments}]}


def reply(request):
    label = request.label
    spoken = sum(message.role == "assistant" for message in request.messages)
    if "plan" in label:
        return {"json": PLAN}
    if "observation" in label:
        looks = [tool("execute_python", code="result = predict(inputs[:2])")]
        return looks[spoken] if spoken < len(looks) else {"json": {"observation": "outputs follow the inputs"}}
    if "hypothesis" in label:
        return {"json": {"hypothesis": "we hypothesise that the component is necessary", "reasoning": ""}}
    component = label.split()[0]
    if "validation" in label:
        if spoken == 0:
            return tool("check_claim", claim={"kind": "necessary", "component": component})
        said = request.messages[-1].text
        decision = "support" if said.startswith("supported") else "refute"
        return {"json": {"explanation": said[:200], "decision": decision, "own_code": "none", "ruling_out": "none"}}
    if label == "classification":
        text = "\n".join(message.text for message in request.messages)
        names = sorted(set(re.findall(r"\bL\d+(?:H\d+|_MLP)\b", text)))
        tags = {name: "AGGREGATOR" if "H" in name else "MAPPER" for name in names}
        return {"json": {name: {"tag": tag, "description": "it is necessary"} for name, tag in tags.items()}}
    return {"json": {"information_flow": "one after the other", "derived_task_description": json.dumps(label)}}
