"""Which components are studied, and the hypotheses about them: decided on the selection pool alone.

1. Screening: every component is patched on two prompts, those that may cost more than the bar on four.
2. The set: as many heads and MLPs as the behaviour needs (`discovery.account`). Claims are made about its members in
   order of effect, up to a number that can be afforded; the account lists the others.
3. Groups: heads that move the same role to the answer position and may stand in for each other (`propose_groups`), and
   pairs of heads that cost more together than the sum by values of other prompts (`add_pairs`): both in `grouping`.
   They are studied beside the set, for alone they may cost nothing.
4. Composition: for heads whose attention depends on content, the component whose path into the queries or keys moves
   their attention most; it is studied beside the set where it is not in it.
5. Paths: of all paths from one selected component to another, those with the largest effect, screened likewise.

The hypothesised role of each head, its feeders and the paths are tested on other prompts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.components import Component
from vesalius.discovery.account import NamedSet, SetRuns, choose_set, given_set, measure_account
from vesalius.discovery.head_tests import Target, masses
from vesalius.documents.account import BAR, Account
from vesalius.documents.view import join_names
from vesalius.documents.whole import LEAST_MOST, MOST_SHARE
from vesalius.explanations.claims.attending import MIN_ATTENTION_LOSS
from vesalius.explanations.claims.base import MIN_CUT_EFFECT, MIN_MASS, MIN_SAMPLES
from vesalius.explanations.claims.paths import neighbours, written_figures
from vesalius.explanations.laboratory import NaturalLab
from vesalius.explanations.laboratory.runs import (
    NAMES,
    PORT_WORDS,
    PORTS,
    SINKS,
    AttentionPort,
    HeadPaths,
    edges_between,
    feeds,
)
from vesalius.explanations.natural.grouping import (
    CANDIDATES,
    Groups,
    Redundancy,
    add_pairs,
    is_unclear,
    lower_end_of,
    propose_groups,
)
from vesalius.explanations.natural.ideas import Ideas, propose_ideas
from vesalius.model.specimen import Specimen
from vesalius.progress import Progress, silent
from vesalius.statistics import LOOKS

#: Prompts that every candidate is measured on, and those that the ones within reach are.
FIRST_PROMPTS, SCREENING_PROMPTS = 2, 4
#: Models of at most so many heads have all of them tried for groups.
FEW_HEADS = 24
#: Components that claims are made about, where the caller sets no limit: of the built-in scientist, and of agents.
DESCRIBED, DESCRIBED_BY_AGENTS = 24, 12
#: Senders whose paths into a head are replaced in one batch.
SENDERS = 8
#: Paths between selected components that are measured again for evidence.
PATHS = 12


@dataclass
class ChosenComponents:
    """The components under study in order of computation, the reasons for them, and the hypotheses about them.

    `named` is the set that the account is about (None where there is no range to give shares of), `suspects` are all
    components that may cost more than the bar. `looks_at` names the token role a head attends to (None: no single one),
    `feeders[head, port]` the component that writes its queries or keys, `effect` the mean effect on the selection lab,
    `paths` pairs of components with the effect of the path between them, `groups` the heads that may move the same
    role, `ideas` where components act and what MLPs may do. `unclear` are questions that a few prompts leave too close
    to call: a component, the kind of claim, and what it would be about.
    """

    named: NamedSet | None = None
    suspects: list[Component] = field(default_factory=list)
    components: list[Component] = field(default_factory=list)
    reasons: dict[Component, str] = field(default_factory=dict)
    looks_at: dict[Component, str | None] = field(default_factory=dict)
    feeders: dict[tuple[Component, AttentionPort], Component] = field(default_factory=dict)
    effect: dict[Component, float] = field(default_factory=dict)
    paths: dict[tuple[Component, Component], float] = field(default_factory=dict)
    groups: Groups = field(default_factory=Groups)
    unclear: set[tuple[Component, str, str]] = field(default_factory=set)
    ideas: Ideas = field(default_factory=Ideas)

    def add(self, component: Component, reason: str) -> None:
        """Select a component, or add one more reason for it."""
        self.reasons[component] = f"{self.reasons[component]}; {reason}" if component in self.reasons else reason
        self.components = sorted(self.reasons)

    def account(
        self, specimen: Specimen, *, seed: int, runs: SetRuns | None = None, progress: Progress = silent
    ) -> Account | None:
        """What the set carries, on prompts that chose nothing; None where shares are not defined. `runs` are those of
        its prompts, where they have another use.
        """
        if self.named is None:
            return None
        beside = set(self.components) - set(self.named.components)
        measured = measure_account(
            specimen, self.named, beside=beside, suspects=self.suspects, runs=runs, seed=seed, progress=progress
        )
        return measured.described(map(str, self.components))


@dataclass(frozen=True)
class StudyLimits:
    """How much is studied: the set has at most `top` components (None: as many as `discover` looks for), claims are
    made about at most `described` of its members, and `n` prompts at least report on it.
    """

    top: int | None
    described: int
    n: int

    @classmethod
    def of(cls, top: int | None, n: int, *, agents: bool = False) -> "StudyLimits":
        """The usual ones; a number that was asked for is the limit of both."""
        usual = DESCRIBED_BY_AGENTS if agents else DESCRIBED
        report = n if n < LOOKS[-1] else 0  # the usual most of a claim asks for no larger report
        return cls(top, usual if top is None else top, report)

    def most(self, components: int) -> int:
        """The largest set in a model of so many components: what can be described is never too large."""
        return self.top or max(self.described, LEAST_MOST, round(MOST_SHARE * components))


def choose(
    specimen: Specimen,
    lab: NaturalLab,
    *,
    given: Sequence[Component] | None,
    limits: StudyLimits,
    usable: bool,
    seed: int,
    progress: Progress = silent,
) -> ChosenComponents:
    """The set that is explained, and those of its members that claims are made about; `given` fixes both. Where the
    contrast is not `usable` there is no share to keep, and the strongest components are described.
    """
    chosen = ChosenComponents()
    screen(lab, chosen, progress)
    for component in given or ():
        chosen.add(component, "the user, by name")
    if usable:
        if given is not None:
            chosen.named = given_set(specimen, given, n=limits.n, seed=seed)
        else:
            sizes = {"most": limits.most(len(lab.model.components)), "n": limits.n}
            chosen.named = choose_set(specimen, chosen.effect, **sizes, seed=seed, progress=progress)
    if given is None:
        members = lab.model.components if chosen.named is None else chosen.named.components
        order = sorted(members, key=lambda part: -abs(chosen.effect[part]))
        within, unit = f"set of {len(members)}" if chosen.named else "model", lab.recordings.readout.unit
        for rank, part in enumerate(order[: limits.described], 1):
            chosen.add(part, f"effect rank {rank} in the {within}: {chosen.effect[part]:+.2f} {unit}")
    return chosen


def add_hypotheses(
    lab: NaturalLab, selection: ChosenComponents, *, extend: bool, progress: Progress, groups: bool = True
) -> None:
    """Make the hypotheses about the chosen components; with `extend` backups and feeders are studied as well. Without
    `groups` no heads are looked for that back each other up, as where there is no score to lose.
    """
    progress("attention of every head", 0, 0)
    roles = _role_masses(lab)
    if groups:
        _add_groups(lab, selection, add_members=extend, progress=progress)
    for component in selection.components:
        selection.looks_at[component] = _main_role(component, roles) if component.is_head else None
    _add_feeders(lab, selection, roles, select_feeders=extend, progress=progress)
    _add_paths(lab, selection, progress)
    if groups:
        selection.ideas = propose_ideas(lab, selection.components, selection.effect, selection.paths, progress)
        written = [part for part in selection.components if is_unclear(written_figures(lab, part))]
        selection.unclear |= {(part, "writes_answer", "") for part in written}
    for head, role in selection.looks_at.items():
        if role is not None and is_unclear([(lab.mass(head, roles.targets[role]), MIN_MASS)]):
            selection.unclear.add((head, "attends", role))


def screen(lab: NaturalLab, selection: ChosenComponents, progress: Progress) -> None:
    """Patch every component alone: its mean effect, and whether it may cost more than the bar. After a few prompts only
    those go on whose interval reaches the bar. The bar is a share of what everything costs on those few prompts where
    that is less than on all: prompts of a small score have small effects.
    """
    parts = list(lab.model.components)
    ranges = lab.patch_effects([parts])[:, 0]
    left, done = list(range(len(parts))), 0
    effects = torch.zeros(0, len(parts))
    for n in (FIRST_PROMPTS, SCREENING_PROMPTS):
        if not left or done >= lab.n:
            break
        progress(f"replacing each of {len(left)} components on a few prompts", 0, 0)
        prompts = torch.arange(lab.n)[done:n]
        effects = torch.cat([effects, lab.patch_effects([[parts[i]] for i in left], prompts=prompts)])
        done = min(n, lab.n)
        selection.effect |= {parts[i]: float(x) for i, x in zip(left, effects.mean(0), strict=True)}
        bar = BAR * min(abs(float(ranges.mean())), abs(float(ranges[:done].mean())))
        near = _within_reach(effects, bar) if len(effects) > 1 else list(range(len(left)))
        left, effects = [left[i] for i in near], effects[:, near]
    selection.suspects = [parts[i] for i in left]


def _strongest(
    lab: NaturalLab, measure: Callable[[list[int], Tensor], Tensor], n: int, *, keep: int
) -> tuple[list[int], Float[Tensor, "prompt kept"]]:
    """Which `keep` of `n` candidates have the largest mean effects on the screening prompts, strongest first, and those
    effects. After the first prompts only those go on whose interval reaches the last one kept.
    """
    first, second = torch.arange(lab.n)[:SCREENING_PROMPTS].tensor_split((FIRST_PROMPTS,))
    left = list(range(n))
    effects = measure(left, first)
    if len(second) and len(first) > 1:
        size = effects.mean(0).abs()
        near = _within_reach(effects, float(size.sort(descending=True).values[min(keep, len(size)) - 1]))
        left, effects = [left[i] for i in near], effects[:, near]
        effects = torch.cat([effects, measure(left, second)])
    order = effects.mean(0).abs().argsort(descending=True, stable=True)[:keep].tolist()
    return [left[i] for i in order], effects[:, order]


def _within_reach(effects: Float[Tensor, "prompt candidate"], bar: float) -> list[int]:
    """The candidates whose mean effect may be as large as the bar: two standard errors more would take it there. The
    standard error of few prompts may be small by chance, so it counts at least as the median of all. An effect that is
    not a number leaves its candidate within reach and the others as they are.
    """
    size, error = effects.mean(0).abs(), effects.std(0) / len(effects) ** 0.5
    error = error.clamp(min=float(error.nanmedian()))
    return (~(size + 2 * error < bar)).nonzero()[:, 0].tolist()


@dataclass(frozen=True)
class _Roles:
    """Mean attention masses over the selection pool by role, and the targets they were measured on."""

    general: dict[str, Float[Tensor, "layer head"]]
    answer: dict[str, Float[Tensor, "layer head"]]
    targets: dict[str, Target]


def _role_masses(lab: NaturalLab) -> _Roles:
    layers = range(lab.model.config.n_layers)

    def means(targets: dict[str, Target]) -> dict[str, Tensor]:
        return {
            role: torch.stack([masses(lab.runs.pattern(layer), target).nanmean(0) for layer in layers])
            for role, target in targets.items()
            if int(target.any(-1).any(-1).sum()) >= min(MIN_SAMPLES, lab.n)  # what few prompts have shows nothing
        }

    general, answer = lab.general_targets, lab.answer_targets
    return _Roles(means({role: general[role] for role in NAMES}), means(answer), answer | general)


def _add_groups(lab: NaturalLab, selection: ChosenComponents, *, add_members: bool, progress: Progress) -> None:
    """Group heads by the role they move. Beside those selected the next strongest are tried, if `add_members`, and
    those that may be a backup are selected too.
    """
    heads = [component for component in selection.components if component.is_head]
    if add_members:
        others = [component for component in selection.effect if component.is_head and component not in heads]
        others.sort(key=lambda head: -abs(selection.effect[head]))
        few = lab.model.config.n_layers * lab.model.config.n_heads <= FEW_HEADS
        heads += others if few else others[: max(0, CANDIDATES - len(heads))]
    selection.groups = propose_groups(lab, heads, progress)
    add_pairs(lab, selection.groups, selection.effect, None if add_members else heads, progress)
    for head, found in selection.groups.joint.items():
        if head not in selection.reasons:
            selection.add(head, f"group: {_why(found[0])}")


def _why(found: Redundancy) -> str:
    """Why a component is studied beside others."""
    others = join_names(found.others)
    return f"it moves {found.role} as {others} do" if found.role else f"it stands in for {others}"


def _main_role(head: Component, roles: _Roles) -> str | None:
    """The role with most of a head's attention: a general one, one of the behaviour, or BOS, in this order."""
    own = {role: mass for role, mass in roles.answer.items() if role in roles.targets and role not in NAMES}
    sinks = {role: own.pop(role) for role in SINKS if role in own}
    own.pop("self", None)
    for family in (roles.general, own, sinks):
        best = max(((float(mass[head.layer, head.head]), role) for role, mass in family.items()), default=(0.0, ""))
        if best[0] > MIN_MASS:
            return best[1]
    return None


