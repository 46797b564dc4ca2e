"""The result of a benchmark: one scorecard for circuits, discovery and functions.

The fields up to `errors` are those that every benchmark has; the others belong to the benchmark that their comment
names, and a file holds those that its benchmark set. Cases that the machinery failed on are counted in `n_error`,
listed in `errors`, and are in no figure.
"""

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from vesalius.documents.base import FileName, FrozenMap, Ran, Record, ShownDocument
from vesalius.documents.metric import Metric, metric_facts, metric_sheet
from vesalius.documents.request import Request
from vesalius.documents.view import Answer, Facts, Row, Section, Sheet, Text, View, as_table, interval
from vesalius.values import JsonObject

SCORECARD_FILE = "scorecard.json"
#: The figures of a discovery method: each has its median over circuits under this name, its mean under NAME_mean.
AREAS = ("node_auroc", "edge_auroc", "edge_auroc_all", "cmd", "cpr", "edge_cmd", "edge_cpr", "jaccard")
MEAN = "_mean"
#: The metrics that a repr shows first; of the discovery benchmark, the medians over circuits.
HEADLINES = (
    "tag_accuracy",
    "component_iia",
    "component_iia_changed",
    "task_exact",
    "success",
    "exact_match",
    "unit_test",
    *(f"{method}.node_auroc" for method in ("sweep", "eap", "eap-ig", "relp", "relp-qk", "acdc")),
)

#: What `bench discovery --hard` adds.
HARD_FIGURES = ("node_precision", "edge_precision", "guarantee_coverage", "best_false", "false_rivals")
#: Families of functions that a summary names.
SHOWN_FAMILIES = 8


class CaseError(Record):
    """A case that something failed on: at which step, or with which method, and why."""

    ABSENT_IF_DEFAULT = ("step", "method")

    case: str
    step: str | None = None
    method: str | None = None
    kind: str
    reason: str


