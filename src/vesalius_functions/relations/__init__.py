"""Relation functions: from a thing to a fact about it, sometimes with an exception where it is undefined."""

from vesalius_functions.knowledge.geography import inventory
from vesalius_functions.relations.functions import (
    RelationFunction,
    exceptions,
    grade,
    load_published,
    oracle,
    sample,
    unit_tests,
)
from vesalius_functions.relations.interpreter import interpret

__all__ = [
    "RelationFunction",
    "exceptions",
    "grade",
    "interpret",
    "inventory",
    "load_published",
    "oracle",
    "sample",
    "unit_tests",
]
