"""A string function: a program, or what is left of a published one, with the pairs it is tested on."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Any

from vesalius_functions.answer import Mode
from vesalius_functions.box import Category, Reply
from vesalius_functions.strings.inputs import varied
from vesalius_functions.strings.program import StringProgram
from vesalius_functions.strings.search.evidence import FAULTS

#: How many pairs a function is tested on, as published.
TESTS = 10

Pair = tuple[str, str]


@dataclass(frozen=True)
class StringFunction:
    """A function whose program is known.

    `tests` are its stored pairs. A random operation draws its index from the function's seed and the number of the
    call, so that a run repeats exactly.
    """

    id: str
    program: StringProgram
    mode: Mode
    seed: str
    tests: tuple[Pair, ...]
    category: Category = "strings"

    @property
    def family(self) -> str:
        """The group of the last operation."""
        return self.program.steps[-1].operation.group if self.program.steps else "identity"

    def truth(self) -> dict[str, Any]:
        """The operations with parameters, in the order in which they are applied."""
        return {**self.program.structure, "description": self.program.description, "mode": self.mode}

    def replies(self, inputs: Sequence[Any], *, first_call: int = 0) -> list[Reply]:
        """One reply per input; what is not a string, or makes the function raise, gets an error."""
        return [self._reply(value, first_call + i) for i, value in enumerate(inputs)]

    def _reply(self, value: Any, call: int) -> Reply:
        if not isinstance(value, str):
            return Reply(error=f"the input is a {type(value).__name__}; this function takes a string")
        return run(self.program.draw(Random(f"{self.seed} call {call}")), value)

    @property
    def letters(self) -> str:
        """The letters among its parameters, which inputs should contain for the function to show."""
        given = [value for step in self.program.steps for value in step.parameters]
        return "".join(value for value in given if isinstance(value, str) and len(value) == 1)

    def fresh(self, count: int, *, seed: object) -> list[Pair]:
        """Pairs on random inputs that raise nothing; they hold digits, blanks, capitals and an apostrophe."""
        rng = Random(f"{self.seed} pairs {seed}")
        pairs = []
        for s in islice(varied(rng, count, letters=self.letters), 50 * count):
            reply = run(self.program.draw(rng), s)
            if reply.error is None:
                pairs.append((s, reply.value))
            if len(pairs) == count:
                break
        return pairs


def run(program: StringProgram, s: str) -> Reply:
    """What a program gives, or the line of its error."""
    try:
        return Reply(program(s))
    except FAULTS as error:
        return Reply(error=f"{type(error).__name__}: {error}")