def _add_feeders(
    lab: NaturalLab, selection: ChosenComponents, roles: _Roles, *, select_feeders: bool, progress: Progress
) -> None:
    """For every head whose attention depends on content, the component that moves its queries or keys most, which is
    then also selected if `select_feeders`.
    """
    positional = ("previous", *SINKS, None)
    heads = [c for c in selection.components if selection.looks_at[c] not in positional]
    progress(f"what writes the queries and keys of {len(heads)} head{'s' * (len(heads) != 1)}", 0, 0)
    losses = _attention_lost(lab, {head: roles.targets[selection.looks_at[head] or ""] for head in heads})
    for head in heads:
        for port in PORTS:
            lost = losses[head, port]
            means = {sender: float(values.mean()) for sender, values in lost.items() if len(values)}
            best = max(means, key=lambda sender: means[sender], default=None)
            if best is None or means[best] < MIN_ATTENTION_LOSS:
                continue
            selection.feeders[head, port] = best
            rival = max((means.get(part, 0.0) for part in neighbours(lab, best, head)), default=0.0)
            if is_unclear([(lost[best], max(MIN_ATTENTION_LOSS, rival))]):
                selection.unclear.add((head, "composes", f"{PORT_WORDS[port]}, {best}"))
            if select_feeders and best not in selection.reasons:
                path = f"its path into the {PORT_WORDS[port]} of {head}"
                selection.add(best, f"composition: {path} moves {means[best]:.2f} of its attention")
                selection.looks_at[best] = _main_role(best, roles) if best.is_head else None


