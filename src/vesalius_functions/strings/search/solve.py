"""Parameters that are too many to list, solved for: a suffix, a replaced pair of letters, a permuted alphabet.

Where the unlisted operation comes last, its parameter can be read off: for every listed step that might come first,
compare what that step gives with what was seen. Where it comes first, its parameter is behind another step: a replaced
letter is one that all surprising inputs share; a suffix is built letter by letter, or, where the step behind it only
counts, taken from strings that stand for all suffixes with the same counts.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from operator import eq
from random import Random

from vesalius.errors import BadInput
from vesalius_functions.box import ENTRY, Answer, Box, Mode
from vesalius_functions.strings.operations import LETTERS
from vesalius_functions.strings.program import (
    BOTH_CASES,
    LONGEST_SUFFIX,
    RANDOM,
    Step,
    StringProgram,
    library,
    strings,
    varied,
)
from vesalius_functions.strings.search.space import KEYS, PROBES, Observations, Output, Space, attempt, space

#: To build a suffix, so many of the longest inputs are compared, and so many of the most promising steps are tried.
_SHOWN, _CLIMBS = 3, 60
#: And so many of the shortest, where the step looks at the middle.
_SHORTEST = 10
#: Inputs shorter than this leave room for a suffix before number words end.
_SHORT = 20


def solved(space: Space, evidence: Observations) -> list[StringProgram]:
    """Programs of up to two steps that fit, with a parameter solved for: those of the cheapest solver that works."""
    made = list(zip(*(space.outputs(s) for s in evidence.inputs), strict=True))
    for solver in _SOLVERS:
        programs_found = [program for program in solver(space, made, evidence) if evidence.fits(program)]
        if programs_found:
            return programs_found
    return []


Made = Sequence[tuple[Output, ...]]


def _replaced_last(space: Space, made: Made, evidence: Observations) -> Iterator[StringProgram]:
    if operation := space.operations.get("replace_substring"):
        for first, given in zip(space.steps, made, strict=True):
            if pair := replacement(given, evidence.outputs):
                yield StringProgram((*first.steps, Step(operation, pair)))


def _mapped_last(space: Space, made: Made, evidence: Observations) -> Iterator[StringProgram]:
    if operation := space.operations.get("map_string"):
        for first, given in zip(space.steps, made, strict=True):
            if alphabet := permutation(given, evidence.outputs):
                yield StringProgram((*first.steps, Step(operation, (alphabet,))))


def _appended_last(space: Space, made: Made, evidence: Observations) -> Iterator[StringProgram]:
    append, replace, mapped = map(space.operations.get, ("string_concatenate", "replace_substring", "map_string"))
    if append is None:
        return
    for end in suffixes(evidence.outputs, longest=2 * LONGEST_SUFFIX):
        shorter = [None if out is None else out[: -len(end)] for out in evidence.outputs]
        if len(end) > LONGEST_SUFFIX:  # two suffixes, one after the other
            yield StringProgram((Step(append, (end[:-LONGEST_SUFFIX],)), Step(append, (end[-LONGEST_SUFFIX:],))))
            continue
        for first, given in zip(space.steps, made, strict=True):
            if list(given) == shorter:
                yield StringProgram((*first.steps, Step(append, (end,))))
        if replace and (pair := replacement(evidence.inputs, shorter)):
            yield StringProgram((Step(replace, pair), Step(append, (end,))))
        if mapped and (alphabet := permutation(evidence.inputs, shorter)):
            before = end.translate(str.maketrans(alphabet, LETTERS))
            yield StringProgram((Step(append, (before,)), Step(mapped, (alphabet,))))


def _replaced_then_mapped(space: Space, made: Made, evidence: Observations) -> Iterator[StringProgram]:
    replace, mapped = space.operations.get("replace_substring"), space.operations.get("map_string")
    if replace is None or mapped is None:
        return
    for old, new in product(BOTH_CASES, LETTERS):
        alphabet = permutation([s.replace(old, new) for s in evidence.inputs], evidence.outputs)
        if alphabet and old != new:
            yield StringProgram((Step(replace, (old, new)), Step(mapped, (alphabet,))))


def _replaced_first(space: Space, made: Made, evidence: Observations) -> Iterator[StringProgram]:
    replace = space.operations.get("replace_substring")
    if replace is None:
        return
    for then, given in zip(space.steps, made, strict=True):
        triples = zip(evidence.inputs, given, evidence.outputs, strict=True)
        surprising = [(s, out) for s, without, out in triples if without != out]
        shared = set(BOTH_CASES).intersection(*(s for s, _ in surprising)) if surprising else ()
        for old, new in product(sorted(shared), BOTH_CASES):
            program = StringProgram((Step(replace, (old, new)), *then.steps))
            if attempt(program, surprising[0][0]) == surprising[0][1]:
                yield program


def _appended_first(space: Space, made: Made, evidence: Observations) -> Iterator[StringProgram]:
    operation = space.operations.get("string_concatenate")
    if operation is None:
        return
    seen = zip(evidence.inputs, evidence.outputs, strict=True)
    short = [(s, out) for s, out in seen if out is not None and len(s) < _SHORT]
    counting = [step for step in space.steps if _counts(step)]
    others = [step for step in space.steps if step.steps and not _counts(step)]
    tries = [([then], _standing(then, short)) for then in counting]
    tries += [(others, _of_nothing(short)), (others, _built(space, short))]
    for steps, guesses in tries:
        for suffix in guesses:
            programs = [StringProgram((Step(operation, (suffix,)), *then.steps)) for then in steps]
            if programs_found := [program for program in programs if evidence.fits(program)]:
                yield from programs_found
                return


def replacement(given: Sequence[Output], wanted: Sequence[Output]) -> tuple[str, str] | None:
    """The one pair of letters whose replacement turns all given strings into the wanted ones."""
    pair: tuple[str, str] | None = None
    for before, after in zip(given, wanted, strict=False):
        if before is None or after is None or len(before) != len(after):
            return None
        if pair is None and before != after:
            pair = next((a, b) for a, b in zip(before, after, strict=True) if a != b)
        if pair is not None and before.replace(*pair) != after:
            return None
    return pair if pair and set(pair) <= set(BOTH_CASES) else None


def permutation(given: Sequence[Output], wanted: Sequence[Output]) -> str | None:
    """The alphabet that turns all given strings, in lower case, into the wanted ones; letters not seen fill it up."""
    seen: dict[str, str] = {}
    for before, after in zip(given, wanted, strict=False):
        if before is None or after is None or len(before.lower()) != len(after):
            return None
        for a, b in zip(before.lower(), after, strict=True):
            if (a in LETTERS) != (b in LETTERS) or (a not in LETTERS and a != b) or seen.setdefault(a, b) != b:
                return None
    letters = {a: b for a, b in seen.items() if a in LETTERS}
    if not letters or len(set(letters.values())) < len(letters):
        return None
    unused = iter(sorted(set(LETTERS) - set(letters.values()), key=lambda b: b in letters))
    return "".join(letters[a] if a in letters else next(unused) for a in LETTERS)


def suffixes(outputs: Sequence[Output], *, longest: int = LONGEST_SUFFIX) -> list[str]:
    """What all outputs end with, from one letter to the longest that counts."""
    ends = [out[-longest:] for out in outputs if out is not None]
    if not ends:
        return []
    shared = [ends[0][-n:] for n in range(1, min(map(len, ends)) + 1)]
    return [end for end in shared if set(end) <= set(BOTH_CASES) and all(e.endswith(end) for e in ends)]


def _counts(then: StringProgram) -> bool:
    """Whether a step tells of a suffix only how many letters of some sort it has, and where."""
    lossy = ("get_last_character", "get_mid_character")
    return any(step.operation.group == "words" or step.operation.name in lossy for step in then.steps)


def _standing(then: StringProgram, pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Suffixes that stand for all others as far as a counting step can tell."""
    step = then.steps[0]
    if "mid" in step.operation.name:  # it tells every letter, one at a time, as the string before it grows
        shortest = sorted(pairs, key=lambda pair: len(pair[0]))[:_SHORTEST]
        yield from (_climbed(then, length, shortest) for length in range(1, LONGEST_SUFFIX + 1))
        return
    sorts = [*step.parameters, "q" if "t" in step.parameters else "t"] if step.parameters else "etET"
    for length in range(1, LONGEST_SUFFIX + 1):
        yield from ("t" * (length - 1) + letter for letter in BOTH_CASES)
        yield from ("".join(map(str, letters)) for letters in product(sorts, repeat=length))


