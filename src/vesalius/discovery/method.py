"""What a discovery method is: an object that holds its own options and scores a specimen's components on prompts.

    class Loudest(Method):
        name = "loudest"
        meaning = "A component's score is the norm of what it writes."

        def score(self, given):
            return Scores(norms(given.specimen, given.material), {}, forwards=1, unit="norm")

A class with a name is registered when it is defined; a package offers one, or a plain function of the specimen, the
prompts and `seed=`, by an entry point of the group `vesalius.discovery_methods`. `vesalius.discovery.discover` finds
methods by name and runs them. Options are fields of a frozen dataclass, each made by `option` (of
`vesalius.options.records`) with its help text; `__post_init__` refuses values that make no sense.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.behaviours.natural import Spread
from vesalius.behaviours.trial import Trial
from vesalius.components import Component, Edge, headless
from vesalius.discovery.stability import RESAMPLES, bootstrap_jaccard
from vesalius.documents.checks import Stability
from vesalius.documents.circuit import Circuit
from vesalius.documents.performance import Performance
from vesalius.errors import BadInput
from vesalius.intervene.ablations import Resample
from vesalius.intervene.edges import EdgeGraph
from vesalius.intervene.estimate import Workload, sweep_peak
from vesalius.model.config import Config
from vesalius.model.specimen import Specimen
from vesalius.model.transformer import Transformer
from vesalius.options.records import Configured
from vesalius.progress import Progress

#: Every method that has a name, by it.
REGISTERED: dict[str, type["Method"]] = {}


class NotResampled(BadInput):
    """The scores of a method cannot be resampled."""


@dataclass(frozen=True)
class MethodInput:
    """What a method is given: a specimen, its prompts (`material`), the seed of what it draws, where to report progress
    and, for methods that work in parts, who runs them elsewhere (`spread`).
    """

    specimen: Specimen
    material: Trial
    seed: int = 0
    progress: Progress | None = None
    spread: Spread | None = None


@dataclass(frozen=True)
class Scores:
    """What a method found: a score per component and per edge (none where it does not look at edges), the forward
    passes of all prompts that it took, what the scores are measured in and, where they are means over prompts, those of
    each prompt: [prompt, component], or [prompt, sender, receiver] (tables of `EdgeGraph`). `rankings` are the scores
    of several methods by name, these being those of the first, where a method asks others.
    """

    components: dict[Component, float]
    edges: dict[Edge, float]
    forwards: float
    unit: str
    per_prompt: Tensor | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    rankings: Mapping[str, "Scores"] = field(default_factory=dict)


@dataclass(frozen=True)
class Method(Configured):
    """A way to score the components (and edges) of a specimen.

    What holds of every object of a class: its `name`; `meaning`, a sentence that says what a score is; `scores_edges`
    (None: not known before it is run); `heads_only`, where MLPs get no score; `in_parts`, where `score` makes use of
    `spread`; `estimates`, where a component without any effect may have a score; `sees_position` False, where a
    component that holds nothing but the position escapes it, so that those without a score are moved to other positions
    as well (all, for a method that estimates); `centred`, where prompts are drawn with centred scores.
    """

    OPTION = "method"
    scores_edges: ClassVar[bool | None] = None
    heads_only: ClassVar[bool] = False
    in_parts: ClassVar[bool] = False
    estimates: ClassVar[bool] = False
    sees_position: ClassVar[bool] = True
    centred: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        cls.enter(REGISTERED, cls)

    @property
    def label(self) -> str:
        """The name with the options that are not the usual ones, as `method_named` reads it: `masks:steps=300`."""
        return ":".join([self.name, *(f"{name}={value}" for name, value in self.options.items())])

    @property
    def quirks(self) -> Mapping[str, str]:
        """What a reproduction of a published method does that others do not."""
        return {}

    def require(self, config: Config) -> None:
        """Refuse a model that the method does not fit, before anything is run."""
        if self.scores_edges and config.mixers:
            why = headless(config.mixers[0], config)
            raise BadInput(f"method {self.name!r} scores edges: {why}, so edges into it cannot be cut; take sweep")

    def prompts(self, config: Config, n: int) -> int:
        """How many of `n` prompts a benchmark gives the method."""
        return n

    def score(self, given: MethodInput) -> Scores:
        """The scores of a specimen's components and edges on prompts."""
        raise NotImplementedError(f"{type(self).__name__} scores nothing")

    def cost(self, work: Workload) -> float:
        """Passes of all prompts that `score` takes, what is moved to other positions included."""
        raise BadInput(f"method {self.name!r} has no plan: what a plug-in measures is not known before it runs")

    def peak(self, work: Workload) -> int:
        """Bytes of activations at the peak; by default those of a sweep of all components."""
        every = [(component,) for component in work.model.components]
        config = work.model.config
        return sweep_peak(config, work.dtype, work.sizes, every, Resample(), memory=work.memory)

    def stability(
        self, specimen: Specimen, result: "MethodResult", size: int, *, seed: int = 0, resamples: int = RESAMPLES
    ) -> tuple[Stability, float]:
        """How alike circuits of other prompts would be, and the passes of all prompts that it took to find out. A
        method that runs the model for it does so on `resamples` of the prompts.
        """
        return result.stability(size, seed=seed), 0.0


