"""Functions that map a thing to a fact about it, some of them with an exception where they say `undefined`.

A suite of 75 has 25 relations, each once as it is and twice with an exception, side by side, so that any first part of
it is mixed alike.
"""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vesalius.errors import BadInput
from vesalius.sandbox import Sandbox
from vesalius_functions.box import Answer, Category, Function, Grade, Mode, Reply, UnitTest, credit
from vesalius_functions.knowledge.geography import inventory
from vesalius_functions.knowledge.scoring import Mapper, Model, ModelMapper, TableMapper
from vesalius_functions.knowledge.tables import UNDEFINED, Condition, Relation, by_name, plain, same
from vesalius_functions.own_prompts import FunctionPrompts
from vesalius_functions.published import Loaded, Unusable, functions_of, hints, tests_with_places, texts
from vesalius_functions.relations.listed import INPUTS, LISTED
from vesalius_functions.submitted import Refused, entry_of

#: An exception covers at least this many members that are asked and that are kept for tests, and at most this share.
FEWEST_ASKED, FEWEST_KEPT, LARGEST_SHARE = 3, 2, 0.4
#: How often an exception is of each kind, where the table offers it.
KINDS = {"is": 5, "above": 1, "below": 1, "begins": 2, "member": 1}

Pair = tuple[str, str]


@dataclass(frozen=True)
class RelationFunction:
    """A text to a text. `relation` and `exception` are its truth where a fact table covers it; `phrases` always are."""

    id: str
    mapper: Mapper
    #: What goes in, what comes out, and where it is undefined, in words.
    phrases: tuple[str, str, str | None]
    relation: Relation | None = None
    exception: Condition | None = None
    mode: Mode = "fixed"
    triplets: tuple[UnitTest, ...] = ()
    hints: tuple[str, ...] = ()
    #: Things to ask about where no fact table has any.
    inputs: tuple[str, ...] = ()
    category: Category = "relations"

    @property
    def family(self) -> str:
        """`relation` or `exception`."""
        return "exception" if self.phrases[2] else "relation"

    def truth(self) -> dict[str, Any]:
        """The rule, its exception, and who answers."""
        what, result, exception = self.phrases
        return {
            "rule": self.relation.name if self.relation else None,
            "input": what,
            "output": result,
            "exception": self.exception.data() if self.exception else None,
            "exception_text": exception,
            "backbone": self.mapper.name,
            "mode": self.mode,
        }

    def answered_by(self, backbone: Model, prompts: FunctionPrompts | None = None) -> "RelationFunction":
        """The same function with this language model behind it, asked by the user's own prompts where there are any."""
        return replace(self, mapper=ModelMapper(backbone, *self.phrases, mode=self.mode, prompts=prompts))

    def replies(self, inputs: Sequence[Any], *, first_call: int = 0) -> list[Reply]:
        """One text per input. `first_call` does not matter: nothing here is random."""
        return self.mapper.map(inputs)


def sample(count: int, *, seed: int, mode: Mode = "fixed", backbone: Model | None = None) -> list[RelationFunction]:
    """Functions from our fact tables; after the last relation they start again in another order, with new exceptions.
    In mode `published` those that FIND lists come first: all 75 with a language model, else those that a table covers.

    Args:
        count: how many; the first of a longer draw are the same.
        seed: chooses relations and exceptions.
        mode: `published` keeps blanks around a language model's replies, words its prompt as published and draws the
            distractors of unit tests from other relations; fact tables answer alike in both.
        backbone: a language model that answers in place of the tables.
    """
    if count < 0:
        raise BadInput(f"count {count}: give 0 or more functions")
    rng = random.Random(f"relations/{seed}")
    first = _listed(rng, backbone) if mode == "published" else []
    functions = [replace(one, id=f"f{place:05d}") for place, one in enumerate(first[:count])]
    drawn = _draws(rng)
    more = range(len(functions), count)
    return functions + [_function(f"f{i:05d}", *next(drawn), mode=mode, backbone=backbone) for i in more]


