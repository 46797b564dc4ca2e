"""The published functions themselves, where VESALIUS_FIND_DATASET names the folder: every tenth of them."""

import os
from pathlib import Path

import pytest

from vesalius.sandbox import Sandbox
from vesalius_functions import Box
from vesalius_functions.numeric import grade, interpret, load_published, oracle

DATASET = os.environ.get("VESALIUS_FIND_DATASET")


@pytest.mark.skipif(not DATASET, reason="set VESALIUS_FIND_DATASET to a published dataset folder")
def test_the_interpreter_comes_close_to_the_oracle() -> None:
    assert DATASET is not None
    functions = load_published(Path(DATASET))[::10]
    assert {f.kind for f in functions} == {"clean", "corrupted", "noised", "mlp"}
    found, ceiling = [], []
    with Sandbox() as sandbox:
        for function in functions:
            found.append(grade(function, interpret(Box(function, budget=400)), sandbox=sandbox).metrics)
            ceiling.append(grade(function, oracle(function), sandbox=sandbox).metrics)
    assert sum(m["success"] or 0 for m in ceiling) - sum(m["success"] or 0 for m in found) <= 2
    assert not any(m["false_alarm"] for m in found)
    assert all(m["interval_found"] for m in found if m["interval_found"] is not None)
