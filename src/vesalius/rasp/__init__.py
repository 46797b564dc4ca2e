"""The language of ground truth: RASP programs with named variables, and where they sit in a model.

Write expressions with the language, compile them with `compile_program`, run them and interchange their components.
`load_spec` reads a program from a SPEC.py, `roles_of` says what each component does.
"""

from vesalius.rasp.inputs import random_inputs
from vesalius.rasp.language import (
    Aggregate,
    Comparison,
    Expression,
    LinearSequenceMap,
    Map,
    Select,
    SelectorWidth,
    SequenceMap,
    Variable,
    frac_prevs,
    hist,
    indices,
    length,
    tokens,
)
from vesalius.rasp.program import Program, ProgramTrace, Role, compile_program, roles_of
from vesalius.rasp.text import load_spec

__all__ = [
    "Aggregate",
    "Comparison",
    "Expression",
    "LinearSequenceMap",
    "Map",
    "Program",
    "ProgramTrace",
    "Role",
    "Select",
    "SelectorWidth",
    "SequenceMap",
    "Variable",
    "compile_program",
    "frac_prevs",
    "hist",
    "indices",
    "length",
    "load_spec",
    "random_inputs",
    "roles_of",
    "tokens",
]
