"""Texts graded by language models: how well a note describes a component, and whether the task was understood.

`Judge` asks one model for one score, `PluginJudge` a function of an installed package; `judge_explanation` asks all
judges about a whole explanation and keeps the lowest score of each item; `judged_metrics` makes a scorecard's figures
out of many. What is graded stays in its block of the prompt (`blocks`), and a judge that fails gives an error, never a
zero.
"""

from vesalius_bench.judges.circuit import (
    JudgedCircuit,
    JudgedItem,
    judge_agreement,
    judge_explanation,
    judged_metrics,
)
from vesalius_bench.judges.judge import Judge, Judgement, Opinion, PluginJudge, judge_plugin
from vesalius_truth.grading.ratings import MEASURES, Item, Measure, MeasureName

__all__ = [
    "MEASURES",
    "Item",
    "Judge",
    "JudgedCircuit",
    "JudgedItem",
    "Judgement",
    "Measure",
    "MeasureName",
    "Opinion",
    "PluginJudge",
    "judge_agreement",
    "judge_explanation",
    "judge_plugin",
    "judged_metrics",
]
