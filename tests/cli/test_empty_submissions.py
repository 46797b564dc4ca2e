"""A submission with nothing in it is one line and exit code 1, and is not taken: what is submitted can be given again.

Of the tools for agents, `tests/mcp/test_agent.py`.
"""

import json
from pathlib import Path

import pytest
from benchmarks.writing import make_files, make_inputs

from tests.cli.conftest import Vesalius

SEALED = ("--passphrase-file", "in/secret.txt")


@pytest.mark.slow
def test_a_league_takes_no_submission_without_results(vesalius: Vesalius, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")

    def run(words: list[str]) -> None:
        assert vesalius(*words).code == 0

    make_files(tmp_path / "in")
    make_inputs(tmp_path / "in", ("league",), run)
    league = tmp_path / "in" / "league"
    (tmp_path / "given" / "nothing").mkdir(parents=True)
    got = vesalius("league", "submit", league, "--explanations", "given/nothing")
    assert (got.code, got.out) == (1, "")
    assert "no circuit of " in got.err
    assert len(got.err.splitlines()) == 1
    submission = league / "submissions" / "nothing" / "submission.json"
    submission.write_text(json.dumps({**json.loads(submission.read_text()), "complete": True}))
    got = vesalius("league", "score", league, "nothing", *SEALED)
    assert (got.code, got.out) == (1, ""), got.err
    assert "holds no result of any circuit; submit again" in got.err
    assert len(got.err.splitlines()) == 1
    assert not list(league.glob("rows/*.json"))


@pytest.mark.parametrize("said", [None, "", " \n\t"])
def test_functions_take_no_answer_without_words(said: str | None, vesalius: Vesalius, tmp_path: Path) -> None:
    folder = tmp_path / "served" / "f00000"
    folder.mkdir(parents=True)
    if said is not None:
        (folder / "description.txt").write_text(said)
    words = ("bench", "functions", "--category", "strings", "--count", 1, "--interpreter", "answers:served")
    got = vesalius(*words, "--jobs", 1, "--out", "run")
    assert (got.code, got.out) == (1, "")
    lines = [line for line in got.err.splitlines() if line.startswith("vesalius: ")]
    assert len(lines) == 1
    assert ("has no description.txt" if said is None else "its description.txt is empty") in lines[0]
