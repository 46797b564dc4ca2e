"""The laboratory that draws prompts until a claim is decided: the same experiments on 8 prompts, 16, 24 and so on.

All prompts are drawn at once and run part by part, a part as late as a claim asks for it: those of the first look,
those that the second look adds, and so on. Each part is a laboratory of its own that keeps what it ran, so that a
further look runs the new prompts only. A look is a laboratory on the prompts of all its parts; its intervals hold
together with those of the other looks (`statistics.errors_of_looks`). Means that take a component's place are those of
its part, and another prompt's token may come from any prompt of the draw.
"""

import hashlib
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Int
from scipy.special import stdtrit
from torch import Tensor

from vesalius.behaviours.behaviour import TooFewPrompts
from vesalius.behaviours.trial import Trial, trial
from vesalius.components import Component, Edge
from vesalius.discovery.head_tests import Target
from vesalius.explanations.laboratory.answers import Answers, Corrupted, Donor, Moved, NothingChanges
from vesalius.explanations.laboratory.base import CLAIM_SEED, FIRST_LOOK, PerPrompt, Replacement, Sets
from vesalius.explanations.laboratory.natural import END, REPORTED, How, Losses, NaturalLab, PathKey
from vesalius.explanations.laboratory.runs import Runs
from vesalius.model.specimen import Specimen
from vesalius.statistics import counted_interval, errors_of_looks, looks_up_to, skewed_interval

Result = TypeVar("Result")
#: Fewer values that are all equal, such as answers none of which is lost, have no interval.
LEAST_OF_EQUAL = 16


class LookPart(NaturalLab):
    """The prompts that one look adds, with what was run on them. Effects are in the unit of the metric: what they are
    shares of is known only of all prompts of a look.
    """

    def __init__(self, draw: NaturalLab, material: Trial, rows: slice) -> None:
        super().__init__(draw.model, material.take(rows), seed=draw.seed + rows.start, circuit=draw.circuit)
        self.cost, self.runs.cost, self._draw, self.rows = draw.cost, draw.cost, material, rows
        self._known: dict[Hashable, object] = {}

    @cached_property
    def scale(self) -> float:
        """1: effects are in the unit of the metric."""
        return 1.0

    def once(self, key: Hashable, measure: Callable[[], Result]) -> Result:
        """A measurement that is made once."""
        if key not in self._known:
            self._known[key] = measure()
        return self._known[key]  # pyrefly: ignore[bad-return]

    def corrupted(self, role: str) -> Corrupted:
        """The prompts with another prompt's token at a role, from anywhere in the draw."""
        if role not in self._corruptions:
            prompts, place = self._draw.prompts, self.place(role)
            assert prompts is not None
            places = {**prompts.roles, END: prompts.position}
            others = prompts.tokens[torch.arange(len(prompts)), places[role]].roll(-self.rows.start)
            self._corruptions[role] = Corrupted(self.runs, role, place, self.clean_answers, others=others)
        return self._corruptions[role]

    def moved_answers(
        self, group: Sequence[Component], role: str, at: str | None, suppressed: Sequence[Component], *, by_values: bool
    ) -> Answers:
        """The answers with a set patched from the corrupted run, or by its values at other positions only."""
        key = ("moved", frozenset(group), role, at, frozenset(suppressed), by_values)
        return self.once(key, lambda: self._moved_answers([group], role, at, suppressed, by_values=by_values)[0])


class JoinedRuns(Runs):
    """The runs of several parts as one; each part's own are kept apart, so nothing is held twice."""

    def __init__(self, parts: Sequence[LookPart], material: Trial) -> None:
        super().__init__(parts[0].model, material, parts[0].cost)
        self._parts = [part.runs for part in parts]

    def _joined(self, read: Callable[[Runs], Tensor]) -> Tensor:
        return torch.cat([read(part) for part in self._parts])

    @cached_property
    def clean(self) -> Float[Tensor, "*prompt"]:
        """As `Runs.clean`."""
        return self._joined(lambda part: part.clean)

    def change(self, component: Component | None) -> Float[Tensor, "prompt pos d_model"]:
        """As `Runs.change`."""
        return self._joined(lambda part: part.change(component))

    def clean_output(self, component: Component | None) -> Float[Tensor, "prompt pos d_model"]:
        """As `Runs.clean_output`."""
        return self._joined(lambda part: part.clean_output(component))

    def pattern(self, layer: int) -> Float[Tensor, "prompt head query key"]:
        """As `Runs.pattern`."""
        return self._joined(lambda part: part.pattern(layer))

    def source_pattern(self, layer: int) -> Float[Tensor, "prompt head query key"]:
        """As `Runs.source_pattern`."""
        return self._joined(lambda part: part.source_pattern(layer))

    def run_of(self, row: int, *, source: bool = False) -> Mapping[str, Tensor]:
        """As `Runs.run_of`."""
        for part in self._parts:
            if row < len(part):
                return part.run_of(row, source=source)
            row -= len(part)
        raise IndexError(row)

    def read_values(self, layer: int) -> Float[Tensor, "prompt pos kv_head d_head"]:
        """As `Runs.read_values`."""
        return self._joined(lambda part: part.read_values(layer))

    def resid(self, layer: int) -> Float[Tensor, "prompt pos d_model"]:
        """As `Runs.resid`."""
        return self._joined(lambda part: part.resid(layer))

    def mlp_input(self, layer: int, *, source: bool = False) -> Float[Tensor, "prompt pos d_model"]:
        """As `Runs.mlp_input`."""
        return self._joined(lambda part: part.mlp_input(layer, source=source))

    @property
    def final_resid(self) -> Float[Tensor, "prompt d_model"]:
        """As `Runs.final_resid`."""
        return self._joined(lambda part: part.final_resid)


