"""Programs with a random operation: which of them can have given every output that was seen.

A random operation draws the index it works on. Whether a program is possible is found by trying every index that the
string has; with a few outputs seen, few wrong programs stay possible.
"""

from collections.abc import Iterator

from vesalius_functions.strings.library import RANDOM
from vesalius_functions.strings.program import Step, StringProgram
from vesalius_functions.strings.search.evidence import Observations, attempt
from vesalius_functions.strings.search.solve import suffixes
from vesalius_functions.strings.search.space import Space

#: No step makes a string longer than this many characters, or longer by more than so many.
_LONG, _MORE = 30, 8


def possible(space: Space, evidence: Observations) -> Iterator[StringProgram]:
    """Programs of a random operation, by itself or before or after another step, that can give all outputs seen."""
    steps = [*space.steps, *_appended(space, evidence)]
    for name in (name for name in RANDOM if name in space.operations):
        draw = Step(space.operations[name])
        for step in steps:
            for program in (StringProgram((*step.steps, draw)), StringProgram((draw, *step.steps))):
                if _can_give_all(program, evidence):
                    yield program


def _appended(space: Space, evidence: Observations) -> Iterator[StringProgram]:
    """Steps that append what all outputs end with: suffixes are too many to be listed."""
    append = space.operations.get("string_concatenate")
    if append is not None:
        yield from (StringProgram((Step(append, (suffix,)),)) for suffix in suffixes(evidence.outputs))


def _can_give_all(program: StringProgram, evidence: Observations) -> bool:
    for s, out in zip(evidence.inputs, evidence.outputs, strict=True):
        longest = max(len(s), _LONG) + _MORE
        chances = [(i + 0.5) / longest for i in range(longest)]
        if not any(attempt(_with_chance(program, chance), s) == out for chance in chances):
            return False
    return True


def _with_chance(program: StringProgram, chance: float) -> StringProgram:
    return StringProgram(tuple(Step(s.operation, (chance,)) if s.operation.random else s for s in program.steps))  # type: ignore[arg-type]
