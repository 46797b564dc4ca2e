"""What a sweep, a discovery, a circuit of neurons, an explanation or an alignment will cost: passes, memory and time,
from one timed chunk of it.

The passes of a sweep follow from its components alone and are exact; those of a discovery from the method's own rule;
those of searches, of checks and of explanations depend on what is found and are estimates. Memory is that of the
weights and of the activations at their peak (`intervene/estimate.py`). Nothing is written.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from vesalius.api.alignments import algorithms_on, asked_of
from vesalius.api.circuit_sources import circuit_fields
from vesalius.api.discoveries import latent_options, latent_verb, require_discoverable, require_selection
from vesalius.api.door import VERBS
from vesalius.api.explanations import require_explainable, scientist_of
from vesalius.api.homes import named
from vesalius.api.loading import loaded
from vesalius.api.sweeps import (
    LATENTS,
    ROWS_BETWEEN_SAVES,
    component_sets_of,
    kinds_of,
    require_sweepable,
    swept_sites,
    usual_kind,
)
from vesalius.api.workloads import (
    Case,
    case_of,
    check_rows,
    loaded_case,
    memory_of,
    read_shape,
    selection_rows,
    shape_case,
    whole_rows,
)
from vesalius.behaviours.contrast import MOST_PROMPTS as CONTRAST_PROMPTS
from vesalius.behaviours.contrast import contrast_passes
from vesalius.behaviours.trial import columns_of, trial
from vesalius.components import Component, mlp_units, parse_components, split_names
from vesalius.discovery.discover import DEFAULT_PROMPTS, circuit_method, planned_cost
from vesalius.discovery.head_tests import ROWS as ATTENTION_ROWS
from vesalius.discovery.neurons import most_passes
from vesalius.discovery.rivals import most_searches, require_searchable, rival_prompts
from vesalius.discovery.selection import parse_rules
from vesalius.discovery.sweep import Sweep
from vesalius.documents.circuit import Circuit
from vesalius.documents.discovery import Discovery
from vesalius.documents.printed import Plan
from vesalius.documents.rivals import By
from vesalius.errors import BadInput, choices
from vesalius.explanations.atlas.measure import NEURONS, SAMPLE, prompts_of
from vesalius.explanations.atlas.text import PASSAGES, WORDS
from vesalius.explanations.natural import PROMPTS as EXPLAIN_PROMPTS
from vesalius.explanations.running.battery import RANDOM_ROWS
from vesalius.explanations.running.fitting import OF_A_HEAD, prompts_of_words
from vesalius.explanations.variables.cost import cost_of
from vesalius.intervene.ablations import Ablation, Resample
from vesalius.intervene.effects import ComponentSet
from vesalius.intervene.estimate import (
    Prompts,
    seconds_per_token,
    sweep_forwards,
    sweep_peak,
    unit_attribution_peak,
)
from vesalius.intervene.features import STRONGEST
from vesalius.intervene.recordings import kept_bytes
from vesalius.intervene.sites import in_layers
from vesalius.intervene.written_tokens import weight_arithmetic
from vesalius.model.devices import weight_dtype
from vesalius.model.dictionaries import read_dictionaries
from vesalius.model.specimen import Specimen
from vesalius.options import Checked, CircuitFrom, Draw, Explaining, Knockout, Load, Parts, Sparse
from vesalius.progress import Progress, shown
from vesalius.runs.parts import parts_on
from vesalius.sites import Feature, Site

#: Length of the prompts of a model that is not there.
TOKENS = 64
#: Passes that ranking latents takes: the prompts, their gradients (two) and the counterfactuals.
LATENT_RANKING = 4.0
#: Prompts at most by which a pass of an alignment is timed.
TIMED_PROMPTS = 8


def plan(
    command: str,
    specimen: Specimen | str | int | Path,
    *records: object,
    tokens: int = TOKENS,
    progress: Progress | bool | None = None,
    **options: object,
) -> Plan:
    """Passes of all prompts (`forwards`), bytes at the peak (`peak_bytes`) and estimated `seconds` of a command with
    its options; it is "sweep", "discover", "neurons", "atlas", "explain" or "align". One small chunk is run to time it.
    Records and options are those of the verb, and what it would refuse before running the model is refused; the time is
    that of one process.

    A directory with a `config.json` and no weights can be planned too: time then follows from the speed of one matrix
    product, and prompts are `tokens` long unless there is a tokenizer to say how long those of `behaviour` are
    (`tokens_assumed`). `fits` says whether what is not loaded yet fits into the memory that is free (`free_bytes`).
    """
    if command not in PLANNED:
        raise BadInput(f"command {command!r} has no plan; choose one of {choices(PLANNED)}")
    named(command, of="vesalius.api", beside=())  # so that the verb is declared
    work = PLANNED[command](VERBS[command].gather([specimen, *records], options))
    load, asked = work.load, work.prompts
    with shown(progress) as report:
        shape = None if isinstance(specimen, Specimen) else read_shape(specimen, dtype=load.dtype, device=load.device)
        if shape is None:
            specimen = loaded(specimen, load, progress=report)
            parts_on(work.parts, specimen, report)
            work.check(specimen)
            case = work.case(specimen)
        else:
            work.check_shape()
            case = shape_case(shape, load, Prompts(asked.n, tokens), asked.seed)
        report("timing one chunk", 0, 0)
        sets = work.sets(case)
        seconds = case.seconds_per_row(sets, work.ablation)
        passes = replace(work.passes(case), contrast_forwards=work.first_rows(case) / case.sizes.n)
        activations = work.peak(case)
    return Plan(
        command=command,
        **asdict(passes),
        latents_forwards=work.for_latents(),
        **memory_of(case, activations, loaded=shape is None),
        seconds=sum(asdict(passes).values()) * case.sizes.n * seconds + work.further_seconds(case),
        timed="one chunk" if shape is None else "one matrix product",
        n=case.sizes.n,
        tokens=case.sizes.width,
        tokens_assumed=case.tokens_assumed,
        device=",".join(map(str, case.devices)),
    )


@dataclass(frozen=True)
class _Passes:
    """Passes of all prompts: those of the work itself, and what a discovery's options add."""

    forwards: float
    checks_forwards: float = 0.0
    select_forwards: float = 0.0
    rivals_forwards: float = 0.0
    search_forwards: float = 0.0
    contrast_forwards: float = 0.0


