"""Who explains: a function of a case and a language model, found by name in whichever process has the case.

`builtin` needs no model and `hyve` needs one. `package.module:function` names anybody else's: it is called with the
case and an open `Backbone` (None if the run has none) and returns an `Explained`. Infrastructure failures are raised as
they come (`BackboneError`): the case then counts as an error, never as a wrong answer.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from vesalius.backbones import Backbone
from vesalius.errors import BadInput, choices
from vesalius.explain.explanation import Explanation
from vesalius.explain.trace import Trace

if TYPE_CHECKING:
    from vesalius.model.specimen import Specimen

BUILTIN, HYVE = "builtin", "hyve"
PROTOCOLS = ("typed", "paper")


@dataclass(frozen=True)
class Task:
    """What a scientist is given: a specimen's directory, and how it is to be explained."""

    id: str
    directory: Path
    seed: int = 0
    protocol: str | None = None
    leave_out: str | None = None
    sandbox_unsafe: bool = False

    def specimen(self) -> "Specimen":
        """The specimen, loaded; the answer key is not in it."""
        from vesalius.circuits.specimens import load_specimen

        return load_specimen(self.directory)


@dataclass(frozen=True)
class Explained:
    """An explanation, and the way to it if there is a trace."""

    explanation: Explanation
    trace: Trace | None = None


Scientist = Callable[[Task, Backbone | None], Explained]


def builtin(task: Task, backbone: Backbone | None) -> Explained:
    """The built-in scientist."""
    from vesalius.explain.scientist import explain_specimen

    without = frozenset() if task.leave_out is None else frozenset({task.leave_out})
    return Explained(explain_specimen(task.specimen(), seed=task.seed, without=without))


def hyve(task: Task, backbone: Backbone | None) -> Explained:
    """The HyVE agent, driven by a language model."""
    from vesalius.explain.hyve import explain_hyve

    assert backbone is not None
    found = explain_hyve(
        task.specimen(),
        backbone=backbone,
        protocol=cast(Literal["typed", "paper"], task.protocol or PROTOCOLS[0]),
        seed=task.seed,
        sandbox_unsafe=task.sandbox_unsafe,
    )
    return Explained(found.explanation, found.trace)


NAMED: dict[str, Scientist] = {BUILTIN: builtin, HYVE: hyve}


def scientist_named(name: str) -> Scientist:
    """The scientist of that name, or the function that `package.module:function` names."""
    if name in NAMED:
        return NAMED[name]
    module, colon, function = name.partition(":")
    known = f"use {choices(NAMED)} or package.module:function"
    if not (colon and module and function):
        raise BadInput(f"scientist {name!r} does not exist; {known}")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise BadInput(f"scientist {name!r}: {error}; {known}") from None
    if not callable(found):
        raise BadInput(f"scientist {name!r} is no function; {known}")
    return found  # type: ignore[return-value]
