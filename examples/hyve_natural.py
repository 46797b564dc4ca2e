"""A scripted language model that studies a natural model as the HyVE paper's appendix G does, by simple rules.

    vesalius explain smollm2-135m -b ioi --components L16H0,L20H0,L22_MLP \\
        --scientist hyve --backbone scripted:examples/hyve_natural.py

It finds out by corrupt-operand patching which role the values of each head of the circuit move most. Of a head it
first claims that it is the primary one of those that move its role (where it is the only one: that it is needed and
moves the role); if that is refuted, that it moves the role and is redundant with the others; last, that the logit lens
alone shows it. It answers by the label of the call and by how often it has spoken, so a run that was killed and is run
again hears the same. It is no language model: it shows the loop, and what the engine makes of honest guesses.
"""

import json
import re

PLAN = {
    "goal": "which role the component serves",
    "procedure": ["look", "then intervene"],
    "inputs": "the prompts",
    "expected_result": "an effect where the hypothesis predicts one",
}
NOT_SOURCES = ("BOS", "first token", "itself", "end")


def tool(name, **arguments):
    return {"tool_calls": [{"id": f"{name}-1", "name": name, "arguments": arguments}]}


def claim(**fields):
    return tool("check_claim", claim=fields)


def spoken(request):
    return sum(message.role == "assistant" for message in request.messages)


def circuit(request):
    listed = re.search(r"The components of the circuit: ([^.]*)\.", request.messages[0].text)
    return listed.group(1).split(", ") if listed else []


LOOK = """
heads, component = {heads!r}, {component!r}
seen = attention(heads) if heads else {{}}
moved = {{head: {{}} for head in heads}}
for role in [role for role in next(iter(seen.values()), {{}}) if role not in {not_sources!r}]:
    try:
        for head, found in zip(heads, corrupt([[head] for head in heads], role)):
            moved[head][role] = found["moved_by_values"][0]
    except Exception:
        pass  # every prompt has the same token there, or the answer does not depend on it
result = {{"moved": moved, "attention": seen, "lens": lens([component])}}
"""


def observe(request, component):
    heads = [name for name in circuit(request) if "H" in name]
    if spoken(request) == 0:
        return tool("execute_python", code=LOOK.format(heads=heads, component=component, not_sources=NOT_SOURCES))
    text = request.messages[-1].text
    if not text.startswith("result = "):
        return {"json": {"observation": "The program gave no result."}}
    seen = json.loads(text.removeprefix("result = ").splitlines()[0])
    role = {head: strongest(seen["moved"][head]) for head in heads}
    rank = seen["lens"][component]["rank"]
    said = f"The answer has median rank {rank:g} in what {component} writes."
    if component in role:
        peers = [head for head in heads if head != component and role[head] == role[component]]
        said = f"{component} moves most of <{role[component]}>. Other heads that do: <{', '.join(peers)}>. {said}"
    return {"json": {"observation": said}}


def strongest(moved):
    """The role with the largest figure, `end` where there is none."""
    return max(moved, key=moved.get) if moved else "end"


def facts(request):
    """The role and the peers that the observation named."""
    named = re.search(r"moves most of <([^>]*)>\. Other heads that do: <([^>]*)>", request.messages[1].text)
    return (named.group(1), [head for head in named.group(2).split(", ") if head]) if named else (None, [])


def hypothesis(request, component, number):
    role, peers = facts(request)
    if number == 1 and peers:
        what = f"is the primary mover of <{role}>, ahead of <{', '.join(peers)}>"
    elif number == 1:
        what = f"is needed and moves <{role}> to the end" if role else "is needed and acts on what the heads brought"
    elif number == 2 and peers:
        what = f"moves <{role}> to the end and is mutually redundant with <{', '.join(peers)}>"
    else:
        what = "favours the answer under the logit lens, but is not needed"
    return {"json": {"hypothesis": f"We hypothesise that {component} {what}.", "reasoning": "It fits what was seen."}}


def claims(text, component):
    """The claims that say what the hypothesis says."""
    if redundant := re.search(r"moves <([^>]*)> to the end and is mutually redundant with <([^>]*)>", text):
        role, others = redundant.group(1), redundant.group(2).split(", ")
        return [
            claim(kind="moves_role", component=component, role=role),
            claim(kind="redundant", component=component, others=others, replacement="zero", at="end"),
        ]
    if primary := re.search(r"is the primary mover of <([^>]*)>, ahead of <([^>]*)>", text):
        role, peers = primary.group(1), primary.group(2).split(", ")
        return [claim(kind="primary", component=component, role=role, over=peers)]
    if moves := re.search(r"moves <([^>]*)> to the end", text):
        return [
            claim(kind="necessary", component=component),
            claim(kind="moves_role", component=component, role=moves.group(1)),
        ]
    if "not needed" in text:
        return [claim(kind="lens_only", component=component)]
    return [claim(kind="necessary", component=component), claim(kind="writes_answer", component=component)]


def reply(request):
    label = request.label
    component = label.split()[0]
    if "plan" in label:
        return {"json": {"stage": label.upper(), **PLAN}}
    if "observation" in label:
        return observe(request, component)
    if "hypothesis" in label:
        return hypothesis(request, component, int(label.split()[-1]))
    if "validation" in label:
        asked = claims(request.messages[1].text.rpartition("The hypothesis:")[2], component)
        done = spoken(request)
        if done < len(asked):
            return asked[done]
        return {"json": {"explanation": "The engine decided.", "own_code": "none", "ruling_out": ""}}
    names = circuit(request)
    if label == "classification":
        tags = {name: "MAPPER" if "MLP" in name else "ROUTER" for name in names}
        return {"json": {name: {"tag": tag, "description": "what its claims say"} for name, tag in tags.items()}}
    flow = f"{', '.join(names)} in this order of layers."
    return {"json": {"information_flow": flow, "derived_task_description": "The behaviour that the prompts show."}}
