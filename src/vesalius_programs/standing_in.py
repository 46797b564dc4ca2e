"""Components that do nothing alone: do they stand in for others?

Where no replacement of a component changes anything, no exchange can say what it computes. It may still act once others
are gone: one that copies where another one is silent, or three of which any two suffice. So it is replaced together
with each other component of the circuit, and with all that do nothing alone. Where that costs more than the two by
themselves, a claim says so and the laboratory decides it: a *backup* of what acts alone, or *mutually redundant*.

What it does then is asked of the model in which the others are silent: its circuit is explained as any other, and what
was established of the component there is told with the condition.
"""

from collections.abc import Sequence
from typing import Literal

from vesalius.components import Component
from vesalius.documents.explanation import ClaimRecord
from vesalius.explanations.claims import BackupOf, Redundant
from vesalius.explanations.claims.base import MIN_EFFECT
from vesalius.explanations.laboratory import CircuitLab

#: Zeros first: what stands in for a silent component is told best where that one is silent.
Taken = Literal["zero", "mean", "resample"]
REPLACEMENTS: tuple[Taken, ...] = ("zero", "mean", "resample")
KINDS = ("backup_of", "redundant")


def standing_in(lab: CircuitLab, component: Component, idle: Sequence[Component]) -> BackupOf | Redundant | None:
    """The claim about what a component that does nothing alone stands in for, if anything shows that; `idle` are all
    components that do nothing alone.
    """
    others = [other for other in lab.circuit if other != component]
    together = [[other] for other in others]
    if len(rest := [other for other in idle if other != component]) > 1:
        together.append(rest)
    best: tuple[float, Taken, list[Component]] | None = None
    for how in REPLACEMENTS:
        lab.measure([*([part] for part in lab.circuit), *together, *([*some, component] for some in together)], [how])
        for some in together:
            without, joint = lab.effect(some, how), lab.effect([*some, component], how)
            gain = float((joint - without - lab.effect([component], how)).mean())
            if gain > MIN_EFFECT and (best is None or gain > best[0]):
                best = gain, how, some
    if best is None:
        return None
    _, how, some = best
    names = tuple(map(str, some))
    if any(float(lab.effect([other], how).mean()) > MIN_EFFECT for other in some):
        return BackupOf(component=str(component), of=names, replacement=how)
    return Redundant(component=str(component), others=names, replacement=how)


def stood_in_for(records: Sequence[ClaimRecord]) -> tuple[str, ...]:
    """The components that one stands in for by a supported claim; none where nothing says so."""
    for record in records:
        if record.kind in KINDS and record.verdict == "supported":
            prediction = record.prediction or {}
            return tuple(prediction.get("of") or prediction.get("others") or ())
    return ()
