"""What judges and people are asked: four measures, each with its scale and the texts it compares.

A measure has the same name everywhere: in a prompt's template, a ratings file, a judged item and the scorecard.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

MeasureName = Literal["description_quality", "task_accuracy", "plan_soundness", "grounding"]


@dataclass(frozen=True)
class Measure:
    """One question. `best` is its highest score, `unit` what one metric of the scorecard is the mean of: scores divided
    by `best` where it is 1, scores as they are where it equals `best`. `given` and `judged` name the two texts.
    """

    name: MeasureName
    best: int
    unit: int
    given: str = "REFERENCE"
    judged: str = "CANDIDATE"

    @property
    def ordinal(self) -> bool:
        """More than right and wrong: agreement is then weighted by how far two scores lie apart."""
        return self.best > 1

    @property
    def per_circuit(self) -> bool:
        """Asked once per circuit, not per component."""
        return self.name == "task_accuracy"


#: The published conventions: descriptions are rescaled to 0-1, the two diagnostics stay on 0-2.
MEASURES: dict[MeasureName, Measure] = {
    measure.name: measure
    for measure in (
        Measure("description_quality", best=2, unit=1),
        Measure("task_accuracy", best=1, unit=1),
        Measure("plan_soundness", best=2, unit=2, given="HYPOTHESIS", judged="PLAN"),
        Measure("grounding", best=2, unit=2, given="OBSERVATION", judged="HYPOTHESIS"),
    )
}
assert tuple(MEASURES) == get_args(MeasureName)


class Item(NamedTuple):
    """What a score is given to. `component` is empty for a whole circuit; `iteration` counts the hypotheses of one
    component from 1, and is 1 where there is only one text to score. `explainer` says whose text it is where several
    are rated in one file.
    """

    measure: MeasureName
    specimen: str
    component: str = ""
    iteration: int = 1
    explainer: str = ""