def _listed(rng: random.Random, backbone: Model | None) -> list[RelationFunction]:
    """The functions that FIND lists, relations in random order, each before its two exceptions."""
    functions = []
    for what, result, *exceptions in rng.sample(LISTED, len(LISTED)):
        for exception_text in (None, *exceptions):
            relation, exception = _covered(what, result, exception_text)
            if backbone is None and relation is None:
                continue
            phrases = (what, result, exception_text)
            mapper = ModelMapper(backbone, *phrases, mode="published") if backbone else TableMapper(relation, exception)  # type: ignore[arg-type]
            inputs = () if relation else INPUTS[what]
            made = RelationFunction("", mapper, phrases, relation, exception, "published", inputs=inputs)
            functions.append(made)
    return functions


def exceptions(relation: Relation) -> list[Condition]:
    """The conditions that may corrupt a relation: neither a hair nor half of it, and with members kept for tests."""
    values, kept = set(relation.values), relation.table.kept
    drawn_conditions = []
    for condition, covered in relation.table.conditions.items():
        members = covered & values
        if condition.test == "member":
            fits = len(members) == 1 and not members & kept
        else:
            fits = len(members - kept) >= FEWEST_ASKED and len(members & kept) >= FEWEST_KEPT
        if fits and len(members) <= LARGEST_SHARE * len(values):
            drawn_conditions.append(condition)
    return drawn_conditions


def _draws(rng: random.Random) -> Iterator[tuple[Relation, Condition | None]]:
    while True:
        order = list(inventory())
        rng.shuffle(order)
        for relation in order:
            yield relation, None
            for exception in _two(exceptions(relation), rng):
                yield relation, exception


def _two(offered: Sequence[Condition], rng: random.Random) -> list[Condition]:
    """Two different exceptions, the kind of each drawn first."""
    chosen: list[Condition] = []
    while len(chosen) < 2:
        kinds = sorted({condition.test for condition in offered if condition not in chosen})
        kind = rng.choices(kinds, [KINDS[kind] for kind in kinds])[0]
        chosen.append(rng.choice([one for one in offered if one.test == kind and one not in chosen]))
    return chosen


def _function(
    name: str, relation: Relation, exception: Condition | None, *, mode: Mode, backbone: Model | None
) -> RelationFunction:
    what, result = relation.phrases
    exception_text = exception.phrase(relation.table) if exception else None
    mapper = ModelMapper(backbone, what, result, exception_text, mode) if backbone else TableMapper(relation, exception)
    return RelationFunction(name, mapper, (what, result, exception_text), relation, exception, mode)


# Triplets: one input with the function's own output among two with outputs it would not give.

TRIPLETS, UNDEFINED_RIGHT, UNDEFINED_WRONG, MISSED = 10, 2, 4, 4


def unit_tests(function: RelationFunction, seed: int = 0) -> list[UnitTest]:
    """Ten triplets; a published function keeps its own, without blanks around the outputs unless in published mode."""
    if function.triplets:
        return list(function.triplets)
    relation = function.relation
    if relation is None and function.inputs:
        return _tests_of_replies(function, random.Random(f"relations/tests/{seed}/{function.truth()}"))
    if relation is None:
        raise BadInput(f"function {function.id}: no fact table covers it and no tests came with it")
    rng = random.Random(f"relations/tests/{seed}/{function.truth()}")
    ordinary, special = _inputs(function, relation, rng)
    right = _right(function, ordinary, special)
    published = function.mode == "published"
    wrong = _random(function, rng) if published else _wrong(function, relation, ordinary, special, rng)
    rng.shuffle(right)
    return [_unit_test(pair, [next(wrong), next(wrong)], rng) for pair in right]


def _tests_of_replies(function: RelationFunction, rng: random.Random) -> list[UnitTest]:
    """Triplets of what a language model itself replies, where no table says what is right; fewer than ten where it
    answers fewer inputs.
    """
    pairs = _asked(function, rng.sample(function.inputs, len(function.inputs)))
    silent = [pair for pair in pairs if same(pair[1], UNDEFINED)][:UNDEFINED_RIGHT]
    right = [pair for pair in pairs if not same(pair[1], UNDEFINED)][: TRIPLETS - len(silent)] + silent
    wrong = _random(function, rng)
    return [_unit_test(pair, [next(wrong), next(wrong)], rng) for pair in rng.sample(right, len(right))]


