"""Grading of relation answers without a language model.

An answer predicts: by its `structure` (the name of a rule in the fact tables, a condition where it is undefined), or by
its code. `unit_test`: in each triplet the pair that the prediction agrees with; chance is 1/3, a tie earns its share,
and a pair for whose input the code gives nothing is never chosen. `rule_named`: the rule is the function's.
`exception_found`, for functions with an exception: the answer says `undefined` for the same members up to a fifth (a
Jaccard index of at least 0.8); `false_alarm`, for the others: it says so for some.
"""

from collections.abc import Callable, Sequence
from typing import Any

from vesalius.errors import BadInput
from vesalius.sandbox import Sandbox
from vesalius_functions.answer import Answer, Grade
from vesalius_functions.box import Function
from vesalius_functions.knowledge.geography import inventory
from vesalius_functions.knowledge.tables import UNDEFINED, Condition, Relation, same
from vesalius_functions.relations.functions import RelationFunction, unit_tests
from vesalius_functions.submitted import Refused, entry_of
from vesalius_functions.unit_tests import UnitTest, credit

SAME_MEMBERS = 0.8
SECONDS_PER_INPUT = 1.0
#: Members that an answer's code is asked for, to see where it says `undefined`.
MEMBERS_ASKED = 60

#: What an answer predicts for inputs: None for nothing, and a mark for "something, but I cannot say what".
SOMETHING = object()
Predict = Callable[[Sequence[str]], list[object]]


def grade(function: Function, answer: Answer, *, sandbox: Sandbox, seed: int = 0) -> Grade:
    """Score an answer on the function's triplets and members; its code runs in the sandbox only."""
    own = _relation(function)
    tests = unit_tests(own, seed)
    predict, read_from, faults = _predictor(answer, sandbox)
    metrics: dict[str, float | None] = {
        "unit_test": None,
        "rule_named": None,
        "exception_found": None,
        "false_alarm": None,
    }
    credits: list[float] = []
    if predict:
        predicted = predict([item for test in tests for item in test.inputs])
        credits = [_credit(test, predicted[3 * i : 3 * i + 3]) for i, test in enumerate(tests)]
        metrics["unit_test"] = sum(credits) / len(credits) if credits else None
        if own.relation:
            metrics |= _exception_figures(own, own.relation, predict)
    if read_from == "structure" and own.relation:
        metrics["rule_named"] = float(answer.structure.get("rule") == own.relation.name)
    examples = [
        {"pairs": [[one.input, one.output] for one in test.examples], "true": test.correct, "credit": earned}
        for test, earned in zip(tests, credits, strict=False)
    ]
    return Grade(
        metrics=metrics, picture={"triplets": examples, "read_from": read_from}, fault=faults[0] if faults else None
    )


def oracle(function: Function) -> Answer:
    """The answer of an interpreter that knows the rule and its exception."""
    own = _relation(function)
    what, result, exception = own.phrases
    structure: dict[str, Any] = {}
    if own.relation:
        kind, rule = own.relation.table.kind, own.relation.name
        structure = {"kind": kind, "rule": rule, "exception": own.exception.data() if own.exception else None}
    return Answer(
        description=f"The input is {what}, the output is {result}.",
        domain=f"The output is {UNDEFINED} if the input is not {what}"
        + (f", and if {exception}." if exception else "."),
        structure=structure,
        interpreter="oracle",
    )


def _relation(function: Function) -> RelationFunction:
    if not isinstance(function, RelationFunction):
        raise BadInput(f"function {function.id} is of category {function.category}; relations can be graded here")
    return function


def _predictor(answer: Answer, sandbox: Sandbox) -> tuple[Predict | None, str, list[str]]:
    """How to predict from an answer, what it was read from, and a list that collects why its code failed."""
    kind = str(answer.structure.get("kind"))
    tables = {relation.table.kind: relation.table for relation in inventory()}
    rules = {relation.name: relation for relation in inventory()}
    rule, exception = rules.get(str(answer.structure.get("rule"))), Condition.read(answer.structure.get("exception"))
    faults: list[str] = []

    def by_rule(inputs: Sequence[str]) -> list[object]:
        assert rule is not None
        return [rule.value(item, exception) for item in inputs]

    def by_kind(inputs: Sequence[str]) -> list[object]:
        table = tables[kind]
        members = [table.member(item) for item in inputs]
        return [
            UNDEFINED if member is None or (exception and exception.holds(table, member)) else SOMETHING
            for member in members
        ]

    def by_code(inputs: Sequence[str]) -> list[object]:
        entry = entry_of(answer.code)
        if isinstance(entry, Refused):
            faults.append(entry.why)
            return [None] * len(inputs)
        answers = sandbox.call_many(str(answer.code), entry, list(inputs), per_call_seconds=SECONDS_PER_INPUT)
        faults.extend(one.error for one in answers if one.error)
        return [None if one.error or one.value is None else str(one.value) for one in answers]

    if rule:
        return by_rule, "structure", faults
    if kind in tables:
        return by_kind, "structure", faults
    return (by_code, "code", faults) if answer.code else (None, "nothing", faults)


def _credit(test: UnitTest, predicted: Sequence[object]) -> float:
    fits = [
        None if said is None else float(_agrees(said, output))
        for said, output in zip(predicted, test.outputs, strict=True)
    ]
    return credit(fits, test.correct)


def _agrees(predicted: object, output: str) -> bool:
    if predicted is SOMETHING:
        return not same(output, UNDEFINED)
    return isinstance(predicted, str) and same(predicted, output)


def _exception_figures(function: RelationFunction, relation: Relation, predict: Predict) -> dict[str, float | None]:
    """Whether the answer says `undefined` for the members that the function does."""
    true = [item for item in relation.values if function.exception and function.exception.holds(relation.table, item)]
    others = [item for item in relation.values if item not in set(true)]
    asked = [*true[: MEMBERS_ASKED // 2], *others[: MEMBERS_ASKED // 2]]
    predicted = predict(asked)
    claimed = {
        item for item, said in zip(asked, predicted, strict=True) if isinstance(said, str) and same(said, UNDEFINED)
    }
    if function.exception is None:
        return {"false_alarm": float(bool(claimed))}
    meant = set(true) & set(asked)
    return {"exception_found": float(len(claimed & meant) >= SAME_MEMBERS * len(claimed | meant))}
