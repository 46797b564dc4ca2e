"""Black-box functions with known answers, who interprets them, and how answers are graded.

Names are imported when first used: the commands of this package are listed by `vesalius --help`, which must stay quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vesalius_functions.answer import Answer, Grade, Interpreter, Mode
    from vesalius_functions.box import Box, Function, OutOfQueries, Reply
    from vesalius_functions.categories import category

__all__ = ["Answer", "Box", "Function", "Grade", "Interpreter", "Mode", "OutOfQueries", "Reply", "category"]
_HOMES = {
    **dict.fromkeys(("Answer", "Grade", "Interpreter", "Mode"), "answer"),
    **dict.fromkeys(("Box", "Function", "OutOfQueries", "Reply"), "box"),
    "category": "categories",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'vesalius_functions' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(f"vesalius_functions.{_HOMES[name]}"), name)
