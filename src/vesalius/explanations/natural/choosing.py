"""Which components are looked at, and what is suspected of them: decided on the selection pool alone.

1. Effect: every component is replaced on a few prompts, the strongest again on all of the pool. Of the `top` taken by
   absolute effect, two thirds are heads: an MLP reads one position only, so there is less to say about it.
2. Attention: heads whose attention lies mostly on one general role (previous token, earlier copies, what came after
   them), up to a few for each role, whether or not replacing one alone matters.
3. Composition: for heads that look by content, the component whose path into the queries or keys moves their
   attention most.

4. Paths: of all paths from one chosen component to another, those with the largest effect.

The suspected role of each head, its feeders and the paths are hypotheses; the evidence is taken on other prompts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.components import Component
from vesalius.discovery.attention import Target, masses
from vesalius.explanations.claims.reading import MIN_CUT_EFFECT, MIN_MASS
from vesalius.explanations.natural.composition import PORT_WORDS, PORTS, AttentionPort, HeadInputs, senders_below
from vesalius.explanations.natural.paths import edges_between, feeds
from vesalius.explanations.natural.places import NAMES, at_answer, everywhere
from vesalius.explanations.natural.pool import Pool
from vesalius.progress import Progress

#: Prompts of the first round over all components; the strongest get the whole pool.
SCREENED = 4
#: The second round takes this many times as many components as are wanted.
SECOND_ROUND = 3
#: Heads taken for one attention role.
PER_ROLE = 4
#: Attention that must leave the target before a path is suspected of making it, in mass.
SUSPECT_LOSS = 0.1
#: Paths between chosen components that are measured again for evidence.
PATHS = 12


@dataclass
class Choice:
    """What is looked at (`components`, in order of computation), why, and what is suspected.

    `looks_at` names the token role a head attends to (None: no single one), `feeders[head, port]` the component
    suspected of making its queries or keys, `effect` the mean effect on the selection pool, where it was measured,
    `paths` pairs of components with the effect of the path between them.
    """

    components: list[Component] = field(default_factory=list)
    why: dict[Component, str] = field(default_factory=dict)
    looks_at: dict[Component, str | None] = field(default_factory=dict)
    feeders: dict[tuple[Component, AttentionPort], Component] = field(default_factory=dict)
    effect: dict[Component, float] = field(default_factory=dict)
    paths: dict[tuple[Component, Component], float] = field(default_factory=dict)

    def add(self, component: Component, why: str) -> None:
        """Take a component, or note one more reason for it."""
        self.why[component] = f"{self.why[component]}; {why}" if component in self.why else why
        self.components = sorted(self.why)

    def looking_at(self, role: str) -> list[Component]:
        """The heads suspected of attending to a role."""
        return [c for c in self.components if self.looks_at.get(c) == role]


def choose(pool: Pool, *, named: Sequence[Component] | None, top: int, progress: Progress) -> Choice:
    """Choose components and hypotheses on the selection pool; `named` fixes the components."""
    choice = Choice()
    for component in named or ():
        choice.add(component, "named by the user")
    if named is None:
        _strongest(pool, choice, top, progress)
    else:
        measured = pool.effects([[c] for c in choice.components]).mean(0)
        choice.effect = dict(zip(choice.components, measured.tolist(), strict=True))
    progress("attention of every head", 0, 0)
    roles = _role_masses(pool)
    if named is None:
        _by_attention(pool, choice, roles)
    for component in choice.components:
        choice.looks_at[component] = _suspected(component, roles) if component.is_head else None
    _feeders(pool, choice, roles, adding=named is None, progress=progress)
    _paths(pool, choice, progress)
    return choice


def _strongest(pool: Pool, choice: Choice, top: int, progress: Progress) -> None:
    """Two rounds of replacing single components; two thirds of those taken are heads."""
    everything = pool.model.components
    screened, rest = torch.arange(len(pool)).tensor_split((SCREENED,))
    progress(f"replacing each of {len(everything)} components on {len(screened)} prompts", 0, 0)
    first = pool.effects([[c] for c in everything], prompts=screened)
    order = first.mean(0).abs().argsort(descending=True, stable=True).tolist()
    mlps = max(1, top // 3)
    for is_head, wanted in ((True, top - mlps), (False, mlps)):
        kind = [i for i in order if everything[i].is_head == is_head]
        again = kind[: SECOND_ROUND * wanted]
        progress(f"replacing the strongest {len(again)} {'heads' if is_head else 'MLPs'} on {len(pool)} prompts", 0, 0)
        columns = first[:, again]
        if len(rest):
            columns = torch.cat([columns, pool.effects([[everything[i]] for i in again], prompts=rest)])
        mean = columns.mean(0)
        choice.effect |= {everything[i]: float(x) for i, x in zip(again, mean, strict=True)}
        for rank, place in enumerate(mean.abs().argsort(descending=True, stable=True)[:wanted].tolist(), 1):
            what = f"{len(kind)} {'heads' if is_head else 'MLPs'}"
            choice.add(everything[again[place]], f"effect rank {rank} of {what}: {float(mean[place]):+.2f} logits")


@dataclass(frozen=True)
class _Roles:
    """Mean masses over the selection pool, [layer, head], and the targets behind them."""

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
    return _Roles(means({role: general[role] for role in NAMES}), means(answer), general | _own(answer, general))


def _own(answer: dict[str, Target], general: dict[str, Target]) -> dict[str, Target]:
    return {role: target for role, target in answer.items() if role not in general}


def _by_attention(pool: Pool, choice: Choice, roles: _Roles) -> None:
    """The heads that look mostly at one general role, strongest first."""
    for role, mass in roles.general.items():
        for place in mass.flatten().argsort(descending=True, stable=True)[:PER_ROLE].tolist():
            layer, head = divmod(place, pool.model.config.n_heads)
            if float(mass[layer, head]) > MIN_MASS:
                choice.add(Component(layer, head), f"attention: {float(mass[layer, head]):.2f} on {role}")


def _suspected(head: Component, roles: _Roles) -> str | None:
    """The role that holds most of a head's attention: a general one, one of the behaviour, or BOS, in this order."""
    own = {role: mass for role, mass in roles.answer.items() if role in roles.targets and role not in NAMES}
    sinks = {role: own.pop(role) for role in ("BOS", "first token") if role in own}
    own.pop("self", None)
    for family in (roles.general, own, sinks):
        best = max(((float(mass[head.layer, head.head]), role) for role, mass in family.items()), default=(0.0, ""))
        if best[0] > MIN_MASS:
            return best[1]
    return None


