"""The order of the stages.

    plan_observation -> observe -> hypothesize -> plan_validation -> validate -> conclude -> classify -> summarize
            ^                         ^   (not supported, tries left)   |            |
            |                         +---------------------------------+            |
            +------------------------------- (more components) ----------------------+

There is no checkpoint: every call of the model is on record, so a killed run is run again and finds its calls there
(docs/decisions/0008).
"""

from collections.abc import Mapping
from dataclasses import replace

from vesalius.explanations.hyve.stages import Finding, Stages, State


def run_stages(stages: Stages) -> State:
    """Run all stages over all components and return the final state."""
    return stages.summarize(stages.classify(study_components(stages)))


def study_components(stages: Stages, given: Mapping[str, Finding] | None = None) -> State:
    """Study all components but those whose finding is `given`."""
    state = State()
    for component in stages.prompts.circuit:
        finding = (given or {}).get(str(component))
        if finding is None:
            state = _study_component(stages, state)
        else:
            state = replace(state, findings=(*state.findings, finding))
    return stages.revise(state)


def _study_component(stages: Stages, state: State) -> State:
    """Observe the next component, then state and test hypotheses until one is supported or the attempts are used up."""
    state = stages.observe(stages.plan_observation(state))
    while not state.settled:
        state = stages.hypothesize(state)
        if state.hypothesis:
            state = stages.validate(stages.plan_validation(state))
    return stages.conclude(state)
