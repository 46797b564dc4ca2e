"""`vesalius/circuits`: found by its entry point, solved by our scientists and by an agent, scored as the bench does."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("inspect_ai")

from inspect_ai.log import read_eval_log
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.solver import basic_agent

import vesalius_agents.inspection
from tests.inspection import scientist
from tests.inspection.evaluating import evaluated, figures, said_to_the_model, samples, scripted, values
from vesalius import api
from vesalius.documents.explanation import Explanation
from vesalius.errors import BadInput
from vesalius_agents.inspection import circuits
from vesalius_agents.inspection.circuit_task import FIGURES
from vesalius_agents.inspection.sessions import _SESSIONS
from vesalius_agents.inspection.tools import instruments, submit_explanation
from vesalius_truth import key

ROOT = Path(__file__).parents[2]
#: A circuit of several components, some of them no MAPPER.
OTHER = "3"
SAID: dict[str, Any] = {"information_flow": "tokens to logits", "task_description": "Every token comes back."}
PROGRAM = {"variables": [{"name": "same", "op": "map", "of": ["tokens"], "formula": "x"}], "output": "same"}
CARRIERS = {"L0_MLP": ["same"]}
ANSWER: dict[str, Any] = {"components": {"L0_MLP": {"tag": "mapper", "description": "Copies the token."}}, **SAID}


def test_the_project_says_where_the_tasks_are() -> None:
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["inspect_ai"]
    assert points == {"vesalius": vesalius_agents.inspection.__name__}


@pytest.mark.slow
def test_the_command_finds_the_task_by_the_entry_point(tmp_path: Path) -> None:
    """As an installation of this project writes it; one circuit, one component, the built-in scientist."""
    installed = tmp_path / "site" / "vesalius-0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: vesalius\nVersion: 0\n")
    (installed / "entry_points.txt").write_text("[inspect_ai]\nvesalius = vesalius_agents.inspection\n")
    editable = {"url": ROOT.as_uri(), "dir_info": {"editable": True}}
    (installed / "direct_url.json").write_text(json.dumps(editable))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), *sys.path])}
    command = ["-m", "inspect_ai", "eval", "vesalius/circuits", "-T", "ids=8", "--model", "none/none"]
    places = ["--log-dir", str(tmp_path / "logs"), "--display", "none"]
    done = subprocess.run(
        [sys.executable, *command, *places], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    (path,) = (tmp_path / "logs").iterdir()
    kept = read_eval_log(str(path))
    (sample,) = samples(kept)
    assert kept.eval.task_version == "2"
    assert values(sample)["tag_accuracy"] == values(sample)["task_exact"] == 1.0
    assert not kept.stats.model_usage  # nobody was asked
    assert "true:" in str(sample.scores)


def test_the_figures_are_those_of_our_grading_of_the_same_answers(tmp_path: Path) -> None:
    """Grading weighs components, inspect's mean circuits: one circuit has one component, the other several."""
    log = evaluated(circuits(scientist=scientist.NAME, ids=f"8, {OTHER}"), tmp_path)
    kept = [Explanation.model_validate(sample.store["vesalius:answer"]) for sample in samples(log)]
    graded = api.grade(kept).metrics
    for name in FIGURES:
        rule = "share" if name == "task_exact" else "over_components"
        ours = {end: figures(log, f"vesalius/{rule}_{end}")[name] for end in ("value", "low", "high")}
        assert ours == pytest.approx({end: getattr(graded[name], end) for end in ours}), name
    each = {str(sample.id): values(sample)["tag_accuracy"] for sample in samples(log)}
    right, parts = each[OTHER], len(next(one for one in kept if one.specimen == OTHER).components)
    assert parts > 1
    assert each["8"] == 1.0
    assert right < 1.0
    assert figures(log, "mean")["tag_accuracy"] == pytest.approx((1 + right) / 2)
    assert figures(log, "vesalius/over_components_value")["tag_accuracy"] == pytest.approx(
        (1 + right * parts) / (1 + parts)
    )


