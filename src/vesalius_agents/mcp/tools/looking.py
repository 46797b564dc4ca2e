"""Find a specimen and look at it: listings, outputs, attention, the logit lens."""

from typing import Annotated, Any

from pydantic import Field

from vesalius import api
from vesalius.errors import BadInput
from vesalius_agents.mcp.desk import Call, blind_name
from vesalius_agents.mcp.results import Outputs, Rows
from vesalius_agents.mcp.tools.arguments import MOST_LISTED, BehaviourName, Components, Prompt, SpecimenName, cut

#: What a listing says of a specimen.
LISTED = ("id", "name", "kind", "layers", "heads", "d_model")


def list_specimens(
    call: Call,
    contains: Annotated[str, Field(max_length=60)] = "",
    first: Annotated[int, Field(ge=0)] = 0,
    count: Annotated[int, Field(ge=1, le=100)] = 30,
) -> Rows:
    """List models to study, by id: benchmark circuits (no names, which would tell the task; graded), natural models."""
    rows = [{**{name: getattr(one, name) for name in LISTED}, "name": blind_name(one)} for one in api.specimens()]
    rows = [one for one in rows if contains.lower() in one["name"].lower()]
    page = rows[first : first + count]
    names = "; ".join(f"{one['id']} ({one['kind']}, {one['layers']}x{one['heads']})" for one in page)
    text = f"{len(rows)} specimens, {first} to {first + len(page)} (layers x heads): {names}"
    return Rows(text=text, rows=page)


def describe_specimen(call: Call, specimen: SpecimenName, behaviour: BehaviourName = None) -> Rows:
    """Shape, vocabulary, components of the circuit, and examples."""
    loaded = call.specimen(specimen, behaviour, free=True)
    shown = api.show(loaded).model_dump(mode="json")
    parts = [str(part) for part in loaded.components]
    named = parts if len(parts) <= MOST_LISTED else [*parts[:MOST_LISTED], f"... ({len(parts)} in all)"]
    examples = "; ".join(f"{one['input']} -> {one['output']}" for one in shown["examples"][:3])
    text = (
        f"{shown['name']}: {shown['layers']} layers, {shown['heads']} heads, d_model {shown['d_model']}; "
        f"components {', '.join(named)}; vocab {cut(str(shown['vocab']), 300)}; "
        f"{shown['min_len']} to {shown['max_len']} tokens; {cut(examples, 600)}"
    )
    return Rows(text=text, rows=[{**shown, "components": parts[:64]}], resource=call.keep(shown))


def predict(
    call: Call,
    specimen: SpecimenName,
    inputs: Annotated[list[list[Any] | str], Field(min_length=1, max_length=64)],
) -> Outputs:
    """The model's outputs, one per token of each input."""
    loaded = call.specimen(specimen)
    outputs = api.predict(loaded, inputs)
    lines = "\n".join(f"{cut(str(one), 120)} -> {cut(str(out), 200)}" for one, out in zip(inputs, outputs, strict=True))
    return Outputs(text=cut(lines, 2_000), outputs=[list(map(_plain, row)) for row in outputs])


def attention(
    call: Call,
    specimen: SpecimenName,
    prompt: Prompt,
    layer: Annotated[int, Field(ge=0)],
) -> Rows:
    """Where each head of a layer looks on one prompt: the strongest entries; all patterns as a resource."""
    look = api.attention(call.specimen(specimen), prompt, layer=layer)
    rows = []
    for head in look.heads:
        for query, weights in enumerate(head.pattern):
            key = max(range(len(weights)), key=weights.__getitem__)
            rows.append(
                {"head": head.head, "query": query, "key": key, "weight": weights[key]}
                | {"from": look.tokens[query], "to": look.tokens[key]}
            )
    strongest = sorted(rows, key=lambda row: -row["weight"])[:64]
    lines = [f"{r['head']} {r['query']}:{r['from']} -> {r['key']}:{r['to']} {r['weight']:.2f}" for r in rows]
    text = f"strongest key of each query (position 0 is the first token of {list(look.tokens)}):\n" + "\n".join(lines)
    return Rows(text=cut(text, 2_000), rows=strongest, resource=call.keep(look.as_data()))


def lens(
    call: Call,
    specimen: SpecimenName,
    prompt: Prompt,
    components: Components,
    top: Annotated[int, Field(ge=1, le=20)] = 5,
) -> Rows:
    """Logit lens: tokens that each component raises most, at each position (natural models)."""
    if not components:
        raise BadInput("components: none is named; give one or more, such as L0H1")
    look = api.lens(call.specimen(specimen), prompt, components, top=top)
    rows = [
        {"component": name, "position": len(look.tokens) - 1, "token": token, "gain": gain}
        for name, positions in look.components.items()
        for token, gain in positions[-1]
    ]
    lines = [f"{row['component']}: {row['token']!r} {row['gain']:+.2f}" for row in rows]
    text = "at the last position:\n" + "\n".join(lines)
    return Rows(text=cut(text, 1_500), rows=rows, resource=call.keep(look.as_data()))


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
