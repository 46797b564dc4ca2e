"""The published relation functions, run on fact tables where those cover them, or all of them on a language model.

The unit tests are the published ones. Their outputs were a language model's, right nine times in ten, so a function
that looks its facts up can disagree with its own tests. In `fixed` mode the blanks before outputs, which give the right
pair away, are taken off.
"""

import re
from pathlib import Path
from typing import Any

from vesalius_functions.answer import Mode
from vesalius_functions.knowledge.inventory import inventory
from vesalius_functions.knowledge.mapping import ModelMapper, TableMapper
from vesalius_functions.knowledge.models import Model
from vesalius_functions.knowledge.published import functions_of, hints, tests_with_places, texts
from vesalius_functions.knowledge.tables import Condition, Relation, by_name, plain
from vesalius_functions.published import Loaded, Unusable
from vesalius_functions.relations.functions import Pair, RelationFunction
from vesalius_functions.unit_tests import UnitTest

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
