"""The published layout, written by the test: absolute folders, a misspelt key, blanks that give answers away."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.functions.needs import needs_facts
from vesalius.errors import BadInput
from vesalius_backbones import Scripted, open_backbone
from vesalius_functions.box import Example
from vesalius_functions.knowledge.tables import UNDEFINED, Condition
from vesalius_functions.relations import load_published, unit_tests

pytestmark = needs_facts


def record(number: int, what: str, result: str, exception: str | None = None) -> dict[str, Any]:
    folder = f"/data/somebody/else/f{number:05d}"
    return {"dir": folder, "concept1": what, "concept2": result, "exeption": exception, "initial": ["Spain"]}


COUNTRY, OPERA, BOOK = "a country", "an opera", "the title of a book"
DATA = [
    record(0, COUNTRY, "the capital of that country"),
    record(1, "a gemstone", "the color of that gemstone"),
    record(2, COUNTRY, "the capital of that country", "the input country is in Asia"),
    record(3, OPERA, "the composer of that opera", "the input opera is in German"),
    record(4, BOOK, "the author of that book", "the input book was written after 1900"),
    record(5, "a city", "the country where that city is located", "the input city is in Mexico"),
    record(6, COUNTRY, "the capital of that country", "the input begins with S"),
    record(7, COUNTRY, "the capital of that country", "the input is lovely in spring"),
]
TRIPLET = [["Ruby", "Italy", "John"], ["Red", " Rome", "1940"]]
TESTS = [{"name": f"f{i:05d}", "test_vec": [TRIPLET], "correct_inx": [2]} for i in range(len(DATA))]


def written(folder: Path, data: Any = None, tests: Any = None) -> Path:
    place = folder / "neurons_relations"
    place.mkdir()
    (place / "data.json").write_text(json.dumps(DATA if data is None else data))
    (place / "unit_test_data.json").write_text(json.dumps(TESTS if tests is None else tests))
    return folder


def test_what_the_tables_cover_runs_without_a_language_model(tmp_path: Path) -> None:
    loaded = load_published(written(tmp_path))
    functions = {function.id: function for function in loaded}
    assert list(functions) == ["f00000", "f00002", "f00003", "f00004", "f00005", "f00006"]
    assert [functions[name].exception for name in list(functions)[1:]] == [
        Condition("is", "Asia", "continent"),
        Condition("is", "German", "language"),
        Condition("above", 1900.0, "year"),
        Condition("is", "Mexico", "country"),
        Condition("begins", "s"),
    ]
    assert [*loaded.left_out] == [f"record {n} (/data/somebody/else/f0000{n})" for n in (1, 7)]
    assert "no fact table has 'the color of that gemstone'" in next(iter(loaded.left_out.values()))
    assert functions["f00000"].replies(["France"])[0].value == "Paris"
    assert functions["f00002"].replies(["Japan"])[0].value == UNDEFINED
    assert functions["f00006"].replies(["Spain"])[0].value == UNDEFINED
    assert functions["f00004"].replies(["Emma", "Ulysses"])[0].value == "Jane Austen"
    assert functions["f00004"].replies(["Emma", "Ulysses"])[1].value == UNDEFINED


def test_places_go_by_any_of_their_names_and_keys_by_either_spelling(tmp_path: Path) -> None:
    city = record(0, "a city", "the country where that city is located")
    told = [f"the input city is in {place}" for place in ("the USA", "USA", "the United States")]
    data = [city | {"dir": f"f0000{n}", "exeption": None, "exception": text} for n, text in enumerate(told)]
    loaded = load_published(written(tmp_path, data))
    assert [function.exception for function in loaded] == [Condition("is", "United States", "country")] * 3


def test_a_year_needs_a_table_with_years(tmp_path: Path) -> None:
    data = [record(0, COUNTRY, "the capital of that country", "the input country was founded before 1900"), DATA[2]]
    assert [function.id for function in load_published(written(tmp_path, data))] == ["f00002"]


def test_blanks_go_in_fixed_mode_only(tmp_path: Path) -> None:
    folder = written(tmp_path)
    kept, fixed = (unit_tests(load_published(folder, mode=mode)[0])[0] for mode in ("published", "fixed"))
    assert kept.right == Example("Italy", " Rome")
    assert fixed.right == Example("Italy", "Rome")


def test_a_language_model_runs_them_all(tmp_path: Path) -> None:
    backbone = open_backbone(Scripted(["red"]))
    functions = load_published(written(tmp_path), backbone=backbone)
    assert len(functions) == len(DATA)
    assert functions[1].replies(["Ruby"])[0].value == "red"
    assert functions[1].truth()["rule"] is None
    assert unit_tests(functions[1])[0].correct == 1


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        ([TESTS[0] | {"test_vec": [["Ruby", "Italy", "John"]]}], "not three inputs and three outputs"),
        ([TESTS[0] | {"correct_inx": [4]}], "numbers are 1, 2 or 3"),
        ([{"name": "f00000"}], "not lists of the same length"),
    ],
)
def test_other_layouts_are_refused(tmp_path: Path, tests: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        load_published(written(tmp_path, DATA[:1], tests))
