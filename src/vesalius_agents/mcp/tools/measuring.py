"""Which components matter: sweeps, discovery, and interventions on some of them."""

from typing import Annotated, Any, Literal

from pydantic import Field

from vesalius import api
from vesalius.errors import BadInput
from vesalius_agents.mcp.desk import Call
from vesalius_agents.mcp.results import Effect, Rows
from vesalius_agents.mcp.tools.arguments import (
    MOST_LISTED,
    BehaviourName,
    Components,
    Prompt,
    Prompts,
    Seed,
    SpecimenName,
    cut,
    shown,
)
from vesalius_agents.session import interchange


def sweep(
    call: Call,
    specimen: SpecimenName,
    kind: Literal["zero", "mean", "resample"] = "mean",
    behaviour: BehaviourName = None,
    pairs: bool = False,
    n: Prompts = 32,
    seed: Seed = 0,
) -> Rows:
    """Ablate every component (or pair) alone; effect = clean minus edited score, with 95 % interval."""
    loaded = call.specimen(specimen, behaviour)
    if loaded.kind == "natural":  # a small circuit needs next to nothing
        call.require_memory(api.plan("sweep", loaded, kind=kind, pairs=pairs, n=n, progress=False).peak_bytes)
    result = api.sweep_report(loaded, kind=kind, pairs=pairs, n=n, seed=seed, progress=call.progress)
    ranked = sorted(result.components, key=lambda row: -abs(row.effect))
    rows = [one.model_dump() for one in ranked[:64]]
    strongest = ranked[:MOST_LISTED]
    lines = [f"{one.id} {shown(one.effect)} [{shown(one.ci_low)}, {shown(one.ci_high)}]" for one in strongest]
    text = f"clean score {shown(result.baseline)} {result.unit}, n {n}; strongest of {len(ranked)}: {'; '.join(lines)}"
    return Rows(text=text, rows=rows, resource=call.keep(result.as_data()))


def discover(
    call: Call,
    specimen: SpecimenName,
    method: Literal["sweep", "eap", "eap-ig", "relp", "relp-qk", "acdc", "bandit", "rl", "neurons"] = "eap-ig",
    behaviour: BehaviourName = None,
    n: Prompts = 32,
    seed: Seed = 0,
) -> Rows:
    """Find the circuit: score components and edges by a discovery method, or (`neurons`) keep the fewest neurons."""
    loaded = call.specimen(specimen, behaviour)
    if method == "neurons":
        return _neurons(call, loaded, n, seed)
    if loaded.kind == "natural":
        call.require_memory(api.plan("discover", loaded, method=method, n=n, checks=False, progress=False).peak_bytes)
    result = api.discover(loaded, method, n=n, seed=seed, checks=False, progress=call.progress)
    # Areas against the true circuit are figures of the answer key.
    whole = {name: value for name, value in result.as_data().items() if name != "metrics"}
    rows = [{"id": one.id, "score": one.score} for one in result.components[:64]]
    lines = [f"{one.id} {shown(one.score)}" for one in result.components[:MOST_LISTED]]
    edges = [f"{one.id} {shown(one.score)}" for one in result.edges[:6]]
    text = f"{method}, n {n}; components: {'; '.join(lines)}" + (f"; edges: {'; '.join(edges)}" if edges else "")
    return Rows(text=text, rows=rows, resource=call.keep(whole))


def _neurons(call: Call, specimen: Any, n: int, seed: int) -> Rows:
    if specimen.kind == "natural":
        call.require_memory(api.plan("neurons", specimen, n=n, progress=False).peak_bytes)
    result = api.neurons(specimen, n=n, seed=seed, progress=call.progress)
    lines = [f"{one.id} {shown(one.score)}" for one in result.components[:MOST_LISTED]]
    text = f"{result!r}; {'; '.join(lines)}"
    rows = [one.model_dump() for one in result.details]
    return Rows(text=cut(text, 1_500), rows=rows, resource=call.keep(result.as_data()))


def intervene(
    call: Call,
    specimen: SpecimenName,
    components: Components,
    kind: Literal["zero", "mean", "resample", "patch", "interchange"] = "mean",
    prompt: Prompt | None = None,
    source: Prompt | None = None,
    at: Annotated[list[int] | int | str | None, Field(description="Position, role or 'end'; all by default")] = None,
    source_at: Annotated[list[int] | None, Field(description="interchange: positions in source")] = None,
    behaviour: BehaviourName = None,
    n: Prompts = 16,
    seed: Seed = 0,
) -> Effect:
    """Replace components together and compare outputs. Values come from nothing (zero), the mean, another prompt of
    the distribution (resample), or `source` (patch: same length as `prompt`; interchange: one component, any length,
    position `at` takes the value of `source_at`).
    """
    loaded = call.specimen(specimen, behaviour)
    if not components:
        raise BadInput("components: none is named; give one or more, such as L0H1")
    if kind == "interchange":
        return _interchange(call, loaded, components, prompt, source, at, source_at)
    if source_at is not None or (isinstance(at, list) and len(at) != 1):
        raise BadInput(f"kind {kind!r} takes one position `at` and no `source_at`; use kind 'interchange' for several")
    place = at[0] if isinstance(at, list) else at
    asked: dict[str, Any] = {"kind": kind, "at": place, "prompt": prompt, "source": source, "n": n, "seed": seed}
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
