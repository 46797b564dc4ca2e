"""A judge that is a plug-in: a function instead of a language model.

It is called with the keywords `measure`, `reference`, `candidate` and `context`, all texts, and returns a whole score
from 0 to the best of the measure, or a pair of score and reason. It is asked once: it cannot prefer the first text.
"""

from collections.abc import Callable
from typing import Any

from vesalius.errors import BadInput, choices
from vesalius.grading.judges.judge import MOST_REASON, Judge, Judgement, Opinion
from vesalius.grading.judges.measures import MEASURES, MeasureName
from vesalius.grading.judges.prompts import ORDERS
from vesalius.plugins import JUDGES, Plugin, find_plugin

#: `BackboneError.kind` of a plug-in that raised or gave no score.
FAULT = "plugin"


def judge_plugin(name: str) -> Plugin | None:
    """The plug-in of that name; None where a name is that of a language model, `provider:model`."""
    return find_plugin(JUDGES, name, ())


class PluginJudge(Judge):
    """A plug-in as a judge; what it does wrong is an error of the item, as with every judge."""

    def __init__(self, plugin: Plugin) -> None:
        self.name = plugin.name
        self._plugin = plugin
        self._function: Callable[..., Any] = plugin.load()
        if not callable(self._function):
            raise plugin.refused("is not a function")

    def score(
        self, measure: MeasureName, reference: str, candidate: str, *, context: str = "", scope: str = "judge"
    ) -> Judgement:
        """Score a text by the plug-in's function."""
        if measure not in MEASURES:
            raise BadInput(f"measure {measure!r}: judges know {choices(MEASURES)}")
        best, order = MEASURES[measure].best, ORDERS[0]
        try:
            given = self._function(measure=measure, reference=reference, candidate=candidate, context=context)
            score, reason = given if isinstance(given, tuple) and len(given) == 2 else (given, "")
            if isinstance(score, bool) or not isinstance(score, int) or not 0 <= score <= best:
                raise ValueError(f"{score!r:.40} is not a whole score from 0 to {best}")
        except Exception as error:  # a plug-in may raise anything
            problem = " ".join(f"{type(error).__name__}: {error}".split())
            fault = str(self._plugin.refused(f"gave no score ({problem})"))
            return Judgement(
                judge=self.name, opinions=(Opinion(judge=self.name, order=order, error=fault, kind=FAULT),)
            )
        opinion = Opinion(judge=self.name, order=order, score=score, reason=str(reason)[:MOST_REASON])
        return Judgement(judge=self.name, opinions=(opinion,))
