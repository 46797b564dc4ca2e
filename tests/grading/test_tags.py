"""Tags against the key, by hand."""

import pytest

from vesalius.circuits.key import all_tasks, answer
from vesalius.errors import BadInput
from vesalius.explain.explanation import ComponentExplanation, Explanation
from vesalius.grading import Metric, grade


def explanation(specimen: str, tags: dict[str, str], verdict: str = "supported") -> Explanation:
    parts = [
        ComponentExplanation(id=id, tag=tag, tag_by_experiment=tag, note="", verdict=verdict)  # type: ignore[arg-type]
        for id, tag in tags.items()
    ]
    return Explanation(
        specimen=specimen,
        scientist="builtin",
        components=tuple(parts),
        information_flow="",
        task_description="",
        seconds=0.0,
        seed=0,
    )


def test_frac_prevs_right_and_wrong() -> None:
    right = grade(explanation("frac_prevs", {"L0_MLP": "INDICATOR", "L1H2": "AGGREGATOR"}))
    assert (right.tag_accuracy.value, right.tag_accuracy.n, right.tag_accuracy.baseline) == (1.0, 2, 0.5)
    half = grade(explanation("3", {"L0_MLP": "MAPPER", "L1H2": "AGGREGATOR"}))
    assert half.tag_accuracy.value == 0.5
    assert half.components["3/L0_MLP"]["true"] == "INDICATOR"


def test_a_missing_component_is_wrong_and_unsupported_ones_are_counted_apart() -> None:
    found = grade(explanation("3", {"L1H2": "AGGREGATOR"}, verdict="untested"))
    assert found.tag_accuracy.value == 0.5
    assert found.tag_accuracy_supported.n == 0


def test_the_baseline_over_all_84_is_the_published_guess() -> None:
    truth = [explanation(task.id, {part.id: part.tag for part in answer(task.id).components}) for task in all_tasks()]
    found = grade(truth)
    assert found.tag_accuracy.value == 1.0
    assert found.tag_accuracy.n == 163
    assert found.tag_accuracy.baseline == pytest.approx(104 / 163)


def test_nothing_to_grade_and_unknown_circuits_are_refused() -> None:
    with pytest.raises(BadInput, match="no explanation"):
        grade([])
    with pytest.raises(BadInput, match="does not exist"):
        grade(explanation("nosuch", {"L0_MLP": "MAPPER"}))


def test_a_share_has_its_wilson_interval() -> None:
    found = Metric.of_share(9, 10)
    assert (round(found.low, 3), round(found.high, 3)) == (0.596, 0.982)
