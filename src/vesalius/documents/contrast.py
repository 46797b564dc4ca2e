"""A contrast: what the score is on the prompts, what it is with everything replaced, and the range between the two.

Every figure about components lies inside that range. Where it is not clearly positive there is nothing to explain: a
replaced model does the behaviour as well as the model itself.
"""

from typing import Literal

from vesalius.documents.base import Record
from vesalius.documents.metric import Metric

#: A range below this share of the score, or prompts without a positive range above that share, make a contrast weak.
LEAST_RANGE, MOST_AGAINST = 0.5, 0.25
#: Where counterfactuals come from that nobody chose: they break every behaviour, and tell none from another.
RANDOM_TOKENS = "random tokens"
Judgement = Literal["clear", "weak", "empty", "reversed"]


class Contrast(Record):
    """The mean score with nothing replaced (`full`) and with everything replaced (`replaced`), their `range`, and the
    share of prompts whose own range is not positive (`against`).

    `verdict` is "clear"; "weak" where the range is small beside the score, or negative on many prompts, or where the
    counterfactuals are random tokens; "empty" where its interval reaches 0; "reversed" where it lies below 0. `source`
    says where the counterfactuals come from.
    """

    full: Metric
    replaced: Metric
    range: Metric
    against: float
    unit: str = ""
    source: str = ""
    verdict: Judgement

    @property
    def usable(self) -> bool:
        """Whether there is something to explain."""
        return self.verdict in ("clear", "weak")

    @property
    def figures(self) -> str:
        """The range, the two scores that it lies between, and the verdict, as text."""
        return (
            f"{self.verdict}: range {self.range.text()} {self.unit}".rstrip()
            + f" ({self.full.text()} with nothing replaced, {self.replaced.text()} with everything)"
        )

    def describe(self) -> str:
        """The two scores and the range, as text."""
        full = f"{self.full.text()} {self.unit}".rstrip()
        return f"the score is {full}, and {self.replaced.text()} with everything replaced"

    def facts(self) -> list[tuple[str, str]]:
        """What a result says of it: its figures, or what is wrong with it."""
        return [("contrast", self.doubt or self.figures)]

    @property
    def doubt(self) -> str | None:
        """What is wrong with it; None where it is clear."""
        if self.verdict == "clear":
            return None
        if self.verdict == "weak":
            if self.range.low is None:
                return f"one prompt shows a range of {self.range.text()}, without an interval"
            if self.against > MOST_AGAINST:
                return f"the contrast does not lower the score on {self.against:.0%} of the prompts"
            if self.source == RANDOM_TOKENS:
                return "the counterfactuals are random tokens, which break every behaviour and tell none from another"
            return f"the contrast is weak: its range of {self.range.text()} is less than half of the score"
        named = "is empty" if self.verdict == "empty" else "is reversed"
        return f"the contrast {named}: {self.describe()} (range {self.range.text()})"
