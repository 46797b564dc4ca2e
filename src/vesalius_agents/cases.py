"""Single cases of the benchmarks, for harnesses that run cases and sum up themselves.

Solving and grading are apart: what solves never opens the answer key, what grades takes an answer that is finished. The
figures are those of `vesalius bench`, and so are the ways of summing them up.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vesalius.api.loading import loaded
from vesalius.circuits.specimens import SPECIMEN_FILE, benchmark_directory
from vesalius.components import Component, Edge, parse_components
from vesalius.discovery.discover import circuit_method
from vesalius.documents.circuit import Circuit
from vesalius.documents.explanation import Explanation
from vesalius.documents.metric import Metric
from vesalius.documents.scorecard import DiscoveryFigures
from vesalius.errors import BadInput
from vesalius.explanations.retesting import Retester, why_not_again
from vesalius.options import Load
from vesalius_bench.circuits.selection import CircuitCase, chosen_circuits
from vesalius_bench.discovery.benchmark import DiscoverySettings
from vesalius_bench.discovery.cases import DiscoveryCase, discover_case, grade_found
from vesalius_truth.grading.circuits import Grade, grade
from vesalius_truth.grading.discovery import median_and_mean
from vesalius_truth.grading.keys import false_claims

__all__ = [
    "CircuitCase",
    "NaturalGrade",
    "chosen_circuits",
    "discovery_case",
    "find_circuit",
    "grade_circuit_found",
    "grade_natural",
    "grade_submission",
    "median_over_cases",
    "method_named",
    "pooled_over_components",
    "require_graded",
    "scored_circuit",
]


def method_named(method: str, *, n: int, seed: int) -> str:
    """A method of `bench discovery`; refused where there is none, or where the prompts cannot be drawn."""
    DiscoverySettings((CircuitCase("", "", Path()),), (method,), n, seed)
    return method


def discovery_case(method: str | None, circuit: str, directory: str | Path, *, n: int, seed: int) -> DiscoveryCase:
    """A method on one circuit; None for scores that are submitted, which are graded on as many prompts as a sweep."""
    return DiscoveryCase(circuit_method(method or "sweep"), circuit, Path(directory), n, seed)


def find_circuit(case: DiscoveryCase) -> Circuit:
    """What the method of a case finds."""
    return discover_case(case)


def grade_circuit_found(circuit: Circuit, case: DiscoveryCase) -> DiscoveryFigures:
    """Scores against the true circuit, and how faithful their circuits are on prompts that were not seen."""
    return grade_found(circuit, case)


def grade_submission(explanation: Explanation, specimen: str) -> Grade:
    """The grade of an explanation of a benchmark circuit, or of a specimen directory that has an answer key."""
    own = benchmark_directory(specimen)
    return grade(explanation, directory=None if own is not None else Path(specimen))


def require_graded(specimen: str) -> None:
    """Refuse a specimen that has no answer key."""
    if benchmark_directory(specimen) is None and not (Path(specimen) / SPECIMEN_FILE).is_file():
        raise BadInput(f"specimen {specimen!r} has no answer key; explanations of benchmark circuits are graded")


def scored_circuit(specimen: Any, scores: Mapping[str, Any], edges: Mapping[str, Any] | None = None) -> Circuit:
    """Scores by the name of a component or an edge as a circuit; a component that is left out scores zero."""
    model = loaded(specimen, progress=False).model
    config = model.config
    given = {_component(name, config): _number(name, score) for name, score in _mapping("scores", scores).items()}
    named = {_edge(name, config): _number(name, score) for name, score in _mapping("edges", edges or {}).items()}
    everything = {part: given.get(part, 0.0) for part in model.components}
    return Circuit.scored(config, config.d_model, everything, named)


def _mapping(what: str, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise BadInput(f'{what}: give an object of names and numbers, such as {{"L0H1": 0.8}}')
    return given


def _component(name: str, config: Any) -> Component:
    return parse_components([name], config)[0]


def _edge(name: str, config: Any) -> Edge:
    edge = Edge.parse(name)
    for end in (edge.sender, edge.receiver):
        if end is not None:
            end.within(config)
    return edge


def _number(name: str, score: Any) -> float:
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        raise BadInput(f"{name}: score {score!r:.40} is not a finite number")
    return float(score)


@dataclass(frozen=True)
class NaturalGrade:
    """What can be decided of an explanation of a natural model.

    `claims_supported` is the share of all claims that the engine supported when they were made; `claims_confirmed` the
    share of the supported ones that fresh prompts support again, of those that can be tested again; `false_support` the
    share of the supported ones, of those that established roles decide, which contradict them (None where no roles are
    established); `components_supported` the share of components with a supported functional claim.
    """

    claims_supported: Metric
    claims_confirmed: Metric
    components_supported: Metric
    false_support: Metric | None
    contradicted: tuple[str, ...] = ()
    not_confirmed: tuple[str, ...] = ()

    @property
    def metrics(self) -> dict[str, Metric]:
        """The figures by name; what does not apply has no value."""
        none = Metric(value=None, low=None, high=None, n=0)
        return {
            "claims_supported": self.claims_supported,
            "claims_confirmed": self.claims_confirmed,
            "components_supported": self.components_supported,
            "false_support": self.false_support or none,
        }


def grade_natural(explanation: Explanation, specimen: Any = None, *, seed: int = 1) -> NaturalGrade:
    """Grade an explanation of a natural model: its claims on fresh prompts, those of another `seed`, and against
    established roles where there are some.
    """
    subject = loaded(explanation.specimen if specimen is None else specimen, Load(behaviour=explanation.behaviour))
    records = [(part.id, record) for part in explanation.components for record in part.claims]
    lost = sum(part.decided.total() - len(part.claims) for part in explanation.components if not part.profile)
    supported = [(part, record) for part, record in records if record.verdict == "supported"]
    again = Retester(subject, explanation, seed=seed)
    typed = [(part, record) for part, record in supported if why_not_again(explanation, part, record) is None]
    confirmed = [again.decide(part, record).verdict == "supported" for part, record in typed]
    decided = false_claims(subject.source or subject.id, supported)
    parts = explanation.components
    return NaturalGrade(
        claims_supported=Metric.of_share(len(supported), len(records) + lost),
        claims_confirmed=Metric.of_share(sum(confirmed), len(confirmed)),
        components_supported=Metric.of_share(sum(part.verdict == "supported" for part in parts), len(parts)),
        false_support=None if decided is None else Metric.of_share(len(decided.false), decided.n),
        contradicted=() if decided is None else decided.false,
        not_confirmed=tuple(record.text for (_, record), holds in zip(typed, confirmed, strict=True) if not holds),
    )


def pooled_over_components(values: Sequence[float], counts: Sequence[int]) -> Metric:
    """The figure of a circuits scorecard from that of each circuit and the number of components it is of."""
    return Metric.of_circuits([value * n for value, n in zip(values, counts, strict=True)], list(counts))


def median_over_cases(values: Sequence[float]) -> Metric:
    """The figure of a discovery scorecard from that of each circuit."""
    summary = median_and_mean(list(values))
    return Metric(value=None, low=None, high=None, n=0, statistic="median") if summary is None else summary[0]
