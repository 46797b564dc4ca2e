"""Names for what a table or a whole program computes: "whether x equals y", "the parity of x", "reverses the sequence".

A table read off a model is a list of entries; a reader wants the operation. `name_table` tries the operations of
`single`, `pairs` and `triples` in a fixed order, simplest first, and gives the first that is exact on every entry. It
sees the entries and the values of the arguments, nothing else.

- Where only classes are known (which arguments count alike), a name says that the classes are those of the formula.
- Where the values of the classes are known, the formula gives them exactly, or the text says "a value for each ...".
- Where two names are exact on the entries but disagree about legal arguments that no entry shows, none is given.

`name_sequence_task` does the same for a whole program, from inputs and outputs.
"""

from vesalius_programs.naming.operation import Operation
from vesalius_programs.naming.sequences import SequenceTask, name_sequence_task

__all__ = [
    "Operation",
    "SequenceTask",
    "name_sequence_task",
]
