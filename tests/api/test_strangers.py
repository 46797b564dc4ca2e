"""Results and runs of strangers: what they name is not run, and decides nothing that is the caller's."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vesalius as ves
from vesalius.documents.request import Request
from vesalius.errors import BadInput, Failed
from vesalius.runs import comparing
from vesalius.runs.steps import StepProgress
from vesalius_backbones.runs.steps import RunLimits
from vesalius_functions.bench.benchmark import FunctionsBenchmark
from vesalius_functions.bench.settings import FunctionSettings
from vesalius_functions.suite import Suite

CODE = "import pathlib\npathlib.Path(__file__).with_name('ran').write_text('')\n"
CODE += "def f(*given, **more): ...\nreplies = []\n"


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module of a stranger beside his result, on the path as the current directory of a notebook is."""
    (tmp_path / "planted.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-strangers")
    yield tmp_path
    sys.modules.pop("planted", None)


def request(**fields: Any) -> Request:
    return Request(command="explain", specimen="frac_prevs", components=("L0_MLP",), seed=0, **fields)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"method": "planted:f"}, "`scientist` 'planted:f'"),
        ({"method": "planted:no=such"}, "`scientist`"),
        ({"method": "hyve", "backbone": "scripted:PLACE/planted.py"}, "`backbone` 'scripted:"),
        ({"method": "hyve", "options": {"backbone": "scripted:PLACE/planted.py"}}, "`backbone` 'scripted:"),
        ({"method": "hyve", "backbone": "openai:x", "options": {"base_url": "http://127.0.0.1:9"}}, "`base_url`"),
        ({"method": "command:/bin/true", "options": {"pass_env": ["OPENAI_API_KEY"]}}, "`pass_env`"),
        ({"method": "command:/bin/true", "options": {"allow_network": True}}, "`allow_network`"),
        ({"method": "command:/bin/true", "options": {"allow_read": ["/root"]}}, "`allow_read`"),
        ({"method": "command:/bin/true", "options": {"unsafe_sandbox": True}}, "`unsafe_sandbox`"),
        ({"method": "builtin", "options": {"out": "PLACE/chosen"}}, "`out`"),
    ],
)
def test_a_request_does_not_run_code_or_reach_further_unless_it_is_said_again(
    fields: dict[str, Any], named: str, planted: Path
) -> None:
    stranger = request(**json.loads(json.dumps(fields).replace("PLACE", str(planted))))
    with pytest.raises(BadInput, match=f"the request says {named}.* again"):
        ves.rerun(stranger)
    assert not (planted / "ran").exists()
    assert not (planted / "chosen").exists()


def test_what_the_caller_gives_again_runs(planted: Path) -> None:
    with pytest.raises(Failed, match="returned a NoneType"):
        ves.rerun(request(method="planted:f"), scientist="planted:f", progress=False)
    assert (planted / "ran").exists()


@pytest.mark.parametrize("settings", [{"scientist": "planted:f"}, {"interpreter": "planted:f"}])
def test_a_run_of_a_function_is_replayed_only_if_it_is_trusted(settings: dict[str, str], planted: Path) -> None:
    benchmark = "circuits" if "scientist" in settings else "functions"
    (planted / "run.json").write_text(json.dumps({"schema": 1, "settings": {"benchmark": benchmark, **settings}}))
    with pytest.raises(BadInput, match=r"'planted:f', code that runs with your rights; .* give --trusted"):
        ves.replay(planted)
    assert not (planted / "ran").exists()


@pytest.mark.parametrize("own", [False, True])
def test_a_run_without_a_sandbox_is_replayed_in_one(own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run allowed its programs is written in it, and is not what whoever replays it allows them."""
    suite = Suite("strings", seed=0, count=1)
    settings = FunctionSettings(suite=suite, interpreter="command:/bin/cat", grading_seed=1)
    limits = {"sandbox_unsafe": True, "allow_network": True, "pass_env": ["OPENAI_API_KEY"], "allow_read": ["/root"]}
    (tmp_path / "run.json").write_text(json.dumps({"schema": 1, "settings": settings.as_data(), "limits": limits}))
    seen: list[RunLimits] = []

    def work(benchmark: FunctionsBenchmark, *, jobs: int) -> Iterator[StepProgress]:
        seen.append(benchmark.limits)
        yield from ()
        raise Failed("nothing is run here")

    monkeypatch.setattr(comparing, "read_scorecard", lambda directory: None)
    monkeypatch.setattr(FunctionsBenchmark, "work", work)
    with pytest.raises(Failed, match="nothing is run here"):
        ves.replay(tmp_path, unsafe_sandbox=own, progress=False)
    assert seen == [RunLimits(sandbox_unsafe=own)]
