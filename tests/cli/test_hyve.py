"""`vesalius explain --scientist hyve`: files, resume, replay, and refusals in one line."""

import json
from pathlib import Path

import pytest

from tests.agents.hyve.scripts import WALKTHROUGH
from tests.cli.conftest import Vesalius
from tests.closeness import assert_same_document
from vesalius.documents.explanation import Explanation
from vesalius.documents.trace import Trace
from vesalius.sandbox import sandbox as sandbox_module
from vesalius.sandbox.warm_process import WarmProcess
from vesalius_session import setting

pytestmark = pytest.mark.slow

SCRIPT = f"scripted:{WALKTHROUGH}"


def test_a_model_explains_and_leaves_its_files(vesalius: Vesalius, tmp_path: Path) -> None:
    out = tmp_path / "run"
    left = vesalius("explain", "frac_prevs", "--scientist", "hyve", "--backbone", SCRIPT, "--json", "--out", out)
    assert left.code == 0, left.err
    found = Explanation.model_validate_json(left.out)
    assert found.scientist == "hyve"
    assert json.loads((out / "explanation.json").read_text()) == json.loads(left.out)
    trace = Trace.model_validate_json((out / "trace.json").read_text())
    assert (trace.protocol, trace.usage.calls) == ("typed", 21)
    page = (out / "report.html").read_text()
    assert "decided by the language model from its own code, not by the engine" in page
    assert "decided by the engine, by rule" in page
    usage = json.loads(vesalius("compare", out, "--json").out)["usage"][0]
    assert [stage["stage"] for stage in usage["stages"]] == [
        "observe",
        "hypothesise",
        "validate",
        "classify",
        "summarise",
    ]
    for name in ("calls", "input_tokens", "output_tokens", "cached_tokens"):
        assert sum(stage[name] for stage in usage["stages"]) == getattr(trace.usage, name)
    replayed = vesalius(
        "explain", "frac_prevs", "--backbone", SCRIPT, "--replay", out, "--out", tmp_path / "again", "-v"
    )
    assert replayed.code == 0, replayed.err
    traces = [json.loads((folder / "trace.json").read_text()) for folder in (tmp_path / "again", out)]
    assert_same_document(*traces)
    assert "supported (by the language model): We hypothesise" in " ".join(replayed.out.split())


def test_code_of_a_model_runs_uncontained_only_where_that_is_asked_for(
    vesalius: Vesalius, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unisolated(WarmProcess):
        def __init__(self, start: dict, **options: float) -> None:
            super().__init__({**start, "layers": []}, **options)

    monkeypatch.setattr(sandbox_module, "WarmProcess", Unisolated)
    monkeypatch.setattr(setting, "Sandbox", sandbox_module.Sandbox)  # not one that an earlier test left open
    command = ("explain", "frac_prevs", "--backbone", SCRIPT, "--json")
    refused = vesalius(*command, "--out", tmp_path / "refused")
    assert refused.code == 1
    assert "cannot contain" in refused.err
    allowed = vesalius(*command, "--unsafe-sandbox", "--out", tmp_path / "allowed")
    assert allowed.code == 0, allowed.err
    assert Explanation.model_validate_json(allowed.out).scientist == "hyve"


def test_text_of_a_model_is_printed_as_it_is(vesalius: Vesalius, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "def reply(request):\n"
        "    if request.label == 'classification':\n"
        "        return {'json': {'L0_MLP': {'tag': 'MAPPER', 'description': '[/red] [bold] <script>'}}}\n"
        "    return '[/red]'\n"
    )
    left = vesalius(
        "explain", "frac_prevs", "-c", "L0_MLP", "--backbone", f"scripted:{script}", "--out", tmp_path / "r"
    )
    assert left.code == 0, left.err
    assert "[/red] [bold] <script>" in left.out
    assert "<script>" not in (tmp_path / "r" / "report.html").read_text().split("<main", 1)[1].split("</main", 1)[0]


def test_refusals_are_one_line(vesalius: Vesalius, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    for arguments, reason in (
        (["frac_prevs", "--backbone", "oracle:delphi"], "no such provider"),
        (["frac_prevs", "--backbone", "openai:gpt-5.4"], "OPENAI_API_KEY"),
        (["frac_prevs", "--backbone", SCRIPT, "--max-cost", "0"], "no call could be made"),
        (["frac_prevs", "--backbone", SCRIPT, "--protocol", "free"], "use typed, paper"),
        (["frac_prevs", "--scientist", "hyve"], "give --backbone"),
        (
            ["frac_prevs", "--scientist", "builtin", "--backbone", SCRIPT],
            "scientist builtin asks no language model",
        ),
        (
            ["frac_prevs", "--scientist", "oracle"],
            "use builtin, command, hybrid, hyve, programs, scripted or package.module:function",
        ),
        (["frac_prevs", "--backbone", SCRIPT, "--replay", tmp_path / "nowhere"], "no recorded calls"),
        ([tiny, "--backbone", SCRIPT], "name what to explain it for"),
    ):
        left = vesalius("explain", *arguments, "--out", tmp_path / "out")
        assert (left.code, left.out) == (2, ""), arguments
        assert reason in left.err
        assert left.err.count("\n") == 1