def _inputs(function: RelationFunction, relation: Relation, rng: random.Random) -> tuple[list[str], list[str]]:
    """Members that the function answers for, and inputs it does not: exceptions, or things of another kind."""
    table, exception = relation.table, function.exception
    members = rng.sample(list(relation.values), len(relation.values))
    # Kept members first: `sorted` is stable, so the random order stays within each half.
    members = sorted(members, key=lambda member: member not in table.kept)
    if exception is None:
        strangers = [item for other in inventory() for item in list(other.values)[:6] if table.member(item) is None]
        return members, rng.sample(strangers, len(strangers))
    excepted = [member for member in members if exception.holds(table, member)]
    return [member for member in members if member not in set(excepted)], excepted


def _right(function: RelationFunction, ordinary: Sequence[str], special: Sequence[str]) -> list[Pair]:
    answered = _asked(function, ordinary[: 2 * TRIPLETS])
    silent = _asked(function, special[: 2 * TRIPLETS])
    undefined = [pair for pair in silent if same(pair[1], UNDEFINED)][:UNDEFINED_RIGHT]
    defined = [pair for pair in answered if not same(pair[1], UNDEFINED)][: TRIPLETS - len(undefined)]
    return [*defined, *undefined]


def _asked(function: RelationFunction, inputs: Sequence[str]) -> list[Pair]:
    replies = zip(inputs, function.replies(inputs), strict=True)
    return [(item, str(reply.value)) for item, reply in replies if reply.error is None]


def _wrong(
    function: RelationFunction, relation: Relation, ordinary: Sequence[str], special: Sequence[str], rng: random.Random
) -> Iterator[Pair]:
    """Pairs the function would not give, shuffled; they are members' and attributes' own, so they look right."""
    rivals = [other for other in inventory() if other.table is relation.table and other.name != relation.name]
    pairs = [(item, UNDEFINED) for item in rng.sample(ordinary, min(UNDEFINED_WRONG, len(ordinary)))]
    if function.exception is not None:
        missed = [(item, relation.values[item]) for item in special]
        pairs += (missed * MISSED)[:MISSED]
    while len(pairs) < 2 * TRIPLETS:
        item = rng.choice(ordinary)
        other = relation.values[rng.choice(ordinary)]
        rival = rng.choice(rivals).values.get(item) if rivals and len(pairs) % 2 else None
        if not same(rival or other, relation.values[item]):
            pairs.append((item, rival or other))
    rng.shuffle(pairs)
    return iter(pairs)


def _random(function: RelationFunction, rng: random.Random) -> Iterator[Pair]:
    """The published distractors: pairs of other relations, drawn at random; far easier to tell from the function's own
    than those of `_wrong`. A pair that the function gives as well is none.
    """
    relation = function.relation
    others = [other for other in inventory() if relation is None or other.name != relation.name]
    # A relation that no table has is kept apart from those of its own kind of input: they could agree with it.
    others = [other for other in others if relation is not None or other.phrases[0] != function.phrases[0]]
    while True:
        other = rng.choice(others)
        item = rng.choice(list(other.values))
        own = None if relation is None else relation.values.get(item)
        if own is None or not same(own, other.values[item]):
            yield item, other.values[item]


def _unit_test(right: Pair, wrong: Sequence[Pair], rng: random.Random) -> UnitTest:
    place = rng.randrange(3)
    return UnitTest.of_pairs([*wrong[:place], right, *wrong[place:]], place)


# The published relation functions, run on fact tables where those cover them, or all of them on a language model.

#: Published pairs of concepts that a fact table covers.
COVERED = {
    ("a country", "the capital of that country"): "country -> capital",
    ("a country", "the continent where that country is located"): "country -> continent",
    ("a country", "the official language of that country"): "country -> language",
    ("a city", "the country where that city is located"): "city -> country",
    ("a city in the united states", "the state in which that city is located"): "city in the United States -> state",
    ("an opera", "the composer of that opera"): "opera -> composer",
    ("an opera", "the language of that opera"): "opera -> language",
    ("the title of a book", "the author of that book"): "book -> author",
}


