"""Numeric black boxes: 16 families, sums and products, noise, corruption and nets that approximate them.

`expressions.py` says what families compute, `function.py` what a black box answers, `sampling.py` draws new ones,
`published.py` rebuilds those of a published folder, `nets.py` trains approximating nets. `interpreter/` finds out what
a box computes; `oracle.py` knows; `grading.py` scores either, running their code through `submitted.py`.
"""

from vesalius_functions.numeric.function import NumericFunction
from vesalius_functions.numeric.grading import grade, oracle
from vesalius_functions.numeric.interpreter import interpret
from vesalius_functions.numeric.published import load_published
from vesalius_functions.numeric.sampling import sample, sample_at

__all__ = ["NumericFunction", "grade", "interpret", "load_published", "oracle", "sample", "sample_at"]
