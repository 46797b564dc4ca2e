"""The published entity functions, run on word vectors or on a language model; their unit tests are the published ones.

Word vectors see a concept's published name only, no further words, so their functions are blunter than ours: a name
like "the relationship of an element to its class" says little to them.
"""

from pathlib import Path
from typing import Any

from vesalius.backbones import Backbone
from vesalius.errors import BadInput
from vesalius.functions.answer import Mode
from vesalius.functions.entities.functions import EntityFunction, scorer_of
from vesalius.functions.knowledge.published import places, records, texts
from vesalius.functions.knowledge.scoring import Concept
from vesalius.functions.unit_tests import UnitTest


def load_published(
    directory: Path, *, mode: Mode = "published", backbone: Backbone | str = "glove"
) -> list[EntityFunction]:
    """The functions of `neurons_entities` in a published folder, on the backbone given."""
    scorer = scorer_of(backbone, mode)
    functions = []
    for name, record, test in records(directory, "neurons_entities"):
        second = record.get("concept2")
        concepts = (texts(record, "concept1", name), *([texts(record, "concept2", name)] if second else []))
        functions.append(
            EntityFunction(
                name,
                tuple(Concept(concept) for concept in concepts),
                scorer,
                mode,
                triplets=_triplets(test, name),
                hints=tuple(str(word) for word in record.get("initial") or ()),
            )
        )
    return functions


def _triplets(test: dict[str, Any], name: str) -> tuple[UnitTest, ...]:
    found = []
    for words, place in zip(test.get("test_vec", []), places(test, name), strict=False):
        if not isinstance(words, list) or len(words) != 3:
            raise BadInput(f"published function {name}: a test has {words!r}, not three words")
        found.append(UnitTest.of_inputs([str(word) for word in words], place))
    return tuple(found)