def _attention_lost(
    lab: NaturalLab, targets: Mapping[Component, Target]
) -> dict[tuple[Component, AttentionPort], dict[Component, Float[Tensor, " prompt"]]]:
    """How much attention leaves each head's target, by port and by the component below whose path is replaced."""
    paths = {head: HeadPaths(lab.runs, head) for head in targets}
    targets = {head: target.to(lab.model.device) for head, target in targets.items()}
    order: list[tuple[Component, AttentionPort, Component]] = []
    values: list[Float[Tensor, "change prompt"]] = []
    for layer, of_layer in groupby(lab.model.components, key=lambda part: part.layer):
        readers, senders = [head for head in targets if layer < head.layer], list(of_layer)
        if not readers:
            break
        for start in range(0, len(senders), SENDERS):
            some = senders[start : start + SENDERS]
            changes = torch.stack([lab.runs.change(sender) for sender in some])
            for head in readers:
                for port, lost in paths[head].masses_lost_each(changes, targets[head]).items():
                    order += [(head, port, sender) for sender in some]
                    values.append(lost.to(lab.model.device))
    by_port: dict[tuple[Component, AttentionPort], dict[Component, Float[Tensor, " prompt"]]] = {
        (head, port): {} for head in targets for port in PORTS
    }
    # The device is waited for once.
    for (head, port, sender), lost in zip(order, torch.cat(values).cpu() if values else (), strict=True):
        by_port[head, port][sender] = lost[~lost.isnan()]
    return by_port


