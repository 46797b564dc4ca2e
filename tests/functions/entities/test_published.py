"""The published layout, written by the test: null second concepts, tests counted from 1, and faulty files."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.functions.needs import needs_vectors
from vesalius.errors import BadInput
from vesalius_functions.entities import load_published, unit_tests

DATA = [
    {"dir": "f00000", "concept1": "horses", "concept2": None, "initial": ["saddle", "bus"]},
    {"dir": "f00001", "concept1": "horses", "concept2": "the cinema", "initial": []},
]
TESTS = [
    {"name": "f00001", "test_vec": [["film", "rice", "pony"]], "correct_inx": [1]},
    {"name": "f00000", "test_vec": [["rice", "sea", "pony"], ["mare", "rain", "ink"]], "correct_inx": [3, 1]},
]


def written(folder: Path, data: Any = None, tests: Any = None) -> Path:
    place = folder / "neurons_entities"
    place.mkdir()
    (place / "data.json").write_text(json.dumps(DATA if data is None else data))
    (place / "unit_test_data.json").write_text(json.dumps(TESTS if tests is None else tests))
    return folder


def test_functions_come_with_their_own_tests(tmp_path: Path) -> None:
    one, two = load_published(written(tmp_path))
    assert (one.id, one.family, one.truth()["concepts"]) == ("f00000", "concept", ["horses"])
    assert (two.family, two.truth()["concepts"]) == ("pair", ["horses", "the cinema"])
    assert [triplet.right.input for triplet in unit_tests(one)] == ["pony", "mare"]
    assert [triplet.right.input for triplet in unit_tests(two)] == ["film"]
    assert one.hints == ("saddle", "bus")
    assert one.mode == "published"
    assert load_published(tmp_path / "neurons_entities")[0].truth() == one.truth()


@needs_vectors
def test_a_published_function_runs_on_vectors(tmp_path: Path) -> None:
    one, two = load_published(written(tmp_path))
    pony, rice = (reply.value for reply in one.replies(["pony", "rice"]))
    assert pony > 0.5 > rice
    assert two.replies(["film"])[0].value > one.replies(["film"])[0].value


@pytest.mark.parametrize(
    ("data", "tests", "message"),
    [
        ({}, TESTS, "must be a list of records, not a dict"),
        (DATA[:1], TESTS[:1], "no tests for 'f00000'"),
        ([{"dir": "f00000", "concept1": None}], TESTS, "'concept1' is None"),
        (DATA[:1], [TESTS[1] | {"correct_inx": [0, 1]}], "numbers are 1, 2 or 3"),
        (DATA[:1], [TESTS[1] | {"correct_inx": [1]}], "not lists of the same length"),
        (DATA[:1], [TESTS[1] | {"test_vec": [["a"], ["b"]]}], "not three words"),
    ],
)
def test_other_layouts_are_refused(tmp_path: Path, data: Any, tests: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        load_published(written(tmp_path, data, tests))


def test_a_test_without_a_name_is_nobodys(tmp_path: Path) -> None:
    nameless = [{**TESTS[0], "name": name} for name in ("", "/", "..", None)]
    loaded = load_published(written(tmp_path, DATA, [*nameless, 3, *TESTS]))
    assert (len(loaded), loaded.left_out) == (len(DATA), {})


def test_missing_and_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"there is no neurons_entities/data\.json"):
        load_published(tmp_path)
    (tmp_path / "data.json").write_text("[")
    with pytest.raises(BadInput, match=r"unit_test_data\.json: cannot be read"):
        load_published(tmp_path)
    (tmp_path / "unit_test_data.json").write_text(json.dumps(TESTS))
    with pytest.raises(BadInput, match="not readable as JSON"):
        load_published(tmp_path)


def test_a_bad_record_is_left_out_and_the_others_stay(tmp_path: Path) -> None:
    bad = [7, {"dir": "f00009", "concept1": "ponds"}, DATA[0] | {"initial": "saddle"}, DATA[1], DATA[1]]
    loaded = load_published(written(tmp_path, bad))
    assert [function.id for function in loaded] == ["f00001"]
    assert [*loaded.left_out] == ["record 0 (None)", "record 1 (f00009)", "record 2 (f00000)", "record 4 (f00001)"]
    assert "no tests for 'f00009'" in loaded.left_out["record 1 (f00009)"]
