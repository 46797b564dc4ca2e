"""The state machine, as a LangGraph graph.

    plan_observation -> observe -> hypothesize -> plan_validation -> validate -> conclude -> classify -> summarize
            ^                         ^   (not supported, tries left)   |            |
            |                         +---------------------------------+            |
            +------------------------------- (more components) ----------------------+

The graph has no checkpointer: every call of the model is on record, so a killed run is simply run again and finds its
calls there (docs/decisions/0008).
"""

from typing import cast

from vesalius.explanations.hyve.prompting import MAX_ITERATIONS
from vesalius.explanations.hyve.stages import Stages, State, after_hypothesis, after_validation

#: Steps per component: plan, observe, three times (hypothesis, plan, validate), conclude.
_STEPS = 3 + 3 * MAX_ITERATIONS


def run_graph(stages: Stages) -> State:
    """Run all stages over all components and return the final state."""
    from langgraph.graph import END, START, StateGraph

    components = len(stages.prompts.circuit)

    def after_component(state: State) -> str:
        return "next" if len(state["findings"]) < components else "all"

    graph = StateGraph(State)
    for name in (
        "plan_observation",
        "observe",
        "hypothesize",
        "plan_validation",
        "validate",
        "conclude",
        "classify",
        "summarize",
    ):
        graph.add_node(name, getattr(stages, name))
    graph.add_edge(START, "plan_observation")
    graph.add_edge("plan_observation", "observe")
    graph.add_edge("observe", "hypothesize")
    graph.add_conditional_edges(
        "hypothesize", after_hypothesis, {"test": "plan_validation", "again": "hypothesize", "done": "conclude"}
    )
    graph.add_edge("plan_validation", "validate")
    graph.add_conditional_edges("validate", after_validation, {"again": "hypothesize", "done": "conclude"})
    graph.add_conditional_edges("conclude", after_component, {"next": "plan_observation", "all": "classify"})
    graph.add_edge("classify", "summarize")
    graph.add_edge("summarize", END)
    first = {"findings": (), "roles": {}, "summary": None}
    limit = components * _STEPS + 10
    return cast(State, graph.compile().invoke(cast(State, first), {"recursion_limit": limit}))
