"""A specimen and a language model in, an explanation and its trace out.

The work is done on a copy of the specimen without name, id and kind: the language model sees the weights' behaviour,
the vocabulary or prompts, examples and the component list, and nothing that could give the task away (`setting`).

Everything a run does follows from the model's replies, so a run that was killed is run again with the same backbone
records and goes on where it stopped. Give each case a scope of its own (`backbone.within("case 3")`) where several
share one record.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Unpack, get_args

from vesalius.backbones import Backbone
from vesalius.components import Component
from vesalius.documents.explanation import Explanation
from vesalius.documents.trace import DEFAULT_PROTOCOL, Protocol, Trace
from vesalius.errors import BadInput
from vesalius.explanations.findings import Account, Said
from vesalius.explanations.hyve.asking import Desk
from vesalius.explanations.hyve.setting import SettingOptions
from vesalius.explanations.hyve.stages import Stages, State, run_stages
from vesalius.explanations.session import Session
from vesalius.model.specimen import Specimen
from vesalius.progress import Progress
from vesalius.sandbox import Executions

HYVE = "hyve"


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
    sandbox_unsafe: bool = False,
    executions: Executions | None = None,
    **options: Unpack[SettingOptions],
) -> HyveResult:
    """Let a language model explain a specimen, component by component.

    `protocol` is `typed` (claims that the engine decides) or `paper` (free code that the model judges itself).
    `components` names the circuit (default: the specimen's own; of a natural model what the built-in scientist
    selects). Whatever the model says, the explanation is valid: answers that cannot be read are counted in the trace
    and leave a component tentative. Failures that say nothing about the model (no connection, no credit, a spending
    cap) are raised. `sandbox_unsafe` runs the model's code even where it cannot be contained; `executions` keeps what
    it gave, and answers for it where it has been kept. `options` are those of a setting: `compact` leaves out free
    code, for models with a small context.
    """
    if protocol not in get_args(Protocol):
        raise BadInput(f"protocol {protocol!r} does not exist; use typed or paper")
    desk = Desk(backbone, teller(specimen, options.get("progress")))
    with Session.open(
        specimen, components, seed=seed, executions=executions, unsafe=sandbox_unsafe, **options
    ) as session:
        state = run_stages(Stages(desk, session, protocol == "typed"))
    explanation = session.explained(state.findings, account_of(state), scientist=HYVE, cost=desk.usage.cost or 0.0)
    return HyveResult(explanation, trace_of(state, desk, specimen.id, protocol, backbone.name))


def teller(specimen: Specimen, progress: Progress | None) -> Callable[[str], None]:
    """Tells progress what the stages do."""

    def tell(message: str) -> None:
        if progress is not None:
            progress(f"{specimen.name}: {message}", 0, 0)

    return tell


def account_of(state: State) -> Account:
    """What the model says of each component and of the whole."""
    roles = {name: Said(tag=role.tag, description=role.description) for name, role in state.roles.items()}
    summary = state.summary
    if summary is None:
        return Account(roles)
    return Account(roles, summary.information_flow, summary.derived_task_description)


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