class _Work:
    """The work of a verb, from its arguments: which prompts it takes, what it refuses of a model, and what it costs."""

    ablation: Ablation = Resample()

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments
        self.load: Load = arguments["load"]
        self.parts: Parts = arguments.get("parts", Parts())
        self.named: list[Component] | None = None

    @property
    def prompts(self) -> Draw:
        """Which prompts."""
        return self.arguments["draw"]

    def check(self, specimen: Specimen) -> None:
        """Refuse what does not go with a loaded specimen."""

    def check_shape(self) -> None:
        """Refuse what a model without weights cannot have."""

    def case(self, specimen: Specimen) -> Case:
        """A loaded specimen with the prompts of the work."""
        return loaded_case(specimen, self.prompts.n, self.prompts.seed)

    def sets(self, case: Case) -> list[ComponentSet]:
        """What is replaced in the chunk that is timed."""
        return component_sets_of(case.model, None, pairs=False)

    def passes(self, case: Case) -> _Passes:
        """Passes of all prompts."""
        raise NotImplementedError

    def further_seconds(self, case: Case) -> float:
        """What is no pass of the model and takes long."""
        return 0.0

    def for_latents(self) -> float:
        """Passes of a search for latents, which is timed by itself."""
        return 0.0

    def first_rows(self, case: Case) -> float:
        """Passes of one prompt before the work itself: whether the model performs, and the contrast."""
        return case.gate + min(case.gate, CONTRAST_PROMPTS) * contrast_passes(case.model)

    def peak(self, case: Case) -> int:
        """Bytes of activations at the peak: by default, of rows of interventions."""
        config = case.model.config
        return sweep_peak(config, case.dtype, case.sizes, self.sets(case), self.ablation, memory=case.memory)


