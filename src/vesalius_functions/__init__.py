"""Black-box functions with known answers, who interprets them, and how answers are graded."""

from vesalius_functions.answer import Answer, Grade, Interpreter, Mode
from vesalius_functions.box import Box, Function, OutOfQueries, Reply
from vesalius_functions.categories import category

__all__ = ["Answer", "Box", "Function", "Grade", "Interpreter", "Mode", "OutOfQueries", "Reply", "category"]
