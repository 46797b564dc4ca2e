"""The built-in interpreter of string functions: ask, search, tell rivals apart, check on strings kept back.

1. Ask the probes, some of them twice: a function whose answers change is random.
2. Find all programs of up to two operations that fit (`space.py`, `solve.py`), first with the corrected operations,
   then with the published ones.
3. While programs that fit still differ on some string, ask that string.
4. Check the one that is left on strings drawn afresh. If it fails, drop it and take the next.

If no program fits, the answer is the best partial one and says on which share of what was asked it is right; where
not even half is right, it is a table of what was seen, marked as such.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from random import Random

from vesalius.errors import BadInput
from vesalius_functions.answer import ENTRY, Answer, Mode
from vesalius_functions.box import Box
from vesalius_functions.strings.library import BOTH_CASES, library, strings, varied
from vesalius_functions.strings.operations import LETTERS
from vesalius_functions.strings.program import StringProgram
from vesalius_functions.strings.search.solve import possible, solved
from vesalius_functions.strings.search.space import KEYS, PROBES, Observations, Output, Space, attempt, space

NAME = "search"
#: Never more queries than this for one function, whatever the box allows.
MOST_QUERIES = 100
#: Queries kept for strings drawn afresh at the end.
KEPT_BACK = 15
#: Probes asked a second time.
REPEATED = 4
#: Programs that fit beyond this many are not compared with each other.
_MOST_RIVALS = 150
#: Nor are more programs than this tried that are right on the first key only.
_MOST_PARTIAL = 1000
#: Strings on which rivals are compared, and how many are asked at once.
_POOL, _AT_ONCE = 60, 3
#: A partial program is better than a table when it is right on this share.
_WORTH_TELLING = 0.5


@dataclass
class _Asking:
    """A box with what it was seen to do; never asks more than it may."""

    box: Box
    evidence: Observations = field(default_factory=Observations)
    spent: int = 0

    @property
    def left(self) -> int:
        allowed = MOST_QUERIES - self.spent
        return allowed if self.box.left is None else min(allowed, self.box.left)

    def ask(self, inputs: Sequence[str]) -> list[Output]:
        """The outputs for as many of the inputs as may still be asked."""
        inputs = inputs[: self.left]
        outputs = [reply.value if isinstance(reply.value, str) else None for reply in self.box.ask(inputs)]
        self.spent += len(inputs)
        return outputs

    def note(self, inputs: Sequence[str]) -> None:
        """Ask, and keep what is seen as evidence."""
        outputs = self.ask(inputs)
        self.evidence.add(inputs[: len(outputs)], outputs)


def interpret(
    box: Box, *, seed: int = 0, without: Collection[str] = (), modes: Sequence[Mode] = ("fixed", "published")
) -> Answer:
    """Find a program for the function in the box, in at most 100 queries.

    Args:
        box: the function; nothing but its replies is used.
        seed: of the strings drawn to check the answer.
        without: operations that the search may not use, to see what it does outside its library.
        modes: which editions of the operations to search, in this order.
    """
    if unknown := set(without) - set(library("published")):
        raise BadInput(f"operation {min(unknown)!r} cannot be left out of the search: there is none of that name")
    asking = _Asking(box)
    rng = Random(f"interpret {seed}")
    asking.note(PROBES[: max(1, int(asking.left * (1 - KEPT_BACK / MOST_QUERIES)) - REPEATED)])
    if all(out is None for out in asking.evidence.outputs):
        return _nothing_seen(asking)
    spaces = [space(mode, frozenset(without) & set(library(mode))) for mode in modes]
    again = asking.evidence.inputs[:REPEATED]
    if asking.left > KEPT_BACK and asking.ask(again) != asking.evidence.outputs[: len(again)]:
        return _random_answer(asking, spaces)
    for searched in spaces:
        while rivals := _fitting(searched, asking.evidence):
            fitting = _settled(asking, rivals, rng)
            if fitting is not None:
                return _answer(fitting, asking, f"right on all {len(asking.evidence.inputs)} strings asked")
    return _fallback(asking, spaces)


def _fitting(searched: Space, evidence: Observations) -> list[StringProgram]:
    """Programs that fit all that was seen, the simplest first; solved parameters only where no listed ones fit."""
    if not set(KEYS) <= set(evidence.inputs):
        return []
    return list(islice(searched.compositions(evidence), _MOST_RIVALS)) or solved(searched, evidence)[:_MOST_RIVALS]


def _settled(asking: _Asking, rivals: list[StringProgram], rng: Random) -> StringProgram | None:
    """The one of the rivals that survives being told apart and checked; None if none does."""
    pool = _pool(rivals, rng) if len(rivals) > 1 else []
    does = {tuple(attempt(program, s) for s in pool): program for program in reversed(rivals)}
    while asking.left > KEPT_BACK and (distinguishing := _telling_apart(list(does), pool)):
        asking.note(distinguishing[: asking.left - KEPT_BACK])
        does = {made: program for made, program in does.items() if asking.evidence.fits(program)}
    left = list(reversed(does.values()))
    if left and asking.left > KEPT_BACK and (unmapped := _unmapped(left[0], asking.evidence, rng)):
        asking.note(unmapped[: asking.left - KEPT_BACK])
        left = [program for program in left if asking.evidence.fits(program)]
    if left and asking.left:
        asking.note(list(islice(varied(rng, KEPT_BACK), min(asking.left, KEPT_BACK))))
    return next((program for program in left if asking.evidence.fits(program)), None)


def _unmapped(program: StringProgram, evidence: Observations, rng: Random) -> list[str]:
    """Where letters are permuted last, strings that show letters not seen so far, whose images are only guessed."""
    if not program.steps or program.steps[-1].operation.name != "map_string":
        return []
    before = StringProgram(program.steps[:-1])
    seen = set("".join((attempt(before, s) or "").lower() for s in evidence.inputs))
    chosen = []
    letters = "".join(str(value) for step in before.steps for value in step.parameters)
    for s in islice(strings(rng, letters=letters), _POOL):
        if new := set((attempt(before, s) or "").lower()).intersection(LETTERS) - seen:
            chosen.append(s)
            seen |= new
    return chosen


def _pool(rivals: Sequence[StringProgram], rng: Random) -> list[str]:
    """Strings to compare rivals on: rich in the letters that the simplest is about, or with any letter at the ends."""
    given = [value for step in rivals[0].steps for value in step.parameters]
    rich = list(islice(strings(rng, letters="".join(map(str, given)) or BOTH_CASES), _POOL))
    padded = [f"  {s} " for s in rich[: _POOL // 4]]
    ends = [letter + middle + letter for letter, middle in zip(BOTH_CASES, strings(rng), strict=False)]
    return [*rich, *padded, *ends]


def _telling_apart(does: Sequence[tuple[Output, ...]], pool: Sequence[str]) -> list[str]:
    """The strings of the pool on which the rivals differ most."""
    kinds = [len(set(made)) for made in zip(*does, strict=True)]
    order = sorted(range(len(kinds)), key=lambda i: -kinds[i])
    return [pool[i] for i in order[:_AT_ONCE] if kinds[i] > 1]


def _answer(program: StringProgram, asking: _Asking, how_sure: str) -> Answer:
    return Answer(
        description=f"{program.description} ({how_sure}.)",
        code=program.code,
        structure=program.structure,
        interpreter=NAME,
        queries=asking.spent,
    )


def _nothing_seen(asking: _Asking) -> Answer:
    said = f"Nothing was seen: the function failed on all {asking.spent} strings asked."
    return Answer(description=said, table=True, interpreter=NAME, queries=asking.spent)


def _fallback(asking: _Asking, spaces: Sequence[Space]) -> Answer:
    """The best partial program, or a table."""
    asking.note(list(islice(varied(Random("fallback"), KEPT_BACK), min(asking.left, KEPT_BACK))))
    partial = max(_partial(asking.evidence, spaces), key=asking.evidence.agreement, default=StringProgram(()))
    share = asking.evidence.agreement(partial)
    if share >= _WORTH_TELLING:
        return _answer(partial, asking, f"only a part: right on {share:.0%} of {len(asking.evidence.inputs)} strings")
    seen = {s: out for s, out in zip(asking.evidence.inputs, asking.evidence.outputs, strict=True) if out is not None}
    return Answer(
        description=f"No rule found: a table of the {len(seen)} strings seen; it gives others back unchanged.",
        code=f"SEEN = {seen!r}\n\n\ndef {ENTRY}(s):\n    return SEEN.get(s, s)\n",
        table=True,
        interpreter=NAME,
        queries=asking.spent,
    )


def _partial(evidence: Observations, spaces: Sequence[Space]) -> Iterator[StringProgram]:
    for searched in spaces:
        yield from searched.steps
        if KEYS[0] in evidence.inputs:
            yield from islice(searched.half_matches(evidence), _MOST_PARTIAL)


def _random_answer(asking: _Asking, spaces: Sequence[Space]) -> Answer:
    """Name the random operation and what stands before or after it, where every output is a possible one."""
    for searched in spaces:
        fitting = next(possible(searched, asking.evidence), None)
        if fitting is not None:
            return _answer(fitting, asking, "random: every output seen is one that it can give")
    return _fallback(asking, spaces)
