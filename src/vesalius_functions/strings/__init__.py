"""String functions: compositions of sixty-odd operations, who interprets them, and how answers are graded.

`operations.py` and `faulty.py` are the operations, `program.py` names them and puts them together; `suite.py` draws
functions, `published.py` reads the published ones; `search/` is the built-in interpreter; `grading.py` scores.
"""

from vesalius_functions.strings.grading import grade, oracle
from vesalius_functions.strings.program import StringProgram, program
from vesalius_functions.strings.published import PublishedFunction, load_published, unit_tests
from vesalius_functions.strings.search.solve import interpret, recover
from vesalius_functions.strings.suite import StringFunction, sample

__all__ = [
    "PublishedFunction",
    "StringFunction",
    "StringProgram",
    "grade",
    "interpret",
    "load_published",
    "oracle",
    "program",
    "recover",
    "sample",
    "unit_tests",
]
