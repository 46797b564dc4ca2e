"""What happens when some components are replaced: the score before and after, and every output that changed."""

from typing import Any

from vesalius.documents.base import Line, Record, ResultDocument
from vesalius.documents.metric import Metric
from vesalius.documents.request import Request
from vesalius.documents.view import Answer, Facts, Sheet, View, join_first, prompts, shortened, subject_of

WHAT_IF_FILE = "what_if.json"
#: Prompts that a terminal shows.
SHOWN = 8


class Likely(Record):
    """A token and its probability."""

    token: str
    probability: float


class WhatIfRow(Record):
    """One prompt: what the model says clean and edited, whether that has changed, and its scores. Natural models
    also have the likeliest next tokens of both.
    """

    ABSENT_IF_DEFAULT = ("clean_likely", "edited_likely")

    prompt: str
    clean: Any
    edited: Any
    clean_score: float
    edited_score: float
    changed: bool
    clean_likely: tuple[Likely, ...] = ()
    edited_likely: tuple[Likely, ...] = ()


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

    def view(self) -> View:
        """The score before and after, then every prompt, those whose output changed first."""
        request, subject = self.request, subject_of(self.request.specimen, self.request.behaviour)
        parts = join_first(request.components or (), 6)
        kind, at = request.options.get("kind"), request.options.get("at")
        where = f" at {at}" if at is not None else ""
        changed = [row for row in self.rows if row.changed]
        flips = [f"{shortened(row.prompt, 40)!r}: {row.clean!r} -> {row.edited!r}" for row in changed]
        return View(
            f"{subject}: what if {parts} is replaced ({kind}{where})",
            Answer(
                f"What if {parts} of {subject} is replaced ({kind}{where}): {self.clean.figures} -> "
                f"{self.edited.figures} {self.unit}, effect {self.effect.figures}, n {self.effect.n}"
            ),
            [
                Facts([("outputs changed", f"{len(flips)} of {len(self.rows)}; {join_first(flips, 2) or 'none'}")]),
                Facts(
                    [
                        ("clean", f"{self.clean.figures} {self.unit}, {prompts(self.effect.n)}"),
                        ("edited", f"{self.edited.figures} {self.unit}"),
                        ("effect (clean minus edited)", self.effect.figures),
                        *(self._likely() if len(self.rows) == 1 else ()),
                    ],
                ),
                Sheet(
                    ("prompt", "clean", "edited", "clean_score", "edited_score", "changed"),
                    [
                        (row.prompt, row.clean, row.edited, row.clean_score, row.edited_score, row.changed)
                        for row in sorted(self.rows, key=lambda row: not row.changed)
                    ],
                    title="Prompts, those whose output changed first",
                    terminal=SHOWN,
                ),
            ],
            command=request.command_line(),
        )

    def _likely(self) -> list[tuple[str, str]]:
        """The likeliest next tokens before and after, where one prompt was asked about."""
        row = self.rows[0]
        sides = {"clean next": row.clean_likely, "edited next": row.edited_likely}
        return [
            (name, ", ".join(f"{one.token!r} {one.probability:.3f}" for one in tokens))
            for name, tokens in sides.items()
            if tokens
        ]