class GrowingLab(NaturalLab):
    """A look at the first prompts of a draw; `looks` gives it and the larger ones."""

    def __init__(
        self, draw: NaturalLab, material: Trial, looks: tuple[int, ...], parts: Sequence[LookPart] = ()
    ) -> None:
        count = max(1, len(parts))
        seen = material.take(slice(looks[count - 1]))
        super().__init__(
            draw.model, seen, seed=draw.seed, circuit=draw.circuit, name=draw.name, vocabulary=draw.vocabulary
        )
        self.cost, self._draw, self._material, self._looks = draw.cost, draw, material, looks
        self.settled, self.alike = draw.settled, draw.alike
        self._parts = tuple(parts) or (LookPart(draw, material, slice(0, looks[0])),)
        self.runs = self._parts[0].runs if count == 1 else JoinedRuns(self._parts, seen)

    def looks(self) -> Iterator["GrowingLab"]:
        """This look and those at more prompts, which are run when something of them is asked for."""
        look = self
        yield look
        while (following := look.following) is not None:
            look = following
            yield look

    @cached_property
    def following(self) -> "GrowingLab | None":
        """The next look; None after the last."""
        count = len(self._parts)
        if count == len(self._looks):
            return None
        new = LookPart(self._draw, self._material, slice(self._looks[count - 1], self._looks[count]))
        return GrowingLab(self._draw, self._material, self._looks, (*self._parts, new))

    def at_least(self, n: int) -> "GrowingLab":
        """The first look at so many prompts, or the largest."""
        *_, last = self.looks()
        return next((look for look in self.looks() if look.n >= n), last)

    @property
    def most(self) -> int:
        """The prompts of the largest look."""
        return self._looks[-1]

    @property
    def looks_first(self) -> bool:
        """Whether there are prompts beside those of the first look."""
        return len(self._parts) > 1

    def ends(self, values: PerPrompt, level: float) -> tuple[float, float]:
        """The interval of a mean at this look, which holds together with those of all looks."""
        if self.n < LEAST_OF_EQUAL and bool((values == values[0]).all()):
            return math.nan, math.nan
        return skewed_interval(values.double().numpy(), level=self._level_here(level))

    def counted_ends(self, values: PerPrompt, level: float) -> tuple[float, float]:
        """As `ends`, of answers that are lost and gained."""
        return counted_interval(values.double().numpy(), level=self._level_here(level))

    def _level_here(self, level: float) -> float:
        return 1 - errors_of_looks(round(1 - level, 12), self._looks)[len(self._parts) - 1]

    def limit(self, place: int | None = None) -> float:
        """How many standard errors Student's interval reaches at a look (default: this one) of a single claim."""
        place = len(self._parts) - 1 if place is None else place
        error = errors_of_looks(0.05, self._looks)[place]
        return float(stdtrit(self._looks[place] - 1, 1 - error / 2))

    # What is measured is measured part by part.

    def _each(self, measure: Callable[[LookPart], Tensor], n: int | None = None) -> Tensor:
        """What the parts of the first `n` prompts (default: all) measure, one after the other."""
        n = self.n if n is None else min(n, self.n)
        parts = [part for part, start in zip(self._parts, (0, *self._looks), strict=False) if start < n]
        return torch.cat([measure(part) for part in parts])[:n]

    def _answers_of_each(self, measure: Callable[[LookPart], Answers]) -> Answers:
        return Answers.joined([measure(part) for part in self._parts])

    def _sliced(self, values: Tensor | None, part: LookPart) -> Tensor | None:
        return None if values is None else values[part.rows]

    @cached_property
    def clean_scores(self) -> PerPrompt:
        """The score of each clean prompt."""
        return self._each(lambda part: part.clean_scores)

    @cached_property
    def clean_answers(self) -> Answers:
        """What the unchanged model answers."""
        return self._answers_of_each(lambda part: part.clean_answers)

    def readings(self, sets: Sets, replacement: Replacement) -> list[Tensor]:
        """What is read of each prompt with each set of components replaced."""
        parts = [part.readings(sets, replacement) for part in self._parts]
        return [torch.cat(one) for one in zip(*parts, strict=True)]

    def first_effect(self, components: Sequence[Component], replacement: Replacement) -> PerPrompt | None:
        """The loss in score of the first `FIRST_LOOK` prompts; None without a first look."""
        if not self.looks_first:
            return None
        return self._each(lambda part: part.effect(components, replacement), FIRST_LOOK) / self.scale

    def measure(self, sets: Sets, replacements: Sequence[Replacement], *, n: int | None = None) -> None:
        """Measure the scores of several sets of components on the parts of the first `n` prompts (default: all)."""
        for part in self._parts:
            if n is None or part.rows.start < n:
                part.measure(sets, replacements)

    def patch_effects(
        self,
        sets: Sets,
        *,
        prompts: Int[Tensor, " chosen"] | None = None,
        positions: Bool[Tensor, "prompt pos"] | None = None,
    ) -> Float[Tensor, "chosen set"]:
        """Effect of patching each set from the counterfactual on each prompt of this look."""
        assert prompts is None, "a look has all of its prompts"
        return self._each(lambda part: part.patch_effects(sets, positions=self._sliced(positions, part)))

    def path_effects(
        self, paths: Sequence[Sequence[Edge]], *, prompts: Int[Tensor, " chosen"] | None = None
    ) -> Float[Tensor, "chosen path"]:
        """Effect of patching all edges of a path at once on each prompt of this look."""
        assert prompts is None, "a look has all of its prompts"
        return self._each(lambda part: part.path_effects(paths))

    def without_keys(
        self, head: Component, target: Target, *, positions: Bool[Tensor, "prompt pos"], n: int | None = None
    ) -> PerPrompt:
        """Effect of taking the target keys out of a head's attention, as a share."""

        def measure(part: LookPart) -> Tensor:
            own, where = target[part.rows], positions[part.rows]
            key = ("without", head, _digest(own), _digest(where))
            return part.once(key, lambda: part.without_keys(head, own, positions=where))

        return self._each(measure, n) / self.scale

    def restored(
        self, sets: Sets, *, positions: Bool[Tensor, "prompt pos"] | None = None, n: int | None = None
    ) -> Float[Tensor, "prompt set"]:
        """As `NaturalLab.restored`, on the prompts of the first look."""
        first = self._parts[0]
        return first.restored(sets, positions=self._sliced(positions, first), n=n)

    def measure_single(self, components: Sequence[Component], *, restored: bool = True, at: str = END) -> None:
        """Measure what `at_role` and `restored_by` ask of several components."""
        for place, part in enumerate(self._parts):
            part.measure_single(components, restored=restored and place == 0, at=at)

    def at_role(self, component: Component, role: str = END) -> PerPrompt:
        """Effect of replacing a component at a role's position only."""
        return self._each(lambda part: part.at_role(component, role)) / self.scale

    def kept_by(self, mlp: Component, neurons: Sequence[int]) -> PerPrompt:
        """Effect of replacing all neurons of an MLP but these."""
        return self._each(lambda part: part.kept_by(mlp, neurons)) / self.scale

    def restored_by(self, component: Component) -> PerPrompt:
        """What patching its clean value into the counterfactual run restores, on the first `REPORTED` prompts."""
        return self._parts[0].restored_by(component)[:REPORTED]

    def path(
        self, sender: Component | None, receiver: Component | None, port: str | None = None, *, n: int | None = None
    ) -> PerPrompt:
        """Effect of the direct path from one component into another on the first `n` prompts (default: all)."""
        return self._each(lambda part: part.path(sender, receiver, port), n) / self.scale

    def measure_paths(self, keys: Sequence[PathKey], *, n: int | None = None) -> None:
        """Measure several paths in one batch a part."""
        for part in self._parts:
            if n is None or part.rows.start < n:
                part.measure_paths(keys)

    def pattern(self, head: Component) -> Float[Tensor, "prompt query key"]:
        """A head's attention; rows and columns past the end of a prompt are zero."""
        return self._each(lambda part: part.pattern(head))

    def follows(self, head: Component, role: str) -> PerPrompt | None:
        """As `NaturalLab.follows`."""
        parts = [part.follows(head, role) for part in self._parts]
        moved = [one for one in parts if one is not None]
        return torch.cat(moved) if len(moved) == len(parts) else None

    def mass_without_copies(self, head: Component, role: str) -> PerPrompt:
        """As `NaturalLab.mass_without_copies`."""
        return torch.cat([part.mass_without_copies(head, role) for part in self._parts])

    def scores_attending(self, head: Component, pattern: Float[Tensor, "prompt query key"]) -> PerPrompt:
        """The score of each prompt where a head attends by another pattern."""

        def measure(part: LookPart) -> Tensor:
            own = pattern[part.rows]
            return part.once(("attending", head, _digest(own)), lambda: part.scores_attending(head, own))

        return self._each(measure)

    def answers(self, sets: Sets, how: How, at: str | None) -> list[Answers]:
        """The answers with each set replaced."""
        parts = [part.answers(sets, how, at) for part in self._parts]
        return [Answers.joined(one) for one in zip(*parts, strict=True)]

    def cut(
        self, heads: Sequence[Component], key: str, query: str, suppressed: Sequence[Component] = ()
    ) -> tuple[Answers, Answers]:
        """The answers before and after some heads' attention from one role's position on another is set to zero."""
        name = ("cut", frozenset(heads), key, query, frozenset(suppressed))
        parts = [part.once(name, partial(part.cut, heads, key, query, suppressed)) for part in self._parts]
        before, after = zip(*parts, strict=True)
        return Answers.joined(before), Answers.joined(after)

    def corrupted(self, role: str) -> Corrupted:
        """Not of several parts: `moved` says what the corrupted runs answer."""
        raise NotImplementedError

    def exchange_moves(self, variable: str) -> Moved:
        """As `NaturalLab.exchange_moves`."""
        moved = Moved.joined([part.exchange(variable).moved for part in self._parts])
        if not bool(moved.differs.any()):
            raise NothingChanges(variable)
        return moved

    def exchanged(self, mlp: Component, variable: str, at: str, donor: Donor = "other") -> Answers:
        """As `NaturalLab.exchanged`."""
        return self._answers_of_each(lambda part: part.exchanged(mlp, variable, at, donor))

    def written_apart(self, mlp: Component, variable: str, at: str) -> Float[Tensor, "prompt d_model"]:
        """As `NaturalLab.written_apart`."""
        return self._each(lambda part: part.written_apart(mlp, variable, at))

    def moved_shares(
        self, sets: Sets, role: str, at: str | None = END, suppressed: Sequence[Component] = ()
    ) -> list[Losses]:
        """As `NaturalLab.moved_shares`."""
        return self._shares(sets, role, at, suppressed, by_values=False)

    def moved_by_values(
        self, sets: Sets, role: str, at: str | None = END, suppressed: Sequence[Component] = ()
    ) -> list[PerPrompt]:
        """As `NaturalLab.moved_by_values`."""
        return [moved for _, moved in self._shares(sets, role, at, suppressed, by_values=True)]

    def _shares(
        self, sets: Sets, role: str, at: str | None, suppressed: Sequence[Component], *, by_values: bool
    ) -> list[Losses]:
        whole = Moved.joined([part.corrupted(role).moved for part in self._parts])
        if not bool(whole.differs.any()):
            raise NothingChanges(role)

        def answers(group: Sequence[Component]) -> Answers:
            ask = partial(LookPart.moved_answers, group=group, role=role, at=at, suppressed=suppressed)
            return self._answers_of_each(lambda part: ask(part, by_values=by_values and bool(group)))

        return whole.shares(answers(()), [answers(group) for group in sets])


def growing_lab(
    specimen: Specimen, most: int, *, seed: int = CLAIM_SEED, circuit: Sequence[Component] | None = None
) -> NaturalLab:
    """The first look at up to `most` held-out prompts of a natural specimen; a behaviour that has fewer gives all."""
    try:
        material = trial(specimen, most, seed=seed, centred=True)
    except TooFewPrompts as few:
        material = trial(specimen, few.n, seed=seed, centred=True)
    draw = NaturalLab.on(specimen, material, seed=seed, circuit=circuit)
    looks = looks_up_to(draw.n)
    return draw if len(looks) == 1 else GrowingLab(draw, material, looks)


def _digest(values: Tensor) -> bytes:
    return hashlib.sha256(values.contiguous().cpu().numpy().tobytes()).digest()
