"""A claim of an explanation decided again: its record, and the one on the inputs of another seed."""

from pydantic import computed_field

from vesalius.documents.base import Line, ResultDocument
from vesalius.documents.claims import ClaimRecord, Claims
from vesalius.documents.request import Request
from vesalius.documents.view import Answer, Facts, Sheet, View, shortened, subject_of

RETEST_FILE = "retest.json"


class Retest(ResultDocument, kind="retest"):
    """The claim numbered `claim` about a component, as the explanation has it (`before`, on inputs of `before_seed`)
    and as the same experiment decides it on inputs of the request's seed (`after`).
    """

    FILE = RETEST_FILE
    RANK = 75
    COMMAND = VERB = "retest"
    REMEDY = "run `vesalius retest` again"

    request: Request
    specimen: str
    behaviour: str | None = None
    component: str
    claim: int
    before: ClaimRecord
    before_seed: int
    after: ClaimRecord
    seconds: float

    @computed_field
    @property
    def same(self) -> bool:
        """Whether both verdicts are equal."""
        return self.before.verdict == self.after.verdict

    def listed(self) -> Line:
        """What a list of results says of it: the verdicts of both seeds."""
        title = f"{subject_of(self.specimen, self.behaviour)}, {self.component} {self.before.kind}"
        figures = f"seed {self.before_seed}: {self.before.verdict}, seed {self.request.seed}: {self.after.verdict}"
        return Line(title, figures, seconds=self.seconds)

    def view(self) -> View:
        """Both verdicts, and the evidence of each."""
        seed = self.request.seed
        names = ("experiment", "measure", "value", "low", "high", "n", "mark")
        sides = {self.before_seed: self.before, seed: self.after}
        rows = [(own, *(getattr(one, name) for name in names)) for own, side in sides.items() for one in side.evidence]
        verdicts = f"seed {self.before_seed}: {self.before.verdict}; seed {seed}: {self.after.verdict}"
        again = [Facts([("again", self.request.command_line())], terminal_only=True)] if self.request.specimen else []
        return View(
            f"{subject_of(self.specimen, self.behaviour)}: a claim about {self.component} tested again",
            Answer(f"{shortened(self.before.text, 200)} ({self.before.kind})"),
            [
                Facts([("", f"{verdicts}{'' if self.same else ', another verdict'}")]),
                Sheet(("seed", *names), rows, title="Evidence"),
                Claims(self.component, (self.before,), title=f"Seed {self.before_seed}"),
                Claims(self.component, (self.after,), title=f"Seed {seed}"),
                *again,
            ],
            command=self.request.command_line() if self.request.specimen else None,
        )
