"""Records of a published dataset folder: what each function is, joined with its tests."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from vesalius_functions.published import Loaded, Unusable, folder_of, name_in, read_records, usable

F = TypeVar("F")
Record = dict[str, Any]


def functions_of(directory: Path, category: str, make: Callable[[str, Record, Record], F]) -> Loaded[F]:
    """What `make(name, record, tests)` makes of every record of a category; those that it cannot use are left out."""
    folder = folder_of(directory, category, holding=["data.json"])
    tests = _by_name(folder / "unit_test_data.json")
    functions: dict[str, F] = {}
    left_out: dict[str, str] = {}
    for number, record in enumerate(read_records(folder / "data.json")):
        named = record.get("dir") if isinstance(record, dict) else None
        try:
            if not isinstance(record, dict):
                raise Unusable(f"must be an object, not a {type(record).__name__}")
            name = name_in(named)
            if name not in tests:
                raise Unusable(f"unit_test_data.json has no tests for {name!r}; the two files belong together")
            if name in functions:
                raise Unusable("an earlier record has the same `dir`")
            functions[name] = make(name, record, tests[name])
        except Unusable as wrong:
            left_out[f"record {number} ({named!s:.60})"] = str(wrong)
    return usable([*functions.values()], left_out, folder / "data.json")


def texts(record: Record, key: str) -> str:
    """A text of a record."""
    value = record.get(key)
    if not isinstance(value, str) or not value.strip():
        raise Unusable(f"{key!r} is {value!r:.40}, not a text; is this the published layout?")
    return value


def hints(record: Record) -> tuple[str, ...]:
    """The words that interpreters were given to begin with."""
    given = record.get("initial") or []
    if not isinstance(given, list):
        raise Unusable(f"'initial' is a {type(given).__name__}, not a list of words")
    return tuple(str(word) for word in given)


def tests_with_places(test: Record) -> list[tuple[Any, int]]:
    """Every test with the place of its right answer, counted from 0; the files count from 1."""
    places, tested = test.get("correct_inx"), test.get("test_vec")
    if not isinstance(places, list) or not isinstance(tested, list) or len(places) != len(tested):
        raise Unusable("'correct_inx' and 'test_vec' are not lists of the same length")
    if any(place not in (1, 2, 3) for place in places):
        raise Unusable(f"'correct_inx' has {places!r:.60}; its numbers are 1, 2 or 3")
    return [(item, int(place) - 1) for item, place in zip(tested, places, strict=True)]


def _by_name(path: Path) -> dict[str, Record]:
    """Tests by the name of their function; tests without the name of a function are left out."""
    tests_by_name: dict[str, Record] = {}
    for test in read_records(path):
        with suppress(Unusable):
            if isinstance(test, dict):
                tests_by_name[name_in(test.get("name"))] = test
    return tests_by_name