@dataclass(frozen=True)
class MethodResult:
    """A method's circuit, its cost in forward passes of all prompts, the seconds it took and the prompts themselves
    (`material`).

    `per_prompt` holds the scores whose means over prompts the circuit's are, as in `Scores`; None where they are not
    means, and `scores` is what the method returned. `unit` is what scores are measured in, `performance` how well a
    natural model does its behaviour. `chose` are the prompts that the size of the circuit was chosen on (None: it was
    not).
    """

    method: Method
    circuit: Circuit
    forwards: float
    seconds: float
    material: Trial = field(compare=False, repr=False)
    per_prompt: Tensor | None = field(default=None, compare=False, repr=False)
    metrics: Mapping[str, float] = field(default_factory=dict)
    unit: str = ""
    performance: Performance | None = None
    notes: tuple[str, ...] = ()
    scores: Scores | None = field(default=None, compare=False, repr=False)
    chose: Trial | None = field(default=None, compare=False, repr=False)

    def stability(self, top: int, *, resamples: int = RESAMPLES, seed: int = 0) -> Stability:
        """How alike the circuits of the `top` components are on bootstrap resamples of the prompts."""
        if self.per_prompt is None:
            raise NotResampled(
                f"the scores of {self.method.name} are not means over prompts, so they have no resamples"
            )
        if self.per_prompt.ndim == 2:
            return bootstrap_jaccard(self.per_prompt, top, resamples=resamples, seed=seed)
        graph = EdgeGraph(self.circuit.n_layers, self.circuit.n_heads)
        shape = (len(graph.senders), len(graph.receivers))
        return bootstrap_jaccard(
            self.per_prompt.flatten(1),
            top,
            resamples=resamples,
            seed=seed,
            combine=lambda means: graph.component_scores(means.unflatten(1, shape)),
        )


def scores_by_edges(specimen: Specimen, scores: Tensor, forwards: float, unit: str) -> Scores:
    """Scores of edges as a table [sender, receiver]; a component has the largest magnitude of those that leave it."""
    graph = EdgeGraph.of(specimen.model.config)
    return Scores(graph.by_sender(scores), graph.by_edge(scores), forwards, unit)


def signed_scores(model: Transformer, parts: Sequence[Component], scores: Scores) -> Float[Tensor, "prompt component"]:
    """A score of every component on every prompt, positive where it helps. Of a method that scores edges it is the sum
    over those that leave the component, which estimates what replacing it costs.
    """
    table = scores.per_prompt
    if table is None:
        return torch.tensor([[scores.components.get(part, 0.0) for part in parts]])
    if table.ndim == 3:
        every = torch.where(EdgeGraph.of(model.config).real, table, 0.0).sum(-1)[:, 1:]
        places = {part: place for place, part in enumerate(model.components)}
        return every[:, [places[part] for part in parts]]
    columns = {part: i for i, part in enumerate(scores.components)}
    missing = torch.zeros(len(table))
    return torch.stack([table[:, columns[part]] if part in columns else missing for part in parts], 1)
