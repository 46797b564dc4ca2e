"""The benchmark as a task of inspect_ai, offline: found by its entry point, run, scored, and read back from its log."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("inspect_ai")

import inspect_ai
from inspect_ai.log import read_eval_log
from inspect_ai.model import ModelOutput, ModelUsage, get_model

from vesalius.inspection import circuits

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.slow


def test_the_project_says_where_the_task_is() -> None:
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["inspect_ai"]
    assert points == {"vesalius": circuits.__module__}


def test_the_builtin_scientist_as_an_inspect_task(tmp_path: Path) -> None:
    """Found as `vesalius/circuits` by the entry point that an installation of this project writes."""
    installed = tmp_path / "site" / "vesalius-0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: vesalius\nVersion: 0\n")
    (installed / "entry_points.txt").write_text("[inspect_ai]\nvesalius = vesalius.inspection\n")
    editable = {"url": ROOT.as_uri(), "dir_info": {"editable": True}}
    (installed / "direct_url.json").write_text(json.dumps(editable))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), *sys.path])}
    command = ["-m", "inspect_ai", "eval", "vesalius/circuits", "-T", "ids=8,24", "--model", "none/none"]
    places = ["--log-dir", str(tmp_path / "logs"), "--display", "none"]
    evaluated = subprocess.run(
        [sys.executable, *command, *places], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert evaluated.returncode == 0, evaluated.stderr + evaluated.stdout
    (path,) = (tmp_path / "logs").iterdir()
    kept = read_eval_log(str(path))
    assert kept.status == "success", kept.error
    assert kept.samples is not None
    assert {sample.id for sample in kept.samples} == {"8", "24"}
    assert kept.results is not None
    figures = {score.name: score.metrics["mean"].value for score in kept.results.scores}
    assert set(figures) == {"tag_accuracy", "component_iia", "component_iia_changed", "task_exact"}
    assert figures["tag_accuracy"] == figures["task_exact"] == 1.0
    assert not kept.stats.model_usage  # nobody was asked
    assert "true:" in str(kept.samples[0].scores)


def test_a_scientist_that_asks_the_model_of_the_evaluation(tmp_path: Path) -> None:
    def answer(*_: object) -> ModelOutput:
        output = ModelOutput.from_content(model="mockllm", content="It counts.")
        output.usage = ModelUsage(input_tokens=5, output_tokens=3, total_tokens=8)
        return output

    model = get_model("mockllm/model", custom_outputs=(answer() for _ in range(99)), memoize=False)
    (log,) = inspect_ai.eval(
        circuits(scientist="tests.runs.stand_in:explain", ids=[8]),
        model=model,
        log_dir=str(tmp_path / "logs"),
        display="none",
    )
    assert log.status == "success", log.error
    assert log.samples is not None
    (sample,) = log.samples
    assert sample.metadata["explanation"]["task_description"] == "It counts."
    assert log.stats.model_usage["mockllm/model"].output_tokens == 6 * 3


def test_an_infrastructure_failure_is_an_error_and_no_score(tmp_path: Path) -> None:
    (log,) = inspect_ai.eval(
        circuits(scientist="tests.runs.stand_in:hopeless", ids=[8]),
        model="none/none",
        log_dir=str(tmp_path / "logs"),
        display="none",
        fail_on_error=False,
    )
    assert log.samples is not None
    (sample,) = log.samples
    assert sample.error is not None
    assert "nothing usable" in sample.error.message
    assert not sample.scores
