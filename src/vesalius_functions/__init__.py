"""Black-box functions with known answers, who interprets them, and how answers are graded.

Names are imported when first used: the commands of this package are listed by `vesalius --help`, which must stay quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vesalius_functions.box import Answer, Box, Function, Grade, Interpreter, Mode, OutOfQueries, Reply
    from vesalius_functions.suite import category

__all__ = ["Answer", "Box", "Function", "Grade", "Interpreter", "Mode", "OutOfQueries", "Reply", "category"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'vesalius_functions' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(f"vesalius_functions.{'suite' if name == 'category' else 'box'}"), name)
