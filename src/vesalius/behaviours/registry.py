"""All behaviours by name."""

from vesalius.behaviours.behaviour import Behaviour
from vesalius.behaviours.capitals import CAPITAL
from vesalius.behaviours.docstring import DOCSTRING
from vesalius.behaviours.greater_than import GREATER_THAN
from vesalius.behaviours.induction import INDUCTION, INDUCTION_OUT
from vesalius.behaviours.ioi import IOI
from vesalius.behaviours.successor import SUCCESSOR
from vesalius.errors import BadInput, choices

_ALL = (INDUCTION, INDUCTION_OUT, IOI, DOCSTRING, GREATER_THAN, CAPITAL, SUCCESSOR)


def behaviours() -> list[Behaviour]:
    """Every behaviour, in a fixed order."""
    return list(_ALL)


def behaviour(name: str) -> Behaviour:
    """The behaviour of this name."""
    for candidate in _ALL:
        if candidate.name == name:
            return candidate
    raise BadInput(f"behaviour {name!r} does not exist; choose one of {choices(b.name for b in _ALL)}")
