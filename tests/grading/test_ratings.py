"""Human ratings: files as people write them, slips by row, and agreement worked out by hand."""

import json
from pathlib import Path

import pytest

from vesalius.errors import BadInput
from vesalius_bench.judges import Item
from vesalius_bench.ratings.reading import Rating, rater_agreement, read_ratings

HEADER = "specimen,component,rater,measure,score\n"


def written(tmp_path: Path, text: str, *, name: str = "ratings.csv") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_csv_file_is_read(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "\ufeffrater,specimen,component,measure,score,iteration,comment\n"
        'anna,3,L0_MLP,description_quality,2,,"clear, short"\n'
        "ben,3, blocks.1.attn.hook_result[2] ,plan_soundness,1,2,\n"
        "anna,3,,task_accuracy,0,,\n",
    )
    first, second, third = read_ratings(path)
    assert first == Rating(
        specimen="3", component="L0_MLP", rater="anna", measure="description_quality", score=2, comment="clear, short"
    )
    assert second.item == Item("plan_soundness", "3", "L1H2", 2)
    assert third.item == Item("task_accuracy", "3")


def test_json_says_the_same(tmp_path: Path) -> None:
    rows = [
        {"specimen": 3, "component": "L0_MLP", "rater": "anna", "measure": "description_quality", "score": 2},
        {"specimen": "3", "component": None, "rater": "anna", "measure": "task_accuracy", "score": 1},
    ]
    as_json = read_ratings(written(tmp_path, json.dumps(rows), name="ratings.json"))
    text = HEADER + "3,L0_MLP,anna,description_quality,2\n3,,anna,task_accuracy,1\n"
    assert as_json == read_ratings(written(tmp_path, text))


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("3,L0_MLP,anna,description_quality,3", r"row 3: score '3' is not a whole number from 0 to 2; give one"),
        ("3,,anna,task_accuracy,2", r"row 3: score '2' is not a whole number from 0 to 1"),
        ("3,L0_MLP,anna,description_quality,2.0", r"row 3: score '2\.0'"),
        ("3,L0_MLP,anna,description_quality,", r"row 3: score ''"),
        ("3,L0_MLP,anna,description_quality,²", r"row 3: score '²'"),
        ("3,L0_MLP,anna,quality,1", r"row 3: measure 'quality' is not known; choose from description_quality, "),
        ("3,head five,anna,grounding,1", r"row 3: .*head five"),
        ("3,,anna,grounding,1", r"row 3: "),
        (
            "3,L0_MLP,anna,task_accuracy,1",
            r"row 3: component 'L0_MLP' on a measure of the whole circuit; leave it empty",
        ),
        (",L0_MLP,anna,grounding,1", r"row 3: specimen is empty"),
        ("3,L0_MLP,,grounding,1", r"row 3: rater is empty"),
        ("3,L0_MLP,anna,grounding,1,more", r"row 3: has more or fewer fields than the header"),
        ("3,L0_MLP,anna", r"row 3: has more or fewer fields"),
        ("3,L0_MLP,zoe,grounding,1", r"row 3: zoe has already scored this item; keep one row"),
        ('3,"L0_MLP,anna,grounding,1', r"row \d: is not CSV .* fix its quotes"),
    ],
)
def test_a_slip_is_named_by_its_row(tmp_path: Path, row: str, complaint: str) -> None:
    path = written(tmp_path, f"{HEADER}3,L0_MLP,zoe,grounding,1\n{row}\n")
    with pytest.raises(BadInput, match=complaint) as refused:
        read_ratings(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("a.csv", "", "header: lacks specimen"),
        ("a.csv", "specimen;component;rater;measure;score\n", "header: lacks specimen"),
        ("a.csv", HEADER.replace("\n", ",mood\n"), "header: does not know mood"),
        ("a.csv", HEADER, "holds no ratings"),
        ("a.json", "{", "not readable as JSON"),
        ("a.json", "{}", "is not a list"),
        ("a.json", "[1]", "row 1: is not an object"),
        ("a.json", '[{"specimen": "3"}]', "row 1: lacks component, rater, measure, score"),
        ("a.xlsx", "PK", "kind .xlsx is not known; give a .csv or .json file"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        read_ratings(written(tmp_path, text, name=name))


@pytest.mark.parametrize(("field", "value"), [("score", True), ("score", 1.0), ("iteration", 0), ("iteration", False)])
def test_json_is_taken_at_its_word(tmp_path: Path, field: str, value: object) -> None:
    row = {"specimen": "3", "component": "", "rater": "a", "measure": "task_accuracy", "score": 1, field: value}
    with pytest.raises(BadInput, match=f"{field} {value}"):
        read_ratings(written(tmp_path, json.dumps([row]), name="a.json"))


def test_a_missing_or_foreign_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        read_ratings(tmp_path / "none.csv")
    (tmp_path / "latin.csv").write_bytes(HEADER.encode() + "3,,Zoë,task_accuracy,1\n".encode("latin-1"))
    with pytest.raises(BadInput, match="save it as UTF-8"):
        read_ratings(tmp_path / "latin.csv")


def rated(rater: str, scores: list[int]) -> list[Rating]:
    return [
        Rating(specimen=str(n), component="L0_MLP", rater=rater, measure="description_quality", score=score)
        for n, score in enumerate(scores)
    ]


def test_agreement_by_hand() -> None:
    """Anna and Ben give [[4, 1, 0], [1, 2, 1], [0, 0, 3]]: kappa 47/65, see test_agreement."""
    pairs = [(0, 0)] * 4 + [(0, 1), (1, 0), (1, 1), (1, 1), (1, 2)] + [(2, 2)] * 3
    ratings = [*rated("ben", [b for _, b in pairs]), *rated("anna", [a for a, _ in pairs])]
    (kappa,) = rater_agreement(ratings)["description_quality"].values()
    assert rater_agreement(ratings)["description_quality"].keys() == {"anna | ben"}
    assert (kappa.value, kappa.n, kappa.weighted) == (pytest.approx(47 / 65), 12, True)