@pytest.mark.slow
def test_the_figures_are_those_of_the_bench(tmp_path: Path) -> None:
    log = evaluated(circuits(scientist=scientist.NAME, ids=f"8,{OTHER}"), tmp_path / "logs")
    options: dict[str, Any] = {"ids": ["8", OTHER], "jobs": 1, "out": tmp_path / "run", "progress": False}
    card = api.bench_circuits(scientist=scientist.NAME, **options)
    for name in FIGURES:
        rule = "share" if name == "task_exact" else "over_components"
        ours = {end: figures(log, f"vesalius/{rule}_{end}")[name] for end in ("value", "low", "high")}
        # A scorecard is rounded to six places.
        assert ours == pytest.approx({end: getattr(card.metrics[name], end) for end in ours}, abs=1e-6), name


@pytest.fixture(scope="module")
def by_agent(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An agent that uses every tool, some of them wrongly, and submits twice."""
    model = scripted(
        ("predict", {"inputs": [[4, 8]]}),
        ("predict", {"inputs": [["no such token"]]}),
        ("attention", {"prompt": [4, 8], "layer": 0}),
        ("sweep", {"kind": "resample", "n": 8}),
        ("intervene", {"components": ["L0_MLP"], "kind": "zero", "n": 4}),
        ("intervene", {"components": ["L9H9"], "kind": "zero"}),
        ("check_claim", {"component": "L0_MLP", "claim": {"kind": "necessary"}}),
        ("check_claim", {"component": "L0_MLP", "claim": {"kind": "nonsense"}}),
        ("which_variable", {"component": "L0_MLP", "candidates": {"token": "tokens[i]", "place": "i"}}),
        ("run_code", {"code": "import os\nresult = [predict(inputs[:1]), os.getcwd()]"}),
        ("run_code", {"code": "result = 1 / 0"}),
        ("submit_explanation", {"components": {"L7H7": {"tag": "MAPPER", "description": "x"}}, **SAID}),
        ("submit_explanation", {**ANSWER, "program": PROGRAM, "carriers": CARRIERS}),
    )
    log = evaluated(circuits(ids=[8], agent=True, executions=3), tmp_path_factory.mktemp("agent"), model=model)
    (sample,) = samples(log)
    return sample


def tool_results(sample: Any) -> list[tuple[str, str]]:
    return [
        (message.function or "", message.error.message if message.error else message.text)
        for message in sample.messages
        if message.role == "tool"
    ]


def test_an_agent_is_told_what_its_tools_found(by_agent: Any) -> None:
    said = tool_results(by_agent)
    assert [name for name, _ in said][:3] == ["predict", "predict", "attention"]
    assert json.loads(said[0][1]) == [[4, 8]]
    assert "no such token" in said[1][1]
    assert set(json.loads(said[2][1])) == {"tokens", "L0H0", "L0H1", "L0H2", "L0H3"}
    effects = json.loads(said[3][1])["effect, low, high"]
    assert max(effects, key=lambda name: effects[name][0]) == "L0_MLP"
    assert json.loads(said[4][1])["changed"] > 0
    assert "L9H9" in said[5][1]
    assert said[6][1].startswith("supported: L0_MLP is necessary")
    assert "nonsense" in said[7][1]
    assert '"separation": 1.0' in said[8][1]
    assert "error" not in said[9][1]
    assert "ZeroDivisionError" in said[10][1]
    assert "(0 of 3 executions left)" in said[10][1]
    assert "L7H7" in said[11][1]


def test_a_submission_is_scored_like_the_same_explanation(by_agent: Any) -> None:
    kept = Explanation.model_validate(by_agent.store["vesalius:answer"])
    assert kept.executable is not None
    assert [claim.kind for claim in kept.components[0].claims] == ["necessary"]
    graded = api.grade(kept)
    own = {name: graded.metrics[name].value for name in FIGURES}
    assert values(by_agent) == pytest.approx(own)
    assert own["tag_accuracy"] == own["task_exact"] == own["component_iia"] == 1.0
    assert own["tag_accuracy_experiment_only"] == 0.0  # no claim of it was decided
    assert _SESSIONS == {}


def test_nothing_of_the_key_is_said_before_the_scorer(by_agent: Any) -> None:
    """Neither a message nor a tool's result, the input, or the metadata: not the name, the program, notes or roles."""
    task, answer = key.task("8"), key.answer("8")
    shown = said_to_the_model(by_agent) + json.dumps([by_agent.input, by_agent.metadata], default=str)
    for secret in (task.name, answer.description, answer.program, *(part.note for part in answer.components)):
        assert secret not in shown
    assert "Copies the token." in shown  # what the model said itself is there


def test_the_key_is_opened_by_the_scorer_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a canary in the key's place: solving gets by without it, and scoring runs into it."""
    canary = "canary-5b20-sings-when-the-key-is-open"

    def sings(*_: object, **__: object) -> Any:
        raise RuntimeError(canary)

    monkeypatch.setattr("vesalius_truth.grading.circuits.true_tags", sings)
    for task, model in (
        (circuits(ids=[8]), "none/none"),
        (circuits(ids=[8], agent=True), scripted(("predict", {"inputs": [[4]]}), ("submit_explanation", ANSWER))),
    ):
        log = evaluated(task, tmp_path, model=model, fail_on_error=False)
        assert log.samples is not None
        (sample,) = log.samples
        assert sample.error is not None
        assert canary in sample.error.message
        assert not sample.scores
        assert sample.store["vesalius:answer"]  # the solver was done
        assert canary not in said_to_the_model(sample)


def test_an_agent_that_never_submits_earns_nothing(tmp_path: Path) -> None:
    task = circuits(ids=[8], agent=True, looks=1)
    model = scripted(("predict", {"inputs": [[4]]}), ("predict", {"inputs": [[5]]}))
    (sample,) = samples(evaluated(task, tmp_path, model=model, message_limit=8))
    assert sample.limit is not None
    assert sample.limit.type == "message"
    assert values(sample)["tag_accuracy"] == values(sample)["component_iia"] == 0.0
    assert tool_results(sample)[1] == ("predict", "budget: all 1 looks are used; submit what you found")


def test_another_agent_of_inspect_uses_the_tools(tmp_path: Path) -> None:
    """The basic agent has a submit tool of its own; ours is one more tool."""
    model = scripted(("predict", {"inputs": [[4]]}), ("submit_explanation", ANSWER), ("submit", {"answer": "done"}))
    task = circuits(ids=[8], agent=True)
    task.solver = basic_agent(tools=[*instruments(), submit_explanation()])
    (sample,) = samples(evaluated(task, tmp_path, model=model))
    assert values(sample)["tag_accuracy"] == 1.0
    assert values(sample)["component_iia"] == 0.0  # no program


def test_a_scientist_that_asks_the_model_of_the_evaluation(tmp_path: Path) -> None:
    def answer(*_: object) -> ModelOutput:
        output = ModelOutput.from_content(model="mockllm", content="It counts.")
        output.usage = ModelUsage(input_tokens=5, output_tokens=3, total_tokens=8)
        return output

    model = get_model("mockllm/model", custom_outputs=(answer() for _ in range(99)), memoize=False)
    log = evaluated(circuits(scientist="tests.runs.stand_in:explain", ids=[8]), tmp_path, model=model)
    (sample,) = samples(log)
    assert sample.store["vesalius:answer"]["task_description"] == "It counts."
    assert log.stats.model_usage["mockllm/model"].output_tokens == 6 * 3


def test_an_infrastructure_failure_is_an_error_and_no_score(tmp_path: Path) -> None:
    log = evaluated(circuits(scientist="tests.runs.stand_in:hopeless", ids=[8]), tmp_path, fail_on_error=False)
    assert log.samples is not None
    (sample,) = log.samples
    assert sample.error is not None
    assert "nothing usable" in sample.error.message
    assert not sample.scores


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ids": "no-such-circuit"}, "no-such-circuit"),
        ({"scientist": "nobody"}, "nobody"),
        ({"looks": -1}, "looks -1"),
        ({"specimens": "/nowhere"}, "/nowhere"),
    ],
)
def test_bad_parameters_are_refused_in_one_line(options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said) as refused:
        circuits(**options)
    assert "\n" not in str(refused.value)