def _of_nothing(pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
    """What the function makes of the empty string: the suffix itself, where the step leaves a suffix alone as it is."""
    for s, out in pairs:
        if not s and 0 < len(out) <= LONGEST_SUFFIX and set(out) <= set(BOTH_CASES):
            yield out


def _built(space: Space, pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Suffixes that, behind some step, make outputs like those seen, the most promising steps first.

    Steps that do the same to the compared strings build the same suffix, so one of them stands for all.
    """
    shown = sorted(pairs, key=lambda pair: -len(pair[0]))[:_SHOWN]
    stands_for_all: dict[tuple[Output, ...], tuple[StringProgram, int]] = {}
    for length in range(1, LONGEST_SUFFIX + 1):
        columns = [space.outputs(s + "x" * length) for s, _ in shown]
        for outputs, then in zip(zip(*columns, strict=True), space.steps, strict=True):
            if not _counts(then):
                stands_for_all.setdefault(outputs, (then, length))

    def likeness(outputs: tuple[Output, ...]) -> int:
        return sum(_alike(made, out) for made, (_, out) in zip(outputs, shown, strict=True))

    for outputs in sorted(stands_for_all, key=likeness, reverse=True)[:_CLIMBS]:
        yield _climbed(*stands_for_all[outputs], [*shown, *pairs[:1]])


def _climbed(then: StringProgram, length: int, pairs: Sequence[tuple[str, str]]) -> str:
    """The suffix that makes the step's outputs most like those seen, one letter at a time, twice over."""

    def likeness(suffix: str) -> int:
        return sum(_alike(attempt(then, s + suffix), out) for s, out in pairs)

    suffix = "x" * length
    for place in [*range(length)] * 2:
        suffix = max((suffix[:place] + letter + suffix[place + 1 :] for letter in BOTH_CASES), key=likeness)
    return suffix


def _alike(made: Output, seen: str) -> int:
    """How many characters are the same, aligned at the left and aligned at the right."""
    if made is None:
        return 0
    left = sum(map(eq, made, seen))
    return 2 * left if len(made) == len(seen) else left + sum(map(eq, reversed(made), reversed(seen)))


#: Cheap ones first.
_SOLVERS = (_replaced_last, _mapped_last, _appended_last, _replaced_then_mapped, _replaced_first, _appended_first)


# Programs with a random operation: which of them can have given every output that was seen.

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


# A program for stored pairs: not an interpretation, because no query is made.


def recover(pairs: Sequence[tuple[str, str]], *, mode: Mode = "published") -> StringProgram | None:
    """The simplest program of up to two operations that agrees with all pairs, if there is one.

    A random program agrees if it can give every output; it is taken only where no other agrees.
    """
    evidence = Observations([s for s, _ in pairs], [out for _, out in pairs])
    searched = space(mode)
    return (
        _one_step(searched, evidence)
        or _two_steps(searched, evidence)
        or next(iter(solved(searched, evidence)), None)
        or next(possible(searched, evidence), None)
    )


def _one_step(searched: Space, evidence: Observations) -> StringProgram | None:
    return next((program for program in searched.steps if evidence.fits(program)), None)


def _two_steps(searched: Space, evidence: Observations) -> StringProgram | None:
    """Tries all of them on the pair with the longest output, and those that are right there on the others."""
    key, wanted = max(zip(evidence.inputs, evidence.outputs, strict=True), key=lambda pair: len(pair[1] or ""))
    right: dict[str, list[StringProgram]] = {}
    for first, middle in zip(searched.steps, searched.outputs(key), strict=True):
        if middle is None:
            continue
        if middle not in right:
            right[middle] = [then for then in searched.steps if attempt(then, middle) == wanted]
        for then in right[middle]:
            if evidence.fits(candidate := StringProgram(first.steps + then.steps)):
                return candidate
    return None


# The built-in interpreter of string functions: ask, search, tell rivals apart, check on strings kept back.
#
# 1. Ask the probes, some of them twice: a function whose answers change is random.
# 2. Find all programs of up to two operations that fit (`space.py`, `solve.py`), first with the corrected operations,
#    then with the published ones.
# 3. While programs that fit still differ on some string, ask that string.
# 4. Check the one that is left on strings drawn afresh. If it fails, drop it and take the next.
#
# If no program fits, the answer is the best partial one and says on which share of what was asked it is right; where
# not even half is right, it is a table of what was seen, marked as such.

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
