"""Natural circuits with a key: hand-worked grades, and the two keys themselves."""

import json
from pathlib import Path
from typing import Any

import pytest

from vesalius.circuits.specimens import KEY_FOLDER
from vesalius.documents.claims import ClaimRecord, ComponentExplanation
from vesalius.documents.explanation import Explanation
from vesalius.errors import BadInput
from vesalius_truth.grading.natural import graded_against, natural_tasks
from vesalius_truth.key.natural import NaturalKey, arithmetic_key, standin_keys
from vesalius_truth.planted import TRUTH_FILE

#: Six components; A, B and C stand in for each other in pairs as the groups say.
KEY = NaturalKey(
    judged=frozenset({"L0H0", "L0H1", "L0H2", "L0H3", "L1H0", "L1_MLP"}),
    members=frozenset({"L0H0", "L0H1", "L0H2", "L1_MLP"}),
    places={"L0H0": frozenset({"operand A"}), "L0H1": frozenset({"operand A"}), "L0H2": frozenset({"operand B"})},
    groups=(frozenset({"L0H0", "L0H1"}),),
)


def claim(kind: str, verdict: str = "supported", **prediction: Any) -> ClaimRecord:
    return ClaimRecord(kind=kind, text=f"{kind}.", verdict=verdict, evidence=(), prediction=prediction)


def explanation(**claims: list[ClaimRecord]) -> Explanation:
    parts = [
        ComponentExplanation(id=id, tag=None, tag_by_experiment=None, note="", verdict="supported", claims=tuple(own))
        for id, own in claims.items()
    ]
    return Explanation.model_construct(components=tuple(parts))


def test_a_grade_worked_by_hand() -> None:
    """Named are L0H0, L0H2, L0H3 and L2H5, of which the key does not know the last; L0H1 is only not needed alone."""
    grade = graded_against(
        explanation(
            L0H0=[claim("moves_role", role="operand A"), claim("redundant", others=["L0H1"])],
            L0H1=[claim("not_needed_alone"), claim("necessary", "refuted")],
            L0H2=[claim("attends", role="operand B"), claim("moves_role", role="operand A")],
            L0H3=[claim("necessary"), claim("backup_of", of=["L0H0"])],
            L2H5=[claim("necessary")],
        ),
        {"L0H3": 5.0, "L0H0": 4.0, "L1H0": 3.0, "L0H2": 2.0},
        KEY,
    )
    figures = {name: (metric.value, metric.n) for name, metric in grade.metrics.items()}
    assert grade.named == ("L0H0", "L0H2", "L0H3")
    assert (grade.wrong, grade.missed) == (("L0H3",), ("L0H1", "L1_MLP"))
    assert figures["found_precision"] == (2 / 3, 3)
    assert figures["found_recall"] == (2 / 4, 4)
    assert figures["top_precision"] == (1 / 3, 3), "L0H3, L0H0 and L1H0 have the largest effects"
    assert figures["top_recall"] == (1 / 4, 4)
    assert grade.metrics["found_precision"].baseline == 4 / 6
    assert grade.metrics["found_recall"].baseline == 3 / 6
    assert figures["roles"] == (1 / 2, 2), "L0H2 is also said to move A"
    assert figures["backup_precision"] == (1 / 2, 2)
    assert figures["backup_recall"] == (1.0, 1)
    assert figures["false_support"] == (3 / 6, 6)
    assert [text.partition(":")[0] for text in grade.contradicted] == ["L0H2", "L0H3", "L0H3"]


def pair_key(*pairs: str, closed: str = "") -> NaturalKey:
    """Heads 0 to 4 of one layer, of which pairs of ablations are known."""
    groups = tuple(frozenset(f"L0H{head}" for head in pair) for pair in pairs)
    judged = frozenset(f"L0H{head}" for head in range(5))
    sought = frozenset({"B", "induction"})
    places = {"L0H0": frozenset({"B", "induction"})}
    return NaturalKey(
        judged, judged, places, groups, sought, closed=frozenset(f"L0H{head}" for head in closed), pairs_only=True
    )