class _SweepWork(_Work):
    def __init__(self, arguments: dict[str, Any]) -> None:
        super().__init__(arguments)
        self.knockout: Knockout = arguments["knockout"]
        self.sparse: Sparse = arguments["sparse"]
        self.roles: int | None = None
        require_sweepable(arguments["specimen"], self.knockout, self.sparse)
        self.kinds = kinds_of(self.knockout)
        self.ablation = self.kinds[0]

    def check(self, specimen: Specimen) -> None:
        """What is usual depends on the specimen."""
        super().check(specimen)
        self.kinds = kinds_of(self.knockout, usual_kind(specimen))
        self.ablation = self.kinds[0]
        if self.knockout.by == "role":
            self.roles = len(columns_of(specimen, trial(specimen, 2, seed=self.prompts.seed), "role"))

    def check_shape(self) -> None:
        if self.knockout.by == "role":
            raise BadInput("`by` role: which roles there are is known with the model's tokenizer; plan `by` position")

    def _sites(self, case: Case) -> list[Site] | None:
        """The sites that are swept, one for each column of a map; None where they are components. Which latents are is
        not known yet: as many as are swept, all of the first layer that has some, cost most.
        """
        if self.knockout.sites == LATENTS:
            first = min(read_dictionaries(str(self.sparse.features), case.model.config).layers)
            sites: list[Site] | None = [Site(Feature(first, latent)) for latent in range(STRONGEST)]
        else:
            sites = swept_sites(case.model, self.knockout)
        columns = 1 if self.knockout.by is None else self.roles or case.sizes.width
        return None if sites is None else sites * columns

    def sets(self, case: Case) -> list[ComponentSet]:
        if (sites := self._sites(case)) is not None:  # a head of the same layer costs as much
            return [(Component(site.layer, 0),) for site in sites]
        return component_sets_of(case.model, self.knockout.components, pairs=self.knockout.pairs)

    def passes(self, case: Case) -> _Passes:
        sites = self._sites(case)
        each = sweep_forwards(case.model, self.sets(case)) if sites is None else in_layers(sites, case.model.config)
        ranking = LATENT_RANKING if self.knockout.sites == LATENTS else 0.0
        return _Passes(len(self.kinds) * each + ranking)

    def first_rows(self, case: Case) -> float:
        """The contrast of its own prompts, where values come from counterfactuals; it asks for nothing else."""
        asked = case.gate and any(kind.from_counterfactual for kind in self.kinds)
        return min(case.sizes.n, CONTRAST_PROMPTS) * contrast_passes(case.model) if asked else 0.0

    def peak(self, case: Case) -> int:
        config, sets, block = case.model.config, self.sets(case), ROWS_BETWEEN_SAVES
        return sweep_peak(config, case.dtype, case.sizes, sets, self.ablation, memory=case.memory, block=block)


class _NeuronsWork(_Work):
    def passes(self, case: Case) -> _Passes:
        return _Passes(most_passes(len(mlp_units(case.model.config))))

    def peak(self, case: Case) -> int:
        return unit_attribution_peak(case.model.config, case.dtype, case.sizes)


