"""What happens when some components are replaced: the score before and after, and every output that changed."""

from typing import Any

from pydantic import SerializerFunctionWrapHandler, model_serializer

from vesalius.documents.base import Line, Record, ResultDocument
from vesalius.documents.metric import Metric
from vesalius.documents.request import Request
from vesalius.documents.views import Row, join_first, shortened, subject_of

WHAT_IF_FILE = "what_if.json"


class Likely(Record):
    """A token and its probability."""

    token: str
    probability: float


class WhatIfRow(Record):
    """One prompt: what the model says clean and edited, whether that has changed, and its scores. Natural models
    also have the likeliest next tokens of both.
    """

    prompt: str
    clean: Any
    edited: Any
    clean_score: float
    edited_score: float
    changed: bool
    clean_likely: tuple[Likely, ...] = ()
    edited_likely: tuple[Likely, ...] = ()

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        absent = ("clean_likely", "edited_likely")
        return {name: value for name, value in handler(self).items() if value or name not in absent}


class WhatIf(ResultDocument, kind="what_if"):
    """Components replaced together on some prompts: `effect` is the clean minus the edited score, `changed` the share
    of prompts whose output is another one. One prompt has no interval.
    """

    FILE = WHAT_IF_FILE
    RANK = 60
    COMMAND, VERB = "what-if", "what_if"
    REMEDY = "run `vesalius what-if` again"

    request: Request
    unit: str
    clean: Metric
    edited: Metric
    effect: Metric
    changed: Metric
    rows: tuple[WhatIfRow, ...]
    forwards: float
    seconds: float

    def listed(self) -> Line:
        """What a list of results says of it: the effect of the replacement."""
        subject = subject_of(self.request.specimen, self.request.behaviour)
        title = f"{subject}, {'+'.join(self.request.components or ())}"
        return Line(title, f"effect {self.effect.figures}", seconds=self.seconds)

    def _summary(self) -> str:
        request = self.request
        parts = join_first(request.components or (), 6)
        kind, at = request.options.get("kind"), request.options.get("at")
        flips = [f"{shortened(row.prompt, 40)!r}: {row.clean!r} -> {row.edited!r}" for row in self.rows if row.changed]
        return (
            f"What if {parts} of {subject_of(request.specimen, request.behaviour)} is replaced ({kind}"
            f"{f' at {at}' if at is not None else ''}): {self.clean.figures} -> {self.edited.figures} {self.unit},"
            f" effect {self.effect.figures}, n {self.effect.n}\n"
            f"outputs changed: {len(flips)} of {len(self.rows)}; {join_first(flips, 2) or 'none'}"
        )

    def _rows(self) -> list[Row]:
        names = ("prompt", "clean", "edited", "clean_score", "edited_score", "changed")
        return [{name: getattr(row, name) for name in names} for row in self.rows]
