"""Tags against the key, by hand."""

import shutil
from pathlib import Path
from typing import get_args

import pytest

from vesalius.circuits.specimens import benchmark_directory
from vesalius.documents.explanation import ComponentExplanation, Explanation, Tag
from vesalius.errors import BadInput
from vesalius_truth.grading import grade
from vesalius_truth.grading.keys import second_tags, true_tags
from vesalius_truth.grading.tags import always, tag_metrics, tag_rows
from vesalius_truth.key import all_tasks, answer


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
    assert right.component_iia is not None
    assert right.component_iia.value == 0.0  # there is no program
    assert (right.tag_accuracy.value, right.tag_accuracy.n, right.tag_accuracy.baseline) == (1.0, 2, 0.5)
    half = grade(explanation("3", {"L0_MLP": "MAPPER", "L1H2": "AGGREGATOR"}))
    assert half.tag_accuracy.value == 0.5
    assert half.components["3/L0_MLP"]["true"] == "INDICATOR"


def test_a_missing_component_is_wrong_and_unsupported_ones_are_counted_apart() -> None:
    found = grade(explanation("3", {"L1H2": "AGGREGATOR"}, verdict="untested"))
    assert found.tag_accuracy.value == 0.5
    assert found.tag_accuracy_supported.n == 0


def test_an_absent_tag_is_wrong_in_every_column() -> None:
    """Also where the guess by kind would be right: silence earns nothing."""
    absent = ComponentExplanation(id="L1H2", tag=None, tag_by_experiment=None, note="", verdict="supported")
    made = explanation("3", {"L0_MLP": "INDICATOR"})
    found = grade(made.model_copy(update={"components": (*made.components, absent)}))
    assert found.components["3/L1H2"]["guess"] == found.components["3/L1H2"]["true"] == "AGGREGATOR"
    assert (found.tag_accuracy.value, found.tag_accuracy.n) == (0.5, 2)
    assert (found.tag_accuracy_experiment_only.value, found.tag_accuracy_experiment_only.n) == (0.5, 2)
    assert (found.tag_accuracy_supported.value, found.tag_accuracy_supported.n) == (0.5, 2)
    silent = {"true": "ROUTER", "tag": "", "by_model": "", "verdict": "untested", "guess": "ROUTER"}
    by_model = tag_metrics([[silent, silent | {"true": "MAPPER", "by_model": "MAPPER"}]])
    assert (by_model["tag_accuracy_by_model"].value, by_model["tag_accuracy_by_model"].n) == (0.5, 2)


def test_both_readings_are_right_where_the_rule_allows_two() -> None:
    """Of circuit 2 the key calls L1_MLP a COMBINER; a program of the same values makes it a MAPPER."""
    truth = true_tags("2")
    second = second_tags("2")
    assert (truth["L1_MLP"], second) == ("COMBINER", {"L1_MLP": "MAPPER"})
    for tag, right in (("COMBINER", True), ("MAPPER", True), ("INDICATOR", False)):
        rows = tag_rows(explanation("2", {**truth, "L1_MLP": tag}), truth, second)
        found = tag_metrics([list(rows.values())])
        n = len(truth)
        assert found["tag_accuracy"].value == (1.0 if tag == "COMBINER" else (n - 1) / n)
        assert found["tag_accuracy_either_reading"].value == (1.0 if right else (n - 1) / n)
        assert (found["tag_accuracy_one_reading"].value, found["tag_accuracy_one_reading"].n) == (1.0, n - 1)
    silent = tag_rows(explanation("2", {}), truth, second)
    assert tag_metrics([list(silent.values())])["tag_accuracy_either_reading"].value == 0.0


def test_the_baseline_over_all_84_is_the_published_guess() -> None:
    truth = [explanation(task.id, {part.id: part.tag for part in answer(task.id).components}) for task in all_tasks()]
    found = grade(truth, programs=False)
    assert found.tag_accuracy.value == 1.0
    assert found.tag_accuracy.n == 163
    assert found.tag_accuracy.baseline == pytest.approx(104 / 163)


def test_tag_by_tag_and_the_baselines_over_all_84() -> None:
    rows = [list(tag_rows(explanation(t.id, {}), true_tags(t.id)).values()) for t in all_tasks()]
    found = tag_metrics(rows)
    counts = {tag: found[f"tag_accuracy_{tag}"].n for tag in get_args(Tag)}
    assert sum(counts.values()) == 163
    assert all(found[f"tag_accuracy_{tag}"].value == 0.0 for tag in counts)
    assert always("MAPPER", rows) == counts["MAPPER"] / 163
    assert found["tag_accuracy_MAPPER"].baseline == found["tag_accuracy_AGGREGATOR"].baseline == 1.0


def test_a_trained_specimen_is_graded_by_the_program_beside_it(tmp_path: Path) -> None:
    directory = shutil.copytree(benchmark_directory("3"), tmp_path / "mine")  # type: ignore[type-var]
    given = explanation("3", {"L0_MLP": "INDICATOR", "L1H2": "AGGREGATOR"})
    with pytest.raises(BadInput, match="holds no answer_key"):
        grade(given, directory=directory)
    (directory / "answer_key").mkdir()
    spec = Path(__file__).parents[2] / "examples" / "frac_prevs.py"
    shutil.copyfile(spec, directory / "answer_key" / "spec.py")
    # The same program, compiled for a model with fewer heads: its head is L1H0, so L1H2 is not in the key.
    assert grade(given, directory=directory).tag_accuracy.value == 0.5
    moved = explanation("3", {"L0_MLP": "INDICATOR", "L1H0": "AGGREGATOR"})
    assert grade(moved, directory=directory).tag_accuracy.value == 1.0
    with pytest.raises(BadInput, match="is specimen '3', the explanation is of '4'"):
        grade(explanation("4", {}), directory=directory)


def test_nothing_to_grade_and_unknown_circuits_are_refused() -> None:
    with pytest.raises(BadInput, match="no explanation"):
        grade([])
    with pytest.raises(BadInput, match="does not exist"):
        grade(explanation("nosuch", {"L0_MLP": "MAPPER"}))
