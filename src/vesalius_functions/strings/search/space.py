"""All programs of up to two operations whose parameters can be listed, found by what they do to two key strings.

Every operation with every parameter is a step. For both keys the space holds what each step makes of them, and what
each further step makes of that; the pair of results is a number, and the numbers of all compositions are sorted. To
find the compositions that give two observed outputs is then a binary search. Building takes some seconds, once.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import islice
from random import Random

import numpy as np

from vesalius.errors import BadInput, choices
from vesalius_functions.box import Mode
from vesalius_functions.strings.faulty import WORDS
from vesalius_functions.strings.program import (
    BOTH_CASES,
    RIGHT_IN_THE_DATA,
    Operation,
    Step,
    StringProgram,
    library,
    varied,
)

# The strings that the search always asks about first, in this order.

KEYS = ("Jackdaw's 4 big SphinX of quiz", "vEx my PROUD tan flocK, 7 hog")
_BY_HAND = (
    "",
    "abcdefghijklm",
    "nopqrstuvwxyz",
    "ABCDEFGHIJKLM",
    "NOPQRSTUVWXYZ",
    "Zz Zz zZ",
    " lead and trail  ",
    "12345 67890",
    "a",
    "Z",
    "7",
    " ",
    "aeiou AEIOU",
    "abc",
    "5tart and end 9",
    "zyxwvutsrqponml",
    "BQZVJXKWFYHG TPCM",
    "'quoted'",
    "aabbccddeeff",
    "LEVEL level",
    "gO",
    "\tTab and\nline ",
)
_DRAWN = 26

PROBES: tuple[str, ...] = (*KEYS, *_BY_HAND, *islice(varied(Random(20230915), _DRAWN), _DRAWN))


# What a function was seen to do, and which programs agree with that.

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


#: Two steps that agree on these are one: the probes, what counting operations give, and every letter as an end.
_TELLING = (*PROBES, *WORDS, *BOTH_CASES)


class Space:
    """The programs that a search looks through.

    Args:
        mode: which edition of the operations.
        without: names of operations left out, to see what happens outside the library.
    """

    def __init__(self, mode: Mode, *, without: frozenset[str] = frozenset()) -> None:
        if unknown := without - set(library(mode)):
            raise BadInput(f"operation {min(unknown)!r} cannot be left out: the library has {choices(library(mode))}")
        self.mode: Mode = mode
        self.operations: dict[str, Operation] = {n: op for n, op in library(mode).items() if n not in without}
        #: One step per behaviour; the first is the empty program.
        self.steps: list[StringProgram] = [StringProgram(())]
        seen: dict[tuple[Output, ...], None] = {_TELLING: None}
        for operation in [*self.operations.values(), *self._as_in_the_data(without)]:
            for parameters in () if operation.random else operation.kind.values:
                step = StringProgram((Step(operation, parameters),))
                does = tuple(attempt(step, s) for s in _TELLING)
                if does not in seen:
                    seen[does] = None
                    self.steps.append(step)
        self._outputs = {s: [does[i] for does in seen] for i, s in enumerate(PROBES)}

    def _as_in_the_data(self, without: frozenset[str]) -> list[Operation]:
        """Corrected operations that the published pairs were made with, though the published code has a fault."""
        if self.mode == "fixed":
            return []
        return [library("fixed")[name] for name in RIGHT_IN_THE_DATA if name not in without]

    def outputs(self, s: str) -> list[Output]:
        """What every step makes of a string."""
        if s in self._outputs:
            return self._outputs[s]
        return [attempt(step, s) for step in self.steps]

    def compositions(self, evidence: Observations) -> Iterator[StringProgram]:
        """Programs of up to two listed steps that fit, shortest first. Both keys must be in the evidence."""
        output_ids = [self._ids.get(evidence.outputs[evidence.inputs.index(key)], -1) for key in KEYS]
        if min(output_ids) < 0:
            return
        number = output_ids[0] * len(self._ids) + output_ids[1]
        low, high = (int(np.searchsorted(self._numbers, number, side=side)) for side in ("left", "right"))
        pairs = [divmod(int(place), len(self.steps)) for place in self._order[low:high]]
        for inner, outer in sorted(pairs, key=lambda pair: (min(pair) > 0, pair)):
            program = StringProgram(self.steps[inner].steps + self.steps[outer].steps)
            if evidence.fits(program):
                yield program

    def half_matches(self, evidence: Observations) -> Iterator[StringProgram]:
        """Programs that are right on the first key at least: where to look when nothing fits."""
        wanted = self._ids.get(evidence.outputs[evidence.inputs.index(KEYS[0])], -1)
        ends = np.array([wanted, wanted + 1]) * len(self._ids)
        low, high = (int(place) for place in np.searchsorted(self._numbers, ends))
        for place in self._order[low:high]:
            inner, outer = divmod(int(place), len(self.steps))
            yield StringProgram(self.steps[inner].steps + self.steps[outer].steps)

    @property
    def _ids(self) -> dict[Output, int]:
        return self._table[0]

    @property
    def _numbers(self) -> np.ndarray:
        return self._table[1]

    @property
    def _order(self) -> np.ndarray:
        return self._table[2]

    @cached_property
    def _table(self) -> tuple[dict[Output, int], np.ndarray, np.ndarray]:
        """Outputs numbered; the sorted numbers of all compositions; which composition each of them is."""
        ids: dict[Output, int] = {}
        seen = [self._composed(key, ids) for key in KEYS]
        numbers = (seen[0].astype(np.int64) * len(ids) + seen[1]).ravel()
        order = np.argsort(numbers, kind="stable").astype(np.int32)
        return ids, numbers[order], order

    def _composed(self, key: str, ids: dict[Output, int]) -> np.ndarray:
        """The numbers of the outputs of every step after every step, `[inner, outer]`."""
        failed = ids.setdefault(None, 0)
        middles = {m: i for i, m in enumerate(dict.fromkeys(m for m in self.outputs(key) if m is not None))}
        # The last row is for first steps that fail.
        made = np.full((len(middles) + 1, len(self.steps)), failed, dtype=np.int32)
        for j, step in enumerate(self.steps):
            made[:-1, j] = [ids.setdefault(output, len(ids)) for output in _applied(step, middles)]
        return made[[-1 if middle is None else middles[middle] for middle in self.outputs(key)]]


def _applied(program: StringProgram, inputs: Iterable[str]) -> list[Output]:
    """What a program of at most one step makes of many strings; trying them one by one only where one of them fails."""
    if not program.steps:
        return list(inputs)
    apply, parameters = program.steps[0].operation.apply, program.steps[0].parameters
    try:
        return [apply(s, *parameters) for s in inputs]
    except FAULTS:
        return [attempt(program, s) for s in inputs]


@cache
def space(mode: Mode, without: frozenset[str] = frozenset()) -> Space:
    """The space of an edition, built once."""
    return Space(mode, without=without)