def _add_paths(lab: NaturalLab, selection: ChosenComponents, progress: Progress) -> None:
    """The strongest paths between selected components; those whose effect is too small, or not clearly large enough on
    these prompts, are not hypotheses.
    """
    parts, parallel = selection.components, lab.model.config.parallel
    pairs = [(a, b) for a in parts for b in parts if feeds(a, b, parallel=parallel)]
    if not pairs:
        return
    progress(f"cutting {len(pairs)} paths between {len(selection.components)} components", 0, 0)

    def measure(places: list[int], prompts: Tensor) -> Tensor:
        return lab.path_effects([edges_between(*pairs[i]) for i in places], prompts=prompts)

    places, effects = _strongest(lab, measure, len(pairs), keep=2 * PATHS)
    if len(effects) < lab.n:
        effects = torch.cat([effects, measure(places, torch.arange(len(effects), lab.n))])
    for place, effect in zip(places, effects.T, strict=True):
        mean, (sender, receiver) = float(effect.mean()), pairs[place]
        clear = lower_end_of(effect * (1.0 if mean >= 0 else -1.0))
        least = MIN_CUT_EFFECT * lab.scale  # none where shares are not defined
        if len(selection.paths) >= PATHS:
            break
        if clear >= least:
            selection.paths[sender, receiver] = mean
        elif abs(mean) >= least:
            selection.unclear.add((sender, "feeds" if mean >= 0 else "hinders", str(receiver)))
