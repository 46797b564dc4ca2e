"""Which components are studied, and the hypotheses about them: decided on the selection pool alone.

1. Effect: every component is patched on two prompts, those that may be among the strongest on four, those that may be
   selected on the whole pool. Of the `top` selected by absolute effect, two thirds are heads: an MLP reads one position
   only, so there is less to say about it.
2. Attention: heads whose attention lies mostly on one general role (previous token, earlier copies, the tokens after
   them), up to a few for each role, whether or not patching one alone has an effect.
3. Composition: for heads whose attention depends on content, the component whose path into the queries or keys moves
   their attention most.
4. Groups: heads that move the same role to the answer position and may back each other up (`groups`).
5. Paths: of all paths from one selected component to another, those with the largest effect, screened likewise.

The hypothesised role of each head, its feeders and the paths are tested on other prompts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.components import Component
from vesalius.discovery.attention import Target, masses
from vesalius.explanations.claims.reading import MIN_CUT_EFFECT, MIN_MASS
from vesalius.explanations.natural.composition import PORT_WORDS, PORTS, AttentionPort, HeadPaths
from vesalius.explanations.natural.groups import CANDIDATES, Groups, propose_groups
from vesalius.explanations.natural.paths import edges_between, feeds
from vesalius.explanations.natural.pool import Pool
from vesalius.explanations.natural.token_roles import NAMES, at_answer, everywhere
from vesalius.progress import Progress

#: Prompts that every candidate is measured on, and those that the ones within reach of the strongest are; components
#: within reach of those selected are measured on the whole pool.
FIRST_PROMPTS, SCREENING_PROMPTS = 2, 4
#: The screening keeps this many times as many components as will be selected.
SECOND_ROUND = 3
#: Heads selected for one attention role.
PER_ROLE = 4
#: Attention mass that must leave the target before a component counts as the feeder of a head.
MIN_ATTENTION_LOSS = 0.1
#: Paths between selected components that are measured again for evidence.
PATHS = 12


@dataclass
class Selection:
    """The components under study in order of computation, the reasons for them, and the hypotheses about them.

    `looks_at` names the token role a head attends to (None: no single one), `feeders[head, port]` the component that
    writes its queries or keys, `effect` the mean effect on the selection pool, where it was measured, `paths` pairs of
    components with the effect of the path between them, `groups` the heads that may move the same role.
    """

    components: list[Component] = field(default_factory=list)
    reasons: dict[Component, str] = field(default_factory=dict)
    looks_at: dict[Component, str | None] = field(default_factory=dict)
    feeders: dict[tuple[Component, AttentionPort], Component] = field(default_factory=dict)
    effect: dict[Component, float] = field(default_factory=dict)
    paths: dict[tuple[Component, Component], float] = field(default_factory=dict)
    groups: Groups = field(default_factory=Groups)

    def add(self, component: Component, reason: str) -> None:
        """Select a component, or add one more reason for it."""
        self.reasons[component] = f"{self.reasons[component]}; {reason}" if component in self.reasons else reason
        self.components = sorted(self.reasons)

    def looking_at(self, role: str) -> list[Component]:
        """The heads hypothesised to attend to a role."""
        return [c for c in self.components if self.looks_at.get(c) == role]


def select(
    pool: Pool, *, named: Sequence[Component] | None, top: int, progress: Progress, groups: bool = True
) -> Selection:
    """Select components and make hypotheses on the selection pool; `named` fixes the components. Without `groups` no
    heads are looked for that back each other up, as where there is no score to lose.
    """
    selection = Selection()
    for component in named or ():
        selection.add(component, "named by the user")
    if named is None:
        _add_strongest(pool, selection, top, progress)
    else:
        effects = pool.effects([[c] for c in selection.components]).mean(0)
        selection.effect = dict(zip(selection.components, effects.tolist(), strict=True))
    progress("attention of every head", 0, 0)
    roles = _role_masses(pool)
    if named is None:
        _add_by_attention(pool, selection, roles)
    if groups:
        _add_groups(pool, selection, add_members=named is None, progress=progress)
    for component in selection.components:
        selection.looks_at[component] = _main_role(component, roles) if component.is_head else None
    _add_feeders(pool, selection, roles, select_feeders=named is None, progress=progress)
    _add_paths(pool, selection, progress)
    return selection


def _add_strongest(pool: Pool, selection: Selection, top: int, progress: Progress) -> None:
    """Patch single components on more and more prompts; two thirds of those selected are heads."""
    rest, mlps = torch.arange(len(pool))[SCREENING_PROMPTS:], max(1, top // 3)
    for is_head, count in ((True, top - mlps), (False, mlps)):
        if not count:
            continue
        kind, kinds = [c for c in pool.model.components if c.is_head == is_head], "heads" if is_head else "MLPs"

        def measure(places: list[int], prompts: Tensor, kind: list[Component] = kind) -> Tensor:
            return pool.effects([[kind[i]] for i in places], prompts=prompts)

        progress(f"replacing each of {len(kind)} {kinds} on a few prompts", 0, 0)
        places, effects = _strongest(pool, measure, len(kind), keep=SECOND_ROUND * count)
        selection.effect |= {kind[i]: float(x) for i, x in zip(places, effects.mean(0), strict=True)}
        if len(rest):
            near = _within_reach(effects, count)
            places, effects = [places[i] for i in near], effects[:, near]
            progress(f"replacing the strongest {len(places)} {kinds} on {len(pool)} prompts", 0, 0)
            effects = torch.cat([effects, measure(places, rest)])
        mean = effects.mean(0)
        selection.effect |= {kind[i]: float(x) for i, x in zip(places, mean, strict=True)}
        for rank, place in enumerate(mean.abs().argsort(descending=True, stable=True)[:count].tolist(), 1):
            reason = f"effect rank {rank} of {len(kind)} {kinds}: {float(mean[place]):+.2f} logits"
            selection.add(kind[places[place]], reason)


def _strongest(
    pool: Pool, measure: Callable[[list[int], Tensor], Tensor], n: int, *, keep: int
) -> tuple[list[int], Float[Tensor, "prompt kept"]]:
    """Which `keep` of `n` candidates have the largest mean effects on the screening prompts, strongest first, and those
    effects. After the first prompts only those go on whose interval reaches the last one kept.
    """
    first, second = torch.arange(len(pool))[:SCREENING_PROMPTS].tensor_split((FIRST_PROMPTS,))
    left = list(range(n))
    effects = measure(left, first)
    if len(second) and len(first) > 1:
        near = _within_reach(effects, keep)
        left, effects = [left[i] for i in near], effects[:, near]
        effects = torch.cat([effects, measure(left, second)])
    order = effects.mean(0).abs().argsort(descending=True, stable=True)[:keep].tolist()
    return [left[i] for i in order], effects[:, order]


def _within_reach(effects: Float[Tensor, "prompt candidate"], keep: int) -> list[int]:
    """The candidates whose mean effect may be among the `keep` largest: two standard errors more would take it there.
    The standard error of few prompts may be small by chance, so it counts at least as the median of all. An effect that
    is not a number leaves its candidate within reach and the others as they are.
    """
    size, error = effects.mean(0).abs(), effects.std(0) / len(effects) ** 0.5
    error = error.clamp(min=float(error.nanmedian()))
    last = size.sort(descending=True).values[min(keep, len(size)) - 1]
    return (~(size + 2 * error < last)).nonzero()[:, 0].tolist()


@dataclass(frozen=True)
class _Roles:
    """Mean attention masses over the selection pool by role, and the targets they were measured on."""

    general: dict[str, Float[Tensor, "layer head"]]
    answer: dict[str, Float[Tensor, "layer head"]]
    targets: dict[str, Target]


def _role_masses(pool: Pool) -> _Roles:
    layers = range(pool.model.config.n_layers)

    def means(targets: dict[str, Target]) -> dict[str, Tensor]:
        return {
            role: torch.stack([masses(pool.pattern(layer), target).nanmean(0) for layer in layers])
            for role, target in targets.items()
            if bool(target.any())
        }

    general, answer = everywhere(pool), at_answer(pool)
    return _Roles(means({role: general[role] for role in NAMES}), means(answer), answer | general)


def _add_by_attention(pool: Pool, selection: Selection, roles: _Roles) -> None:
    """Select the heads that attend mostly to one general role, strongest first."""
    for role, mass in roles.general.items():
        for place in mass.flatten().argsort(descending=True, stable=True)[:PER_ROLE].tolist():
            layer, head = divmod(place, pool.model.config.n_heads)
            if float(mass[layer, head]) > MIN_MASS:
                selection.add(Component(layer, head), f"attention: {float(mass[layer, head]):.2f} on {role}")


def _add_groups(pool: Pool, selection: Selection, *, add_members: bool, progress: Progress) -> None:
    """Group heads by the role they move. Beside those selected the next strongest are tried, if `add_members`, and
    those that may be a backup are selected too.
    """
    heads = [component for component in selection.components if component.is_head]
    if add_members:
        others = [component for component in selection.effect if component.is_head and component not in heads]
        others.sort(key=lambda head: -abs(selection.effect[head]))
        few = pool.model.config.n_layers * pool.model.config.n_heads <= SECOND_ROUND * PER_ROLE * 2
        heads += others if few else others[: max(0, CANDIDATES - len(heads))]
    selection.groups = propose_groups(pool, heads, progress)
    for head, backups in selection.groups.backups.items():
        if head not in selection.reasons:
            selection.add(head, f"group: it moves {' and '.join(backup.role for backup in backups)} as others do")


def _main_role(head: Component, roles: _Roles) -> str | None:
    """The role with most of a head's attention: a general one, one of the behaviour, or BOS, in this order."""
    own = {role: mass for role, mass in roles.answer.items() if role in roles.targets and role not in NAMES}
    sinks = {role: own.pop(role) for role in ("BOS", "first token") if role in own}
    own.pop("self", None)
    for family in (roles.general, own, sinks):
        best = max(((float(mass[head.layer, head.head]), role) for role, mass in family.items()), default=(0.0, ""))
        if best[0] > MIN_MASS:
            return best[1]
    return None