def load_published(
    directory: Path, *, mode: Mode = "published", backbone: Model | None = None
) -> Loaded[RelationFunction]:
    """The functions of `neurons_relations` in a published folder: all on a language model, else those of the tables."""

    def made(name: str, record: dict[str, Any], test: dict[str, Any]) -> RelationFunction:
        what, result, exception_text = texts(record, "concept1"), texts(record, "concept2"), _exception(record)
        relation, exception = _covered(what, result, exception_text)
        if backbone:
            mapper = ModelMapper(backbone, what, result, exception_text, mode)
        elif relation:
            mapper = TableMapper(relation, exception)
        else:
            raise Unusable(
                f"no fact table has {result!r:.60}{f' except if {exception_text!r:.60}' if exception_text else ''}"
            )
        triplets = tuple(_triplet(item, place, mode) for item, place in tests_with_places(test))
        phrases = (what, result, exception_text)
        return RelationFunction(name, mapper, phrases, relation, exception, mode, triplets, hints(record))

    return functions_of(directory, "neurons_relations", made)


def _exception(record: dict[str, Any]) -> str | None:
    """Where the function is undefined; the published key is misspelt, a corrected file may spell it right."""
    key = "exeption" if record.get("exeption") else "exception"
    return texts(record, key) if record.get(key) else None


def _covered(what: str, result: str, exception_text: str | None) -> tuple[Relation | None, Condition | None]:
    """The relation and the condition of the fact tables that a published function is; None where they have none."""
    name = COVERED.get((what.lower().strip(), result.lower().strip()))
    if name is None:
        return None, None
    relation = by_name(inventory(), name)
    if exception_text is None:
        return relation, None
    condition = _condition(relation, exception_text)
    return (relation, condition) if condition else (None, None)


def _condition(relation: Relation, exception_text: str) -> Condition | None:
    """The condition of the relation's table that a published exception words."""
    if match := re.search(r"begins with (?:the letter )?(\w)\b", exception_text, re.IGNORECASE):
        return Condition("begins", match[1].lower())
    match = re.search(r"\b(before|after) (\d{4})", exception_text)
    if match and "year" in relation.table.bounds:
        return Condition("below" if match[1] == "before" else "above", float(match[2]), "year")
    if match := re.search(r"\bis in (.+)$", exception_text):
        meant = _names(match[1])
        offered = [one for one in relation.table.conditions if one.test == "is" and plain(str(one.value)) in meant]
        return offered[0] if offered else None
    return None


def _names(place: str) -> set[str]:
    """A place or language as told, and what the tables call it: the USA is the United States."""
    tables = {relation.table.kind: relation.table for relation in inventory()}.values()
    return {plain(place), *(plain(member) for table in tables if (member := table.member(place)))}


def _triplet(item: Any, place: int, mode: Mode) -> UnitTest:
    if not isinstance(item, list) or [type(part) for part in item] != [list, list] or [*map(len, item)] != [3, 3]:
        raise Unusable(f"a test has {item!r:.60}, not three inputs and three outputs")
    pairs: list[Pair] = [(str(given), str(output)) for given, output in zip(*item, strict=True)]
    if mode == "fixed":
        pairs = [(given.strip(), output.strip()) for given, output in pairs]
    return UnitTest.of_pairs(pairs, place)


# Grading of relation answers without a language model.
#
# An answer predicts: by its `structure` (the name of a rule in the fact tables, a condition where it is undefined), or
# by its code. `unit_test`: in each triplet the pair that the prediction agrees with; chance is 1/3, a tie earns its
# share, and a pair for whose input the code gives nothing is never chosen. `rule_named`: the rule is the function's.
# `exception_found`, for functions with an exception: the answer says `undefined` for the same members up to a fifth (a
# Jaccard index of at least 0.8); `false_alarm`, for the others: it says so for some.

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
