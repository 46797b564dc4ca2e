"""The order of the stages, with stages that only write down that they were called."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from vesalius.documents.explanation import Verdict
from vesalius.documents.trace import Attempt
from vesalius_agents.hyve.stages import Stages, State, run_stages

STUDY = ["plan_observation", "observe"]
TEST = ["hypothesize", "plan_validation", "validate"]
END = ["revise", "classify", "summarize"]


@dataclass
class Calls:
    """Stages that follow a script: the verdict of each attempt, or None where the model states no hypothesis."""

    components: int
    script: Iterator[Verdict | None]
    names: list[str] = field(default_factory=list)

    @property
    def briefing(self) -> SimpleNamespace:
        return SimpleNamespace(circuit=range(self.components))

    def __getattr__(self, name: str) -> Any:
        def stage(state: State) -> State:
            self.names.append(name)
            return state

        return stage

    def plan_observation(self, state: State) -> State:
        self.names.append("plan_observation")
        return replace(state, attempts=())

    def hypothesize(self, state: State) -> State:
        self.names.append("hypothesize")
        verdict = next(self.script)
        if verdict is None:
            return replace(state, hypothesis="", attempts=(*state.attempts, _attempt(state, "", "untested")))
        return replace(state, hypothesis=verdict)

    def validate(self, state: State) -> State:
        self.names.append("validate")
        verdict = cast(Verdict, state.hypothesis)
        return replace(state, attempts=(*state.attempts, _attempt(state, "it counts", verdict)))


def _attempt(state: State, hypothesis: str, verdict: Verdict) -> Attempt:
    return Attempt(iteration=len(state.attempts) + 1, hypothesis=hypothesis, verdict=verdict)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (["supported"], [*STUDY, *TEST, "conclude", *END]),
        (["refuted", "supported"], [*STUDY, *TEST, *TEST, "conclude", *END]),
        (["refuted", "untested", "refuted"], [*STUDY, *TEST, *TEST, *TEST, "conclude", *END]),
        ([None, "supported"], [*STUDY, "hypothesize", *TEST, "conclude", *END]),
        (["refuted", None, None], [*STUDY, *TEST, "hypothesize", "hypothesize", "conclude", *END]),
        ([None, None, None], [*STUDY, "hypothesize", "hypothesize", "hypothesize", "conclude", *END]),
    ],
)
def test_a_component_is_tested_until_a_hypothesis_holds_or_three_were_tried(
    script: list[Verdict | None], expected: list[str]
) -> None:
    stages = Calls(1, iter(script))
    run_stages(cast(Stages, stages))
    assert stages.names == expected


def test_every_component_is_studied_before_they_are_classified_together() -> None:
    stages = Calls(3, iter(["supported", "refuted", "refuted", "refuted", "supported"]))
    run_stages(cast(Stages, stages))
    first, second = [*STUDY, *TEST, "conclude"], [*STUDY, *TEST, *TEST, *TEST, "conclude"]
    assert stages.names == [*first, *second, *first, *END]
