"""Functions drawn afresh: three in ten are one operation, the others two.

The fixed suite takes a function only if it does something of its own: on a set of telling strings it is neither the
identity nor constant, does not repeat an earlier function, and, if composed, does not equal a single operation.

The published suite keeps the published rules: a table of pairs to avoid, and a check for repeats that looks at the two
parameters apart. Of that table (356 of 4,221 pairs) only the intent is known, so `_avoided` follows the intent; its two
faults are repeated: names that were glued together by a missing comma and so never excluded anything.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from random import Random
from typing import Any

from vesalius.errors import BadInput
from vesalius_functions.box import Category, Mode, Reply
from vesalius_functions.strings.program import (
    BOTH_CASES,
    Operation,
    Parameters,
    Step,
    StringProgram,
    library,
    strings,
    varied,
)
from vesalius_functions.strings.search.solve import permutation, replacement, suffixes
from vesalius_functions.strings.search.space import FAULTS, PROBES, Output, attempt

# A string function: a program, or what is left of a published one, with the pairs it is tested on.

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

    def replies(self, inputs: Sequence[object], *, first_call: int = 0) -> list[Reply]:
        """One reply per input; what is not a string, or makes the function raise, gets an error."""
        return [self._reply(value, first_call + i) for i, value in enumerate(inputs)]

    def _reply(self, value: object, call: int) -> Reply:
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


ATOMIC_SHARE = 0.3
#: Operations that are never the first of two, as published: what they leave is a single character, or scrambled.
NEVER_FIRST = ("get_first_character", "get_last_character", "get_mid_character", "map_string")
#: Listed twice among the first operations, as published.
TWICE = "remove_digits"
_GLUED = ("string_rstrip", "add_order_to_inx", "get_digit_indexes", "get_alpha_indexes")
_WHOLE_CASE = {"convert_to_lowercase", "convert_to_uppercase", "capitalize_string", "capitalize_alternating_letters"}
_ABOUT_CASE = {"extract_uppers", "count_uppercase", "count_lowercase"}
_ABOUT_DIGITS = {"extract_digits", "remove_digits", "get_digit_indexes"}


def sample(count: int, *, seed: int, mode: Mode = "fixed") -> list[StringFunction]:
    """Functions drawn afresh, with ten test pairs each; a longer draw under the same seed begins with the same ones."""
    if count < 1:
        raise BadInput(f"a sample of {count} functions: give 1 or more")
    return list(islice(functions(seed, mode), count))


def functions(seed: int | str, mode: Mode) -> Iterator[StringFunction]:
    """The functions of a seed, without end."""
    rng = Random(f"strings {mode} {seed}")
    rule = _Own() if mode == "fixed" else _Published()
    number = 0
    while True:
        atomic = rng.random() < ATOMIC_SHARE
        program = next(p for p in _draws(rng, mode, atomic=atomic) if rule.takes(p))
        name = f"f{number:05d}"
        source = f"{mode} {seed} {name}"
        drawn = StringFunction(name, program, mode, source, ())
        tests = drawn.fresh(TESTS, seed="tests")
        if len(tests) == TESTS:
            yield StringFunction(name, program, mode, source, tuple(tests))
            number += 1


def _draws(rng: Random, mode: Mode, *, atomic: bool) -> Iterator[StringProgram]:
    last = list(library(mode).values())
    first = [op for op in last if op.name not in NEVER_FIRST]
    first += [op for op in first if op.name == TWICE and mode == "published"]
    while True:
        chosen = [rng.choice(last)] if atomic else [rng.choice(first), rng.choice(last)]
        yield StringProgram(tuple(Step(op, op.kind.draw(rng)) for op in chosen))


class _Own:
    """The fixed rule: a function has a behaviour of its own."""

    def __init__(self) -> None:
        self.seen: set[tuple[Output, ...]] = set()

    def takes(self, program: StringProgram) -> bool:
        """Whether the program may be in the suite; it is then remembered."""
        does = behaviour(program)
        if does in self.seen or does == telling() or len(set(does)) == 1:
            return False
        if len(program.steps) > 1 and is_one_operation(does):
            return False
        self.seen.add(does)
        return True


def behaviour(program: StringProgram) -> tuple[Output, ...]:
    """What a program makes of the telling strings."""
    return tuple(attempt(program, s) for s in telling())


@cache
def telling() -> tuple[str, ...]:
    """Strings on which functions that differ at all mostly differ: the probes, and others with every letter."""
    drawn = strings(Random("telling"), letters=BOTH_CASES)
    return (*PROBES, *islice(drawn, 70))


@cache
def _single_behaviours() -> frozenset[tuple[Output, ...]]:
    steps = [Step(op, parameters) for op in library("fixed").values() for parameters in op.kind.values]
    return frozenset(behaviour(StringProgram((step,))) for step in steps)


def is_one_operation(does: tuple[Output, ...]) -> bool:
    """Whether one operation, with some parameters, makes the same of the telling strings."""
    if does in _single_behaviours() or replacement(telling(), does) or permutation(telling(), does):
        return True
    return any(all(out == s + end for s, out in zip(telling(), does, strict=True)) for end in suffixes(does))


class _Published:
    """The published rule: a table of pairs, and a check for repeats that looks at each parameter alone."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, ...], list[set[Parameters]]] = defaultdict(lambda: [set(), set()])

    def takes(self, program: StringProgram) -> bool:
        """Whether the program may be in the suite; it is then remembered."""
        names = tuple(step.operation.name for step in program.steps)
        if len(names) == 2 and names[0] in avoided(names[1]):
            return False
        seen = self.seen[names]
        if all(step.parameters in known for step, known in zip(program.steps, seen, strict=False)):
            return False
        for step, known in zip(program.steps, seen, strict=False):
            known.add(step.parameters)
        return True


@cache
def avoided(last: str) -> frozenset[str]:
    """The first operations that the published table, as far as its intent goes, does not let `last` follow."""
    operations = library("published")
    intended = {name for name, first in operations.items() if _pointless(first, operations[last])}
    return frozenset(intended - set(_GLUED))


def _pointless(first: Operation, last: Operation) -> bool:
    worded = first.group == "words"
    return (
        first.name == last.name
        or (worded and (last.name in _ABOUT_CASE | _ABOUT_DIGITS or last.group == "words"))
        or (first.name in _WHOLE_CASE and last.name in _WHOLE_CASE | _ABOUT_CASE)
        or (first.name == "remove_digits" and last.name in _ABOUT_DIGITS)
        or (first.name == "extract_uppers" and last.name in _ABOUT_CASE | _ABOUT_DIGITS | _WHOLE_CASE)
        or (first.name.startswith("string_") and last.name == "remove_whitespace" and first.name.endswith("strip"))
    )