class CallTotals(Record):
    """Calls of a language model, their tokens (`cached_tokens` of them from the provider's cache) and what they cost in
    dollars (None: not known).
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float | None = 0.0


class Baseline(Record):
    """A figure to read a metric beside, and where it comes from."""

    name: str
    value: float | None
    source: str


class NullFigures(Record):
    """What a null explanation earns; `alike` counts components of which it predicts what the explanation predicts."""

    tag_accuracy: Metric
    component_iia: Metric
    component_iia_changed: Metric
    component_iia_changed_mean: Metric
    component_iia_above_chance: Metric
    component_iia_changed_above_chance: Metric
    alike: int = 0


class InertComponents(Record):
    """Components that no interchange shows, as CIRCUIT/COMPONENT; they are in no interchange figure."""

    n: int
    components: tuple[str, ...]


class CircuitRow(Record):
    """One circuit of the circuits benchmark."""

    id: FileName
    name: str
    components: int
    tags_right: int
    supported: int
    iia: float | None
    iia_changed: float | None
    task_agreement: float | None
    task_exact: bool
    cost: float | None
    seconds: float


class MethodFigures(Record):
    """A discovery method over the circuits where each figure is defined: medians, and means under NAME_mean.

    `forwards` is the mean cost per circuit in forward passes of its prompts, `seconds` the sum.
    """

    node_auroc: Metric | None = None
    node_auroc_mean: Metric | None = None
    edge_auroc: Metric | None = None
    edge_auroc_mean: Metric | None = None
    edge_auroc_all: Metric | None = None
    edge_auroc_all_mean: Metric | None = None
    cmd: Metric | None = None
    cmd_mean: Metric | None = None
    cpr: Metric | None = None
    cpr_mean: Metric | None = None
    edge_cmd: Metric | None = None
    edge_cmd_mean: Metric | None = None
    edge_cpr: Metric | None = None
    edge_cpr_mean: Metric | None = None
    jaccard: Metric | None = None
    jaccard_mean: Metric | None = None
    forwards: float
    seconds: float
    n: int
    n_error: int

    def area(self, name: str) -> tuple[Metric, Metric] | None:
        """The median and the mean of one of `AREAS`; None where it is not defined on any circuit."""
        median, mean = getattr(self, name), getattr(self, name + MEAN)
        return None if median is None else (median, mean)


class HardFigures(Record):
    """What `bench discovery --hard` adds for one method on one circuit.

    `node_precision` and `edge_precision` are precisions at the true size. `guaranteed` is the lower bound of the share
    of prompts that the chosen components keep right, `kept_right` that share on many fresh prompts, and
    `guarantee_held` whether the bound is below it. Of `rivals` circuits that are as faithful as the best on held-out
    prompts (the best among them), `false_rivals` hold a component that is not in the known circuit; `best_false` says
    whether the best one does.
    """

    node_precision: float | None = None
    edge_precision: float | None = None
    guaranteed: float | None = None
    kept_right: float | None = None
    guarantee_held: bool | None = None
    rivals: int = 0
    false_rivals: int = 0
    best_false: bool | None = None


class DiscoveryFigures(Record):
    """One method on one circuit. `chance` holds the same figures of random rankings or circuits, `chosen` the
    components that would be explained.
    """

    node_auroc: float | None
    edge_auroc: float | None
    edge_auroc_all: float | None
    cmd: float | None
    cpr: float | None
    edge_cmd: float | None
    edge_cpr: float | None
    jaccard: float | None
    jaccard_size: int | None
    chance: FrozenMap[str, float]
    chosen: tuple[str, ...]
    prompts: int
    held_out: int
    forwards: float
    seconds: float
    work_seconds: float
    hard: HardFigures | None = None


class DiscoveryRow(Record):
    """One circuit of the discovery benchmark, by method."""

    id: str
    name: str
    methods: FrozenMap[str, DiscoveryFigures]


class Family(Record):
    """The functions of one family: how many, how many less than right, and the mean of the deciding figure."""

    n: int
    failed: int
    value: float | None


class FunctionFailure(Record):
    """A function whose answer is less than right, with the figure that decides it."""

    ABSENT_IF_DEFAULT = ("success", "exact_match", "unit_test")

    id: str
    family: str
    success: float | None = None
    exact_match: float | None = None
    unit_test: float | None = None
    fault: str | None = None


class Scorecard(ShownDocument, kind="scorecard"):
    """What a subject (a scientist, methods, an interpreter) earned in a benchmark."""

    FILE = SCORECARD_FILE
    RANK = None
    SCHEMA = 2
    REMEDY = "give the command of the run again"
    #: Fields that every file has.
    COMMON: ClassVar[tuple[str, ...]] = ("benchmark", "subject", "schema", "n", "n_error", "metrics", "cost", "seconds")

    benchmark: Literal["circuits", "discovery", "functions"]
    subject: str
    schema_version: Literal[2] = Field(default=2, alias="schema")
    request: Request | None = None
    seed: int
    n: int
    n_error: int
    metrics: FrozenMap[str, Metric]
    cost: float | None
    seconds: float
    errors: tuple[CaseError, ...] = ()
    directory: str | None = Field(default=None, exclude=True)

    # circuits and functions
    backbone: str | None = None
    usage: FrozenMap[str, CallTotals] | None = None

    # circuits
    protocol: str | None = None
    own_prompts: FrozenMap[str, str] | None = None
    judges: tuple[str, ...] | None = None
    grading_seed: int | None = None
    leave_out: str | None = None
    baselines: FrozenMap[str, tuple[Baseline, ...]] | None = None
    nulls: FrozenMap[str, NullFigures] | None = None
    inert: InertComponents | None = None
    circuit_from: str | None = None
    missed: tuple[str, ...] | None = None
    extra: tuple[str, ...] | None = None
    grounding_levels: FrozenMap[str, float] | None = None
    execution_errors: FrozenMap[str, Metric] | None = None
    convergence_by_iteration: FrozenMap[str, Metric] | None = None
    specimens: tuple[CircuitRow, ...] | None = None

    # discovery
    prompts: int | None = None
    held_out_prompts: int | None = None
    prompts_of_acdc: str | None = None
    methods: FrozenMap[str, MethodFigures] | None = None
    cases: tuple[DiscoveryRow, ...] | None = None

    # functions
    category: str | None = None
    mode: str | None = None
    suite: str | None = None
    evaluator: str | None = None
    budget: int | None = None
    access: Literal["white box"] | None = None
    families: FrozenMap[str, Family] | None = None
    kinds: FrozenMap[str, FrozenMap[str, float]] | None = None
    failures: tuple[FunctionFailure, ...] | None = None
    caveats: tuple[str, ...] | None = None

    # circuits and functions: how a foreign program ran, the least confined of its runs
    ran: Ran | None = None
    left_out: FrozenMap[str, str] | None = None

    def table(self, *, cases: bool = False) -> Any:
        """Metrics with their intervals, counts and baselines; or the cases, where the scorecard lists them."""
        return as_table(self._case_rows() if cases else metric_sheet(self.metrics).records())

    def view(self) -> View:
        """Every metric beside its baseline, then what the benchmark adds, then the cases."""
        cost = "unknown" if self.cost is None else f"${self.cost:.2f}"
        category = f", {self.category}" if self.category else ""
        what = {"circuits": "circuits", "discovery": "circuits", "functions": "functions"}[self.benchmark]
        cases = self._case_rows()
        # The metrics, and below them what explanations without content earn.
        rows = dict(self.metrics)
        for null, figures in (self.nulls or {}).items():
            rows[f"null {null}: iia above chance"] = figures.component_iia_above_chance
            rows[f"null {null}: iia changed above chance"] = figures.component_iia_changed_above_chance
        return View(
            f"bench {self.benchmark}{category}: {self.subject}",
            Answer(
                f"Scorecard of {self.benchmark}{category}: {self.subject}, {self.n} {what}, {self.n_error} errors, "
                f"cost {cost}, {self.seconds:.0f} s"
            ),
            [
                metric_facts(self.metrics, first=HEADLINES),
                *([Text([self.ran.sentence])] if self.ran else []),
                metric_sheet(rows, title="Metrics", terminal=0 if self.methods else 100),
                *self._of_circuits(),
                *self._of_methods(),
                *self._of_functions(),
                *(
                    [
                        Text(
                            [f"{one.case}: {one.reason}" for one in self.errors],
                            bullets=True,
                            title="Errors",
                            terminal=0,
                        )
                    ]
                    if self.errors
                    else []
                ),
                *([Sheet.of(cases, title="Case by case", terminal=0)] if cases else []),
            ],
            command=self.request.command_line() if self.request else None,
            files=[("numbers", f"{self.directory}/{SCORECARD_FILE}")] if self.directory else [],
            place=f"{self.directory}/report.html" if self.directory and self.benchmark != "discovery" else None,
        )

    def _of_circuits(self) -> Iterator[Section]:
        inert = self.inert
        if self.benchmark == "circuits":
            shown = f": {', '.join(inert.components)}" if inert and inert.components else ""
            facts = [("components that no interchange shows", f"{0 if inert is None else inert.n}{shown}")]
            for one in (self.baselines or {}).get("tag_accuracy", ()):
                facts.append((f"tag accuracy, {one.name}", f"{one.value:.3f} ({one.source})"))
            calls = sum(part.calls for part in (self.usage or {}).values())
            facts.append(("effort", f"{calls} calls of language models, {self.seconds:.0f} s of work"))
            yield Facts(facts)

    def _of_methods(self) -> Iterator[Section]:
        """Medians and means of every method of discovery, and what they cost."""
        rows = []
        for method, figures in (self.methods or {}).items():
            for name in AREAS:
                if (area := figures.area(name)) is not None:
                    median, mean = area
                    rows.append(
                        (method, name, median.value, _ends(median), mean.value, _ends(mean), median.n, median.baseline)
                    )
        if not rows:
            return
        columns = ("method", "figure", "median", "95 % interval", "mean", "of the mean", "n", "chance")
        yield Sheet(columns, rows, title="Methods", terminal=200)
        hard = {name: metric for name, metric in self.metrics.items() if name.endswith(HARD_FIGURES)}
        if hard:
            yield metric_sheet(hard, title="On hard circuits", terminal=100)
        yield Facts(
            [
                (
                    method,
                    f"{one.forwards:.1f} forward-equivalents per circuit, {one.seconds:.1f} s in all, "
                    f"{one.n_error} errors",
                )
                for method, one in (self.methods or {}).items()
            ]
        )

    def _of_functions(self) -> Iterator[Section]:
        """The families that went wrong most often, and what to know about the figures."""
        worst = [(name, row) for name, row in (self.families or {}).items() if row.failed][:SHOWN_FAMILIES]
        if worst:
            yield Facts([("less than right", ", ".join(f"{name} {row.failed} of {row.n}" for name, row in worst))])
        if self.caveats:
            yield Text(self.caveats)

    def _case_rows(self) -> list[Row]:
        if self.specimens is not None:
            return [row.model_dump() for row in self.specimens]
        if self.cases is not None:
            names = ("forwards", "seconds", "held_out")
            return [
                {"id": row.id, "name": row.name, "method": method}
                | {name: getattr(figures, name) for name in (*AREAS, *names)}
                for row in self.cases
                for method, figures in row.methods.items()
            ]
        return [{"family": name, **family.model_dump()} for name, family in (self.families or {}).items()]

    @model_serializer(mode="wrap")
    def _only_set(self, handler: SerializerFunctionWrapHandler) -> JsonObject:
        aliases = {"schema_version": "schema"}
        kept = {aliases.get(name, name) for name in self.model_fields_set} | {*self.COMMON, "schema_version"}
        return {name: value for name, value in handler(self).items() if name in kept}


def _ends(metric: Metric) -> str:
    return interval(metric.low, metric.high)
