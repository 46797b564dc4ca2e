"""The investigation: components in order of computation, each observed, explained, and put into the program."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from vesalius.explain.scientist.assemble import TOLERANCE, Program, with_output
from vesalius.explain.scientist.body import Body, Recorded
from vesalius.explain.scientist.hypotheses import rank_heads, rank_tables, table_over
from vesalius.explain.scientist.inputs import Pairings, exchange_pairings, join, natural_pairings
from vesalius.explain.scientist.observe import Observations, observe
from vesalius.explain.scientist.variables import MEAN_SCALE, TOKENS, Constant, Environment, Hypothesis, Linear
from vesalius.model.components import Component

#: Below this score nothing is taken as found, and the variable of the component stays a constant.
FOUND_ABOVE = 0.15
#: Hypotheses of a component that stay on record.
KEPT = 12


class Ranked(NamedTuple):
    """One hypothesis of the ranking; a table that was not read off yet is named by what it reads."""

    label: str
    score: float
    hypothesis: Hypothesis | tuple[str, ...]


@dataclass
class Finding:
    """What is known of one component: its observations, the ranked hypotheses and the one in use."""

    observations: Observations
    hypothesis: Hypothesis
    score: float
    ranked: list[Ranked] = field(default_factory=list)
    tried: int = 1


@dataclass
class Investigation:
    """Everything the scientist holds while it works."""

    body: Body
    pool: Recorded
    findings: dict[Component, Finding]
    program: Program


def feeds(sender: Component, receiver: Component) -> bool:
    """Whether the sender is computed before the receiver can read it."""
    return sender.layer < receiver.layer or (sender.layer == receiver.layer and sender.is_head and not receiver.is_head)


def explain_components(
    body: Body,
    pool: Recorded,
    *,
    seed: int,
    forced: dict[Component, int] | None = None,
    known: dict[Component, Observations] | None = None,
    progress: Callable[[Component], None] | None = None,
) -> Investigation:
    """Explain every component; `forced` takes a lower-ranked hypothesis for some, `known` reuses observations."""
    findings: dict[Component, Finding] = {}
    program = Program({}, None, body.model.config.causal, body.numeric)
    for order, component in enumerate(body.components):
        if progress:
            progress(component)
        upstream = [c for c in findings if feeds(c, component) and not findings[c].observations.is_inert]
        observations = (known or {}).get(component) or observe(body, pool, component, upstream, seed=seed + 17 * order)
        choice = (forced or {}).get(component, 0)
        finding = _explain(body, pool, program, observations, upstream, choice)
        findings[component] = finding
        program.variables[component] = finding.hypothesis
    return Investigation(body, pool, findings, program)


def _explain(
    body: Body, pool: Recorded, program: Program, observations: Observations, upstream: list[Component], choice: int
) -> Finding:
    if observations.is_inert:
        return Finding(observations, Constant(), 0.0)
    env = program.exchanged(pool.sequences, observations.pairings)
    names = [str(c) for c in reversed(upstream) if program.variables[c].family != "nothing"] + [TOKENS]
    component = observations.component
    if component.is_head:
        attention = _attention(body, pool, observations.pairings, component)
        heads = rank_heads(observations, env, names, attention=attention, numeric=body.numeric)
        ranked = [Ranked(_label(each.hypothesis), each.score, each.hypothesis) for each in heads[:KEPT]]
        tried = len(heads)
    else:
        tables = rank_tables(observations, env, names)
        tried = len(tables)
        ranked = [Ranked(f"table({', '.join(each.reads)})", each.score, each.reads) for each in tables[:KEPT]]
    _, score, found = ranked[min(choice, len(ranked) - 1)]
    if score < FOUND_ABOVE:
        return Finding(observations, Constant(), score, ranked, tried)
    hypothesis = found if not isinstance(found, tuple) else table_over(observations, env, found)
    if isinstance(found, tuple) and body.numeric and all(_is_share(program, name) for name in found):
        hypothesis = _weighted_sum(program, pool, found) or hypothesis
    return Finding(observations, hypothesis, score, ranked, tried)


def _is_share(program: Program, name: str) -> bool:
    return any(
        str(component) == name and variable.family == "mean" for component, variable in program.variables.items()
    )


def _weighted_sum(program: Program, pool: Recorded, reads: tuple[str, ...]) -> Linear | None:
    """The outputs as a weighted sum of shares, where that holds: no table could list all pairs of shares."""
    env = program.environment(pool.sequences)
    shares = [env[name][env.real] / MEAN_SCALE for name in reads]
    design, outputs = torch.stack([*shares, torch.ones_like(shares[0])], 1), pool.outputs[env.real]
    weights = torch.linalg.lstsq(design, outputs[:, None]).solution[:, 0]
    fits = (design @ weights - outputs).abs() < TOLERANCE
    return Linear(reads, tuple(weights[:-1].tolist()), float(weights[-1])) if fits.float().mean() > 0.9 else None


def _attention(body: Body, pool: Recorded, pairings: Pairings, component: Component) -> Tensor:
    """Attention on the rows observed; on exchanged rows it is zero, so that only natural ones tabulate routes."""
    natural = body.attention(pool, component)[pairings.base]
    exchanged = torch.tensor([moved is not None for moved in pairings.moved])
    return natural.masked_fill(exchanged[:, None, None], 0.0)


def _label(hypothesis: Hypothesis) -> str:
    class _Codes:
        def value(self, name: str, code: int) -> str:
            return str(code)

    return hypothesis.rasp(_Codes())


def assemble(investigation: Investigation, recorded: Recorded, *, exchanges: int, seed: int) -> Program:
    """Fit the output map on natural and one-exchange runs of fresh inputs."""
    body, program = investigation.body, investigation.program
    live = [c for c, finding in investigation.findings.items() if not finding.observations.is_inert]
    n = len(recorded.sequences)
    pairings = natural_pairings(n)
    outputs = [recorded.outputs]
    if live:
        exchanged = exchange_pairings(n, exchanges, live, seed=seed)
        outputs += [body.interchange(recorded, exchanged, component)[0] for component in live]
        pairings = join(pairings, exchanged)
    env: Environment = program.exchanged(recorded.sequences, pairings)
    return with_output(program, env, torch.cat(outputs))
