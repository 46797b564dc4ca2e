"""What a function was seen to do, and which programs agree with that."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from vesalius_functions.strings.program import StringProgram

#: What an operation may raise on an odd string: the faults of the published edition.
FAULTS = (KeyError, ValueError, OverflowError)

Output = str | None


def attempt(function: Callable[[str], str], s: str) -> Output:
    """The output of an operation or a program, None where it raises."""
    try:
        return function(s)
    except FAULTS:
        return None


@dataclass
class Observations:
    """Inputs with their outputs; None is an input that the function failed on."""

    inputs: list[str] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)

    def add(self, inputs: Iterable[str], outputs: Iterable[Output]) -> None:
        """Note more of it."""
        self.inputs += inputs
        self.outputs += outputs

    def fits(self, program: StringProgram) -> bool:
        """Whether the program does the same everywhere; it usually fails early."""
        return all(attempt(program, s) == out for s, out in zip(self.inputs, self.outputs, strict=True))

    def agreement(self, program: StringProgram) -> float:
        """On which share of the inputs the program does the same."""
        same = sum(attempt(program, s) == out for s, out in zip(self.inputs, self.outputs, strict=True))
        return same / max(len(self.inputs), 1)
