"""Relation functions: from a thing to a fact about it, sometimes with an exception where it is undefined."""

from vesalius_functions.knowledge.inventory import inventory
from vesalius_functions.relations.functions import RelationFunction, exceptions, sample
from vesalius_functions.relations.grading import grade, oracle
from vesalius_functions.relations.interpreter import interpret
from vesalius_functions.relations.published import load_published
from vesalius_functions.relations.unit_tests import unit_tests

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
