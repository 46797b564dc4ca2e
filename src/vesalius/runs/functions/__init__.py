"""The functions benchmark: interpret every function, grade every answer, let an evaluator read the descriptions.

`settings.py` is what was asked, `work.py` what a worker does with a case, `benchmark.py` the steps and the ledger,
`scorecard.py` the figures.
"""

from vesalius.runs.functions.benchmark import FunctionsBenchmark
from vesalius.runs.functions.settings import BENCHMARK, FunctionSettings
from vesalius.runs.functions.work import Graded, Interpreted

__all__ = ["BENCHMARK", "FunctionSettings", "FunctionsBenchmark", "Graded", "Interpreted"]
