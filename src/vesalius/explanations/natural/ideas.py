"""Where components act and what MLPs may do: hypotheses made on the selection pool, each for one claim.

1. Places: every component is replaced at each role's position alone; the one that costs most is where it may act.
2. Inputs of an MLP: the paths into it, from the tokens and from every earlier component, by attribution (one backward
   pass for all MLPs). Claims then replace the strongest of them.
3. Neurons: ranked by attribution (one more backward pass), the smallest set that makes up most of the MLP's effect on
   prompts that it was not ranked on.
4. Variables: the role whose token, or the answer, that the MLP's output at its place brings from other prompts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.components import Component, mlp_units
from vesalius.discovery.neurons import smallest_size
from vesalius.documents.explanation import TOKENS
from vesalius.errors import BadInput
from vesalius.explanations.claims.base import MIN_CUT_EFFECT, MIN_EFFECT
from vesalius.explanations.claims.paths import MOST
from vesalius.explanations.laboratory import END, NaturalLab
from vesalius.explanations.laboratory.exchanges import ANSWER
from vesalius.explanations.natural.grouping import is_unclear, lower_end_of
from vesalius.intervene import attribute_units
from vesalius.intervene.ablations import Resample
from vesalius.intervene.attribution import edge_attribution
from vesalius.intervene.edges import EdgeGraph
from vesalius.intervene.values import unit_shape
from vesalius.progress import Progress

#: Prompts on which places and inputs are tried.
TRIED = 4
#: Neurons are chosen to keep this share of an MLP's effect, more than is then claimed. At most so many, or a quarter.
CHOSEN_TO_KEEP, MOST_NEURONS = 0.9, 256
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
    """`places[component]` is the role where it may act, `unclear` are those for which this may be half of the truth;
    `inside[mlp]` is what an MLP may do.
    """

    places: dict[Component, str] = field(default_factory=dict)
    unclear: set[Component] = field(default_factory=set)
    inside: dict[Component, Inside] = field(default_factory=dict)

    def clear_place(self, component: Component) -> str | None:
        """The role where it may act mostly; None where that was not clear."""
        return None if component in self.unclear else self.places.get(component)


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
    ideas.places, ideas.unclear = _places(lab, parts)
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


def _places(lab: NaturalLab, parts: Sequence[Component]) -> tuple[dict[Component, str], set[Component]]:
    """The role at whose position replacing each component costs most, if it costs anything, and the components of which
    so few prompts cannot tell whether that is most of what they cost anywhere.
    """
    some = torch.arange(min(TRIED, lab.n))
    costs = {}
    for role in _apart(lab):
        where = lab.mask(role)
        costs[role] = lab.patch_effects([[part] for part in parts], prompts=some, positions=where)
    whole = lab.patch_effects([[part] for part in parts], prompts=some)
    found, unclear = dict[Component, str](), set[Component]()
    for i, part in enumerate(parts):
        best = max(costs, key=lambda role: float(costs[role][:, i].mean()))
        if float(costs[best][:, i].mean()) > MIN_CUT_EFFECT * lab.scale:
            found[part] = best
            if is_unclear([(costs[best][:, i] - MOST * whole[:, i], 0.0)]):
                unclear.add(part)
    return found, unclear


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
    each = edge_attribution(lab.model, batch, readout, counterfactual=source)
    scores = each.mean(0)
    column = {receiver: i for i, (receiver, port) in enumerate(graph.receivers) if port == "mlp"}
    found = {}
    for mlp in mlps:
        known = sorted((path for path in paths if path[1] == mlp and paths[path] > 0), key=lambda path: -paths[path])
        names = [str(sender) for sender, _ in known]
        order = scores[:, column[mlp]].argsort(descending=True, stable=True)[:SENDERS].tolist()
        least = MIN_CUT_EFFECT * lab.scale
        ranked = [graph.senders[i] for i in order if lower_end_of(each[:, i, column[mlp]]) > least]
        names += [TOKENS if sender is None else str(sender) for sender in ranked]
        found[mlp] = tuple(dict.fromkeys(names))[:SENDERS]
    return found


def _neurons(lab: NaturalLab, mlps: Sequence[Component]) -> dict[Component, tuple[int, ...]]:
    """For each MLP the smallest set of its strongest neurons that makes up most of its effect by attribution, on
    prompts that they were not ranked on, or as many as are ever named.
    """
    model = lab.model
    replacement = Resample().table(model, lab.batch, counterfactual=lab.source, neurons=True)
    scores = attribute_units(model, lab.batch, lab.runs.readout, replacement, rule="relp-qk")
    lab.cost.rows += 4 * lab.n
    layer_of = torch.tensor([unit.layer for unit in mlp_units(model.config)])
    found = {}
    for mlp in mlps:
        if len(unit_shape(model.config, mlp.layer)) > 1:
            continue
        own = scores[:, layer_of == mlp.layer]
        most = min(MOST_NEURONS, own.shape[1] // 4)
        if most and float(own.sum()) > 0:
            size = _enough(own, most)
            found[mlp] = tuple(sorted(_ranked(own)[:size].tolist()))
    return found


def _ranked(scores: Float[Tensor, "prompt neuron"]) -> Int[Tensor, " neuron"]:
    return scores.mean(0).abs().argsort(descending=True, stable=True)


def _enough(scores: Float[Tensor, "prompt neuron"], most: int) -> int:
    """The smallest size that keeps most of the sum where each prompt is summed over neurons ranked by the others."""
    every = torch.arange(len(scores))
    orders = [_ranked(scores[every != prompt]) if len(scores) > 1 else _ranked(scores) for prompt in every.tolist()]
    summed = torch.stack([own[order].cumsum(0) for own, order in zip(scores, orders, strict=True)]).sum(0)

    def share(size: int) -> float:
        return float(summed[size - 1] / summed[-1])

    return smallest_size(share, CHOSEN_TO_KEEP, most)[0]


def _variable(lab: NaturalLab, mlp: Component, at: str) -> str | None:
    """The role, or else the answer, that the MLP's output brings from other prompts, if it brings one: by how much
    further it moves the answer there than an output of a third prompt does.
    """
    moved = {}
    for name in (*lab.prompts.roles, ANSWER):
        if name != ANSWER and _says_nothing(lab, name, at):
            continue
        try:
            moves = lab.exchange_moves(name)
        except BadInput:  # the tokens there are all equal, or do not matter for the answer
            continue
        if int(moves.differs.sum()) >= min(TRIED, lab.n):
            runs = [lab.exchanged(mlp, name, at, "other"), lab.exchanged(mlp, name, at, "third")]
            (_, own), (_, third) = moves.shares(moves.clean, runs)
            moved[name] = own - third
    means = {name: float(share.mean()) for name, share in moved.items()}
    best = max((name for name in means if name != ANSWER), key=lambda name: means[name], default=None)
    if best is None or means[best] < ROLE_BEFORE_ANSWER * means.get(ANSWER, 0.0):
        best = ANSWER
    return best if best in moved and lower_end_of(moved[best]) > MIN_EFFECT else None


def _says_nothing(lab: NaturalLab, role: str, at: str) -> bool:
    """Whether a role comes after a position, or is the word of the template that the answer follows."""
    place = lab.place(role)
    return bool((place > lab.place(at)).any()) or bool((place == lab.place(END)).all())
