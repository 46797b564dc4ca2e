"""What one benchmark circuit is: a program over a vocabulary, and where its parts sit in the trained model.

A `Task` is written once, beside its program (see `tasks/`). Everything that can be computed from the program is
computed: the compiled form, the components, their variables. Only what a program cannot say of itself is
stored: the description, the note of each component and how inputs should be drawn.
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

    `max_len` counts tokens, without BOS. `sampler` hints how inputs should be drawn so that every branch of the
    program is seen. `notes` says per component, by its canonical name in the trained model, what it does for this task.
    `head_override` lists heads that sit elsewhere in the trained model than where the program was placed.
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
        """The compiled program; compiled on first use and kept."""
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
        """Where a component of the compiled program sits in the trained model."""
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
