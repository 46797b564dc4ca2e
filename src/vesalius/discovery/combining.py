"""Methods that build on the rankings of others: `ensemble` and `elimination`.

`ensemble` asks several methods on the same prompts and takes their mean place, or the one that gives the smallest
circuit on other prompts. `elimination` starts from the best part of one ranking and removes, round by round, the group
of components that is attributed least in what is left: with all others replaced already, a slope says what a component
does in the circuit, not what it does in the model.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.components import Component
from vesalius.discovery.attribution import smooth_readout
from vesalius.discovery.method import REGISTERED, Method, MethodInput, Scores, signed_scores
from vesalius.errors import BadInput, choices
from vesalius.intervene.attribution import RULES, Rule, rule_hooks
from vesalius.intervene.estimate import Workload, attribution_peak
from vesalius.intervene.masking import masked_scores
from vesalius.intervene.readout import Readout
from vesalius.intervene.values import activations
from vesalius.model.config import Config
from vesalius.model.transformer import Transformer
from vesalius.options.records import option

#: Prompts of one backward pass.
ROWS = 8
#: Models of up to this many components are eliminated from as a whole.
SMALL = 40


def component_method(name: str, asked_by: str) -> Method:
    """The method of that name that another one builds on; refused where it ranks heads only or builds on others."""
    known = [one for one, kind in REGISTERED.items() if not kind.heads_only and not issubclass(kind, _OfOthers)]
    if name not in known:
        raise BadInput(f"{asked_by} {name!r} cannot be built on; choose from {choices(known)}")
    return REGISTERED[name]()


def by_place(order: Sequence[Component]) -> dict[Component, float]:
    """Scores of an order, best first: one over the place."""
    return {part: 1 / (1 + place) for place, part in enumerate(order)}


@dataclass(frozen=True)
class _OfOthers(Method):
    """A method that builds on others, without edges of its own."""

    scores_edges = False
    estimates = True
    sees_position = False

    @property
    def asked(self) -> list[Method]:
        """The methods that it builds on."""
        raise NotImplementedError

    def require(self, config: Config) -> None:
        """What they refuse."""
        for method in self.asked:
            method.require(config)

    def cost(self, work: Workload) -> float:
        """What they cost."""
        return sum(method.cost(work) for method in self.asked)

    def peak(self, work: Workload) -> int:
        """The largest of theirs."""
        return max(method.peak(work) for method in self.asked)


@dataclass(frozen=True)
class Ensemble(_OfOthers):
    """The mean place of components in the rankings of several methods, or the ranking with the smallest circuit."""

    name = "ensemble"
    meaning = "A component's score is one over its mean place in several rankings; by `rule` best, that of the first."

    methods: str = option("eap-ig+relp+relp-qk", "The methods that are asked, with + between them.")
    rule: str = option("rank", "rank: their mean place. best: the one that gives the smallest circuit.")

    def __post_init__(self) -> None:
        if self.rule not in ("rank", "best"):
            raise BadInput(f"`rule` {self.rule!r} does not exist; choose rank or best")
        if len(self.asked) < 2:
            raise BadInput(f"`methods` {self.methods!r} names one method; name several, such as eap-ig+relp")

    @property
    def asked(self) -> list[Method]:
        """The methods by their names."""
        return [component_method(name, "`methods`") for name in self.methods.split("+")]

    def score(self, given: MethodInput) -> Scores:
        """The rankings of all on the same prompts, combined."""
        rankings = {method.name: method.score(given) for method in self.asked}
        forwards = sum(one.forwards for one in rankings.values())
        if self.rule == "best":
            return replace(next(iter(rankings.values())), rankings=rankings, forwards=forwards)
        model = given.specimen.model
        places = torch.stack([_places(model, one) for one in rankings.values()]).double().mean(0)
        scores = dict(zip(model.components, (1 / (1 + places)).tolist(), strict=True))
        return Scores(scores, {}, forwards, "one over the mean place")


@dataclass(frozen=True)
class Elimination(_OfOthers):
    """Groups of components removed one after the other, each time those that are attributed least in what is left."""

    name = "elimination"
    meaning = "A component's score is one over its place: what was removed last comes first."

    start: str = option("sweep", "The method whose best components are eliminated from.")
    by: str = option("relp-qk", "The slope that attributes what is left: gradient, relp, relp-qk or gim.")
    share: float = option(1 / 3, "The part of the components that is started from (all of a small model).")
    group: float = option(0.2, "The part of what is left that goes in each round.")

    def __post_init__(self) -> None:
        if self.by not in RULES:
            raise BadInput(f"`by` {self.by!r} is no slope; choose {choices(RULES)}")
        if not 0 < self.share <= 1 or not 0 < self.group < 1:
            raise BadInput(f"`share` {self.share:g} and `group` {self.group:g}: give shares between 0 and 1")
        self.asked  # noqa: B018 (refuses a name that cannot be built on)

    @property
    def asked(self) -> list[Method]:
        """The method that it starts from."""
        return [component_method(self.start, "`start`")]

    def begins_with(self, n: int) -> int:
        """Of `n` components as many are started from."""
        return n if n <= SMALL else max(1, round(self.share * n))

    def rounds(self, n: int) -> list[int]:
        """How many components of `n` go in each round, until one is left."""
        gone = []
        while n > 1:
            gone.append(min(n - 1, max(1, math.floor(self.group * n))))
            n -= gone[-1]
        return gone

    def score(self, given: MethodInput) -> Scores:
        """Start from a ranking and remove the rest in groups."""
        model, first = given.specimen.model, self.asked[0].score(given)
        places = _places(model, first)
        order = [model.components[i] for i in places.argsort(stable=True).tolist()]
        left, removed = order[: self.begins_with(len(order))], order[self.begins_with(len(order)) :]
        readout, passes = smooth_readout(model, given.material)
        groups = self.rounds(len(left))
        for done, group in enumerate(groups):
            if given.progress:
                given.progress("eliminating components", done, len(groups))
            effects = in_what_is_left(given, left, readout, self.by)  # type: ignore[arg-type]
            left = [left[i] for i in effects.argsort(descending=True, stable=True).tolist()]
            left, removed = left[:-group], [*left[-group:], *removed]
        forwards = first.forwards + passes + 4 * len(groups)
        return Scores(by_place([*left, *removed]), {}, forwards, "one over the place")

    def cost(self, work: Workload) -> float:
        """The ranking's, and a forward and a backward pass and the counterfactual's for each round."""
        rounds = len(self.rounds(self.begins_with(len(work.model.components))))
        return super().cost(work) + (2 if work.finite else 0) + 4 * rounds

    def peak(self, work: Workload) -> int:
        """That of edge attribution, which keeps as many activations for a backward pass, if the ranking has no more."""
        sizes = (work.model.config, work.dtype, work.sizes)
        return max(super().peak(work), attribution_peak(*sizes, steps=2, rule="gradient", memory=work.memory))


def _places(model: Transformer, scores: Scores) -> Float[Tensor, " component"]:
    """The place of every component in a ranking by sign, 0 for the most helpful."""
    means = signed_scores(model, model.components, scores).double().mean(0)
    return means.argsort(descending=True, stable=True).argsort()


def in_what_is_left(
    given: MethodInput, left: Sequence[Component], readout: Readout, rule: Rule
) -> Float[Tensor, " component"]:
    """What replacing each component of a circuit is estimated to cost, all others being replaced already."""
    model, material = given.specimen.model, given.material
    places = {part: place for place, part in enumerate(model.components)}
    members = torch.tensor([places[part] for part in left])
    effects = torch.zeros(len(left))
    for rows in torch.arange(len(material.batch)).split(ROWS):
        mask = torch.zeros(len(model.components))
        mask[members] = 1.0
        mask.requires_grad_()
        where = None if material.where is None else material.where[rows]
        scores = masked_scores(
            model,
            material.batch.take(rows),
            activations(model, material.counterfactual.take(rows).to(model.device)),
            readout.take(rows),
            mask,
            where=where,
            hooks=rule_hooks(model, rule),
        )
        scores.sum().backward()
        assert mask.grad is not None
        effects += mask.grad[members].cpu()
    return effects / len(material.batch)
