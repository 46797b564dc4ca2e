"""The list of results: every kind is told by its files, broken ones are listed as such, nothing outside is read."""

import json
import os
from pathlib import Path

import pytest

import vesalius as ves
from tests.report.explanations import frac_prevs
from vesalius.documents import ClaimRecord, Retest
from vesalius.documents.base import FrozenDict
from vesalius.documents.request import Request
from vesalius.errors import BadInput


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    top = tmp_path / "results"
    frac_prevs().save(top / "explained")
    frac_prevs().save(top / "deep" / "er" / "again")
    ves.what_if("frac_prevs", "L1H2", n=2, out=top / "asked")
    (top / "broken").mkdir()
    (top / "broken" / "sweep.json").write_text('{"schema": 2')
    (top / "nothing").mkdir()
    run = {
        "schema": 1,
        "settings": {"benchmark": "circuits", "scientist": "builtin", "specimens": {"3": "x", "4": "y"}},
    }
    (top / "bench").mkdir()
    (top / "bench" / "run.json").write_text(json.dumps(run))
    (top / "bench" / "events.jsonl").write_text('{"event": "explained", "case": "3"}\n')
    return top


def test_every_kind_is_listed(directory: Path) -> None:
    with pytest.warns(ves.Note, match="without checksums"):
        results = ves.results(directory)
    rows = {row.path: row for row in results.results}
    assert sorted(rows) == ["asked", "bench", "broken", "deep/er/again", "explained"]
    assert rows["explained"].kind == "explanation"
    assert rows["explained"].figures == str(frac_prevs()).splitlines()[0]
    assert rows["asked"].figures.startswith("Partly: replacing L1H2 of frac_prevs (zero) lowers the score")
    assert rows["asked"].title == "frac_prevs, L1H2"
    assert rows["broken"].state == "unreadable"
    assert "sweep.json" in rows["broken"].problem
    assert (rows["bench"].state, rows["bench"].done, rows["bench"].total) == ("unfinished", 1, 2)
    assert len(results.of_kind("explanation").results) == 2
    with pytest.raises(BadInput, match="kind 'banana'"):
        results.of_kind("banana")


def test_checks_of_results_are_listed(tmp_path: Path) -> None:
    """A claim that was tested again, and the faithfulness of a circuit."""
    claim = ClaimRecord(kind="necessary", text="L1H2 is necessary.", verdict="supported", evidence=())
    asked = Request(command="retest", specimen="there", options=FrozenDict({"component": "L1H2"}), seed=4)
    decided = {"before": claim, "before_seed": 0, "after": claim.model_copy(update={"verdict": "refuted"})}
    again = Retest(request=asked, specimen="frac_prevs", component="L1H2", claim=1, **decided, seconds=0.5)
    (tmp_path / "again").mkdir()
    again.write(tmp_path / "again" / "retest.json")
    ves.faithfulness("frac_prevs", ["L1H2"], n=2, out=tmp_path / "kept", progress=False)
    rows = {row.path: row for row in ves.results(tmp_path).results}
    assert {path: row.kind for path, row in rows.items()} == {"again": "retest", "kept": "faithfulness"}
    assert rows["again"].title == "frac_prevs, L1H2 necessary"
    assert rows["again"].figures == "seed 0: supported, seed 4: refuted"
    assert rows["kept"].title == "frac_prevs, 1 components"


def test_links_are_not_followed(tmp_path: Path) -> None:
    frac_prevs().save(tmp_path / "outside")
    (tmp_path / "inside").mkdir()
    os.symlink(tmp_path / "outside", tmp_path / "inside" / "link")
    assert ves.results(tmp_path / "inside").results == ()


@pytest.mark.parametrize(
    ("kind", "name"), [("run.json", "events.jsonl"), ("run.json", "scorecard.json"), ("discovery.json", "circuit.json")]
)
def test_links_beside_a_result_are_not_followed(kind: str, name: str, tmp_path: Path) -> None:
    place = tmp_path / "inside" / "one"
    place.mkdir(parents=True)
    (place / kind).write_text(json.dumps({"schema": 1, "settings": {"benchmark": "circuits"}}))
    os.symlink("/dev/zero", place / name)  # a reader would never come to its end
    (row,) = ves.results(tmp_path / "inside").results
    assert (row.state, row.problem.startswith(f"{name}: is a link")) == ("unreadable", True)


def test_nobody_waits_for_a_pipe(tmp_path: Path) -> None:
    for name in ("explanation.json", "calls.jsonl", "run.json"):
        (tmp_path / name.partition(".")[0]).mkdir()
        os.mkfifo(tmp_path / name.partition(".")[0] / name)
    assert ves.results(tmp_path).results == ()


def test_a_file_that_is_too_large_is_listed_and_not_read(tmp_path: Path) -> None:
    for name in ("explanation.json", "events.jsonl", "calls.jsonl"):
        place = tmp_path / name.partition(".")[0]
        place.mkdir()
        with (place / name).open("wb") as file:
            file.truncate(2**33)
    (tmp_path / "events" / "run.json").write_text(json.dumps({"schema": 1, "settings": {"benchmark": "circuits"}}))
    rows = {row.path: row for row in ves.results(tmp_path).results}
    assert {path: row.state for path, row in rows.items()} == {
        "explanation": "unreadable",
        "events": "unreadable",
        "calls": "unfinished",
    }
    assert rows["explanation"].problem == "explanation.json: has 8,192 MB; the list reads files of 128 MB"


@pytest.mark.parametrize("cost", ["NaN", "1e308", "9" * 400])
def test_an_absurd_ledger_does_not_stop_the_list(cost: str, directory: Path) -> None:
    line = f'{{"event": "explained", "used": {{"cost": {cost}}}}}\n'
    (directory / "bench" / "events.jsonl").write_text(2 * line)
    with pytest.warns(ves.Note, match="without checksums"):
        results = ves.results(directory)
    states = {row.path: row.state for row in results.results}
    assert states["bench"] == "unreadable"
    assert states["explained"] == "finished"
    json.dumps(results.as_data(), allow_nan=False)


def test_a_name_that_is_no_text_does_not_stop_the_list(tmp_path: Path) -> None:
    frac_prevs().save(tmp_path / "good")
    place = os.path.join(os.fsencode(tmp_path), b"a\xff")
    os.mkdir(place)
    with open(os.path.join(place, b"sweep.json"), "w") as file:
        file.write("{")
    results = ves.results(tmp_path)
    assert [row.path for row in results.results] == ["good"]
    json.dumps(results.as_data(), ensure_ascii=False).encode()


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such directory"):
        ves.results(tmp_path / "none")
