"""Records of a published dataset folder: what each function is, joined with its tests."""

import json
from pathlib import Path
from typing import Any

from vesalius.errors import BadInput


def records(directory: Path, category: str) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """`(id, description, tests)` of every function of a category; `directory` is the dataset's or the category's.

    Folders in the records are absolute paths of another machine; their last part is the id.
    """
    folder = Path(directory)
    folder = folder / category if (folder / category).is_dir() else folder
    described, tested = (_read(folder / name) for name in ("data.json", "unit_test_data.json"))
    tests = {str(test.get("name")): test for test in tested}
    found = []
    for record in described:
        name = str(record.get("dir", "")).rstrip("/").rpartition("/")[2]
        if name not in tests:
            raise BadInput(f"{folder / 'unit_test_data.json'}: no tests for {name!r}; the two files belong together")
        found.append((name, record, tests[name]))
    return found


def texts(record: dict[str, Any], key: str, where: str) -> str:
    """A text of a record; one clear line where it is not there."""
    value = record.get(key)
    if not isinstance(value, str) or not value.strip():
        raise BadInput(f"published function {where}: {key!r} is {value!r}, not a text; is this the published layout?")
    return value


def places(test: dict[str, Any], where: str) -> list[int]:
    """The places of the right answers, counted from 0; the files count from 1."""
    given, tested = test.get("correct_inx"), test.get("test_vec")
    if not isinstance(given, list) or not isinstance(tested, list) or len(given) != len(tested):
        raise BadInput(f"published function {where}: 'correct_inx' and 'test_vec' are not lists of the same length")
    if any(place not in (1, 2, 3) for place in given):
        raise BadInput(f"published function {where}: 'correct_inx' has {given}; its numbers are 1, 2 or 3")
    return [place - 1 for place in given]


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"{path} does not exist; give the folder of the published dataset") from None
    except ValueError as error:
        raise BadInput(f"{path}: not JSON ({error})") from None
    if not isinstance(content, list) or not all(isinstance(item, dict) for item in content):
        raise BadInput(f"{path}: expected a list of records")
    return content
