"""The whole pipeline over HTTP with the first layers of a real model, far too small for the task.

What it says differs from machine to machine, so the tests state only what must hold whatever it says.
"""

import json

import pytest

from vesalius.api import load
from vesalius.documents.explanation import Explanation
from vesalius_agents.hyve import explain_hyve, stages
from vesalius_backbones import RetryPolicy, open_backbone
from vesalius_backbones.local import NAME, LocalServer
from vesalius_session import briefing
from vesalius_session.budget import Budget
from vesalius_session.grammar import describe_claims

pytestmark = [pytest.mark.smollm, pytest.mark.slow]


def test_every_stage_runs_and_the_explanation_is_valid(
    shallow_server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One attempt per component: that a refuted hypothesis is followed by another is tested with scripts. Reading the
    prompts takes the time, so they hold two examples, one kind of claim and no list of helpers.
    """
    monkeypatch.setattr(stages, "MAX_ITERATIONS", 1)
    monkeypatch.setattr(briefing, "MAX_ITERATIONS", 1)
    monkeypatch.setattr(briefing, "MOST_EXAMPLES", 2)
    monkeypatch.setattr(briefing, "describe_claims", lambda kinds: describe_claims(kinds).splitlines()[0])
    monkeypatch.setattr(briefing, "helper_lines", lambda *libraries: [])
    # Held to a schema, the model would go to the limits.
    monkeypatch.setattr(briefing, "STAGE_COMPACT", Budget(looks=1, executions=1, claims=1))
    with open_backbone(
        f"local:{NAME}", base_url=shallow_server.url, max_tokens=32, reasks=0, timeout=600, retry=RetryPolicy(tries=2)
    ) as backbone:
        found = explain_hyve(load("frac_prevs"), backbone=backbone, components=["L0_MLP"], compact=True)
    text = json.dumps(found.explanation.model_dump(mode="json"), allow_nan=False)
    assert Explanation.model_validate_json(text) == found.explanation
    (component,) = found.trace.components
    assert len(component.attempts) == 1
    usage, problems = found.trace.usage, found.trace.problems
    # Observation and classification at least, which may hold the hypothesis and the summary; a test, or a hypothesis.
    assert usage.calls >= 2 + len(component.attempts)
    assert usage.cost == 0.0
    assert usage.failed <= min(usage.calls, len(problems))
    assert all(problem.startswith(("L0_MLP ", "classification: ", "summary: ")) for problem in problems)
