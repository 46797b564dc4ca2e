"""Entity functions: how strongly a word relates to one hidden concept, or to either of two."""

from vesalius.functions.entities.concepts import all_concepts
from vesalius.functions.entities.functions import EntityFunction, sample
from vesalius.functions.entities.grading import grade, oracle
from vesalius.functions.entities.interpreter import interpret
from vesalius.functions.entities.published import load_published
from vesalius.functions.entities.unit_tests import unit_tests

__all__ = [
    "EntityFunction",
    "all_concepts",
    "grade",
    "interpret",
    "load_published",
    "oracle",
    "sample",
    "unit_tests",
]
