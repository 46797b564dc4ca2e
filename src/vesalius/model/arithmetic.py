"""The arithmetic model that ships with the package: it reads `A - B + C =` over whole numbers and writes the answer.

Three layers of six heads, trained here by `scripts/train_arithmetic.py` with whole heads dropped at random, so that
heads back each other up as in large models. Weights are stored as float16 and loaded as float32.
"""

from importlib.resources import files
from pathlib import Path

NAME = "arithmetic"
#: What it was trained for.
BEHAVIOUR = "addition:signs=-+,high=99,answers=0..99,shots=0"


def arithmetic_directory() -> Path:
    """The model's directory in the package."""
    return Path(str(files("vesalius.model").joinpath("data", NAME)))
