"""Where components act and what MLPs may do: hypotheses made on the selection pool, each for one claim.

1. Places: every component is replaced at each role's position alone; the one that costs most is where it may act.
2. Inputs of an MLP: the paths into it, from the tokens and from every earlier component, by attribution (one backward
   pass for all MLPs); the strongest of them are replaced.
3. Neurons: ranked by attribution (one more backward pass), the smallest set that makes up most of the MLP's effect on
   prompts that it was not ranked on; then all others are replaced on such prompts.
4. Reading: the role that gets most of a head's attention from its place, where that is not the answer position.
5. Variables: the role whose token, or the answer, that the MLP's output at its place brings from other prompts.

What lies within a standard error of its bar on these prompts is not asked about, and is kept as such.
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
from vesalius.explanations.claims.base import MIN_CUT_EFFECT, MIN_EFFECT, MIN_MASS
from vesalius.explanations.claims.mlps import KEPT
from vesalius.explanations.claims.paths import MOST
from vesalius.explanations.laboratory import END, NaturalLab
from vesalius.explanations.laboratory.answers import ANSWER
from vesalius.explanations.laboratory.runs import NAMES, SINKS
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
    variable its output carries (None: none was found). `unclear` are the kinds of claims that are too close to call,
    each with what it would be about.
    """

    senders: tuple[str, ...] = ()
    neurons: tuple[int, ...] = ()
    variable: str | None = None
    unclear: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Reading:
    """The role that a head may read from where it acts; `general` is what that is in every prompt (*previous*,
    *duplicate*, *induction*; None: none of these), and `clear` whether a few prompts leave it at about half its
    attention.
    """

    role: str
    general: str | None
    clear: bool


@dataclass
class Ideas:
    """`places[component]` is the role where it may act, `reads[head]` what it may read from there, `inside[mlp]` what
    an MLP may do. `unclear` are components of which a few prompts leave it at about half what arises there.
    """

    places: dict[Component, str] = field(default_factory=dict)
    reads: dict[Component, Reading] = field(default_factory=dict)
    unclear: set[Component] = field(default_factory=set)
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
    ideas.places, ideas.unclear = _places(lab, parts)
    inner = [(part, place) for part, place in ideas.places.items() if part.is_head and place != END]
    ideas.reads = {head: found for head, place in inner if (found := reading_from(lab, head, place)) is not None}
    mlps = [part for part in parts if not part.is_head]
    if not mlps:
        return ideas
    progress(f"what {len(mlps)} MLPs read, and by which neurons", 0, 0)
    senders, neurons = _senders(lab, mlps, paths), _neurons(lab, mlps)
    progress(f"what {len(mlps)} MLPs carry", 0, 0)
    for mlp in mlps:
        variable, clear = _variable(lab, mlp, ideas.places.get(mlp, END))
        needed, close = senders[mlp]
        some, kept = neurons.get(mlp, ((), True))
        unclear = [("needs_input", name) for name in close]
        unclear += [] if kept else [("few_neurons", f"{len(some)} neurons")]
        unclear += [] if variable is None or clear else [("carries", variable)]
        ideas.inside[mlp] = Inside(needed, some if kept else (), variable if clear else None, tuple(unclear))
    return ideas


def _places(lab: NaturalLab, parts: Sequence[Component]) -> tuple[dict[Component, str], set[Component]]:
    """The role at whose position replacing each component costs most, if it costs anything, tried on a few prompts; and
    the components of which all prompts here cannot tell whether that is most of what they cost anywhere.
    """
    sets = [[part] for part in parts]
    some, rest = torch.arange(lab.n).tensor_split((TRIED,))
    costs = {role: lab.patch_effects(sets, prompts=some, positions=lab.mask(role)) for role in _apart(lab)}
    best = {part: max(costs, key=lambda role: float(costs[role][:, i].mean())) for i, part in enumerate(parts)}
    least = MIN_CUT_EFFECT * lab.scale
    found = {part: role for i, part in enumerate(parts) if float(costs[role := best[part]][:, i].mean()) > least}
    unclear = set[Component]()
    for role in costs:
        of = [i for i, part in enumerate(parts) if role != END and found.get(part) == role]
        if not of:
            continue
        own = [sets[i] for i in of]
        effects = costs[role][:, of]
        if len(rest):
            effects = torch.cat([effects, lab.patch_effects(own, prompts=rest, positions=lab.mask(role))])
        lab.measure(own, ["resample"])
        whole = torch.stack([lab.effect(one, "resample") for one in own], dim=1)
        most = effects / lab.scale - MOST * whole
        unclear |= {parts[i] for i, one in zip(of, most.T, strict=True) if is_unclear([(one, 0.0)])}
    return found, unclear


def reading_from(lab: NaturalLab, head: Component, place: str) -> Reading | None:
    """The role with most of a head's attention from a place, if it is most of it."""
    at = lab.place(place)
    masses = {
        role: mass for role, mass in lab.attention_masses(head, place).items() if role not in (*SINKS, "itself", END)
    }
    role = max(masses, key=lambda role: float(masses[role].mean()), default=None)
    if role is None or float(masses[role].mean()) <= MIN_MASS:
        return None
    rows, key = torch.arange(lab.n), lab.place(role)
    general = (name for name in NAMES if bool(lab.general_targets[name][rows, at, key].all()))
    return Reading(role, next(general, None), not is_unclear([(masses[role], MIN_MASS)]))


