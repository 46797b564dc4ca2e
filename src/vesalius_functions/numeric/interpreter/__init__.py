"""The built-in interpreter of numeric functions: looks, guesses, puts every guess to the test, and says what is left.

look        ask points over the range twice: noise, corruption and its ends (`disturbance.py`)
guess       rules that give every answer (`windows.py`), or the likeliest under noise (`disturbance.py`)
test        a rule must foretell fresh points it has not seen; one that fails is dropped and the next is tried
admit       where no rule holds, a table of what was seen, marked as one
"""

from vesalius_functions.numeric.interpreter.interpret import interpret

__all__ = ["interpret"]
