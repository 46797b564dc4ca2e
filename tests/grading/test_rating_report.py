"""Ratings of several agents by several people, with every figure worked out by hand."""

import csv
from pathlib import Path

import pytest

import vesalius as ves
from vesalius.errors import BadInput
from vesalius_bench.judges.circuit import JudgedCircuit
from vesalius_bench.judges.judge import ORDERS
from vesalius_bench.ratings.agreement import rating_report
from vesalius_bench.ratings.reading import item_fields, item_text, majority, read_ratings
from vesalius_truth.grading.ratings import Item

#: Item, then the scores of three people. Ten texts: (0,0) x 3, (1,1) x 2, (2,2) x 2, (0,1) x 1, (1,2) x 1, (2,0) x 1.
SCORES = [
    *[(0, 0, 0)] * 3,
    *[(1, 1, 1)] * 2,
    *[(2, 2, 2)] * 2,
    (0, 1, 1),
    (1, 2, 0),
    (2, 0, 0),
]
#: Distances seen: 1 + 1 + 2 = 4 of 10. Shares of the first: 0.4, 0.3, 0.3; of the second: 0.4, 0.3, 0.3. Expected:
#: 2 * (0.4 * 0.3 * 1 + 0.4 * 0.3 * 2 + 0.3 * 0.3 * 1) = 0.9. Kappa = 1 - 0.4 / 0.9.
KAPPA = 1 - 0.4 / 0.9


def _opinion(judge: str, score: int, order: str) -> dict[str, object]:
    return {"judge": judge, "order": order, "score": score}


def _file(path: Path) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["run", "agent", "rater", "item", "score", "comment"])
        for number, scores in enumerate(SCORES):
            agent = "alpha" if number < 5 else "beta"
            for rater, score in zip(("ann", "bob", "cem"), scores, strict=True):
                writer.writerow(["r", agent, rater, f"description_quality:{number}:L0_MLP", score, "well, yes"])
    return path


def test_kappa_majority_and_lowest(tmp_path: Path) -> None:
    report = ves.ratings(_file(tmp_path / "r.csv"))
    pair = next(one for one in report.pairs if (one.a, one.b) == ("ann", "bob"))
    assert pair.kappa == pytest.approx(KAPPA)
    assert pair.n == 10
    assert pair.agreement == pytest.approx(0.7)
    assert {one.rater: one.n for one in report.raters} == {"ann": 10, "bob": 10, "cem": 10}
    # alpha: 0 0 0 1 1, halved to the scale from 0 to 1; beta: 2 2, 1 of (0, 1, 1), none of (1, 2, 0), 0 of (2, 0, 0).
    by_agent = {one.agent: one for one in report.majority}
    assert by_agent["alpha"].value == pytest.approx(0.2)
    assert by_agent["alpha"].n_split == 0
    assert by_agent["beta"].value == pytest.approx((1 + 1 + 0.5 + 0) / 4)
    assert by_agent["beta"].n == 4
    assert by_agent["beta"].n_split == 1
    lowest = {one.agent: one for one in report.lowest}
    assert lowest["beta"].value == pytest.approx((2 + 2 + 0 + 0 + 0) / 10)
    assert lowest["beta"].n == 5
    assert report.items[0].item == "description_quality:0:L0_MLP"


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ((2, 2, 0), 2),
        ((0, 1, 2), None),
        ((1,), None),
        ((0, 1), None),
        ((), None),
        ((2, 2, 1, 1), None),
        ((0, 0, 1, 0), 0),
    ],
)
def test_majority(scores: tuple[int, ...], expected: int | None) -> None:
    assert majority(scores) == expected


@pytest.mark.parametrize(
    "item",
    [
        Item("description_quality", "frac_prevs", "L0_MLP"),
        Item("task_accuracy", "made:by me/x"),
        Item("plan_soundness", "3", "L1H2", 2),
    ],
)
def test_items_as_text(item: Item) -> None:
    fields = item_fields(item_text(item), "here")
    assert Item(item.measure, fields["specimen"], fields["component"], int(fields.get("iteration", 1))) == item
    assert fields["measure"] == item.measure


