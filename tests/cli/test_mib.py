"""`vesalius mib`: a submission is written, checked and scored; wrong ones are refused in one line."""

import json
from pathlib import Path

import pytest

import vesalius as ves
from tests.cli.conftest import Vesalius


def test_the_commands_write_check_and_score(vesalius: Vesalius, tmp_path: Path) -> None:
    run = tmp_path / "run"
    ves.discover("frac_prevs", "eap", n=4, checks=False, out=run)
    out = tmp_path / "submission"
    written = json.loads(vesalius("mib", "write", run, "--out", out, "--json").out)
    assert written == json.loads(vesalius("mib", "check", out, "--json").out)
    assert written["problems"][0] == "MIB has no task frac-prevs"
    score = json.loads(vesalius("mib", "score", out / "frac-prevs_specimen", "frac_prevs", "--n", "4", "--json").out)
    assert score["by_magnitude"][-1] == score["by_score"][-1] == pytest.approx(1)
    assert score["edges"][-1] == written["folders"][0]["items"] == 110
    assert "CMD" in vesalius("mib", "score", out / "frac-prevs_specimen", "frac_prevs", "--n", "4").out
    refused = vesalius("mib", "score", out / "frac-prevs_specimen", "4", "--n", "4")
    assert (refused.code, refused.out) == (2, "")
    assert "another shape" in refused.err
    empty = vesalius("mib", "write", tmp_path, "--out", tmp_path / "other")
    assert (empty.code, empty.out) == (2, "")
    assert "holds no discovery.json" in empty.err
