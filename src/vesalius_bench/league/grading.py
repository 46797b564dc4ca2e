"""What a submission to a league is worth: tags, programs, power, false support, bias and coverage.

    power          share of the key's components that are supported and whose program passes the interchange test
    false_support  share of supported components whose program fails it, or that are not in the circuit
    power_tags, false_support_tags   the same by the tag instead of the program
    bias           a stated value less the same quantity measured on fresh inputs: how often the program agrees with
                   the model, and the effect of replacing a component
    coverage       share of the stated intervals that hold the value measured again. The second value varies as the
                   first does, so an honest 95 % interval holds it in 83 % of cases; that is the baseline
    interval_width mean width of the stated intervals, of the range of their quantity: a wide interval holds
                   everything and says nothing

Fresh inputs come from the seed that the caller gives, which a submission must not know. A quantity counts once,
however often it is stated; an interval that is not one, or that leaves the range of its quantity, holds nothing.

A component that no interchange shows counts for no program. Of discovered circuits, power is recall and false support
what of the chosen components is not in the circuit.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from vesalius.documents.circuit import Circuit
from vesalius.documents.explanation import Evidence, Explanation
from vesalius.documents.metric import Metric
from vesalius.errors import BadInput
from vesalius.explanations.retesting import Retester
from vesalius.grading.circuits import Graded, circuit_metrics
from vesalius.grading.discovery import grade_circuit_scores, median_and_mean, true_circuit, with_zeros
from vesalius.grading.keys import graded_specimen, true_tags
from vesalius.grading.programs import GOOD_FROM, Grader
from vesalius.grading.tags import tag_rows
from vesalius.model.specimen import Specimen
from vesalius_bench.league.documents import CircuitScore

#: How often a 95 % interval holds an independent mean of as many values: 2 * Phi(1.96 / sqrt(2)) - 1.
COVERAGE_OF_HONEST = 0.834
#: The area under the ROC curve of scores that are all equal.
CONSTANT_AREA = 0.5
#: Figures are recorded to four places.
_ROUNDING = 1e-4


@dataclass(frozen=True)
class StatedAgain:
    """A value that an explanation states, its interval, the value measured again, and the least that it can be; the
    most is 1.
    """

    stated: float
    low: float
    high: float
    again: float
    least: float = -1.0

    @property
    def covered(self) -> bool:
        """Whether the stated interval is one, and holds the value measured again."""
        return self._is_interval and self.low - _ROUNDING <= self.again <= self.high + _ROUNDING

    @property
    def difference(self) -> float:
        """How far the stated value lies above the one measured again, from -1 to 1."""
        return min(max(self.stated - self.again, -1.0), 1.0)

    @property
    def width(self) -> float:
        """The width of the stated interval as a share of the range; 1 where it is not an interval."""
        return min((self.high - self.low) / (1 - self.least), 1.0) if self._is_interval else 1.0

    @property
    def _is_interval(self) -> bool:
        ends = (self.least - _ROUNDING, self.low, self.stated, self.high, 1 + _ROUNDING)
        return all(one <= other for one, other in pairwise(ends))


@dataclass(frozen=True)
class ScoredExplanation:
    """An explanation of one circuit against its key."""

    id: str
    graded: Graded
    supported_extra: int
    stated: tuple[StatedAgain, ...]

    def _counts(self, *, tags: bool) -> tuple[int, int, int, int]:
        """Components that count, supported and right, supported, supported and wrong."""
        scores = {} if self.graded.program is None else self.graded.program.components
        names = [name for name in self.graded.tags if tags or not (name in scores and scores[name].inert)]
        supported = [name for name in names if self.graded.tags[name]["verdict"] == "supported"]

        def right(name: str) -> bool:
            row = self.graded.tags[name]
            return row["tag"] == row["true"] if tags else (scores[name].iia_changed or 0.0) >= GOOD_FROM

        good = sum(map(right, supported))
        return len(names), good, len(supported) + self.supported_extra, len(supported) - good + self.supported_extra

    def row(self) -> CircuitScore:
        """This circuit in a row."""
        _, _, supported, wrong = self._counts(tags=False)
        values = [score.iia or 0.0 for score in self.graded.scores]
        return CircuitScore(
            id=self.id,
            components=len(self.graded.tags),
            tags_right=self.graded.tags_right,
            supported=supported,
            supported_wrong=wrong,
            iia=round(statistics.fmean(values), 6) if values else None,
        )


def score_explanation(explanation: Explanation, directory: Path, *, case: str, seed: int) -> ScoredExplanation:
    """Hold one explanation against the key and the model in a directory, on the inputs of `seed`."""
    truth = true_tags(case, directory)
    specimen = graded_specimen(case, directory)
    program = Grader(specimen, seed=seed).grade(explanation.executable)
    extra = [part for part in explanation.components if part.id not in truth and part.verdict == "supported"]
    stated = _effects_again(explanation, specimen, seed=seed)
    if (agreement := explanation.program_agreement) is not None:
        stated += _compared(agreement, program.task_agreement, least=0.0)
    return ScoredExplanation(
        case, Graded(tags=tag_rows(explanation, truth), program=program), len(extra), tuple(stated)
    )


def _effects_again(explanation: Explanation, specimen: Specimen, *, seed: int) -> list[StatedAgain]:
    """The effects that claims of necessity state, each beside the same on the inputs of `seed`."""
    known = {str(part) for part in specimen.model.components}
    parts = tuple(part for part in explanation.components if part.id in known)
    if not parts:
        return []
    retester = Retester(specimen, explanation.model_copy(update={"components": parts}), seed=seed)
    pairs: dict[tuple[str, str, str], list[StatedAgain]] = {}
    for part in parts:
        for record in part.claims:
            quantities = [(part.id, one.experiment, one.measure) for one in record.evidence]
            if record.kind != "necessary" or all(quantity in pairs for quantity in quantities):
                continue
            try:
                again = retester.decide(part.id, record)
            except BadInput:  # the claim of another engine, or one that was saved without its prediction
                continue
            measured = {(one.experiment, one.measure): one.value for one in again.evidence}
            for quantity, one in zip(quantities, record.evidence, strict=True):
                pair = _compared(one, measured.get((one.experiment, one.measure)), least=-1.0)
                pairs.setdefault(quantity, pair)
    return [pair for stated in pairs.values() for pair in stated]


def _compared(stated: Evidence, again: float | None, *, least: float) -> list[StatedAgain]:
    if stated.value is None or stated.low is None or stated.high is None or again is None:
        return []
    return [StatedAgain(stated.value, stated.low, stated.high, again, least)]


def explanation_metrics(scored: Sequence[ScoredExplanation]) -> dict[str, Metric]:
    """The metrics of a row of explanations."""
    metrics = circuit_metrics([one.graded for one in scored])
    for suffix, tags in (("", False), ("_tags", True)):
        counts = [one._counts(tags=tags) for one in scored]
        metrics[f"power{suffix}"] = Metric.of_circuits([good for _, good, _, _ in counts], [n for n, _, _, _ in counts])
        metrics[f"false_support{suffix}"] = Metric.of_circuits(
            [wrong for _, _, _, wrong in counts], [supported for _, _, supported, _ in counts]
        )
    sizes = [len(one.stated) for one in scored]
    covered = [sum(pair.covered for pair in one.stated) for one in scored]
    metrics["coverage"] = Metric.of_circuits(covered, sizes, baseline=COVERAGE_OF_HONEST)
    widths = [sum(pair.width for pair in one.stated) for one in scored]
    metrics["interval_width"] = Metric.of_circuits(widths, sizes)
    differences = [sum(pair.difference for pair in one.stated) for one in scored]
    metrics["bias"] = Metric.of_circuits(differences, sizes, baseline=0.0, smallest=-1.0)
    return metrics


@dataclass(frozen=True)
class ScoredCircuit:
    """A discovered circuit against the true one: `right` of its `chosen` components are among the `true` ones."""

    id: str
    node_auroc: float | None
    edge_auroc: float | None
    true: int
    chosen: int
    right: int

    def row(self) -> CircuitScore:
        """This circuit in a row."""
        wrong = self.chosen - self.right
        area = None if self.node_auroc is None else round(self.node_auroc, 6)
        return CircuitScore(
            id=self.id, components=self.true, supported=self.chosen, supported_wrong=wrong, node_auroc=area
        )


def score_circuit(circuit: Circuit | None, directory: Path, *, case: str) -> ScoredCircuit:
    """Hold the scores of a discovered circuit against the program in a directory; None for one that was not found.

    Every component and edge of the model is a candidate: what the circuit does not score has the score 0.
    """
    truth = true_circuit(case, directory)
    shape = graded_specimen(case, directory).model.config
    if circuit is None:
        circuit = Circuit.scored(shape, shape.d_model, {}, {})
    try:
        areas = grade_circuit_scores(with_zeros(circuit, shape), truth)
    except BadInput as error:
        raise BadInput(f"the circuit of {case}: {error}") from None
    chosen = set(circuit.chosen())
    right = len(chosen & truth.components)
    edge_auroc = areas.edge_auroc if circuit.edge_scores else None
    return ScoredCircuit(case, areas.node_auroc, edge_auroc, len(truth.components), len(chosen), right)


def circuit_score_metrics(scored: Sequence[ScoredCircuit]) -> dict[str, Metric]:
    """The metrics of a row of discovered circuits. Where some have scores of edges, the others have the area of a
    constant, 0.5.
    """
    recall = Metric.of_circuits([one.right for one in scored], [one.true for one in scored])
    precision = Metric.of_circuits([one.right for one in scored], [one.chosen for one in scored])
    wrong = Metric.of_circuits([one.chosen - one.right for one in scored], [one.chosen for one in scored])
    nodes = [one.node_auroc for one in scored if one.node_auroc is not None]
    edges = [CONSTANT_AREA if one.edge_auroc is None else one.edge_auroc for one in scored]
    areas = {"node_auroc": nodes, "edge_auroc": edges if any(one.edge_auroc is not None for one in scored) else []}
    metrics: dict[str, Metric] = {}
    for name, values in areas.items():
        if (pair := median_and_mean(values, baseline=CONSTANT_AREA)) is not None:
            metrics[name], metrics[f"{name}_mean"] = pair
    return metrics | {"circuit_recall": recall, "circuit_precision": precision, "power": recall, "false_support": wrong}