@pytest.mark.parametrize(
    ("made", "key", "false", "precision"),
    [
        (claim("redundant", others=["L0H1", "L0H2"]), pair_key("01", "12", "02"), (0, 1), (1.0, 3)),
        (claim("redundant", others=["L0H1", "L0H2"]), pair_key("01", closed="234"), (0, 0), (1 / 3, 3)),
        (claim("redundant", others=["L0H1"]), pair_key(closed="1"), (1, 1), (0.0, 1)),
        (claim("redundant", others=["L0H1"]), pair_key(), (0, 0), (None, 0)),
        (claim("backup_of", of=["L0H1", "L0H2"]), pair_key("01", "02", closed="34"), (0, 1), (1.0, 2)),
        (claim("backup_of", of=["L0H1", "L1_MLP"]), pair_key("01"), (0, 0), (1.0, 1)),
        (claim("attends", role="B"), pair_key(), (0, 1), (None, 0)),
        (claim("attends", role="S1"), pair_key(), (0, 0), (None, 0)),
    ],
)
def test_a_key_of_pairs_decides_what_it_looked_for(
    made: ClaimRecord, key: NaturalKey, false: tuple[int, int], precision: tuple[float | None, int]
) -> None:
    """`false` are the contradicted and the decided claims: a triple and a place nobody looked for count as neither."""
    metrics = graded_against(explanation(L0H0=[made]), {}, key).metrics
    wrong, decided = false
    assert metrics["false_support"].n == decided
    assert metrics["false_support"].value == (wrong / decided if decided else None)
    assert (metrics["backup_precision"].value, metrics["backup_precision"].n) == precision


def test_a_second_place_that_nobody_looked_for_leaves_the_role_right() -> None:
    grade = graded_against(explanation(L0H0=[claim("attends", role="B"), claim("attends", role="S1")]), {}, pair_key())
    assert grade.metrics["roles"].value == 1.0


def test_figures_of_pairs_have_no_interval_and_random_pairs_find_no_more_than_there_are() -> None:
    """Ten pairs are said, two heads are named: more pairs than the one of them cannot be drawn."""
    claims = {"L0H0": [claim("redundant", others=["L0H1", "L0H2", "L0H3", "L0H4"])], "L0H1": [claim("necessary")]}
    recall = graded_against(explanation(**claims), {}, pair_key("01", "02", closed="01234")).metrics["backup_recall"]
    assert (recall.value, recall.n, recall.baseline) == (1.0, 2, 0.5), "the one pair of named heads is one of the two"
    assert (recall.low, recall.high) == (None, None)


def test_what_the_lens_alone_shows_names_nobody() -> None:
    assert graded_against(explanation(L0H0=[claim("lens_only")]), {}, KEY).named == ()


def test_nothing_said_has_no_precision_and_no_recall() -> None:
    grade = graded_against(explanation(L0H0=[claim("not_needed_alone")]), {}, KEY)
    assert grade.metrics["found_precision"].value is None
    assert grade.metrics["found_recall"].value == 0
    assert grade.metrics["backup_recall"].value == 0
    assert grade.metrics["false_support"].n == 0


def test_the_key_of_arithmetic_has_the_groups_of_its_study() -> None:
    key = arithmetic_key()
    assert len(key.judged) == 21
    assert key.judged - key.members == {f"L2H{head}" for head in range(6)}
    assert key.places["L0H5"] == {"operand B", "operand C"}
    assert {len(group) for group in key.groups} == {6, 3, 4}


def test_the_key_of_a_stand_in(tmp_path: Path) -> None:
    rows = {
        "L0H0": {"says": "matters alone"},
        "L0H1": {"says": "works against"},
        "L1H0": {"says": "nothing alone"},
        "L1H1": {"says": "nothing alone"},
    }
    task = {
        "heads": rows,
        "roles": {"induction head": ["L0H0"], "previous-token head": []},
        "backups": [{"head": "L1H0", "of": "L0H0"}],
    }
    (tmp_path / KEY_FOLDER).mkdir()
    (tmp_path / KEY_FOLDER / TRUTH_FILE).write_text(json.dumps({"heads": list(rows), "tasks": {"t": task}}))
    key = standin_keys(tmp_path)["t"]
    assert key.members == {"L0H0", "L0H1", "L1H0"}
    assert key.places == {"L0H0": {"B", "induction"}}
    assert key.groups == (frozenset({"L0H0", "L1H0"}),)
    assert key.closed == {"L1H1"}, "the others matter alone, or have a partner that counts most"
    assert (key.sought, key.pairs_only) == ({"B", "induction", "first A", "previous"}, True)
    assert natural_tasks("any", tmp_path) == ["t"]


def test_a_model_without_a_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has no answer key; establish it"):
        standin_keys(tmp_path)
    with pytest.raises(BadInput, match="nothing is known about it"):
        natural_tasks("smollm2-135m")
