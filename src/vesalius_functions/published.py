"""Where the files of a published dataset are, and what is read from them whatever machine wrote them.

A dataset has a folder per category (`numeric`, `strings`, `neurons_entities`, `neurons_relations`). People point at it
in many ways: at the dataset, at a folder of this or another category, at whatever the download was unpacked into. All
of these are found. A record that cannot be used is left out and kept in `Loaded.left_out` with the reason; a
dataset of which nothing can be used is refused.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PureWindowsPath
from typing import Any, Generic, TypeVar

from vesalius.errors import BadInput, choices
from vesalius.files import parse_json

F = TypeVar("F")
FOLDERS = ("numeric", "strings", "neurons_entities", "neurons_relations")
#: So many folders between what was given and the folder of the category are looked through.
_DEEPEST = 2
#: Longer names no file system takes.
_LONGEST_NAME = 200
ARCHIVES = (".zip", ".tar", ".gz", ".tgz")


class Loaded(list[F], Generic[F]):
    """The functions of a dataset. `left_out` says of the others why: from the function's name to the reason."""

    def __init__(self, functions: Iterable[F] = (), left_out: dict[str, str] | None = None) -> None:
        super().__init__(functions)
        self.left_out: dict[str, str] = dict(left_out or {})


class Unusable(Exception):
    """What is wrong with one record; the others may be right."""


def folder_of(directory: Path, category: str, *, holding: Sequence[str]) -> Path:
    """The folder of a category that holds one of the files: at, above or below the directory that was given."""
    given = Path(directory).resolve()
    if given.is_file():
        fix = "unpack it and give the folder" if given.suffix in ARCHIVES else "give the folder that it is in"
        raise BadInput(f"dataset {given}: is a file; {fix}")
    if not given.is_dir():
        raise BadInput(f"dataset {given}: no such directory")
    for places in _places(given, category):
        folders = [place for place in places if any((place / name).is_file() for name in holding)]
        if len(folders) > 1:
            raise BadInput(f"dataset {given}: holds several, {choices(folders, limit=3)}; give one of them")
        if folders:
            return folders[0]
    wanted = " nor ".join(f"{category}/{name}" for name in holding)
    archives = sorted(path.name for path in given.iterdir() if path.suffix in ARCHIVES)
    fix = f"unpack {archives[0]} first" if archives else "give the folder of a published dataset"
    raise BadInput(f"dataset {given}: there is no {wanted} in it; {fix}")


def _places(given: Path, category: str) -> Iterator[Sequence[Path]]:
    """Where the folder of a category may be, the likeliest first; never a folder that is another category's."""
    yield [given / category]
    if given.name not in FOLDERS or given.name == category:
        yield [given]
    if given.name in FOLDERS:
        yield [given.parent / category]
    if given.parent.name == category:
        yield [given.parent]
    for depth in range(1, _DEEPEST + 1):
        yield sorted(given.glob("/".join(["*"] * depth + [category])))


def read_json(path: Path) -> Any:
    """A JSON file, with or without the mark that some editors put at its beginning."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror}); give the folder of a published dataset") from None
    return parse_json(content, source=path, finite=False)  # Python wrote these files


def read_records(path: Path) -> list[Any]:
    """A JSON file that holds a list with something in it."""
    document = read_json(path)
    if not isinstance(document, list):
        raise BadInput(f"{path}: must be a list of records, not a {type(document).__name__}")
    if not document:
        raise BadInput(f"{path}: the list of records is empty")
    return document


def name_in(place: object) -> str:
    """The function's name at the end of a path of any machine: `f00003` of `/data/x/f00003/` and `D:\\x\\f00003`."""
    if not isinstance(place, str):
        raise Unusable(f"its name is {place!r:.40}, not a text")
    name = PureWindowsPath(place.strip()).name  # takes slashes of both kinds
    if not name or name in (".", ".."):
        raise Unusable(f"its name is {place!r:.40}, which names nothing")
    if len(name) > _LONGEST_NAME or not name.isprintable():
        raise Unusable(f"its name is {place!r:.40}, which no file can have")
    return name


def usable(functions: Sequence[F], left_out: dict[str, str], path: Path) -> Loaded[F]:
    """What was read, with what was left out; refused where nothing is left."""
    if not functions:
        name, reason = next(iter(left_out.items()))
        raise BadInput(f"{path}: none of {len(left_out)} records can be used; the first, {name}: {reason}")
    return Loaded(functions, left_out)


# Records of a published dataset folder: what each function is, joined with its tests.

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
