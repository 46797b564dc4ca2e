"""Interpreters driven by a language model: AIA asks, MILAN looks at exemplars, AIA + MILAN does both.

`commands.py` is the grammar of a turn and counts outputs that a model made up, `dialogue.py` the conversation and what
MILAN is shown, `templates/` hold the words, `evaluator.py` is the language model that takes the unit tests.
"""

from vesalius_functions.agents.dialogue import DialogueLimits, Exemplars, exemplars_for, interpret_with
from vesalius_functions.agents.evaluator import Tested, take_unit_tests

__all__ = ["DialogueLimits", "Exemplars", "Tested", "exemplars_for", "interpret_with", "take_unit_tests"]
