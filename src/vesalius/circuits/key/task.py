"""One benchmark circuit: a program over a vocabulary, and the components of the trained model that implement it.

A `Task` is defined once, next to its program (see `tasks/`). What follows from the program is computed: the compiled
form, the components, their variables. Only the rest is stored: the description, the note of each component and how
inputs are drawn.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from vesalius.circuits.inputs import Inputs, Sampler
from vesalius.components import Component
from vesalius.model.specimen import Token
from vesalius.rasp import Program, Variable, compile_program


@dataclass(frozen=True)
class Task:
    """One circuit of the benchmark.

    `max_len` counts tokens, without BOS. `sampler` says how to draw inputs so that every branch of the program is
    reached. `notes` says per component, by its canonical name in the trained model, what it does for this task.
    `head_override` lists heads whose position in the trained model differs from the compiled program's.
    """

    id: str
    name: str
    description: str
    vocab: tuple[Token, ...]
    max_len: int
    causal: bool
    numerical: bool
    build: Callable[[], Variable] = field(repr=False)
    notes: Mapping[str, str] = field(repr=False, hash=False)
    sampler: Sampler = "uniform"
    head_override: tuple[tuple[Component, Component], ...] = ()

    def program(self) -> Program:
        """The compiled program; compiled on first use and cached."""
        return self._program

    @cached_property
    def _program(self) -> Program:
        return compile_program(self.build(), self.vocab, self.max_len, causal=self.causal, name=self.name)

    @property
    def components(self) -> list[tuple[Component, tuple[str, ...]]]:
        """The circuit in order of computation: each component of the trained model with the variables it carries."""
        return [(self.locate(placed.component), placed.variables) for placed in self.program().components]

    @property
    def inputs(self) -> Inputs:
        """The input distribution."""
        return Inputs(self.vocab, self.max_len, self.sampler)

    def locate(self, compiled: Component) -> Component:
        """The component of the trained model for a component of the compiled program."""
        return dict(self.head_override).get(compiled, compiled)


def circuit(
    id: str,
    description: str,
    *,
    vocab: tuple[Token, ...],
    notes: Mapping[str, str],
    max_len: int = 9,
    causal: bool = False,
    numerical: bool = False,
    sampler: Sampler = "uniform",
    head_override: tuple[tuple[Component, Component], ...] = (),
) -> Callable[[Callable[[], Variable]], Task]:
    """Turn a function that builds a program into a `Task` of the same name."""

    def make(build: Callable[[], Variable]) -> Task:
        return Task(
            id=id,
            name=build.__name__,
            description=description,
            vocab=vocab,
            max_len=max_len,
            causal=causal,
            numerical=numerical,
            build=build,
            notes=notes,
            sampler=sampler,
            head_override=head_override,
        )

    return make