def _add_feeders(pool: Pool, selection: Selection, roles: _Roles, *, select_feeders: bool, progress: Progress) -> None:
    """For every head whose attention depends on content, the component that moves its queries or keys most, which is
    then also selected if `select_feeders`.
    """
    positional = ("previous", "BOS", "first token", None)
    heads = [c for c in selection.components if selection.looks_at[c] not in positional]
    progress(f"what writes the queries and keys of {len(heads)} heads", 0, 0)
    losses = _attention_lost(pool, {head: roles.targets[selection.looks_at[head] or ""] for head in heads})
    for head in heads:
        for port in PORTS:
            lost = losses[head, port]
            best = max(lost, key=lambda sender: lost[sender], default=None)
            if best is None or lost[best] < MIN_ATTENTION_LOSS:
                continue
            selection.feeders[head, port] = best
            if select_feeders and best not in selection.reasons:
                path = f"its path into the {PORT_WORDS[port]} of {head}"
                selection.add(best, f"composition: {path} moves {lost[best]:.2f} of its attention")
                selection.looks_at[best] = _main_role(best, roles) if best.is_head else None


def _attention_lost(
    pool: Pool, targets: Mapping[Component, Target]
) -> dict[tuple[Component, AttentionPort], dict[Component, float]]:
    """How much attention leaves each head's target, by port and by the component below whose path is replaced."""
    paths = {head: HeadPaths(pool, head) for head in targets}
    lost: dict[tuple[Component, AttentionPort], dict[Component, float]] = {
        (head, port): {} for head in targets for port in PORTS
    }
    for sender in pool.model.components:
        readers = [head for head in targets if sender.layer < head.layer]
        if not readers:
            break
        change = pool.change(sender)
        for head in readers:
            for port, values in paths[head].masses_lost(change, targets[head]).items():
                lost[head, port][sender] = float(values.nanmean())
    return lost


def _add_paths(pool: Pool, selection: Selection, progress: Progress) -> None:
    """The strongest paths between selected components; those with too small an effect are not hypotheses."""
    parts, parallel = selection.components, pool.model.config.parallel
    pairs = [(a, b) for a in parts for b in parts if feeds(a, b, parallel=parallel)]
    if not pairs:
        return
    progress(f"cutting {len(pairs)} paths between {len(selection.components)} components", 0, 0)

    def measure(places: list[int], prompts: Tensor) -> Tensor:
        return pool.path_effects([edges_between(*pairs[i]) for i in places], prompts=prompts)

    places, effects = _strongest(pool, measure, len(pairs), keep=2 * PATHS)
    for place, effect in list(zip(places, effects.mean(0).tolist(), strict=True))[:PATHS]:
        if not abs(effect) >= MIN_CUT_EFFECT * pool.scale:  # none counts where shares are not defined
            break
        selection.paths[pairs[place]] = effect
