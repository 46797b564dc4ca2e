"""The rubrics for people: the levels that judges are told, with the key that gives each.

People and judges read the same levels (`judges/templates`), as in the published study. Key 1 is always wrong and key 3
always correct, so that a measure of two levels has no key 2.
"""

import re
from functools import cache
from importlib import resources

from vesalius.grading.agreement import MEASURES, MeasureName
from vesalius_bench.ratings.documents_annotation import Rubric, RubricLevel

QUESTIONS: dict[MeasureName, str] = {
    "description_quality": "Does the candidate text describe what this component does in this task?",
    "task_accuracy": "Does the candidate text describe what the whole model computes?",
}
ADVICE = (
    "Wording, length and confidence earn and cost nothing. Where you hesitate between two scores, give the lower one."
)
_LEVEL = re.compile(r"^- (\d), ([^:]+): (.+?)(?=^- |\Z)", re.MULTILINE | re.DOTALL)


@cache
def rubric(measure: MeasureName) -> Rubric:
    """What raters are asked about one kind of text, the lowest level first."""
    file = resources.files("vesalius.grading.judges") / "templates" / f"{measure}.md"
    best = MEASURES[measure].best
    levels = [
        RubricLevel(
            score=int(score), name=name, text=_sentence(text), key="3" if int(score) == best else "12"[int(score)]
        )
        for score, name, text in _LEVEL.findall(file.read_text(encoding="utf-8"))
    ]
    levels.sort(key=lambda level: level.score)
    return Rubric(measure=measure, question=QUESTIONS[measure], levels=tuple(levels), advice=ADVICE)


def _sentence(text: str) -> str:
    words = " ".join(text.split())
    return words[0].upper() + words[1:]
