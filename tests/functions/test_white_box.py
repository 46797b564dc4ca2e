"""White-box access: the layers of a net are given whole, in both forms, and nothing of what it approximates is."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy import ndarray

from vesalius import api
from vesalius.errors import BadInput
from vesalius_backbones import Scripted, open_backbone
from vesalius_functions import Box
from vesalius_functions.agents import interpret_with
from vesalius_functions.bench.settings import FunctionSettings
from vesalius_functions.interpreters import task_of
from vesalius_functions.suite import Suite

#: Under seed 0 these are nets, which the package holds, and this is none.
NETS, NO_NET = ("f00003", "f00010"), "f00001"
X = np.linspace(-128, 128, 101)
#: Says how many units the first layer has, or that no layers were given.
READER = """
import json, sys
task = json.loads(sys.stdin.readline())
layers = task.get("layers")
said = "none" if layers is None else f"{len(layers[0]['biases'])} units"
print(json.dumps({"answer": {"description": said, "code": "def f(x):\\n    return 0.0"}}))
"""


def of_seed_0(*ids: str) -> Suite:
    return Suite("numeric", seed=0, ids=ids)


def forward(layers: list[dict[str, Any]]) -> ndarray:
    """The values at X of layers given as weights, biases and activation."""
    values = X[None]
    for layer in layers:
        values = np.array(layer["weights"]) @ values + np.array(layer["biases"])[:, None]
        values = {"relu": np.maximum(values, 0), "identity": values}[layer["activation"]]
    return values[0]


def read_back(text: str) -> list[dict[str, Any]]:
    """The layers that a prompt says."""
    lines, layers = text.splitlines(), []
    for number, line in enumerate(lines):
        if line.startswith("Layer "):
            weights, biases = (lines[number + place].split(": ")[1] for place in (1, 2))
            rows = [[float(value) for value in row.split(",")] for row in weights.split(";")]
            activation = line.split()[-1]
            layers.append({"weights": rows, "biases": list(map(float, biases.split(","))), "activation": activation})
    return layers


def prompt(box: Box, mode: Any = "fixed") -> str:
    heard: list[str] = []

    def reply(request: Any) -> str:
        heard.extend(message.text for message in request.messages)
        return "[DESCRIPTION]: x"

    interpret_with(open_backbone(Scripted(reply)), box, mode=mode)
    return "\n".join(heard)


@pytest.mark.parametrize("index", [0, 1])
def test_what_is_given_reproduces_the_function(index: int) -> None:
    function: Any = of_seed_0(*NETS).functions()[index]
    values = np.array([reply.value for reply in function.replies(X.tolist())])
    box = Box(function, white_box=True)
    task = json.loads(json.dumps(task_of(box, seed=1, timeout=1.0)))
    assert np.allclose(forward(task["layers"]), values, rtol=1e-9, atol=1e-9)
    for mode in ("fixed", "published"):
        text = prompt(box, mode)
        assert np.allclose(forward(read_back(text)), values, rtol=1e-4, atol=1e-3)
        assert 1_000 < len(text) - len(prompt(Box(function), mode)) < 4_000
        for secret in (function.family, function.id, function.truth()["formula"], "mlp", "mse"):
            assert secret not in text
            assert secret not in json.dumps(task)


def test_of_two_nets_nothing_but_the_weights_differs() -> None:
    boxes = [Box(function, white_box=True) for function in of_seed_0(*NETS).functions()]
    first, second = (
        [line for line in prompt(box).splitlines() if not line.startswith(("weights: ", "biases: "))] for box in boxes
    )
    assert first == second
    tasks = [task_of(box, seed=1, timeout=1.0) for box in boxes]
    assert [set(layer) for task in tasks for layer in task["layers"]] == [{"weights", "biases", "activation"}] * 4
    for task in tasks:
        del task["layers"]
    assert tasks[0] == tasks[1]


def test_without_access_or_without_a_net_nothing_is_given() -> None:
    net, other = of_seed_0(NETS[0], NO_NET).functions()[::-1]
    for box in (Box(net), Box(other, white_box=True)):
        assert box.layers is None
        assert "layers" not in task_of(box, seed=1, timeout=1.0)
        assert "Layer" not in prompt(box)


@pytest.mark.parametrize(
    ("suite", "interpreter", "line"),
    [
        (of_seed_0(NO_NET), "command:cat", "`white_box`: none of the functions is a neural net"),
        (Suite("strings", seed=0, count=2), "command:cat", "`white_box`: none of the functions is a neural net"),
        (of_seed_0(*NETS), "builtin", "`white_box`: interpreter builtin does not read weights"),
        (of_seed_0(*NETS), "answers:.", "`white_box`: interpreter answers:. does not read weights"),
    ],
)
def test_refused_where_it_would_change_nothing(suite: Suite, interpreter: str, line: str) -> None:
    with pytest.raises(BadInput, match=line):
        FunctionSettings(suite=suite, interpreter=interpreter, white_box=True)


@pytest.mark.slow
def test_a_run_says_so(tmp_path: Path) -> None:
    (tmp_path / "reader.py").write_text(READER)
    command = f"command:{sys.executable} {tmp_path / 'reader.py'}"
    options: dict[str, Any] = {"category": "numeric", "seed": 0, "ids": [NETS[1], NO_NET], "interpreter": command}
    card = api.bench_functions(**options, white_box=True, jobs=1, out=tmp_path / "run", progress=False)
    said = {
        path.stem: json.loads(path.read_text())["answer"]["description"]
        for path in (tmp_path / "run" / "explanations").glob("*.json")
    }
    assert said == {NETS[1]: "64 units", NO_NET: "none"}
    assert card.access == "white box"
    assert card.request is not None
    assert card.request.options["white_box"] is True
    assert "the weights of 1 of 2 functions" in (card.caveats or ("",))[-1]
    data = json.loads((tmp_path / "run" / "run.json").read_text())
    assert FunctionSettings.of_run(data).white_box
    assert "white_box" not in FunctionSettings(suite=of_seed_0(*NETS)).as_data()
