"""A specimen and a language model in, an explanation and its trace out.

The work is done on a copy of the specimen without name, id and kind: the model sees the weights' behaviour, the
vocabulary, examples and the component list, and nothing that could give the task away.

Everything a run does follows from the model's replies, so a run that was killed is run again with the same backbone
records and goes on where it stopped. Give each case a scope of its own (`backbone.within("case 3")`) where several
share one record.
"""

import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import get_args

from vesalius.backbones import Backbone
from vesalius.components import Component, parse_components
from vesalius.documents.explanation import Explanation
from vesalius.documents.trace import DEFAULT_PROTOCOL, Protocol, Trace
from vesalius.errors import BadInput
from vesalius.explanations.claims import Lab
from vesalius.explanations.hyve.asking import Desk
from vesalius.explanations.hyve.loop import run_stages
from vesalius.explanations.hyve.prompting import Prompts
from vesalius.explanations.hyve.scope import PRELOAD, TOOLBOX, handed_over
from vesalius.explanations.hyve.stages import Stages, State
from vesalius.explanations.hyve.writing import explanation_of
from vesalius.explanations.scientist.explain import blinded, laboratory
from vesalius.model.specimen import FiniteVocabulary, Specimen
from vesalius.model.states import fingerprint
from vesalius.progress import Progress
from vesalius.sandbox import Executions, Outcome, Sandbox

#: Examples to show where a specimen has none of its own.
EXAMPLES, EXAMPLES_SEED = 5, 3_000_017


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
    progress: Progress | None = None,
) -> HyveResult:
    """Let a language model explain a specimen with listed tokens, component by component.

    `protocol` is `typed` (claims that the engine decides) or `paper` (free code that the model judges itself).
    `components` names the circuit (default: the specimen's own). Whatever the model says, the explanation is valid:
    answers that cannot be read are counted in the trace and leave a component tentative. Failures that say nothing
    about the model (no connection, no credit, a spending cap) are raised. `sandbox_unsafe` runs the model's code even
    where it cannot be contained; `executions` keeps what it gave, and answers for it where it has been kept.
    """
    if protocol not in get_args(Protocol):
        raise BadInput(f"protocol {protocol!r} does not exist; use typed or paper")
    if not isinstance(specimen.vocabulary, FiniteVocabulary):
        raise BadInput(f"specimen {specimen.name!r} has a text vocabulary; hyve needs a specimen with listed tokens")
    started = time.monotonic()
    chosen = specimen.components if components is None else components
    circuit = tuple(sorted(set(parse_components(chosen, specimen.model.config))))

    def tell(message: str) -> None:
        if progress is not None:
            progress(f"{specimen.name}: {message}", 0, 0)

    desk = Desk(backbone, tell)
    with ExitStack() as stack:
        blind = replace(blinded(specimen), examples=specimen.examples or _examples(specimen))
        workspace = _LazyWorkspace(blind, stack, executions or Executions(), seed=seed, unsafe=sandbox_unsafe)
        stages = _stages(blind, circuit, desk, workspace, protocol, seed=seed)
        state = run_stages(stages)
    seconds, cost = time.monotonic() - started, desk.usage.cost or 0.0
    explanation = explanation_of(state, stages.lab, specimen=specimen.id, seed=seed, cost=cost, seconds=seconds)
    return HyveResult(explanation, _trace(state, desk, specimen.id, protocol, backbone.name))


def _stages(
    specimen: Specimen,
    circuit: tuple[Component, ...],
    desk: Desk,
    workspace: "_LazyWorkspace",
    protocol: Protocol,
    *,
    seed: int,
) -> Stages:
    """The stages on a blind copy of the specimen, with a laboratory that starts when first needed."""

    @cache
    def lab() -> Lab:
        return laboratory(specimen, list(circuit), seed=seed)

    return Stages(desk, Prompts(specimen, circuit), workspace, lab, protocol == "typed", seed)


class _LazyWorkspace:
    """A sandbox that is opened for the first program whose outcome is not recorded; the toolbox needs none."""

    def __init__(
        self, specimen: Specimen, stack: ExitStack, executions: Executions, *, seed: int, unsafe: bool
    ) -> None:
        self._specimen, self._stack, self._seed, self._unsafe = specimen, stack, seed, unsafe
        self._executions = executions
        #: What the outcome of a program depends on beside its code.
        self._subject = {"model": fingerprint(specimen.model), "seed": seed}
        self._closed = Sandbox(toolbox=TOOLBOX)
        self._open: Sandbox | None = None

    def execute(self, code: str) -> Outcome:
        """What one program does."""
        return self._executions.outcome(code, self._subject, lambda: self._run(code))

    def _run(self, code: str) -> Outcome:
        if self._open is None:
            directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="vesalius-hyve-")))
            argument = handed_over(self._specimen, directory, seed=self._seed)
            sandbox = Sandbox(PRELOAD, argument, toolbox=TOOLBOX, unsafe=self._unsafe)
            self._open = self._stack.enter_context(sandbox)
        return self._open.execute(code)

    def list_directory(self, path: str = ".") -> list[str]:
        """Names in the toolbox."""
        return self._closed.list_directory(path)

    def read_file(self, path: str) -> str:
        """A file of the toolbox."""
        return self._closed.read_file(path)


def _examples(specimen: Specimen) -> tuple[dict[str, object], ...]:
    """What the model itself answers, for a specimen without examples."""
    inputs = specimen.sample(EXAMPLES, EXAMPLES_SEED)
    outputs = specimen.predict(inputs)
    return tuple({"input": given, "output": found} for given, found in zip(inputs, outputs, strict=True))


def _trace(state: State, desk: Desk, specimen: str, protocol: Protocol, backbone: str) -> Trace:
    return Trace(
        specimen=specimen,
        protocol=protocol,
        backbone=backbone,
        components=tuple(finding.trace for finding in state.findings),
        usage=desk.usage,
        problems=tuple(desk.problems),
    )
