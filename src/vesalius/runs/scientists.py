"""Who explains: a function of a case and a language model, found by name in whichever process has the case.

`builtin` needs no model and `hyve` needs one. `package.module:function` names anybody else's: it is called with the
case and an open `Backbone` (None if the run has none) and returns an `Explained`. Infrastructure failures are raised as
they come (`BackboneError`): the case then counts as an error, never as a wrong answer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from vesalius.backbones import Backbone
from vesalius.documents.explanation import Explanation
from vesalius.documents.trace import Trace
from vesalius.plugins import function_named

if TYPE_CHECKING:
    from vesalius.documents.circuit import Circuit
    from vesalius.model.specimen import Specimen

#: Why nothing is explained where discovery found no component.
NOTHING_FOUND = "no component changes any output when it is replaced"
BUILTIN, HYVE = "builtin", "hyve"
PROTOCOLS = ("typed", "paper")


@dataclass(frozen=True)
class Task:
    """What a scientist is given: a specimen's directory, and how it is to be explained.

    `circuit_from` names the method that discovers the circuit; None leaves the one the specimen comes with.
    """

    id: str
    directory: Path
    seed: int = 0
    protocol: str | None = None
    leave_out: str | None = None
    sandbox_unsafe: bool = False
    circuit_from: str | None = None

    def specimen(self) -> "Specimen":
        """The specimen, loaded; the answer key is not in it."""
        from vesalius.circuits.specimens import load_specimen

        return load_specimen(self.directory)

    def circuit(self, specimen: "Specimen") -> "Circuit | None":
        """The circuit discovered, where one is to be."""
        if self.circuit_from is None:
            return None
        from vesalius.discovery.methods import DEFAULT_PROMPTS, affordable_prompts, discover

        n = affordable_prompts(self.circuit_from, specimen.model.config, DEFAULT_PROMPTS)
        return discover(specimen, self.circuit_from, n=n, seed=self.seed).circuit


@dataclass(frozen=True)
class Explained:
    """An explanation, the way to it if there is a trace, and the circuit if it was discovered for it."""

    explanation: Explanation
    trace: Trace | None = None
    circuit: "Circuit | None" = None


Scientist = Callable[[Task, Backbone | None], Explained]


def builtin(task: Task, backbone: Backbone | None) -> Explained:
    """The built-in scientist."""
    from vesalius.explanations.scientist import explain_specimen
    from vesalius.explanations.scientist.writing import abstention

    without = frozenset() if task.leave_out is None else frozenset({task.leave_out})
    specimen = task.specimen()
    circuit = task.circuit(specimen)
    if circuit is not None and not circuit.chosen():
        nothing = abstention([], NOTHING_FOUND, seed=task.seed, rows=0)
        return Explained(nothing.model_copy(update={"specimen": specimen.id}), circuit=circuit)
    components = None if circuit is None else circuit.chosen()
    found = explain_specimen(specimen, components=components, seed=task.seed, without=without)
    return Explained(found, circuit=circuit)


def hyve(task: Task, backbone: Backbone | None) -> Explained:
    """The HyVE agent, driven by a language model."""
    from vesalius.explanations.circuits import explained_components
    from vesalius.explanations.hyve import explain_hyve

    assert backbone is not None
    specimen = task.specimen()
    circuit = task.circuit(specimen)
    found = explain_hyve(
        specimen,
        components=explained_components(specimen, circuit),
        backbone=backbone,
        protocol=cast(Literal["typed", "paper"], task.protocol or PROTOCOLS[0]),
        seed=task.seed,
        sandbox_unsafe=task.sandbox_unsafe,
    )
    return Explained(found.explanation, found.trace, circuit)


NAMED: dict[str, Scientist] = {BUILTIN: builtin, HYVE: hyve}


def scientist_named(name: str) -> Scientist:
    """The scientist of that name, or the function that `package.module:function` names."""
    if name in NAMED:
        return NAMED[name]
    return function_named(name, role="scientist", known=NAMED)
