"""What every laboratory can do: replace components on held-out inputs and say what that costs, per prompt.

A laboratory holds one model, one set of inputs drawn once, and caches of recordings, of replacement values and of what
each replacement gave. Inputs come in pairs, a base that is run and a source (the counterfactual) that values are taken
from, drawn with a seed of their own so that they are not the inputs a hypothesis was made on.

`CircuitLab` (`circuits`) holds a specimen with a finite vocabulary, which answers at every position; `NaturalLab`
(`natural`) a natural model with a behaviour, which gives one score per prompt. A claim that makes sense in one of them
only asks for it in its first line: `lab = CircuitLab.require(lab, self.kind)`.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from typing import ClassVar, Literal, Self, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.behaviours.trial import Trial
from vesalius.components import Component
from vesalius.documents.explanation import Evidence
from vesalius.errors import BadInput
from vesalius.intervene import Cost, Plan, Recordings, Values, run, zeros
from vesalius.intervene.probes import HeadInputs
from vesalius.intervene.values import component_values
from vesalius.model.specimen import Specimen
from vesalius.model.transformer import Transformer
from vesalius.statistics import LOOKS, means_interval

Replacement = Literal["zero", "mean", "resample", "moved"]
PerPrompt = Float[Tensor, " prompt"]
Sets = Sequence[Sequence[Component]]

#: Claims are checked on inputs drawn with this seed, which no hypothesis was made on.
CLAIM_SEED = 7_000_003
#: Prompts of a natural model after which an effect may be found too small to count.
FIRST_LOOK = LOOKS[0]
#: Prompts of a natural model for names and figures that no claim decides.
SECOND_LOOK = LOOKS[1]


class Lab(ABC):
    """Inputs of one model, run once, with the components under study.

    `circuit` lists these components; those outside it serve as matched controls. `cost` counts the forward passes of
    replacements. Losses are shares of `scale`.
    """

    #: Whether the vocabulary is finite and the model answers at every position.
    finite: ClassVar[bool]
    #: What a claim that is refused elsewhere needs, as the end of a message.
    needs: ClassVar[str]

    def __init__(
        self, model: Transformer, material: Trial, *, seed: int, circuit: Sequence[Component], name: str
    ) -> None:
        self.model, self.seed, self.circuit, self.name = model, seed, tuple(circuit), name
        self.batch, self.source, self._where = material.batch, material.counterfactual, material.where
        self.n, self.cost = len(material.batch), Cost()
        self._tables: dict[str, Values] = {}
        self._readings: dict[tuple[frozenset[Component], str], Tensor] = {}
        #: Evidence that one look decided, so that no further one measures the same again.
        self.settled: dict[Hashable, Evidence] = {}

    @classmethod
    def require(cls, lab: "Lab", kind: str) -> Self:
        """The laboratory as one of this class; refuses a claim that another one cannot test."""
        if not isinstance(lab, cls):
            raise BadInput(f"claim {kind!r} {cls.needs}, not {lab.name!r}")
        return lab

    # How many inputs are looked at.

    def looks(self) -> "Iterable[Lab]":
        """The laboratories in which a claim is tested, one after the other, until it is decided: here this one only."""
        return (self,)

    def at_least(self, n: int) -> Self:
        """The first look at so many inputs, or the largest: here this one."""
        return self

    def ends(self, values: PerPrompt, level: float) -> tuple[float, float]:
        """The interval of a mean: here of a single look."""
        low, high = means_interval(values.double()[:, None], level=level, seed=self.seed)
        return float(low[0]), float(high[0])

    # What differs between laboratories.

    @cached_property
    def recordings(self) -> Recordings:
        """The clean run of the base inputs, which edited runs start from."""
        raise NotImplementedError

    @cached_property
    def clean_scores(self) -> PerPrompt:
        """The score of each prompt with nothing replaced; higher is better."""
        raise NotImplementedError

    @cached_property
    def scale(self) -> float:
        """What losses are divided by."""
        raise NotImplementedError

    @cached_property
    def replacements(self) -> tuple[Replacement, ...]:
        """The kinds of replacement that can be made here."""
        raise NotImplementedError

    @property
    @abstractmethod
    def looks_first(self) -> bool:
        """Whether effects are looked at on a few prompts before all are run."""

    @property
    @abstractmethod
    def answer_positions(self) -> Int[Tensor, "prompt query"] | None:
        """The positions at which the answer is read (None: everywhere)."""

    @abstractmethod
    def matched(self, component: Component, *, exclude: Sequence[Component] = (), k: int = 4) -> list[Component]:
        """Up to `k` components of the same kind outside the circuit and the claim, drawn with the lab's seed."""

    @abstractmethod
    def token_ids(self, tokens: Sequence[object]) -> list[int]:
        """The ids of tokens that a claim names."""

    @abstractmethod
    def _made(self, replacement: str) -> Values:
        """The values of one kind of replacement other than zeros."""

    @abstractmethod
    def _to_scores(self, readings: Tensor) -> PerPrompt:
        """The scores in what a run gave."""

    @cached_property
    def variation(self) -> float:
        """The share of outputs that can change at all; 1 where a score is no share of outputs."""
        return 1.0

    def _read_by(self, replacement: Replacement) -> Recordings:
        """What reads the runs of one kind of replacement."""
        return self.recordings

    # One score per prompt.

    def scores(self, components: Sequence[Component], replacement: Replacement) -> PerPrompt:
        """The score of each prompt with some components replaced; none gives the clean scores."""
        return self._to_scores(self.readings([components], replacement)[0]) if components else self.clean_scores

    def readings(self, sets: Sets, replacement: Replacement) -> list[Tensor]:
        """What is read of each prompt with each set of components replaced."""
        self.measure(sets, [replacement])
        return [self._readings[frozenset(members), replacement] for members in sets]

    def effect(self, components: Sequence[Component], replacement: Replacement) -> PerPrompt:
        """The loss in score of each prompt, as a share of `scale`."""
        return (self.clean_scores - self.scores(components, replacement)) / self.scale

    def first_effect(self, components: Sequence[Component], replacement: Replacement) -> PerPrompt | None:
        """The loss in score of the first `FIRST_LOOK` prompts; None without a first look."""
        if not self.looks_first:
            return None
        self.measure([components], [replacement], n=FIRST_LOOK)
        scores = self._to_scores(self._readings[frozenset(components), replacement][:FIRST_LOOK])
        return (self.clean_scores[:FIRST_LOOK] - scores) / self.scale

    def measure(self, sets: Sets, replacements: Sequence[Replacement], *, n: int | None = None) -> None:
        """Measure the scores of several sets of components on the first `n` prompts (default: all), in one run for each
        kind of replacement. What is already known is not run again.
        """
        n = self.n if n is None else n
        for replacement in replacements:
            missing: dict[int, list[frozenset[Component]]] = {}
            for members in dict.fromkeys(map(frozenset, sets)):
                known = len(self._readings.get((members, replacement), ()))
                if known < n:
                    missing.setdefault(known, []).append(members)
            for known, some in missing.items():
                readings = self._replaced([sorted(members) for members in some], replacement, torch.arange(known, n))
                for members, reading in zip(some, readings, strict=True):
                    before = [self._readings[members, replacement]] if known else []
                    self._readings[members, replacement] = torch.cat([*before, reading])

    def _replaced(
        self, sets: list[list[Component]], replacement: Replacement, prompts: Int[Tensor, " n"]
    ) -> list[Float[Tensor, " n"]]:
        """What is read of some prompts with each set replaced."""
        values = self.table(replacement)
        single = len(values) == 1
        where = None if single or self._where is None else self._where[prompts]
        choices = torch.zeros_like(prompts) if single else prompts
        grid = Plan.grid(self.model.config, sets, choices=choices, positions=where)
        plan = Plan(prompts.repeat(len(sets)), grid.choice, grid.positions)
        return list(run(self._read_by(replacement), plan, values, cost=self.cost).cpu().split(len(prompts)))

    def table(self, replacement: str) -> Values:
        """The values that components get by one kind of replacement; made once."""
        if replacement not in self._tables:
            self._tables[replacement] = zeros(self.model) if replacement == "zero" else self._made(replacement)
        return self._tables[replacement]

    # Attention of one head.

    def pattern(self, head: Component) -> Float[Tensor, "prompt query key"]:
        """A head's attention; rows and columns past the end of a prompt are zero."""
        pattern, batch = self._head_inputs(head).pattern().cpu(), self.batch.to("cpu")
        real = torch.ones_like(batch.tokens, dtype=torch.bool) if batch.mask is None else batch.mask
        return pattern * real[:, :, None] * real[:, None, :]

    def scores_attending(self, head: Component, pattern: Float[Tensor, "prompt query key"]) -> PerPrompt:
        """The score of each prompt where a head attends by another pattern."""
        inputs = self._head_inputs(head)
        z = pattern.to(inputs.values.device, inputs.values.dtype) @ inputs.values
        plan = Plan.each(self.model.config, torch.arange(len(z)), head)
        values = component_values(self.model, head, z)
        return self._to_scores(run(self.recordings, plan, values, cost=self.cost).cpu())

    def _head_inputs(self, head: Component) -> HeadInputs:
        return HeadInputs(self.model, self.batch, self.recordings.resid(head.layer), head)


def own_circuit(specimen: Specimen) -> Sequence[Component]:
    """The components that a specimen names as its circuit; none where it names all that the model has."""
    return specimen.components if len(specimen.components) < len(specimen.model.components) else ()


ALL_REPLACEMENTS: tuple[Replacement, ...] = get_args(Replacement)
