"""Entity functions: how strongly a word relates to one hidden concept, or to either of two."""

from vesalius_functions.entities.concepts import all_concepts
from vesalius_functions.entities.functions import EntityFunction, sample
from vesalius_functions.entities.grading import grade, oracle
from vesalius_functions.entities.interpreter import interpret
from vesalius_functions.entities.published import load_published
from vesalius_functions.entities.unit_tests import unit_tests

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
