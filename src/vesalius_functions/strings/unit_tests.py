"""Unit tests: three input-output pairs, one of which is the function's own; the right answer picks it.

Published functions have theirs. For a function drawn afresh, one wrong pair comes from an unrelated function, as
published, and one, in the fixed suite, from a near relative with one operation exchanged, because against unrelated
pairs even a vague description passes. No wrong pair is right by accident.
"""

from collections.abc import Iterator
from random import Random

from vesalius_functions.strings.function import TESTS, Pair, StringFunction, run
from vesalius_functions.strings.inputs import strings
from vesalius_functions.strings.library import library
from vesalius_functions.strings.program import Step, StringProgram
from vesalius_functions.strings.published import PublishedFunction
from vesalius_functions.strings.suite import functions
from vesalius_functions.unit_tests import UnitTest


def unit_tests(function: StringFunction | PublishedFunction, *, seed: int = 0) -> list[UnitTest]:
    """Ten, or as many as a published function has."""
    if isinstance(function, PublishedFunction):
        return list(function.triplets)
    rng = Random(f"{function.seed} unit tests {seed}")
    unrelated = _unrelated(function, rng)
    related = _related(function, rng) if function.mode == "fixed" else unrelated
    return [_unit_test(own, [next(unrelated), next(related)], rng) for own in function.tests[:TESTS]]


def _unit_test(own: Pair, wrong: list[Pair], rng: Random) -> UnitTest:
    correct = rng.randrange(3)
    return UnitTest.of_pairs([*wrong[:correct], own, *wrong[correct:]], correct)


def _unrelated(function: StringFunction, rng: Random) -> Iterator[Pair]:
    """Pairs of other functions that are wrong for this one."""
    for other in functions(f"beside {function.seed} {rng.random()}", function.mode):
        pair = rng.choice(other.tests)
        if _wrong(function, pair):
            yield pair


def _related(function: StringFunction, rng: Random) -> Iterator[Pair]:
    """Pairs of functions that share all but one operation with this one, and are wrong for it."""
    source = strings(rng, letters=function.letters)
    while True:
        s, relative = next(source), _relative(function.program, rng)
        reply = run(relative, s)
        if reply.error is None and _wrong(function, (s, reply.value)):
            yield s, reply.value


def _relative(program: StringProgram, rng: Random) -> StringProgram:
    """One step exchanged for another; a single operation gets a second beside it instead."""
    operation = rng.choice(list(library("fixed").values()))
    other = Step(operation, operation.kind.draw(rng))
    steps = [*program.steps]
    if len(steps) == 1:
        steps.insert(rng.randrange(2), other)
    else:
        steps[rng.randrange(len(steps))] = other
    return StringProgram(tuple(steps))


def _wrong(function: StringFunction, pair: Pair) -> bool:
    return function.replies([pair[0]])[0].value != pair[1]
