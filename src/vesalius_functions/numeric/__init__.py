"""Numeric black boxes: 16 families, sums and products, noise, corruption and nets that approximate them.

`expressions.py` says what families compute, `function.py` what a black box answers, `sampling.py` draws new ones and
rebuilds those of a published folder, `nets.py` trains approximating nets. `interpreter/` finds out what a box computes,
the oracle of `grading.py` knows it, and the grader there scores either.
"""

from vesalius_functions.numeric.function import NumericFunction
from vesalius_functions.numeric.grading import grade, oracle
from vesalius_functions.numeric.interpreter import interpret
from vesalius_functions.numeric.sampling import load_published, sample, sample_at

__all__ = ["NumericFunction", "grade", "interpret", "load_published", "oracle", "sample", "sample_at"]
