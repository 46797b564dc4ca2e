"""Where components act and what MLPs may do: hypotheses made on the selection pool, each for one claim.

1. Places: every component is replaced at each role's position alone; the one that costs most is where it may act.
2. Inputs of an MLP: the paths into it, from the tokens and from every earlier component, by attribution (one backward
   pass for all MLPs). Claims then replace the strongest of them.
3. Neurons: ranked by attribution (one more backward pass), the smallest set that keeps most of the MLP's effect.
4. Variables: the role whose token, or the answer, that the MLP's output at its place brings from other prompts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from vesalius.components import Component, mlp_units
from vesalius.discovery.neurons import smallest_size
from vesalius.documents.explanation import TOKENS
from vesalius.errors import BadInput
from vesalius.explanations.claims.base import MIN_CUT_EFFECT
from vesalius.explanations.laboratory import END, NaturalLab
from vesalius.explanations.laboratory.exchanges import ANSWER
from vesalius.intervene import attribute_units
from vesalius.intervene.ablations import Resample
from vesalius.intervene.attribution import edge_attribution
from vesalius.intervene.edges import EdgeGraph
from vesalius.intervene.values import unit_shape
from vesalius.progress import Progress

#: Prompts on which places and neurons are tried.
TRIED = 4
#: Neurons are chosen to keep this share of an MLP's effect, more than is then claimed. At most so many, or a quarter.
CHOSEN_TO_KEEP, MOST_NEURONS = 0.9, 256
#: The search begins with so many and is as fine as one part in four.
FIRST_NEURONS, FINE = 16, 4
#: Senders that a claim is made about.
SENDERS = 2
#: A role is preferred to the answer where its interchange moves this part as much.
ROLE_BEFORE_ANSWER = 0.75


@dataclass(frozen=True)
class Inside:
    """What one MLP may do: which senders it needs, by which neurons it works (none: not looked for), and which
    variable its output carries (None: none was found).
    """

    senders: tuple[str, ...] = ()
    neurons: tuple[int, ...] = ()
    variable: str | None = None


@dataclass
class Ideas:
    """`places[component]` is the role where it may act; `inside[mlp]` what an MLP may do."""

    places: dict[Component, str] = field(default_factory=dict)
    inside: dict[Component, Inside] = field(default_factory=dict)


def propose_ideas(
    lab: NaturalLab,
    components: Sequence[Component],
    effect: Mapping[Component, float],
    paths: Mapping[tuple[Component, Component], float],
    progress: Progress,
) -> Ideas:
    """The hypotheses about the components that may cost something; `effect` is what each costs on these prompts."""
    least = MIN_CUT_EFFECT * lab.scale
    parts = [part for part in components if effect.get(part, 0.0) > least]  # none where shares are not defined
    ideas = Ideas()
    if not parts:
        return ideas
    progress(f"where {len(parts)} components act", 0, 0)
    ideas.places = _places(lab, parts)
    mlps = [part for part in parts if not part.is_head]
    if not mlps:
        return ideas
    progress(f"what {len(mlps)} MLPs read, and by which neurons", 0, 0)
    senders, neurons = _senders(lab, mlps, paths), _neurons(lab, mlps)
    progress(f"what {len(mlps)} MLPs carry", 0, 0)
    for mlp in mlps:
        variable = _variable(lab, mlp, ideas.places.get(mlp, END))
        ideas.inside[mlp] = Inside(senders[mlp], neurons.get(mlp, ()), variable)
    return ideas


def _places(lab: NaturalLab, parts: Sequence[Component]) -> dict[Component, str]:
    """The role at whose position replacing each component costs most, if it costs anything."""
    some = torch.arange(min(TRIED, lab.n))
    costs = {}
    for role in _apart(lab):
        where = lab.mask(role)
        costs[role] = lab.patch_effects([[part] for part in parts], prompts=some, positions=where).mean(0)
    found = {}
    for i, part in enumerate(parts):
        best = max(costs, key=lambda role: float(costs[role][i]))
        if float(costs[best][i]) > MIN_CUT_EFFECT * lab.scale:
            found[part] = best
    return found


def _apart(lab: NaturalLab) -> list[str]:
    """The roles, of several that always have one position the first; the answer position comes first of all."""
    found: dict[str, Tensor] = {END: lab.place(END)}
    for role, place in lab.places.items():
        if not any(bool((place == other).all()) for other in found.values()):
            found[role] = place
    return list(found)


def _senders(
    lab: NaturalLab, mlps: Sequence[Component], paths: Mapping[tuple[Component, Component], float]
) -> dict[Component, tuple[str, ...]]:
    """For each MLP the paths into it that are measured anyway, or else the strongest ones by attribution."""
    graph, some = EdgeGraph.of(lab.model.config), torch.arange(min(TRIED, lab.n))
    readout = lab.runs.readout.take(some)
    batch, source = lab.batch.take(some), lab.source.take(some)
    lab.cost.rows += 3 * len(some)
    scores = edge_attribution(lab.model, batch, readout, counterfactual=source).mean(0)
    column = {receiver: i for i, (receiver, port) in enumerate(graph.receivers) if port == "mlp"}
    found = {}
    for mlp in mlps:
        known = sorted((path for path in paths if path[1] == mlp and paths[path] > 0), key=lambda path: -paths[path])
        names = [str(sender) for sender, _ in known]
        order = scores[:, column[mlp]].argsort(descending=True, stable=True)[:SENDERS].tolist()
        ranked = [graph.senders[i] for i in order if float(scores[i, column[mlp]]) > MIN_CUT_EFFECT * lab.scale]
        names += [TOKENS if sender is None else str(sender) for sender in ranked]
        found[mlp] = tuple(dict.fromkeys(names))[:SENDERS]
    return found


def _neurons(lab: NaturalLab, mlps: Sequence[Component]) -> dict[Component, tuple[int, ...]]:
    """For each MLP the smallest set tried that keeps most of its effect, or as many as are ever named."""
    model, some = lab.model, torch.arange(min(TRIED, lab.n))
    units = mlp_units(model.config)
    batch = lab.batch.take(some)
    replacement = Resample().table(model, batch, counterfactual=lab.source.take(some), neurons=True)
    scores = attribute_units(model, batch, lab.runs.readout.take(some), replacement, rule="relp-qk").mean(0)
    lab.cost.rows += 4 * len(some)
    found = {}
    for mlp in mlps:
        if len(unit_shape(model.config, mlp.layer)) > 1:
            continue
        own = torch.tensor([i for i, unit in enumerate(units) if unit.layer == mlp.layer])
        order = scores[own].abs().argsort(descending=True, stable=True)
        most = min(MOST_NEURONS, len(order) // 4)
        if most and (size := _enough(lab, mlp, order, most)):
            found[mlp] = tuple(sorted(order[:size].tolist()))
    return found


def _enough(lab: NaturalLab, mlp: Component, order: Tensor, most: int) -> int:
    whole = float(lab.patch_effects([[mlp]], prompts=torch.arange(min(TRIED, lab.n))).mean())
    if whole <= 0:
        return 0

    def share(size: int) -> float:
        return 1 - float(lab.kept_effects(mlp, order[:size].tolist(), n=TRIED).mean()) / whole

    return smallest_size(share, CHOSEN_TO_KEEP, most, first=min(FIRST_NEURONS, most), fine=FINE)[0]


def _variable(lab: NaturalLab, mlp: Component, at: str) -> str | None:
    """The role, or else the answer, that the MLP's output brings from other prompts, if it brings one: by how much
    further it moves the answer there than an output of a third prompt does.
    """
    moved = {}
    for name in (*lab.prompts.roles, ANSWER):
        if name != ANSWER and bool((lab.place(name) > lab.place(at)).any()):
            continue
        try:
            moves = lab.exchange_moves(name)
        except BadInput:  # the tokens there are all equal, or do not matter for the answer
            continue
        if int(moves.differs.sum()) >= min(TRIED, lab.n):
            runs = [lab.exchanged(mlp, name, at, "other"), lab.exchanged(mlp, name, at, "third")]
            (_, own), (_, third) = moves.shares(moves.clean, runs)
            moved[name] = float((own - third).mean())
    roles = {name: share for name, share in moved.items() if name != ANSWER}
    best = max(roles, key=lambda name: roles[name], default=None)
    if best is None or roles[best] < ROLE_BEFORE_ANSWER * moved.get(ANSWER, 0.0):
        best = ANSWER
    return best if moved.get(best, 0.0) > MIN_CUT_EFFECT else None
