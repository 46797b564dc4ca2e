"""An explanation that was improved by search: `improvement.json`."""

from typing import Literal

from vesalius.documents.base import Answered, Record, ResultDocument
from vesalius.documents.metric import Metric
from vesalius.documents.proposal import RunProposal
from vesalius.documents.request import Request
from vesalius.documents.view import Answer, Facts, Section, Sheet, View, duration, subject_of

IMPROVEMENT_FILE = "improvement.json"
#: What a step of a search changes.
Kind = Literal["rule", "component", "place"]
Stopped = Literal["the share is reached", "nothing is left to try", "the passes are spent"]


class Change(Record):
    """One change that was tried: what it is about, what it was and is, how much it gains on the prompts that chose it,
    and on others that did not (`confirmed`, as a share of the behaviour; of a place the accuracy there). It is accepted
    where the interval of the latter lies above zero, or above what the place before has.
    """

    kind: Kind
    of: str
    was: str | None
    now: str
    chosen: float
    confirmed: Metric
    accepted: bool


class Improvement(Answered, ResultDocument, kind="improvement"):
    """The program of an explanation before and after a search, both on prompts that chose and confirmed nothing. It
    ended where `until` was reached on the confirming prompts, where nothing was left to try, or at `most` passes.
    """

    FILE = IMPROVEMENT_FILE
    RANK = 77
    COMMAND = VERB = "improve"
    REMEDY = "run `vesalius improve` again"

    request: Request
    specimen: str
    behaviour: str
    until: float
    most: int
    stopped: Stopped
    changes: tuple[Change, ...]
    before: RunProposal
    after: RunProposal
    passes: float
    seconds: float

    @property
    def accepted(self) -> list[Change]:
        """The changes that were confirmed."""
        return [one for one in self.changes if one.accepted]

    def answered(self) -> Answer:
        """Whether the share is reached on prompts that had no part in the search, and no control keeps as much. Partly
        where the words keep clearly more than controls, and more than before.
        """
        before, after = self.before.kept, self.after.kept
        if before is None or after is None or after.value is None or before.value is None:
            return Answer("the explanation has no program that runs", "no")
        confirmed = f"{len(self.accepted)} of {len(self.changes)} changes were confirmed"
        said = f"{confirmed if self.changes else 'no change was tried'}: the words keep {after.text()}"
        said = f"{said}, before {before.value:.2f} ({self.stopped})"
        running = self.after.running
        doubt = None if running is None else running.doubt(self.until)
        if running is not None and running.beaten_by:
            return Answer(f"{said}: {doubt}", "no")
        if after.value < self.until:
            gained = bool(self.accepted) and after.value > before.value
            return Answer(f"{said}; {self.until:g} was asked for", "partly" if gained else "no")
        if doubt is not None:
            return Answer(f"{said}: {doubt}", "partly")
        return Answer(said, "yes")

    def listed_as(self) -> str:
        """What it is a result of, as lists of results name it."""
        return f"{subject_of(self.specimen, self.behaviour)}, improved"

    def view(self) -> View:
        """The answer, every change that was tried, and the explanation that is left."""
        rows = [
            (
                one.kind,
                one.of,
                one.was,
                one.now,
                one.chosen,
                *one.confirmed.ends,
                "accepted" if one.accepted else "not confirmed",
            )
            for one in self.changes
        ]
        columns = ("change", "of", "was", "now", "gain where chosen", "confirmed", "low", "high", "")
        parts: list[Section] = [
            Facts([("cost", f"{self.passes:,.0f} passes of one prompt, {duration(self.seconds)}")]),
            *([Sheet(columns, rows, title="What was tried", signed=("gain where chosen",))] if rows else []),
            *self.after.sections(),
        ]
        return View(
            f"{subject_of(self.specimen, self.behaviour)}: the explanation, improved",
            self.answered(),
            parts,
            command=self.request.command_line() if self.request.specimen else None,
        )
