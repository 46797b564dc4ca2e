"""The README and the record for a register of evaluations say what the tasks are."""

import re
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("inspect_ai")

from vesalius_agents import inspection

PLACE = Path(__file__).parents[2] / "evals" / "vesalius"
TASKS: dict[str, Any] = {name: getattr(inspection, name) for name in ("circuits", "discovery", "functions", "natural")}


@pytest.mark.parametrize("name", TASKS)
def test_the_readme_names_every_parameter_and_its_default(name: str) -> None:
    text = (PLACE / "README.md").read_text()
    section = text.split(f"### `vesalius/{name}`")[1].split("\n#")[0]
    said = {one for line in section.splitlines() if line.startswith("- ") for one in re.findall(r"`(\w+)`", line)}
    parameters = signature(TASKS[name]).parameters
    assert set(parameters) <= said
    for line in section.splitlines():
        if match := re.match(r"- `(\w+)` \(\w+\):.*\(default: `([^`]+)`", line):
            assert str(parameters[match[1]].default) == match[2], line


def test_versions_and_numbers_of_samples_are_those_of_the_tasks() -> None:
    record = yaml.safe_load((PLACE / "eval.yaml").read_text())
    text = (PLACE / "README.md").read_text()
    assert [task["name"] for task in record["tasks"]] == [f"vesalius/{name}" for name in TASKS]
    for entry in record["tasks"]:
        task = TASKS[entry["name"].partition("/")[2]]()
        assert str(task.version) == entry["version"]
        assert len(task.dataset) == entry["dataset_samples"]
        assert f"| `{entry['name']}` | {entry['version']} | {entry['dataset_samples']}" in text