class _AtlasWork(_Work):
    """Two runs, of random tokens and of text, and arithmetic on the weights, counted as passes of as much of it; and
    the programs of where heads look.
    """

    further = 2 * RANDOM_ROWS + len(PASSAGES)

    @property
    def prompts(self) -> Draw:
        return Draw(n=ATTENTION_ROWS + len(PASSAGES), seed=self.arguments["charted"].seed)

    def case(self, specimen: Specimen) -> Case:
        model, rows, width = specimen.model, *prompts_of(specimen)
        self.further = prompts_of_words(specimen)
        passed = sum(weight.numel() for weight in model.parameters()) - model.config.d_vocab * model.config.d_model
        per_token = seconds_per_token(model.config, weight_dtype(model), model.device, passed)
        return case_of(specimen, Prompts(rows, width), lambda sets, kind: per_token * width)

    def passes(self, case: Case) -> _Passes:
        if case.finite:
            return _Passes(1.0)
        passed = sum(weight.numel() for weight in case.model.parameters())
        asked = len(self.arguments["charted"].words) or len(WORDS)
        config = case.model.config
        own = weight_arithmetic(config, sample=SAMPLE, words=asked, neurons=2 * NEURONS)
        return _Passes(1 + self.further / case.sizes.n + own / (passed * case.sizes.n * case.sizes.width))

    def further_seconds(self, case: Case) -> float:
        config = case.model.config
        return OF_A_HEAD * config.n_layers * config.n_heads if self.further else 0.0

    def peak(self, case: Case) -> int:
        config, sizes = case.model.config, case.sizes
        pattern = sizes.n * config.n_heads * sizes.width**2
        written = sizes.n * sizes.width * config.n_heads * 2 * SAMPLE
        words = (len(self.arguments["charted"].words) or len(WORDS)) * config.n_heads * config.d_vocab_out
        neurons = sizes.n * sizes.width * config.d_mlp * (config.n_layers + 2)
        programs = self.further * config.n_layers * config.n_heads * sizes.width**2
        return 4 * (2 * pattern + 2 * written + words + neurons + programs)


class _DiscoverWork(_Work):
    def __init__(self, arguments: dict[str, Any]) -> None:
        super().__init__(arguments)
        self.checked: Checked = arguments["checked"]
        further = VERBS["discover"].further(arguments)
        asked = (arguments["specimen"], arguments["method"], arguments["cut"], self.checked)
        self.method = require_discoverable(*asked, arguments.get("material"), **further)
        self.usual = arguments["method"] is None
        self.latents: Plan | None = None

    def check(self, specimen: Specimen) -> None:
        draw = self.prompts
        if self.checked.rivals:
            rival_prompts(specimen, trial(specimen, draw.n, seed=draw.seed), seed=draw.seed)
        if self.checked.features is not None:
            asked = latent_options(specimen, draw, self.arguments["cut"], self.checked)
            self.latents = latent_verb("latents_plan")(specimen, **asked, progress=False)

    def check_shape(self) -> None:
        if self.checked.features is not None:
            raise BadInput("`features`: latents are timed with a model's weights, and this one has none; add them")

    def passes(self, case: Case) -> _Passes:
        cut, by, n = self.arguments["cut"], cast(By, self.checked.rivals_by), case.sizes.n
        if self.usual and case.finite:
            self.method = Sweep()
        rules, checks = parse_rules(cut.select, cut.size), self.checked.checks
        require_selection(case.model, self.method, rules, cut.size)
        require_searchable(case.model, by)
        return _Passes(
            planned_cost(self.method, case),
            (check_rows(case, self.method) + (0 if rules else whole_rows(case, self.method))) / n if checks else 0.0,
            selection_rows(case, self.method, rules, cut.size, checks=checks) / n,
            most_searches(case.model, self.checked.rivals, by) if self.checked.rivals else 0.0,
        )

    def peak(self, case: Case) -> int:
        own = self.method.peak(case)
        return own if self.latents is None else max(own, self.latents.peak_bytes - self.latents.weight_bytes)

    def further_seconds(self, case: Case) -> float:
        return 0.0 if self.latents is None else self.latents.seconds

    def for_latents(self) -> float:
        return 0.0 if self.latents is None else self.latents.forwards