def test_judges_are_held_against_people(tmp_path: Path) -> None:
    ratings = read_ratings(_file(tmp_path / "r.csv"))
    judged = [
        JudgedCircuit.model_validate(
            {
                "specimen": str(number),
                "judges": ["one", "two"],
                "items": [
                    {
                        "measure": "description_quality",
                        "component": "L0_MLP",
                        "score": min(scores[:2]),
                        "judgements": [
                            {"judge": name, "opinions": [_opinion(name, score, order) for order in ORDERS]}
                            for name, score in zip(("one", "two"), scores, strict=False)
                        ],
                    }
                ],
            }
        )
        for number, scores in enumerate(SCORES)
    ]
    report = rating_report(ratings, {"r": judged})
    kappas = {(one.a, one.b, one.kind): one.kappa for one in report.pairs}
    assert kappas["ann", "one", "human-judge"] == pytest.approx(1.0)
    assert kappas["ann", "two", "human-judge"] == pytest.approx(KAPPA)
    assert kappas["one", "two", "judge-judge"] == pytest.approx(KAPPA)
    # The lowest of three people against the lowest of two judges: they differ on (1, 2, 0) alone, by one.
    lowest = kappas["lowest human", "lowest judge", "lowest human-lowest judge"]
    assert lowest is not None
    assert 0.8 < lowest < 1
    assert next(one for one in report.raters if one.rater == "two").kind == "judge"


def test_two_files_and_a_choice_of_specimens(tmp_path: Path) -> None:
    rows = "specimen,component,rater,measure,score\n"
    (tmp_path / "a.csv").write_text(rows + "3,,ann,task_accuracy,1\n4,,ann,task_accuracy,0\n")
    (tmp_path / "b.csv").write_text(rows + "3,,bob,task_accuracy,1\n")
    report = ves.ratings([tmp_path / "a.csv", tmp_path / "b.csv"], ids=["3"])
    assert len(report.items) == 1
    assert report.items[0].scores == {"ann": 1, "bob": 1}
    (tmp_path / "b.csv").write_text(rows + "3,,ann,task_accuracy,0\n")
    with pytest.raises(BadInput, match=r"ann has scored 3 .*a\.csv"):
        ves.ratings([tmp_path / "a.csv", tmp_path / "b.csv"])
    with pytest.raises(BadInput, match="no rating is of 9"):
        ves.ratings(tmp_path / "a.csv", ids=["9"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rater,item,score\nann,quality,1\n", "item 'quality'"),
        ("rater,item,score\nann,description_quality:3,1\n", "is not MEASURE:SPECIMEN"),
        ("rater,item,score\nann,task_accuracy:3:L0H0,1\n", "is not MEASURE:SPECIMEN"),
        ("rater,item,score\nann,task_accuracy:3,2\n", "score"),
        ("rater,item,points\nann,task_accuracy:3,1\n", "lacks score"),
        ("rater,item,score,iteration\nann,task_accuracy:3,1,1\n", "does not know iteration"),
    ],
)
def test_bad_rows_are_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(BadInput, match=message):
        ves.ratings(tmp_path / "r.csv")


def test_published_rows_stand_beside_ours(tmp_path: Path) -> None:
    report = ves.ratings(_file(tmp_path / "r.csv"))
    sheets = {sheet.id: sheet for sheet in ves.api.rating_sheets(report)}
    names = [name for name, _, _ in sheets["Table 7"].rows]
    assert names[:3] == ["ann | bob", "ann | cem", "bob | cem"]
    assert sheets["Table 7"].rows[3][2]["description_quality"] == 0.83
    assert len(sheets["Table 8"].rows) == 4  # the published ones: no judge here
