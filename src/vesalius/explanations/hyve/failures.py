"""Why generated code failed, in the categories of the HyVE paper's figure 3.

The paper names Python bugs, mistakes with tensor shapes, misuse of helpers or of the hook API, wrong BOS offsets, and
programs that forget `result`; a program stopped by its limits, or by the walls of the sandbox, is distinguished here
too. Read from the error alone, which is all a log keeps.
"""

import re

from vesalius.sandbox import Outcome
from vesalius.sandbox.program import MISSING

NO_RESULT = "missing result"
LIMIT = "time, memory or output limit"
WALLS = "refused by the sandbox"
BOS = "BOS offset"
SHAPE = "tensor shape"
API = "helper or hook API"
PYTHON = "Python"
CATEGORIES = (PYTHON, SHAPE, API, BOS, NO_RESULT, LIMIT, WALLS)

_HELPER = re.compile(
    r"^BadInput:|(?:Observation|Validation|Transformer|Tap|Cache)\.\w+\(\)"
    r"|'(?:Transformer|Cache|Config|Component)' object"
    r"|\b(?:hook|fwd_hooks|run_with_cache|run_with_hooks|tokenize|decode)\b|No module named '\w*_tools",
    re.MULTILINE,
)
_SHAPE = re.compile(
    r"size of tensor|shapes? .*(?:match|align|broadcast|cannot be multiplied)|mat1 and mat2|out of (?:bounds|range)"
    r"|dimension|Sizes of tensors|too many indices|shape '\[|expanded size|not aligned|could not be broadcast"
    r"|only one element tensors|must have shape|einsum",
    re.IGNORECASE,
)
_TWO_SIZES = re.compile(r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)")
_INDEX_AND_SIZE = re.compile(r"index (\d+) is out of bounds for (?:dimension|axis) \d+ with size (\d+)")
_WALLS = ("PermissionError", "BlockingIOError", "ConnectionError", "Operation not permitted", "Read-only file system")


def category_of(outcome: Outcome) -> str | None:
    """The kind of failure, one of `CATEGORIES`; None where the program ran and gave a result."""
    if outcome.error is None:
        return None
    if outcome.error == MISSING:
        return NO_RESULT
    if outcome.stopped_by is not None:
        return WALLS if outcome.stopped_by == "crash" else LIMIT
    if outcome.reported_limit is not None:
        return WALLS if outcome.reported_limit == "processes" else LIMIT
    message = outcome.error.splitlines()[-1] if outcome.error else ""
    if message.startswith(_WALLS) or any(wall in message for wall in _WALLS[3:]):
        return WALLS
    if _off_by_one(message):
        return BOS
    if _HELPER.search(message):
        return API
    return SHAPE if _SHAPE.search(message) else PYTHON


def _off_by_one(message: str) -> bool:
    """It speaks of BOS, or two lengths differ by exactly the one that BOS adds."""
    if re.search(r"\bBOS\b", message):
        return True
    sizes = _TWO_SIZES.search(message)
    if sizes:
        return abs(int(sizes[1]) - int(sizes[2])) == 1
    index = _INDEX_AND_SIZE.search(message)
    return bool(index) and int(index[1]) == int(index[2])
