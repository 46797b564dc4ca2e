"""Entity functions: how strongly a word relates to one hidden concept, or to either of two."""

from vesalius_functions.entities.functions import (
    EntityFunction,
    all_concepts,
    grade,
    load_published,
    oracle,
    sample,
    unit_tests,
)
from vesalius_functions.entities.interpreter import interpret

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
