"""The published relation functions, run on fact tables where those cover them, or all of them on a language model.

The unit tests are the published ones. Their outputs were a language model's, right nine times in ten, so a function
that looks its facts up can disagree with its own tests. In `fixed` mode the blanks before outputs, which give the right
pair away, are taken off.
"""

import re
from pathlib import Path
from typing import Any

from vesalius.backbones import Backbone
from vesalius.errors import BadInput
from vesalius.functions.answer import Mode
from vesalius.functions.knowledge.inventory import inventory
from vesalius.functions.knowledge.mapping import ModelMapper, TableMapper
from vesalius.functions.knowledge.published import places, records, texts
from vesalius.functions.knowledge.tables import Condition, Relation, by_name, plain
from vesalius.functions.relations.functions import Pair, RelationFunction
from vesalius.functions.unit_tests import UnitTest

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
    directory: Path, *, mode: Mode = "published", backbone: Backbone | None = None
) -> list[RelationFunction]:
    """The functions of `neurons_relations` in a published folder: all on a language model, else those of the tables."""
    functions = []
    for name, record, test in records(directory, "neurons_relations"):
        what, result = texts(record, "concept1", name), texts(record, "concept2", name)
        # The published key is misspelt; a mended file may spell it right.
        told = record.get("exeption") or record.get("exception")
        relation, exception = _covered(what, result, told)
        if backbone:
            mapper = ModelMapper(backbone, what, result, told, mode)
        elif relation:
            mapper = TableMapper(relation, exception)
        else:
            continue
        hints = tuple(str(word) for word in record.get("initial") or ())
        triplets = _triplets(test, name, mode)
        functions.append(
            RelationFunction(name, mapper, (what, result, told), relation, exception, mode, triplets, hints)
        )
    return functions


def _covered(what: str, result: str, told: str | None) -> tuple[Relation | None, Condition | None]:
    """The relation and the condition of the fact tables that a published function is; None where they have none."""
    name = COVERED.get((what.lower().strip(), result.lower().strip()))
    if name is None:
        return None, None
    relation = by_name(inventory(), name)
    if told is None:
        return relation, None
    condition = _condition(relation, told)
    return (relation, condition) if condition else (None, None)


def _condition(relation: Relation, told: str) -> Condition | None:
    """The condition of the relation's table that a published exception words."""
    if found := re.search(r"begins with (?:the letter )?(\w)\b", told, re.IGNORECASE):
        return Condition("begins", found[1].lower())
    if found := re.search(r"\b(before|after) (\d{4})", told):
        return Condition("below" if found[1] == "before" else "above", float(found[2]), "year")
    if found := re.search(r"\bis in (.+)$", told):
        place = plain(found[1])
        offered = [one for one in relation.table.conditions if one.test == "is" and plain(str(one.value)) == place]
        return offered[0] if offered else None
    return None


def _triplets(test: dict[str, Any], name: str, mode: Mode) -> tuple[UnitTest, ...]:
    found = []
    for item, place in zip(test.get("test_vec", []), places(test, name), strict=False):
        if not isinstance(item, list) or len(item) != 2 or any(len(part) != 3 for part in item):
            raise BadInput(f"published function {name}: a test has {item!r}, not three inputs and three outputs")
        pairs: list[Pair] = [(str(given), str(output)) for given, output in zip(*item, strict=True)]
        if mode == "fixed":
            pairs = [(given.strip(), output.strip()) for given, output in pairs]
        found.append(UnitTest.of_pairs(pairs, place))
    return tuple(found)
