"""How right an answer about a string function is. Its code runs in the sandbox, on all inputs in one call.

- `exact_match`: the published figure, the share of the ten stored pairs that the code gets exactly right. Under the
  published rule the first exception ends the count, with one test more that is wrong.
- `exact_all`: whether all ten are right.
- `exact_held_out`: the share right on inputs drawn afresh.
- `understood`: right on nearly all of those, by code that is short enough to be a rule and no table.
- `unit_test`: the share of triplets of which the code picks the right pair; chance is a third, and a pair for whose
  input the code gives no text is never picked.
- `operations_named`: whether the operations named are those of the function, where both are known.
"""

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher

from vesalius.errors import BadInput
from vesalius.sandbox import CallResult, Sandbox
from vesalius_functions.box import ENTRY, LONGEST_OUTPUT, Answer, Function, Grade, UnitTest, credit
from vesalius_functions.scripts import definitions, entry
from vesalius_functions.strings.program import StringProgram
from vesalius_functions.strings.published import PublishedFunction, unit_tests
from vesalius_functions.strings.suite import StringFunction
from vesalius_functions.submitted import Refused, Size, entry_of, says_a_rule

HELD_OUT = 30
#: On this share of the inputs drawn afresh a rule must be right to count as understood.
UNDERSTOOD = 0.95
#: Programs of two operations have up to 1,400 characters, 430 of them in literals, and 240 parts.
LONGEST_RULE = Size(characters=2_500, literals=500, longest=60, parts=400)
_PER_CALL_SECONDS, _ALL_SECONDS = 1.0, 10.0


def grade(function: Function, answer: Answer, *, sandbox: Sandbox, seed: int = 0) -> Grade:
    """Score an answer about a string function; code that fails in whatever way is wrong, and `fault` says why."""
    known = _known(function)
    choices = unit_tests(known, seed=seed)
    held_out = known.fresh(HELD_OUT, seed=f"held out {seed}")
    tests = list(known.tests)
    asked = [s for s, _ in tests + held_out] + [s for test in choices for s in test.inputs]
    outcomes, fault = _run(answer.code, asked, sandbox)
    for_tests, for_held_out, for_choices = _cut(outcomes, [len(tests), len(held_out)])
    right = [_right(outcome, out) for outcome, (_, out) in zip(for_tests, tests, strict=True)]
    fresh = [_right(outcome, out) for outcome, (_, out) in zip(for_held_out, held_out, strict=True)]
    share = sum(fresh) / len(fresh) if fresh else None
    metrics = {
        "exact_match": _exact_match(right, for_tests, published=known.mode == "published"),
        "exact_all": float(all(right)),
        "exact_held_out": share,
        "understood": None if share is None else float(share >= UNDERSTOOD and is_rule(answer)),
        "unit_test": _picks(choices, for_choices),
        "operations_named": _named(known, answer),
    }
    if (malformed := _malformed(answer)) is not None:
        fault = malformed if fault is None else f"{fault}; {malformed}"
    shown = [
        {"input": s, "truth": out, "answer": outcome.value if _short(outcome) else None, "right": ok}
        for (s, out), outcome, ok in zip(tests, for_tests, right, strict=True)
    ]
    return Grade(metrics=metrics, picture={"examples": shown}, fault=fault)


def oracle(function: Function) -> Answer:
    """The true program. For a published function without a source, one that agrees with all its pairs, if found."""
    known = _known(function)
    if isinstance(known, StringFunction):
        return _from_program(known.program, known.program.description)
    if known.script is not None:
        code = f"{definitions(known.script)}\n\n{ENTRY} = {entry(known.script)}\n"
        return Answer(description=known.description, code=code, interpreter="oracle")
    recovered = known.stand_in
    if recovered is not None:
        return _from_program(
            recovered, f"{recovered.description} (Recovered from its {len(known.tests)} stored pairs.)"
        )
    code = f"STORED = {dict(known.tests)!r}\n\n\ndef {ENTRY}(s):\n    return STORED.get(s)\n"
    return Answer(description=known.description, code=code, table=True, interpreter="oracle")


