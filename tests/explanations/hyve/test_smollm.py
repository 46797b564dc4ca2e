"""The whole pipeline over HTTP with a real model that is far too small for the task."""

import json

import pytest

from vesalius.api import load
from vesalius.backbones import Patience, open_backbone
from vesalius.backbones.local import NAME, LocalServer
from vesalius.documents.explanation import Explanation
from vesalius.explanations.hyve import explain_hyve

pytestmark = [pytest.mark.smollm, pytest.mark.slow]


def test_every_stage_runs_and_the_explanation_is_valid(local_server: LocalServer) -> None:
    with open_backbone(
        f"local:{NAME}", base_url=local_server.url, max_tokens=32, reasks=0, timeout=600, patience=Patience(tries=2)
    ) as backbone:
        found = explain_hyve(load("frac_prevs"), backbone=backbone, components=["L0_MLP"])
    text = json.dumps(found.explanation.model_dump(mode="json"), allow_nan=False)
    assert Explanation.model_validate_json(text) == found.explanation
    usage = found.trace.usage
    assert usage.calls >= 8
    assert usage.cost == 0.0
    assert usage.failed == len([problem for problem in found.trace.problems if "no " in problem])
    assert len(found.trace.components[0].attempts) in (1, 2, 3)