class _ExplainWork(_Work):
    def __init__(self, arguments: dict[str, Any]) -> None:
        super().__init__(arguments)
        self.source: CircuitFrom = arguments["source"]
        self.study: Explaining = arguments["study"]
        ask = arguments["ask"]
        further = VERBS["explain"].further(arguments)
        self.scientist = scientist_of(self.study, ask, **further)
        self.scientist.require_plan()
        require_explainable(self.source, self.study, ask, self.parts, **further)

    @property
    def prompts(self) -> Draw:
        n = getattr(self.scientist, "n", None)
        return Draw(n=EXPLAIN_PROMPTS if n is None else n, seed=self.study.seed)

    def check(self, specimen: Specimen) -> None:
        self.scientist.require(specimen, force=self.arguments["force"].force)
        source, components = self.source, self.arguments["components"]
        fields = circuit_fields(specimen, components, source.circuit, source.circuit_from)
        if (circuit := fields.get("circuit")) is not None:
            self.named = list(circuit.chosen())
        elif (names := fields.get("components")) is not None:
            self.named = parse_components(names, specimen.model.config) if names else []

    def check_shape(self) -> None:
        """No circuit can have been found in a model without weights."""
        source, components = self.source, self.arguments["components"]
        if source.circuit is not None or isinstance(components, Circuit | Discovery):
            raise BadInput("a circuit is found in weights, and this model has none; name its components instead")
        if components is not None and source.circuit_from is not None:
            raise BadInput("components and circuit_from both say what to explain; choose one")

    def passes(self, case: Case) -> _Passes:
        given = self.arguments["components"]
        if self.named is None and isinstance(given, str | list | tuple):  # of a model without weights
            names = tuple(map(str, split_names(given)))
            self.named = parse_components(names, case.model.config) if names else []
        passes = self.scientist.cost(case, self.named)
        if self.source.circuit_from is not None and self.source.circuit is None:
            first = circuit_method(self.source.circuit_from)
            passes += first.prompts(case.model.config, DEFAULT_PROMPTS) * planned_cost(first, case) / case.sizes.n
        return _Passes(passes)

    def peak(self, case: Case) -> int:
        """Beside the rows of interventions, the runs that claims come back to."""
        return super().peak(case) + round(self.scientist.kept_prompts(case) * kept_bytes(case.model, case.sizes.width))


class _AlignWork(_Work):
    """Its pairs are drawn and the algorithm runs on them, so that the passes of the map are known."""

    @property
    def prompts(self) -> Draw:
        return Draw(n=self.arguments["draw"].n, seed=self.arguments["draw"].seed)

    def check_shape(self) -> None:
        raise BadInput(
            "the pairs of `align` are drawn with a loaded model's tokenizer, and this one has no weights; add them"
        )

    def case(self, specimen: Specimen) -> Case:
        arguments = self.arguments
        algorithm, rival = algorithms_on(specimen, arguments["aligned"])
        asked = asked_of(arguments["aligned"], arguments["draw"], arguments["sandboxed"])
        self.cost = cost_of(specimen, algorithm, asked, rival=rival)
        case = loaded_case(specimen, min(TIMED_PROMPTS, self.cost.n), asked.seed)
        return replace(case, sizes=replace(case.sizes, n=self.cost.n, width=self.cost.width))

    def passes(self, case: Case) -> _Passes:
        return _Passes(self.cost.mapped / self.cost.n, search_forwards=self.cost.search / self.cost.n)

    def peak(self, case: Case) -> int:
        return self.cost.numbers * case.dtype.itemsize


#: The work of every verb that has a plan.
PLANNED: dict[str, type[_Work]] = {
    "sweep": _SweepWork,
    "discover": _DiscoverWork,
    "neurons": _NeuronsWork,
    "atlas": _AtlasWork,
    "explain": _ExplainWork,
    "align": _AlignWork,
}
