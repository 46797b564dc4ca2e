"""`vesalius explain` and `vesalius report` on a circuit with a known answer."""

import json
from pathlib import Path

from tests.cli.conftest import Vesalius
from vesalius.explain.explanation import Explanation
from vesalius.grading import grade


def test_explain_keeps_the_contract_and_leaves_a_page(vesalius: Vesalius, tmp_path: Path) -> None:
    left = vesalius("explain", "frac_prevs", "--json", "--out", tmp_path / "run")
    assert left.code == 0, left.err
    document = json.loads(left.out)
    assert {"specimen", "scientist", "components", "information_flow", "task_description", "cost", "seconds"} <= set(
        document
    )
    assert [part["id"] for part in document["components"]] == ["L0_MLP", "L1H2"]
    for part in document["components"]:
        assert {"id", "tag", "note", "verdict", "claims"} <= set(part)
        assert all({"text", "verdict", "evidence"} <= set(claim) for claim in part["claims"])
    found = Explanation.model_validate(document)
    assert grade(found).tag_accuracy.value == 1.0
    assert [part.verdict for part in found.components] == ["supported", "supported"]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "L1H2" in page
    again = vesalius("report", tmp_path / "run", "--json")
    assert json.loads(again.out)["page"].endswith("report.html")


def test_what_cannot_be_explained_is_one_line(vesalius: Vesalius, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "explanation.json").write_text('{"specimen": "3"}')
    for arguments, reason in (
        (["explain", "frac_prevs", "-c", "L9H9"], "component L9H9 is not in this model"),
        (["explain", tiny], "vocabulary"),
        (["report", tmp_path / "nowhere"], "no such file"),
        (["report", tmp_path / "damaged"], "Field required"),
    ):
        left = vesalius(*arguments)
        assert left.code == 2
        assert reason in left.err
        assert left.err.count("\n") == 1
        assert left.out == ""
