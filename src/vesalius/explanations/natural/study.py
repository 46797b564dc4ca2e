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
from vesalius.explanations.claims.ablation import CONTROLS
from vesalius.explanations.claims.base import mean_and_interval, rounded
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
PerPrompt = Float[Tensor, " prompt"]


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
        """Replace these components, and the first controls of each, in every way, one batch for each way. Groups, with
        and without the component, go with them where they are resampled: sets that begin alike share their runs.
        """
        controls = [control for component in components for control in self.lab.matched(component, k=CONTROLS)]
        alone = [[component] for component in (*components, *controls)]
        groups = [(component, self.group(component).members) for component in components]
        without = [[member for member in members if member != component] for component, members in groups]
        together = [*(members for _, members in groups), *(rest for rest in without if rest)]
        self.lab.measure([*alone, *together], ["resample"])
        self.lab.measure(alone, self.lab.replacements)

    def flips(self, component: Component) -> float:
        """Share of prompts whose answer changes when it is replaced."""
        clean, edited = self.pool.clean > 0, self.lab.scores([component], "resample") > 0
        return float((clean & ~edited).float().mean())

    def at_answer(self, component: Component) -> PerPrompt:
        """Effect of replacing it at the answer position only."""
        return self._at_answer[:, self._place[component]]

    def restored(self, component: Component) -> PerPrompt:
        """What patching its clean value into the counterfactual run restores."""
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

    def numbers(self, component: Component) -> dict[str, object]:
        """The profile for JSON: means with intervals, shares of the clean score, attention mass by role."""
        group = self.group(component)
        rest = [c for c in group.members if c != component]
        effects = {
            "solo": self.solo(component),
            "at_answer": self.at_answer(component),
            "direct": self.direct(component),
            "lens": self.lens(component),
            "restored": self.restored(component),
        }
        if rest:
            effects["joint"] = self.lab.effect(group.members, "resample")
            effects["joint_without"] = self.lab.effect(rest, "resample")
            effects["gain"] = self.gain(component, rest)
        return {
            "chosen_by": self.selection.reasons[component],
            "unit": self._unit,
            "clean": rounded(self.pool.clean.mean()),
            "effects": {name: self._interval(values) for name, values in effects.items()},
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
        return self.pool.restored(self._singletons)

    @cached_property
    def _direct(self) -> Float[Tensor, "prompt component"]:
        paths = [edges_between(component, None) for component in self.components]
        return self.pool.path_effects(paths) / self.pool.scale

    def from_tokens(self, component: Component) -> PerPrompt:
        """Effect of replacing the token embeddings on their direct path into it only."""
        return self.pool.path_effects([edges_between(None, component)])[:, 0] / self.pool.scale

    def path(self, sender: Component, receiver: Component, port: str | None = None) -> PerPrompt:
        """Effect of the path from one component into another, or into one input of it; cached."""
        key = (sender, receiver, port)
        if key not in self._paths:
            edges = [edge for edge in edges_between(sender, receiver) if port in (None, edge.port)]
            self._paths[key] = self.pool.path_effects([edges])[:, 0] / self.pool.scale
        return self._paths[key]

    def measure_paths(self, keys: Sequence[tuple[Component, Component, str | None]]) -> None:
        """Measure several paths in one batch."""
        missing = [key for key in dict.fromkeys(keys) if key not in self._paths]
        if not missing:
            return
        edges = [[e for e in edges_between(a, b) if port in (None, e.port)] for a, b, port in missing]
        effects = self.pool.path_effects(edges) / self.pool.scale
        self._paths |= {key: effects[:, i] for i, key in enumerate(missing)}

    @cached_property
    def _paths(self) -> dict[tuple[Component, Component, str | None], PerPrompt]:
        return {}


def finite(values: PerPrompt) -> PerPrompt:
    """The values that are not NaN."""
    return values[~torch.isnan(values)]
