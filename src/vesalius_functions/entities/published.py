"""The published entity functions, run on word vectors or on a language model; their unit tests are the published ones.

Word vectors see a concept's published name only, no further words, so their functions are blunter than ours: a name
like "the relationship of an element to its class" says little to them.
"""

from pathlib import Path
from typing import Any

from vesalius_functions.answer import Mode
from vesalius_functions.entities.functions import EntityFunction, scorer_of
from vesalius_functions.knowledge.models import Model
from vesalius_functions.knowledge.published import functions_of, hints, tests_with_places, texts
from vesalius_functions.knowledge.scoring import Concept
from vesalius_functions.published import Loaded, Unusable
from vesalius_functions.unit_tests import UnitTest


def load_published(
    directory: Path, *, mode: Mode = "published", backbone: Model | str = "glove"
) -> Loaded[EntityFunction]:
    """The functions of `neurons_entities` in a published folder, on the backbone given."""
    scorer = scorer_of(backbone, mode)

    def made(name: str, record: dict[str, Any], test: dict[str, Any]) -> EntityFunction:
        concepts = [texts(record, key) for key in ("concept1", "concept2") if key == "concept1" or record.get(key)]
        triplets = tuple(_triplet(words, place) for words, place in tests_with_places(test))
        named = tuple(Concept(concept) for concept in concepts)
        return EntityFunction(name, named, scorer, mode, triplets=triplets, hints=hints(record))

    return functions_of(directory, "neurons_entities", made)


def _triplet(words: Any, place: int) -> UnitTest:
    if not isinstance(words, list) or len(words) != 3:
        raise Unusable(f"a test has {words!r:.60}, not three words")
    return UnitTest.of_inputs([str(word) for word in words], place)
