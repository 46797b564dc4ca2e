"""The functions benchmark: interpret every function, grade every answer, let an evaluator read the descriptions.

`settings.py` is what was asked, `work.py` what a worker does with a case (it loads no torch, so that workers start
fast), `benchmark.py` the steps and the ledger, `scorecard.py` the figures.
"""
