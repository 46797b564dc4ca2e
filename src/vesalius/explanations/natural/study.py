"""The measurements on held-out prompts: what each selected component does, one value per prompt.

Effects are shares of the mean clean logit difference. A component is replaced alone (*solo*), at the answer position
only, and together with its group: the other heads with the same hypothesised role, or else the strongest components of
its kind. Its *gain* is its effect once the rest of the group is replaced, minus its effect alone: positive for a
backup, negative if the group needs all its members.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.behaviours.metrics import LOGIT_DIFFERENCE, metric_name
from vesalius.components import Component
from vesalius.discovery.attention import Target, masses
from vesalius.documents.claims import NOT_DEFINED
from vesalius.explanations.claims import Lab
from vesalius.explanations.claims.ablation import measure_necessary
from vesalius.explanations.claims.base import first_interval, mean_and_interval, rounded
from vesalius.explanations.claims.laboratory import FIRST_LOOK
from vesalius.explanations.claims.reading import MIN_CUT_EFFECT
from vesalius.explanations.natural.deciding import instruments_of
from vesalius.explanations.natural.lens import direct_attribution, logit_difference_of
from vesalius.explanations.natural.paths import edges_between
from vesalius.explanations.natural.pool import Pool
from vesalius.explanations.natural.selection import Selection
from vesalius.explanations.natural.token_roles import at_answer, everywhere, without_role
from vesalius.statistics import above_zero, mean_apart_from_zero

#: Members of the group of a component whose role no other component has.
GROUP = 4
#: Components with a larger effect than this share leave too little score to lose and are not put into such a group.
TOO_STRONG = 0.5
SINKS = ("BOS", "first token")
#: Prompts for figures that no verdict rests on.
REPORTED = 8
PerPrompt = Float[Tensor, " prompt"]
#: Sender (None: the token embeddings), receiver, and one of its inputs (None: all).
PathKey = tuple[Component | None, Component, str | None]


@dataclass(frozen=True)
class Group:
    """Components that are replaced together; `members` includes the component whose group it is."""

    name: str
    members: tuple[Component, ...]


class Study:
    """Everything measured about the selected components on held-out prompts.

    The lab draws the same prompts (same seed, same split), so typed claims and the others are about the same cases.
    `components` are those of the selection that are measured one by one; default: all.
    """

    def __init__(
        self, pool: Pool, lab: Lab, selection: Selection, *, components: Sequence[Component] | None = None
    ) -> None:
        self.pool, self.lab, self.selection = pool, lab, selection
        self.components = selection.components if components is None else list(components)
        self.general, self.answer = everywhere(pool), at_answer(pool)
        self.tools = instruments_of(lab, pool)

    def solo(self, component: Component) -> PerPrompt:
        """Effect of replacing only this component."""
        return self.lab.effect([component], "resample")

    def measure_replacements(self, components: Sequence[Component]) -> None:
        """Replace these components in as many ways as it takes to tell whether they are necessary, one batch for each
        way, then the groups, with and without the component, of those that are not: sets that begin alike share their
        runs.
        """
        groups = [(one, self.group(one).members) for one in measure_necessary(self.lab, components)]
        without = [[member for member in members if member != component] for component, members in groups]
        self.lab.measure([*(members for _, members in groups), *(rest for rest in without if rest)], ["resample"])

    def flips(self, component: Component) -> float:
        """Share of prompts whose answer changes when it is replaced."""
        clean, edited = self.pool.clean > 0, self.lab.scores([component], "resample") > 0
        return float((clean & ~edited).float().mean())

    def at_answer(self, component: Component) -> PerPrompt:
        """Effect of replacing it at the answer position only."""
        return self._at_answer[:, self._place[component]]

    def restored(self, component: Component) -> PerPrompt:
        """What patching its clean value into the counterfactual run restores, on the first `REPORTED` prompts."""
        return self._restored[:, self._place[component]]

    def direct(self, component: Component) -> PerPrompt:
        """Effect of replacing it on its direct path to the logits only."""
        return self._direct[:, self._place[component]]

    def lens(self, component: Component, *, shuffle: bool = False) -> PerPrompt:
        """Its direct logit attribution, as a share of the clean score, or where that is not a logit difference of the
        difference that the final residual stream makes.
        """
        return direct_attribution(self.pool, component, shuffle=shuffle) / self._lens_scale

    @cached_property
    def _lens_scale(self) -> float:
        if metric_name(self.pool.prompts.metric) == LOGIT_DIFFERENCE:
            return self.pool.scale
        return above_zero(mean_apart_from_zero(logit_difference_of(self.pool, self.pool.final_resid)))

    def group(self, component: Component) -> Group:
        """The components it is replaced together with."""
        role = self.selection.looks_at.get(component)
        peers = self.selection.looking_at(role) if role and role not in SINKS else []
        if len(peers) > 1:
            return Group(f"heads that look at {role}", tuple(peers))
        same_kind = [c for c in self.selection.components if c.is_head == component.is_head and c != component]
        same_kind.sort(key=lambda c: -self.selection.effect.get(c, 0.0))
        limit = TOO_STRONG * self.pool.scale
        strongest = [c for c in same_kind if 0 < self.selection.effect.get(c, 0.0) < limit][:GROUP]
        name = f"the strongest {'heads' if component.is_head else 'MLPs'}"
        return Group(name, tuple(sorted([component, *strongest])))

    def gain(self, component: Component, rest: Sequence[Component]) -> PerPrompt:
        """Its effect with `rest` replaced minus its effect alone."""
        both = self.lab.effect([*rest, component], "resample")
        return both - self.lab.effect(rest, "resample") - self.solo(component)

    def target(self, head: Component) -> Target | None:
        """The (query, key) pairs a head is hypothesised to attend to."""
        role = self.selection.looks_at.get(head)
        if role is None:
            return None
        return self.answer[role] if role in SINKS or role not in self.general else self.general[role]

    def mass(self, head: Component, target: Target) -> PerPrompt:
        """A head's attention on a target, for the prompts that have one."""
        return finite(masses(self.pool.pattern(head.layer)[:, [head.head]], target)[:, 0])

    def numbers(self, component: Component, *, grouped: bool) -> dict[str, object]:
        """The profile for JSON: means with intervals, shares of the clean score, attention mass by role; with its group
        replaced, if `grouped`.
        """
        group = self.group(component)
        rest = [c for c in group.members if c != component]
        effects = {
            "solo": self.solo(component),
            "at_answer": self.at_answer(component),
            "direct": self.direct(component),
            "lens": self.lens(component),
            "restored": self.restored(component),
        }
        if rest and grouped:
            effects["joint"] = self.lab.effect(group.members, "resample")
            effects["joint_without"] = self.lab.effect(rest, "resample")
            effects["gain"] = self.gain(component, rest)
        return {
            "chosen_by": self.selection.reasons[component],
            "unit": self._unit,
            "clean": rounded(self.pool.clean.mean()),
            "effects": {name: self._interval(values) for name, values in effects.items()},
            "n": {name: len(values) for name, values in effects.items()},
            "flips": rounded(self.flips(component)),
            "group": {"name": group.name, "members": [str(c) for c in group.members]},
            "attention": self._attention(component) if component.is_head else None,
        }

    @property
    def _unit(self) -> str:
        metric = metric_name(self.pool.prompts.metric).replace("-", " ")
        return f"share of the clean {metric}" + (f" ({NOT_DEFINED})" if math.isnan(self.pool.scale) else "")

    def _attention(self, head: Component) -> dict[str, dict[str, list[float | None]]]:
        from_answer = {**self.answer, "elsewhere": without_role(self.answer, self.pool)}
        return {
            where: {
                role: self._interval(self.mass(head, target)) for role, target in targets.items() if bool(target.any())
            }
            for where, targets in (("answer", from_answer), ("everywhere", self.general))
        }

    def interval(self, values: PerPrompt) -> tuple[float, float, float]:
        """Mean and 95 % interval over the prompts."""
        return mean_and_interval(values, 0.95, seed=self.lab.seed)

    def _interval(self, values: PerPrompt) -> list[float | None]:
        return [rounded(x) for x in self.interval(values)]

    @cached_property
    def _place(self) -> dict[Component, int]:
        return {component: place for place, component in enumerate(self.components)}

    @cached_property
    def _singletons(self) -> list[list[Component]]:
        return [[component] for component in self.components]

    @cached_property
    def _at_answer(self) -> Float[Tensor, "prompt component"]:
        return self.pool.effects(self._singletons, positions=self.pool.answer_only) / self.pool.scale

    @cached_property
    def _restored(self) -> Float[Tensor, "prompt component"]:
        return self.pool.restored(self._singletons, n=REPORTED)

    @cached_property
    def _direct(self) -> Float[Tensor, "prompt component"]:
        paths = [edges_between(component, None) for component in self.components]
        return self.pool.path_effects(paths) / self.pool.scale

    def look_at_tokens(self, components: Sequence[Component]) -> None:
        """Take the first look of `from_tokens` at several components in one run."""
        if self.lab.looks_first:
            self.measure_paths([(None, component, None) for component in components], n=FIRST_LOOK)

    def from_tokens(self, component: Component) -> PerPrompt:
        """Effect of replacing the token embeddings on their direct path into it only; of few prompts where these show
        that it lies below the bar.
        """
        first = self._first_look((None, component, None))
        if first is not None:
            low, high = first_interval(first)
            if low > -MIN_CUT_EFFECT and high < MIN_CUT_EFFECT:
                return first
        return self._path((None, component, None))

    def path(self, sender: Component, receiver: Component, port: str | None = None) -> PerPrompt:
        """Effect of the path from one component into another, or into one input of it; cached."""
        return self._path((sender, receiver, port))

    def control_path(self, sender: Component, receiver: Component, *, sign: float) -> PerPrompt:
        """The same of a control, which counts with `sign`: of few prompts where these show that it cannot raise the
        bar.
        """
        first = self._first_look((sender, receiver, None))
        settled = first is not None and first_interval(sign * first)[1] < MIN_CUT_EFFECT
        return first if first is not None and settled else self.path(sender, receiver)

    def reported_path(self, sender: Component, receiver: Component, port: str) -> PerPrompt:
        """Effect of the path into one input on the first `REPORTED` prompts, for a figure that no verdict rests on."""
        self.measure_paths([(sender, receiver, port)], n=REPORTED)
        return self._paths[sender, receiver, port][:REPORTED]

    def measure_paths(self, keys: Sequence[PathKey], *, n: int | None = None) -> None:
        """Measure several paths in one batch on the first `n` prompts (default: all); nothing is run twice."""
        n = len(self.pool) if n is None else min(n, len(self.pool))
        missing: dict[int, list[PathKey]] = {}
        for key in dict.fromkeys(keys):
            known = len(self._paths.get(key, ()))
            if known < n:
                missing.setdefault(known, []).append(key)
        for known, some in missing.items():
            edges = [[e for e in edges_between(a, b) if port in (None, e.port)] for a, b, port in some]
            effects = self.pool.path_effects(edges, prompts=torch.arange(known, n)) / self.pool.scale
            for i, key in enumerate(some):
                self._paths[key] = torch.cat([self._paths[key], effects[:, i]]) if known else effects[:, i]

    def _path(self, key: PathKey) -> PerPrompt:
        self.measure_paths([key])
        return self._paths[key]

    def _first_look(self, key: PathKey) -> PerPrompt | None:
        if not self.lab.looks_first:
            return None
        self.measure_paths([key], n=FIRST_LOOK)
        return self._paths[key][:FIRST_LOOK]

    @cached_property
    def _paths(self) -> dict[PathKey, PerPrompt]:
        return {}


def finite(values: PerPrompt) -> PerPrompt:
    """The values that are not NaN."""
    return values[~torch.isnan(values)]
