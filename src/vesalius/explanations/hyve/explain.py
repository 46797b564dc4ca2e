"""A specimen and a language model in, an explanation and its trace out.

The work is done on a copy of the specimen without name, id and kind: the language model sees the weights' behaviour,
the vocabulary or prompts, examples and the component list, and nothing that could give the task away (`setting`).

Everything a run does follows from the model's replies, so a run that was killed is run again with the same backbone
records and goes on where it stopped. Give each case a scope of its own (`backbone.within("case 3")`) where several
share one record.
"""

import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, get_args

from vesalius.backbones import Backbone
from vesalius.components import Component
from vesalius.documents.explanation import Explanation
from vesalius.documents.trace import DEFAULT_PROTOCOL, Protocol, Trace
from vesalius.errors import BadInput
from vesalius.explanations.hyve.asking import Desk
from vesalius.explanations.hyve.loop import run_stages
from vesalius.explanations.hyve.setting import LazyWorkspace, Setting, setting_of
from vesalius.explanations.hyve.stages import Stages, State
from vesalius.explanations.hyve.tools import Memory, Workspace
from vesalius.explanations.hyve.writing import explanation_of
from vesalius.model.specimen import Specimen
from vesalius.progress import Progress
from vesalius.sandbox import Executions


@dataclass(frozen=True)
class HyveResult:
    """What was found, and how."""

    explanation: Explanation
    trace: Trace


def explain_hyve(
    specimen: Specimen,
    *,
    backbone: Backbone,
    protocol: Protocol = DEFAULT_PROTOCOL,
    components: Iterable[str | Component] | None = None,
    seed: int = 0,
    compact: bool = False,
    sandbox_unsafe: bool = False,
    executions: Executions | None = None,
    n: int | None = None,
    top: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> HyveResult:
    """Let a language model explain a specimen, component by component.

    `protocol` is `typed` (claims that the engine decides) or `paper` (free code that the model judges itself).
    `components` names the circuit (default: the specimen's own; of a natural model what the built-in scientist
    selects). Whatever the model says, the explanation is valid: answers that cannot be read are counted in the trace
    and leave a component tentative. Failures that say nothing about the model (no connection, no credit, a spending
    cap) are raised. `sandbox_unsafe` runs the model's code even where it cannot be contained; `executions` keeps what
    it gave, and answers for it where it has been kept. `compact` keeps typed prompts short, for models with a small
    context, by leaving out free code. `n`, `top` and `force` are for natural models: prompts per
    claim, components to select, and whether to go on where the model does not perform the behaviour.
    """
    if protocol not in get_args(Protocol):
        raise BadInput(f"protocol {protocol!r} does not exist; use typed or paper")
    started = time.monotonic()

    def tell(message: str) -> None:
        if progress is not None:
            progress(f"{specimen.name}: {message}", 0, 0)

    desk = Desk(backbone, tell)
    with ExitStack() as stack:
        options: dict[str, Any] = {"n": n, "top": top, "force": force, "compact": compact, "progress": progress}
        setting = setting_of(specimen, components, stack, seed=seed, **options)
        workspace = LazyWorkspace(setting, stack, executions or Executions(), unsafe=sandbox_unsafe)
        stages = stages_on(setting, workspace, desk, protocol, seed=seed)
        state = run_stages(stages)
    seconds, cost = time.monotonic() - started, desk.usage.cost or 0.0
    explanation = explanation_of(state, stages.lab, specimen=specimen.id, seed=seed, cost=cost, seconds=seconds)
    if setting.behaviour is not None:
        explanation = explanation.model_copy(update={"behaviour": setting.behaviour})
    return HyveResult(explanation, trace_of(state, desk, specimen.id, protocol, backbone.name))


def stages_on(setting: Setting, workspace: Workspace, desk: Desk, protocol: Protocol, *, seed: int) -> Stages:
    """The stages in a setting. Claims about a whole circuit are about programs, so natural models have none."""
    prompts = setting.prompts
    memory = Memory(prompts.circuit if setting.behaviour is None else ())
    return Stages(desk, prompts, workspace, setting.lab, protocol == "typed", seed, memory)


def trace_of(state: State, desk: Desk, specimen: str, protocol: Protocol, backbone: str) -> Trace:
    """How the state came about."""
    return Trace(
        specimen=specimen,
        protocol=protocol,
        backbone=backbone,
        components=tuple(finding.trace for finding in state.findings),
        usage=desk.usage,
        problems=tuple(desk.problems),
    )
