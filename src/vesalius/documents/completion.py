"""A prompt continued with and without interventions: `completion.json`."""

from dataclasses import replace

from vesalius.documents.answers import completion_answer
from vesalius.documents.base import Answered, Record, ResultDocument
from vesalius.documents.request import Request
from vesalius.documents.view import Answer, Facts, Sheet, View, shortened

COMPLETION_FILE = "completion.json"


class NextToken(Record):
    """A token that may follow the prompt, with its probability before and after the intervention."""

    token: str
    clean: float
    edited: float


class Completion(Answered, ResultDocument, kind="completion"):
    """One prompt and what the model writes after it, the likeliest token each time: as it is (`clean`) and under the
    interventions (`edited`).

    `next` are the likeliest first tokens of both, with their probabilities in both, `divergence` is KL(clean || edited)
    of that first token in nats. A steered prompt has `control`, the divergences of random directions of the same
    length at the same site, and `length`, the Euclidean length of what was added.
    """

    FILE = COMPLETION_FILE
    RANK = 62
    COMMAND, VERB = "complete", "complete"
    REMEDY = "run `vesalius complete` again"
    ABSENT_IF_DEFAULT = ("control", "length")

    request: Request
    prompt: str
    clean: str
    edited: str
    clean_tokens: tuple[str, ...]
    edited_tokens: tuple[str, ...]
    next: tuple[NextToken, ...]
    divergence: float
    control: tuple[float, ...] = ()
    length: float | None = None
    seconds: float

    @property
    def changed(self) -> str:
        """What was done to the model, in words."""
        options = self.request.options
        edits, steer = options.get("edits"), options.get("steer")
        steered = f"steering {steer} by {options.get('strength', 1.0):g}" if steer else ""
        return " and ".join(filter(None, (f"{options.get('kind')} at {edits}" if edits else "", steered)))

    def listed_as(self) -> str:
        """What it is a result of, as lists of results name it."""
        return f"{self.request.specimen}, {self.changed}"

    def view(self) -> View:
        """Both texts, then the next token before and after."""
        control = []
        if self.control:
            drawn = ", ".join(f"{one:.3g}" for one in sorted(self.control, reverse=True))
            control = [("the same of random directions of that length", drawn), ("length added", f"{self.length:.4g}")]
        return View(
            f"{self.request.specimen}: a prompt continued under {self.changed}",
            self.answered(),
            [
                Facts(
                    [
                        ("prompt", self.prompt),
                        ("clean", repr(self.clean)),
                        ("edited", repr(self.edited)),
                        ("KL of the next token, clean against edited", f"{self.divergence:.4g} nats"),
                        *control,
                        *self.request.remarks(),
                    ]
                ),
                Sheet(
                    ("token", "clean", "edited"),
                    [(repr(one.token), one.clean, one.edited) for one in self.next],
                    title="The next token: probabilities",
                    caption="The likeliest of both, one prompt: there is no interval.",
                ),
            ],
            command=self.request.command_line(),
        )

    def answered(self) -> Answer:
        """Whether the text changes, and whether a random direction would have done as much."""
        clean, edited = (repr(shortened(text, 60)) for text in (self.clean, self.edited))
        said = completion_answer(
            f"{self.changed} of {self.request.specimen}",
            f"{clean} -> {edited}",
            self.divergence,
            self.control,
            changed=self.clean_tokens != self.edited_tokens,
        )
        return replace(said, then=self._stronger()) if said.verdict == "no" else said

    def _stronger(self) -> str | None:
        """The same with twice the strength, where a direction was added."""
        strength = self.request.options.get("strength", 1.0)
        if "steer" not in self.request.options or not isinstance(strength, int | float):
            return None
        return self.request.with_options(strength=2.0 * strength)