def _feeders(pool: Pool, choice: Choice, roles: _Roles, *, adding: bool, progress: Progress) -> None:
    """For every head that looks by content, whoever moves its queries or keys most; taken too, if `adding`."""
    positional = ("previous", "BOS", "first token", None)
    for head in [c for c in choice.components if choice.looks_at[c] not in positional]:
        progress(f"who makes the queries and keys of {head}", 0, 0)
        target = roles.targets[choice.looks_at[head] or ""]
        inputs = HeadInputs(pool, head)
        for port in PORTS:
            lost = {
                sender: float(inputs.mass_lost(sender, port, target).nanmean()) for sender in senders_below(pool, head)
            }
            best = max(lost, key=lambda sender: lost[sender], default=None)
            if best is None or lost[best] < SUSPECT_LOSS:
                continue
            choice.feeders[head, port] = best
            if adding and best not in choice.why:
                moved = f"moves {lost[best]:.2f} of its attention"
                choice.add(best, f"composition: its path into the {PORT_WORDS[port]} of {head} {moved}")
                choice.looks_at[best] = _suspected(best, roles) if best.is_head else None


def _paths(pool: Pool, choice: Choice, progress: Progress) -> None:
    """The strongest paths between chosen components; those too weak to be told from nothing make no hypothesis."""
    pairs = [(a, b) for a in choice.components for b in choice.components if feeds(a, b)]
    if not pairs:
        return
    progress(f"cutting {len(pairs)} paths between {len(choice.components)} components", 0, 0)
    screened = torch.arange(min(SCREENED, len(pool)))
    effect = pool.path_effects([edges_between(*pair) for pair in pairs], prompts=screened).mean(0)
    for place in effect.abs().argsort(descending=True, stable=True)[:PATHS].tolist():
        if abs(float(effect[place])) < MIN_CUT_EFFECT * pool.scale:
            break
        choice.paths[pairs[place]] = float(effect[place])
