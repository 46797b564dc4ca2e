"""The recorded runs in `examples/recorded`: anybody replays them without the model and gets the same explanation.

They quote the prompts of their day. Where a prompt changed, record them again: `python scripts/record_runs.py`.
"""

from pathlib import Path
from typing import Any

import pytest

import vesalius as ves
from tests.closeness import assert_same_document
from vesalius.documents.explanation import Explanation
from vesalius.documents.trace import Trace

RECORDED = Path(__file__).parents[1] / "examples" / "recorded"
RUNS = sorted(path.name for path in RECORDED.iterdir() if path.is_dir())


def stored(run: str) -> Explanation:
    return Explanation.read(RECORDED / run / "explanation.json")


def without_predictions(explanation: Explanation) -> Any:
    """Files of earlier versions hold no typed predictions."""
    data = explanation.as_data()
    for claim in (claim for part in data["components"] for claim in part["claims"]):
        claim.pop("prediction", None)
    return data


def test_there_is_a_run_of_each_kind() -> None:
    kinds = {(one.scientist, one.request.protocol) for one in map(stored, RUNS) if one.request is not None}
    assert kinds >= {("hybrid", None), ("hyve", "typed"), ("hyve", "paper")}


@pytest.mark.parametrize("run", RUNS)
def test_a_run_is_small_and_is_that_of_a_real_model(run: str) -> None:
    assert sum(path.stat().st_size for path in (RECORDED / run).iterdir()) < 250_000
    trace = Trace.read(RECORDED / run / "trace.json")
    assert trace.backbone.startswith("local:")
    assert trace.usage.calls > 0
    assert trace.usage.output_tokens > 0


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_a_run_is_replayed_without_the_model(run: str) -> None:
    before = stored(run)
    after = ves.rerun(before, replay=RECORDED / run, progress=False)
    assert isinstance(after, Explanation)
    assert_same_document(without_predictions(after), without_predictions(before), leave_out=("seconds", "request"))
