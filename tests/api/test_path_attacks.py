"""Leagues and runs of strangers whose names lead elsewhere: nothing outside their folder is read or written."""

import json
from pathlib import Path
from typing import Any

import pytest

from vesalius import api
from vesalius.documents.scorecard import Scorecard
from vesalius.errors import BadInput
from vesalius.report.pages import render_circuits

GOLDEN = Path(__file__).parents[1] / "documents" / "golden"
NAMES = {
    "above": "../../elsewhere",
    "above by a detour": "c01/../../../elsewhere",
    "from the root": "/tmp/elsewhere",
    "the folder itself": ".",
    "its parent": "..",
    "hidden": ".bashrc",
    "below": "a/b",
    "below, as Windows writes it": "..\\elsewhere",
    "nothing": "",
    "a null": "c01\0",
    "very long": "c" * 5000,
}


def league_of(name: str) -> dict[str, Any]:
    circuit = {"id": name, "weights_sha256": "0" * 64, "layers": 1, "heads": 1, "d_model": 8}
    return {"schema": 1, "made": "now", "circuits": [circuit], "key": "sealed", "key_sha256": "0" * 64}


def below(place: Path) -> set[Path]:
    return set(place.rglob("*"))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("entrant", [{"scientist": "empty"}, {"explanations": "."}])
def test_a_league_does_not_say_where_a_submission_is_written(
    name: str, entrant: dict[str, str], tmp_path: Path
) -> None:
    league = tmp_path / "a" / "b" / "league"
    league.mkdir(parents=True)
    (league / "league.json").write_text(json.dumps(league_of(NAMES[name])))
    before = below(tmp_path)
    with pytest.raises(BadInput, match="is not the name of a file"):
        api.submit_league(league, **entrant, progress=False)
    assert below(tmp_path) == before


@pytest.mark.parametrize("name", NAMES)
def test_a_run_does_not_say_where_its_pages_are_written(name: str) -> None:
    data = json.loads((GOLDEN / "scorecard_circuits.json").read_text())
    data["specimens"][0]["id"] = NAMES[name]
    with pytest.raises(BadInput, match="is not the name of a file"):
        Scorecard.from_data(data)


def test_a_folder_of_pages_that_is_a_link_is_not_written_to(tmp_path: Path) -> None:
    run, home = tmp_path / "run", tmp_path / "home"
    run.mkdir()
    home.mkdir()
    (run / "run.json").write_text(json.dumps({"schema": 1, "settings": {"benchmark": "circuits"}, "versions": {}}))
    (run / "scorecard.json").write_text((GOLDEN / "scorecard_circuits.json").read_text())
    (run / "pages").symlink_to(home)
    with pytest.raises(BadInput, match="is a link"):
        render_circuits(run)
    assert below(home) == set()
