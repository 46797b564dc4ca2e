"""What a submission to a league is worth: tags, programs, power, false support, bias and coverage.

    power          share of the key's components that are supported and whose program passes the interchange test
    false_support  share of supported components whose program fails it, or that are not in the circuit
    power_tags, false_support_tags   the same by the tag instead of the program
    bias           a stated value less the same quantity measured on fresh inputs: how often the program agrees with
                   the model, and the effect of replacing a component
    coverage       share of the stated intervals that hold the value measured again. The second value varies as the
                   first does, so an honest 95 % interval holds it in 83 % of cases; that is the baseline

A component that no interchange shows counts for no program. Of discovered circuits, power is recall and false support
what of the chosen components is not in the circuit.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vesalius.components import Component
from vesalius.documents.circuit import Circuit
from vesalius.documents.explanation import Evidence, Explanation
from vesalius.documents.league import CircuitScore
from vesalius.documents.metric import Metric
from vesalius.errors import BadInput
from vesalius.explanations.retesting import decide_again
from vesalius.grading.circuits import Graded, circuit_metrics
from vesalius.grading.discovery import grade_circuit_scores, median_and_mean, true_circuit
from vesalius.grading.keys import graded_specimen, true_tags
from vesalius.grading.programs import GOOD_FROM, Grader, fresh_seed
from vesalius.grading.tags import tag_rows
from vesalius.model.specimen import Specimen

#: How often a 95 % interval holds an independent mean of as many values: 2 * Phi(1.96 / sqrt(2)) - 1.
COVERAGE_OF_HONEST = 0.834
#: Figures are recorded to four places.
_ROUNDING = 1e-4
#: Seeds of claims decided again: no scientist is given one of these.
_AGAIN = 800_011


@dataclass(frozen=True)
class StatedAgain:
    """A value that an explanation states, its interval, and the value measured again."""

    stated: float
    low: float
    high: float
    again: float

    @property
    def covered(self) -> bool:
        """Whether the stated interval holds the value measured again."""
        return self.low - _ROUNDING <= self.again <= self.high + _ROUNDING


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


def score_explanation(explanation: Explanation, directory: Path, *, case: str) -> ScoredExplanation:
    """Hold one explanation against the key and the model in a directory."""
    truth = true_tags(case, directory)
    specimen = graded_specimen(case, directory)
    grader = Grader(specimen, seed=fresh_seed(explanation.seed))
    program = grader.grade(explanation.executable)
    extra = [part for part in explanation.components if part.id not in truth and part.verdict == "supported"]
    stated = [*_effects_again(explanation, specimen)]
    if (agreement := explanation.program_agreement) is not None:
        stated += _compared(agreement, program.task_agreement)
    return ScoredExplanation(
        case, Graded(tags=tag_rows(explanation, truth), program=program), len(extra), tuple(stated)
    )


def _effects_again(explanation: Explanation, specimen: Specimen) -> list[StatedAgain]:
    """The effects that claims of necessity state, each beside the same on inputs of another seed."""
    pairs: list[StatedAgain] = []
    for part in explanation.components:
        for record in part.claims:
            if record.kind != "necessary":
                continue
            try:
                again = decide_again(specimen, explanation, part.id, record, seed=explanation.seed + _AGAIN)
            except BadInput:  # the claim of another engine, or one that was saved without its prediction
                continue
            measured = {(one.experiment, one.measure): one.value for one in again.evidence}
            for one in record.evidence:
                pairs += _compared(one, measured.get((one.experiment, one.measure)))
    return pairs


def _compared(stated: Evidence, again: float | None) -> list[StatedAgain]:
    if None in (stated.value, stated.low, stated.high, again):
        return []
    assert stated.value is not None
    assert stated.low is not None
    assert stated.high is not None
    assert again is not None
    return [StatedAgain(stated.value, stated.low, stated.high, again)]


def explanation_metrics(scored: Sequence[ScoredExplanation]) -> dict[str, Metric]:
    """The metrics of a row of explanations."""
    made = circuit_metrics([one.graded for one in scored])
    for suffix, tags in (("", False), ("_tags", True)):
        counts = [one._counts(tags=tags) for one in scored]
        made[f"power{suffix}"] = Metric.of_circuits([good for _, good, _, _ in counts], [n for n, _, _, _ in counts])
        made[f"false_support{suffix}"] = Metric.of_circuits(
            [wrong for _, _, _, wrong in counts], [supported for _, _, supported, _ in counts]
        )
    covered = [sum(pair.covered for pair in one.stated) for one in scored]
    sizes = [len(one.stated) for one in scored]
    made["coverage"] = Metric.of_circuits(covered, sizes, baseline=COVERAGE_OF_HONEST)
    apart = [sum(pair.stated - pair.again for pair in one.stated) for one in scored]
    made["bias"] = Metric.of_circuits(apart, sizes, baseline=0.0, smallest=-1.0)
    return made


@dataclass(frozen=True)
class ScoredCircuit:
    """A discovered circuit against the true one."""

    id: str
    node_auroc: float | None
    edge_auroc: float | None
    true: int
    chosen: int
    found: int

    def row(self) -> CircuitScore:
        """This circuit in a row."""
        wrong = self.chosen - self.found
        area = None if self.node_auroc is None else round(self.node_auroc, 6)
        return CircuitScore(
            id=self.id, components=self.true, supported=self.chosen, supported_wrong=wrong, node_auroc=area
        )


def score_circuit(circuit: Circuit, directory: Path, *, case: str) -> ScoredCircuit:
    """Hold the scores of a discovered circuit against the program in a directory."""
    truth = true_circuit(case, directory)
    areas = grade_circuit_scores(circuit, truth)
    chosen = {Component.parse(str(name)) for name in circuit.chosen()}
    found = len(chosen & truth.components)
    return ScoredCircuit(case, areas.node_auroc, areas.edge_auroc, len(truth.components), len(chosen), found)


def circuit_score_metrics(scored: Sequence[ScoredCircuit]) -> dict[str, Metric]:
    """The metrics of a row of discovered circuits."""
    recall = Metric.of_circuits([one.found for one in scored], [one.true for one in scored])
    precision = Metric.of_circuits([one.found for one in scored], [one.chosen for one in scored])
    wrong = Metric.of_circuits([one.chosen - one.found for one in scored], [one.chosen for one in scored])
    made: dict[str, Metric] = {}
    areas: Mapping[str, list[float]] = {
        name: [value for one in scored if (value := getattr(one, name)) is not None]
        for name in ("node_auroc", "edge_auroc")
    }
    for name, values in areas.items():
        if (pair := median_and_mean(values, baseline=0.5)) is not None:
            made[name], made[f"{name}_mean"] = pair
    return made | {"circuit_recall": recall, "circuit_precision": precision, "power": recall, "false_support": wrong}
