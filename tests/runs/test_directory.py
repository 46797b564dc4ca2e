"""A run directory is taken up by the command that made it, and by no other."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.grading.explanations import explained
from vesalius.errors import BadInput
from vesalius.runs.directory import Run, read_run, read_scorecard

SETTINGS = {"scientist": "builtin", "seed": 0, "specimens": {"3": "aa", "4": "bb"}}


def run(directory: Path, **changes: Any) -> Run:
    return Run(directory, settings={**SETTINGS, **changes}, notes={"places": {"3": "/somewhere"}})


def test_a_run_is_taken_up_with_all_it_holds(tmp_path: Path) -> None:
    with run(tmp_path) as first:
        first.ledger.append("explained", case="3")
        first.write_explanation("3", explained("3", executable=None))
    with run(tmp_path) as second:
        assert [record["case"] for record in second.ledger.records] == ["3"]
        assert second.explanation("3") == explained("3", executable=None)
        assert second.explanation("4") is None
    written = read_run(tmp_path)
    assert written["settings"] == SETTINGS
    assert set(written["versions"]) == {"vesalius", "python", "torch"}
    with pytest.raises(BadInput, match="not finished"):
        read_scorecard(tmp_path)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"seed": 1}, "a run with seed 0, not 1"),
        ({"scientist": "hyve"}, "scientist 'builtin', not 'hyve'"),
        ({"specimens": {"3": "aa", "4": "cc"}}, "specimens '4': 'bb', not 'cc'"),
        ({"specimens": {"3": "aa"}}, "specimens '4': 'bb', not None"),
        ({"leave_out": "tables"}, "leave_out None, not 'tables'"),
    ],
)
def test_other_settings_are_named(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    with run(tmp_path):
        pass
    with pytest.raises(BadInput, match=f"{reason}; repeat its command or choose another `out`"):
        run(tmp_path, **changes)
    with run(tmp_path):  # the refusal let go of the lock
        pass


def test_files_that_a_killed_process_had_begun_are_swept_away(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    with run(tmp_path / "made"):
        (tmp_path / "made" / "explanations").mkdir()
        left = [tmp_path / "made" / "scorecard.json.partial-77", tmp_path / "made/explanations/7.json.partial-78"]
        for path in left:
            path.write_text("{")
        (tmp_path / "made/explanations/8.json").write_text("{}")
    with run(tmp_path / "made"):
        assert not any(path.exists() for path in left)
        assert (tmp_path / "made/explanations/8.json").exists()


def test_other_schemas_and_strange_directories_are_refused(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    with run(tmp_path / "made"):
        pass
    path = tmp_path / "made" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 9}))
    with pytest.raises(BadInput, match="schema 9; this version reads schema 1"):
        run(tmp_path / "made")
    path.write_text("{")
    with pytest.raises(BadInput, match="not readable as JSON"):
        run(tmp_path / "made")
    with pytest.raises(BadInput, match="holds made and no run"):
        run(tmp_path)
    path.unlink()
    (tmp_path / "made" / "run.json.partial-77").write_text("{")
    with run(tmp_path / "made") as begun:  # as a process leaves it that was killed at the very beginning
        begun.ledger.append("explained", case="3")
    path.unlink()
    with pytest.raises(BadInput, match=r"has events.jsonl but no run.json"):
        run(tmp_path / "made")