def _apart(lab: NaturalLab) -> list[str]:
    """The roles, of several that always have one position the first; the answer position comes first of all."""
    found: dict[str, Tensor] = {END: lab.place(END)}
    for role, place in lab.places.items():
        if not any(bool((place == other).all()) for other in found.values()):
            found[role] = place
    return list(found)


def _senders(
    lab: NaturalLab, mlps: Sequence[Component], paths: Mapping[tuple[Component, Component], float]
) -> dict[Component, tuple[tuple[str, ...], tuple[str, ...]]]:
    """For each MLP the senders of paths into it that are measured anyway, or else the strongest ones by attribution
    whose path is clear; and those whose path is too close to call.
    """
    graph, some = EdgeGraph.of(lab.model.config), torch.arange(min(TRIED, lab.n))
    readout = lab.runs.readout.take(some)
    batch, source = lab.batch.take(some), lab.source.take(some)
    lab.cost.rows += 3 * len(some)
    scores = edge_attribution(lab.model, batch, readout, counterfactual=source).mean(0)
    column = {receiver: i for i, (receiver, port) in enumerate(graph.receivers) if port == "mlp"}
    known, tried = dict[Component, list[str]](), dict[Component, list[Component | None]]()
    for mlp in mlps:
        measured = [path for path in paths if path[1] == mlp and paths[path] > 0]
        known[mlp] = [str(sender) for sender, _ in sorted(measured, key=lambda path: -paths[path])][:SENDERS]
        order = scores[:, column[mlp]].argsort(descending=True, stable=True)[:SENDERS].tolist()
        ranked = [graph.senders[i] for i in order if float(scores[i, column[mlp]]) > MIN_CUT_EFFECT * lab.scale]
        ranked = [sender for sender in ranked if _name(sender) not in known[mlp]]
        tried[mlp] = ranked[: SENDERS - len(known[mlp])]
    lab.measure_paths([(sender, mlp, None) for mlp, senders in tried.items() for sender in senders])
    found = {}
    for mlp, senders in tried.items():
        effects = {_name(sender): lab.path(sender, mlp) for sender in senders}
        clear = [name for name, effect in effects.items() if lower_end_of(effect) > MIN_CUT_EFFECT]
        close = [name for name, effect in effects.items() if is_unclear([(effect, MIN_CUT_EFFECT)])]
        found[mlp] = (*known[mlp], *clear), tuple(close)
    return found


def _name(sender: Component | None) -> str:
    return TOKENS if sender is None else str(sender)


def _neurons(lab: NaturalLab, mlps: Sequence[Component]) -> dict[Component, tuple[tuple[int, ...], bool]]:
    """For each MLP the smallest set of its strongest neurons that makes up most of its effect by attribution, on
    prompts that they were not ranked on, or as many as are ever named; and whether it is clear if they keep its effect.
    """
    model = lab.model
    if model.config.wrapped:  # its MLPs are one whole each
        return {}
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
            size, clear = _clear_size(lab, mlp, own, most)
            found[mlp] = tuple(sorted(_ranked(own)[:size].tolist())), clear
    return found


def _clear_size(lab: NaturalLab, mlp: Component, scores: Float[Tensor, "prompt neuron"], most: int) -> tuple[int, bool]:
    """How many neurons to name, and whether it is clear that they keep the MLP's effect or do not: the smallest set by
    attribution, or twice or four times as many where only these clearly keep it. Each half of the prompts ranks the
    neurons that are kept on the other.
    """
    size = _enough(scores, most)
    if len(scores) < TRIED:
        return size, True
    whole, half, clear = lab.effect([mlp], "resample"), torch.arange(len(scores)) % 2 == 0, True
    for many in dict.fromkeys(min(times * size, most) for times in (1, 2, 4)):
        by_half, by_other = (_ranked(scores[some])[:many].sort().values.tolist() for some in (half, ~half))
        lost = lab.kept_effects(mlp, by_half, apart=(half, by_other)) / lab.scale
        size, beyond = many, (1 - KEPT) * whole - lost
        if lower_end_of(beyond) > 0:
            return size, True
        clear = not is_unclear([(beyond, 0.0)])
    return size, clear


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


def _variable(lab: NaturalLab, mlp: Component, at: str) -> tuple[str | None, bool]:
    """The role, or else the answer, that the MLP's output brings from other prompts, if it brings one, and whether that
    is clear: by how much further it moves the answer there than an output of a third prompt does.
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
    if best not in moved or means[best] <= MIN_EFFECT:
        return None, True
    return best, lower_end_of(moved[best]) > MIN_EFFECT


def _says_nothing(lab: NaturalLab, role: str, at: str) -> bool:
    """Whether a role comes after a position, or is the word of the template that the answer follows."""
    place = lab.place(role)
    return bool((place > lab.place(at)).any()) or bool((place == lab.place(END)).all())