def is_rule(answer: Answer) -> bool:
    """Whether the code of an answer is small enough to say a rule and not list cases."""
    return not answer.table and says_a_rule(answer.code, most=LONGEST_RULE)


def _from_program(program: StringProgram, description: str) -> Answer:
    return Answer(
        description=description, code=program.code, structure=program.structure, interpreter="oracle", queries=0
    )


def _known(function: Function) -> StringFunction | PublishedFunction:
    if isinstance(function, (StringFunction, PublishedFunction)):
        return function
    raise BadInput(f"function {function.id} is of category {function.category}; only string functions are graded here")


def _run(code: str | None, inputs: Sequence[str], sandbox: Sandbox) -> tuple[list[CallResult], str | None]:
    """What the code gives for each input, and one line on what went wrong, if anything did."""
    name = entry_of(code)
    if isinstance(name, Refused):
        return [CallResult(error=name.why)] * len(inputs), name.why
    assert code is not None
    outcomes = sandbox.call_many(
        code, name, list(inputs), per_call_seconds=_PER_CALL_SECONDS, total_seconds=_ALL_SECONDS
    )
    faults = [fault for outcome in outcomes if (fault := _fault(outcome))]
    return outcomes, f"{len(faults)} of {len(inputs)} inputs: {faults[0]}" if faults else None


def _fault(outcome: CallResult) -> str | None:
    if outcome.error is not None:
        return outcome.error.strip().splitlines()[-1][:300]
    return None if _short(outcome) else f"the output has more than {LONGEST_OUTPUT} characters"


def _short(outcome: CallResult) -> bool:
    return not isinstance(outcome.value, str) or len(outcome.value) <= LONGEST_OUTPUT


def _right(outcome: CallResult, wanted: str) -> bool:
    return outcome.ok and isinstance(outcome.value, str) and outcome.value == wanted


def _exact_match(right: Sequence[bool], outcomes: Sequence[CallResult], *, published: bool) -> float:
    if published:
        ended = next((i for i, outcome in enumerate(outcomes) if not outcome.ok), None)
        if ended is not None:
            return sum(right[:ended]) / (ended + 1)
    return sum(right) / max(len(right), 1)


def _picks(tests: Sequence[UnitTest], outcomes: Sequence[CallResult]) -> float | None:
    """The share of tests where the pair most like what the code gives is the true one; ties count in part."""
    credits = []
    for number, test in enumerate(tests):
        three = outcomes[3 * number : 3 * number + 3]
        alike = [_likeness(outcome, out) for outcome, out in zip(three, test.outputs, strict=True)]
        credits.append(credit(alike, test.correct))
    return sum(credits) / len(credits) if credits else None


def _likeness(outcome: CallResult, wanted: str) -> float | None:
    """How like the output is to what was wanted; None if there is none."""
    if not outcome.ok or not isinstance(outcome.value, str) or not _short(outcome):
        return None
    return 2.0 if outcome.value == wanted else SequenceMatcher(None, outcome.value, wanted, autojunk=False).ratio()


def _named(function: StringFunction | PublishedFunction, answer: Answer) -> float | None:
    if "operations" not in answer.structure or not isinstance(function, StringFunction):
        return None
    return float(_names(answer.structure) == _names(function.program.structure))


def _names(structure: Mapping[str, object]) -> list[str] | None:
    """The operations that a structure names, in order; None where it cannot be read."""
    operations = structure["operations"]
    if not isinstance(operations, list | tuple) or not all(
        isinstance(one, dict) and isinstance(one.get("name"), str) for one in operations
    ):
        return None
    return [one["name"] for one in operations]


def _malformed(answer: Answer) -> str | None:
    """One line on operations that cannot be read: they count as named wrongly."""
    if "operations" not in answer.structure or _names(answer.structure) is not None:
        return None
    return 'structure: `operations` is not a list of objects such as {"name": "reverse"}'


def _cut(outcomes: list[CallResult], lengths: Sequence[int]) -> list[list[CallResult]]:
    pieces, start = [], 0
    for length in lengths:
        pieces.append(outcomes[start : start + length])
        start += length
    return [*pieces, outcomes[start:]]
