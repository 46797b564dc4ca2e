"""Find a specimen, look at it (outputs, attention, the logit lens), and say which components matter: sweeps, discovery,
and interventions on some of them.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

from pydantic import Field

from vesalius import api
from vesalius.components import parse_components
from vesalius.documents.base import FrozenDict
from vesalius.errors import BadInput, choices, quoted
from vesalius.explanations.variables.algorithms import shipped
from vesalius.options import Sample
from vesalius_agents.mcp.desk import Call, blind_name
from vesalius_agents.mcp.results import Effect, Outputs, Rows
from vesalius_agents.mcp.tools.arguments import (
    MOST_LISTED,
    BehaviourName,
    Components,
    Force,
    Prompt,
    Sites,
    SparseSample,
    SpecimenName,
    Trial,
    cut,
    of_records,
    shown,
)
from vesalius_agents.session import interchange

SAMPLE, FEWER = SparseSample(n=32), Trial(n=16)


@of_records
def sweep(
    call: Call,
    specimen: SpecimenName,
    kind: Literal["zero", "mean", "resample"] | None = None,
    behaviour: BehaviourName = None,
    pairs: bool = False,
    sites: Annotated[str | None, Field(max_length=200, description="resid, q, ... or features instead")] = None,
    by: Literal["position", "role"] | None = None,
    force: Force = False,
    *,
    sample: SparseSample = SAMPLE,
) -> Rows:
    """Ablate every component (or pair) alone; effect = clean minus edited score, with 95 % interval. Values that take
    its place: resample (from the counterfactual; default of natural models), zero (default of others) or mean.
    effect_right, effect_wrong, effect_rest: the same of the right answer's logit, the wrong one's, all others' mean.
    `sites` resid, `by` position: the map of layers and positions.
    """
    loaded = call.specimen(specimen, behaviour)
    features = call.features(sample.features)
    asked: dict[str, Any] = {"kind": kind, "pairs": pairs, "sites": sites, "by": by, "n": sample.n}
    asked |= {"features": features}
    if loaded.kind == "natural":  # a small circuit needs next to nothing
        call.require_memory(api.plan("sweep", loaded, **asked, progress=False).peak_bytes)
    result = api.sweep_report(loaded, **asked, force=force, seed=sample.seed, progress=call.progress)
    ranked = sorted(result.components, key=lambda row: -abs(row.effect))
    rows = [one.model_dump() for one in ranked[:64]]
    strongest = ranked[:MOST_LISTED]
    lines = [
        f"{one.id} {shown(one.effect)} [{shown(one.ci_low)}, {shown(one.ci_high)}]{f' {one.acts}' if one.acts else ''}"
        for one in strongest
    ]
    clean = f"{result.kind} ablation, clean score {shown(result.baseline)} {result.unit}, n {sample.n}"
    doubt = result.contrast and result.contrast.doubt
    but = f"; but {doubt}" if doubt else ""
    text = f"{clean}{but}; strongest of {len(ranked)}: {'; '.join(lines)}"
    return Rows(text=text, rows=rows, resource=call.keep(result.as_data()))


@of_records
def discover(
    call: Call,
    specimen: SpecimenName,
    method: Literal["sweep", "eap", "eap-ig", "relp", "relp-qk", "acdc", "bandit", "rl", "neurons"] = "eap-ig",
    behaviour: BehaviourName = None,
    force: Force = False,
    *,
    sample: SparseSample = SAMPLE,
) -> Rows:
    """Find the circuit: score components and edges by a method, or (`neurons`) keep the fewest neurons; with `features`
    also the fewest latents.
    """
    loaded = call.specimen(specimen, behaviour)
    features = call.features(sample.features)
    if method == "neurons":
        if features is not None:
            raise BadInput("features: method 'neurons' takes no dictionaries; choose another method")
        return _neurons(call, loaded, sample, force=force)
    asked: dict[str, Any] = {"method": method, "n": sample.n, "features": features, "checks": False}
    if loaded.kind == "natural":
        call.require_memory(api.plan("discover", loaded, **asked, progress=False).peak_bytes)
    result = api.discover(loaded, **asked, seed=sample.seed, force=force, progress=call.progress)
    # Areas against the true circuit are figures of the answer key.
    whole = {name: value for name, value in result.as_data().items() if name != "metrics"}
    rows = [{"id": one.id, "score": one.score} for one in result.components[:64]]
    lines = [f"{one.id} {shown(one.score)}" for one in result.components[:MOST_LISTED]]
    edges = [f"{one.id} {shown(one.score)}" for one in result.edges[:6]]
    text = f"{method}, n {sample.n}; components: {'; '.join(lines)}" + (f"; edges: {'; '.join(edges)}" if edges else "")
    if result.latents is not None:
        found = [f"{one.id} {shown(one.score)}" for one in result.latents.components[:MOST_LISTED]]
        text = f"{text}; latents: {result.latents.said()}: {'; '.join(found)}"
    if result.answer is not None:
        text = f"{result.answer['verdict'].capitalize()}: {result.answer['text']}\n{text}"
    return Rows(text=text, rows=rows, resource=call.keep(whole))


def _neurons(call: Call, specimen: Any, sample: Sample, *, force: bool) -> Rows:
    if specimen.kind == "natural":
        call.require_memory(api.plan("neurons", specimen, n=sample.n, progress=False).peak_bytes)
    result = api.neurons(specimen, n=sample.n, seed=sample.seed, force=force, progress=call.progress)
    lines = [f"{one.id} {shown(one.score)}" for one in result.components[:MOST_LISTED]]
    text = f"{result!r}; {'; '.join(lines)}"
    rows = [one.model_dump() for one in result.details]
    return Rows(text=cut(text, 1_500), rows=rows, resource=call.keep(result.as_data()))


@of_records
def intervene(
    call: Call,
    specimen: SpecimenName,
    components: Sites,
    kind: Literal["zero", "mean", "resample", "patch", "interchange"] = "mean",
    prompt: Prompt | None = None,
    source: Prompt | None = None,
    at: Annotated[list[int] | int | str | None, Field(description="Position, role or 'end'; all by default")] = None,
    source_at: Annotated[list[int] | None, Field(description="interchange: positions in source")] = None,
    behaviour: BehaviourName = None,
    *,
    trial: Trial = FEWER,
) -> Effect:
    """Replace components together and compare outputs. Values come from nothing (zero), the mean, another prompt of
    the distribution (resample), or `source` (patch: same length as `prompt`; interchange: one component, any length,
    position `at` takes the value of `source_at`).
    """
    loaded = call.specimen(specimen, behaviour)
    if not components:
        raise BadInput("components: none is named; give one or more, such as L0H1")
    if kind == "interchange":
        if trial.features is not None:
            raise BadInput("features: kind 'interchange' is of components; leave it out, or use kind 'patch'")
        return _interchange(call, loaded, components, prompt, source, at, source_at)
    if source_at is not None or (isinstance(at, list) and len(at) != 1):
        raise BadInput(f"kind {kind!r} takes one position `at` and no `source_at`; use kind 'interchange' for several")
    place = at[0] if isinstance(at, list) else at
    asked: dict[str, Any] = {
        "kind": kind,
        "at": place,
        "prompt": prompt,
        "source": source,
        **trial.values(),
        "features": call.features(trial.features),
    }
    result = api.what_if(loaded, components, **asked, progress=call.progress)
    rows = [
        {"prompt": cut(row.prompt, 200), "clean": row.clean, "edited": row.edited, "changed": row.changed}
        for row in result.rows[:16]
    ]
    text = repr(result)
    return Effect(
        text=cut(text, 1_500),
        clean=result.clean.value,
        edited=result.edited.value,
        effect=result.effect.value,
        low=result.effect.low,
        high=result.effect.high,
        n=len(result.rows),
        rows=rows,
        resource=call.keep(result.as_data()),
    )


def _interchange(
    call: Call, specimen: Any, components: list[str], prompt: Any, source: Any, at: Any, source_at: list[int] | None
) -> Effect:
    if len(components) != 1 or not isinstance(prompt, list) or not isinstance(source, list):
        raise BadInput("kind 'interchange' takes one component, and `prompt` and `source` as lists of tokens")
    if isinstance(at, str):
        raise BadInput(f"at {at[:40]!r}: kind 'interchange' takes positions by number, such as [0, 2]")
    places = [at] if isinstance(at, int) else at
    result = interchange(specimen, components[0], prompt, source, at=places, source_at=source_at)
    text = (
        f"clean {result['clean']}; source {result['source']}; after the interchange {result['patched']}; "
        f"changed at {result['changed_at']}; effect {shown(result['effect'])} (0 clean, 1 source)"
    )
    return Effect(
        text=cut(text, 1_500),
        clean=result["clean"],
        edited=result["patched"],
        effect=result["effect"],
        n=1,
        rows=[result],
    )


def align(
    call: Call,
    specimen: SpecimenName,
    behaviour: BehaviourName = None,
    algorithm: Annotated[str | None, Field(description="One that ships")] = None,
    program: Annotated[str | None, Field(max_length=20_000)] = None,
    roles: Annotated[list[str] | None, Field(max_length=8)] = None,
    layers: Annotated[str | None, Field(max_length=60, description="15..25 or 0..30/3")] = None,
    n: Annotated[int, Field(ge=1, le=64)] = 8,
    force: Force = False,
) -> Rows:
    """Where a natural model holds an algorithm's variables: each is taken from other prompts, place by place. Own
    `program` (one execution): Python functions, each a variable of inputs or variables; `answer` is the output.
    """
    if algorithm is not None and (program is not None or algorithm not in shipped()):
        raise BadInput(
            f"algorithm {quoted(algorithm)}: choose one of {choices(shipped())}, or give `program` and no `algorithm`"
        )
    loaded = call.specimen(specimen, behaviour)
    with TemporaryDirectory() as directory:
        chosen = algorithm
        if program is not None:
            call.require("executions")
            call.spending.add(executions=1)
            (file := Path(directory) / "program.py").write_text(program, encoding="utf-8")
            chosen = str(file)
        asked: dict[str, Any] = {"algorithm": chosen, "roles": roles or (), "layers": layers, "held_out": 4 * n}
        asked |= {"n": n, "force": force, "unsafe_sandbox": call.desk.options.unsafe_sandbox}
        call.require_memory(api.plan("align", loaded, **asked, progress=False).peak_bytes)
        result = api.align(loaded, **asked, progress=call.progress)
    if program is not None:
        options = FrozenDict({**result.request.options, "algorithm": "program"})  # not the file, which is gone
        request = result.request.model_copy(update={"options": options})
        result = result.model_copy(update={"algorithm": "program", "request": request})
    rows = [
        {"variable": one.name, "place": place.place, "verdict": place.verdict}
        | {"accuracy": place.accuracy.value, "low": place.accuracy.low, "high": place.accuracy.high}
        | {"n": place.accuracy.n, "kept": place.kept.value, "control": place.control.value}
        for one in result.variables
        for place in one.places
    ]
    lines = [f"{one.name}: {one.path()}" for one in result.variables]
    text = "\n".join([str(result.answered()), *lines, *result.notes])
    return Rows(text=cut(text, 2_000), rows=rows[:64], resource=call.keep(result.as_data()))


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
    rows: list[dict[str, Any]] = []
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


def why_attends(
    call: Call,
    specimen: SpecimenName,
    prompt: Prompt,
    head: str,
    query: int = -1,
    key: int | None = None,
) -> Rows:
    """Why a head attends from one token to another (default: last token, most attended): pairs of upstream sources."""
    look = api.why_attends(call.specimen(specimen), prompt, head, query=query, key=key)
    rows = [one.model_dump() for one in look.pairs]
    pairs = "\n".join(f"{one.query} x {one.key}: {one.value:+.2f}" for one in look.pairs)
    carried = ", ".join(f"{one.source} {one.share:.2f}" for one in look.carries[:5])
    written = ", ".join(f"{token!r} {gain:+.2f}" for token, gain in look.writes)
    text = f"{look.view().answer.text}\n{pairs}\nothers {look.rest:+.2f}; path patching agrees {look.agreement} "
    text += f"(n {look.n_confirmed})\ncarries: {carried}\nraises: {written or 'no text'}"
    return Rows(text=cut(text, 2_000), rows=rows, resource=call.keep(look.as_data()))


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


def atlas(
    call: Call,
    specimen: SpecimenName,
    components: Components | None = None,
) -> Rows:
    """What every head is by standard tests and weights (previous-token, duplicate, induction, copying, suppression),
    beside chance, with its name by rule.
    """
    result = api.atlas(call.specimen(specimen), progress=call.progress)
    config = call.specimen(specimen).model.config
    names = list(map(str, parse_components(components, config))) if components else []
    chosen = [head for head in result.heads if (head.id in names if names else head.names)]
    rows = [{"id": head.id, "name": head.name, **head.figures} for head in chosen[:64]]
    lines = [f"{head.id} {head.said()}" for head in chosen]
    text = f"{result.summary()}; chance {dict(result.chance)}\n" + "\n".join(lines)
    return Rows(text=cut(text, 3_000), rows=rows, resource=call.keep(result.as_data()))


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
