"""`vesalius mib align` and `mib interchange`: what they print, what they write, and what they refuse in one line."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Vesalius


@pytest.mark.slow
def test_a_variable_is_written_and_scored_by_commands(vesalius: Vesalius, tmp_path: Path) -> None:
    given = ["arithmetic", "--variable", "answer", "--at", "resid3@end", "--n", "4", "--held-out", "8"]
    written = vesalius("mib", "align", *given, "--out", tmp_path, "--json")
    assert written.code == 0
    document = json.loads(written.out)
    (unit,) = document["units"]
    assert (unit["unit"], unit["accuracy"]["value"]) == ("ResidualStream(Layer-2,Token-last)", 1.0)
    folder = Path(document["folder"])
    assert sorted(path.name.partition(")_")[2] for path in folder.iterdir()) == [
        *("featurizer", "indices", "inverse_featurizer"),
    ]
    again = vesalius("mib", "interchange", folder, "arithmetic", "--n", "8", "--json")
    assert json.loads(again.out)["units"] == document["units"]
    assert "unchanged" in vesalius("mib", "interchange", folder, "arithmetic", "--n", "8").out
    refused = vesalius("mib", "align", *given, "--out", tmp_path)
    assert (refused.code, refused.out) == (2, "")
    assert "is there already" in refused.err


def test_wrong_input_is_refused_in_one_line(vesalius: Vesalius, tmp_path: Path) -> None:
    (tmp_path / "sums_model_total").mkdir()
    for words, said in (
        (["interchange", tmp_path / "model", "arithmetic"], "is not named TASK_MODEL_VARIABLE"),
        (["interchange", tmp_path / "sums_model_total", "arithmetic"], "variable 'total' is not one of arithmetic"),
        (["interchange", tmp_path / "sums_model_answer", "arithmetic"], "is not a directory"),
        (["align", "arithmetic", "--variable", "none", "--out", tmp_path], "variable 'none' is not one of arithmetic"),
        (["align", "arithmetic", "--rows", tmp_path / "no.jsonl", "--task", "x", "--out", tmp_path], "no such file"),
    ):
        refused = vesalius("mib", *words)
        assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
        assert said in refused.err
