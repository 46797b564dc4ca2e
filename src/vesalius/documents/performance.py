"""How well a model does a behaviour, in two words that are not the same, and whether its contrast can show anything.

A model *prefers the right answer* where that is likelier than the wrong one, and *says it* where it is the likeliest of
all tokens. Circuits are about the first; a reader mostly means the second. Where a model prefers but does not say, what
is found is about a preference, and an answer about it is at most Partly.
"""

from typing import Literal

from vesalius.documents.base import Record
from vesalius.documents.metric import Metric, digits_apart, figure_apart
from vesalius.documents.whole import LEAST_REPORTING

# A contrast: what the score is on the prompts, what it is with everything replaced, and the range between the two.
# Every figure about components lies inside that range. Where it is not clearly positive there is nothing to explain: a
# replaced model does the behaviour as well as the model itself.

#: A range below this share of the score, or prompts without a positive range above that share, make a contrast weak.
LEAST_RANGE, MOST_AGAINST = 0.5, 0.25
#: Where counterfactuals come from that nobody chose: they break every behaviour, and tell none from another.
RANDOM_TOKENS = "random tokens"
#: So many rows of one's own leave enough of them to report, and the sentence that asks for them.
LEAST_ROWS = 3 * LEAST_REPORTING
MORE_ROWS = f"give at least {LEAST_ROWS} rows: a third of them rank, a third choose and a third report"
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
    def few(self) -> bool:
        """Whether it is open for want of prompts alone: each of them has a range, and they are fewer than report."""
        return self.verdict == "empty" and not self.against and self.range.n < LEAST_REPORTING

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
        if self.few:
            return (
                f"{self.range.n} prompts are too few to show a contrast: {self.describe()} (range {self.range.text()})"
            )
        named = "is empty" if self.verdict == "empty" else "is reversed"
        return f"the contrast {named}: {self.describe()} (range {self.range.text()})"


#: What the lower end of the accuracy must exceed: half of the prompts.
HALF = 0.5
#: Below this share of the prompts a model is not said to say the right answer.
LEAST_SAID = 0.5


class Performance(Record):
    """How well a model does its behaviour on `n` prompts, with 95 % intervals (Wilson for the accuracy, bootstrap for
    the mean logit difference, Student's below 8 prompts, none for one prompt); `performs` follows from `rule`.

    `accuracy` is the share of prompts on which the right answer is preferred to the wrong one, `top1` that on which it
    is the likeliest of all tokens. `contrast` is measured on some of the prompts. With `open_answer` the right answer
    is one of several right ones, so that it need not be said.
    """

    ABSENT_IF_DEFAULT = ("contrast", "open_answer")

    accuracy: float
    accuracy_low: float
    accuracy_high: float
    logit_difference: float
    ld_low: float | None
    ld_high: float | None
    top1: float
    n: int
    performs: bool
    rule: str = ""
    contrast: Contrast | None = None
    open_answer: bool = False

    def describe(self) -> str:
        """Both shares and the logit difference with their intervals, as text."""
        return (
            f"prefers the right answer on {self.accuracy:.2f} [{self.accuracy_low:.2f}, {self.accuracy_high:.2f}] of "
            f"{self._prompts}, says it on {self.top1:.2f}, logit difference {self.logit_difference:.2f}"
            f"{self.ld_interval}"
        )

    @property
    def doubts(self) -> tuple[str, ...]:
        """What is wrong with the behaviour as it was asked, gravest first: the answer is not preferred for certain, the
        contrast cannot show it, or it is not what the model says.
        """
        return tuple(
            filter(None, (self._not_preferred, self.contrast.doubt if self.contrast else None, self._not_said))
        )

    @property
    def weak(self) -> str | None:
        """The first of the doubts, which make an answer at most Partly; None where there is none."""
        return next(iter(self.doubts), None)

    @property
    def empty(self) -> str | None:
        """Why nothing can be shown: the contrast is empty or reversed; None where it is not."""
        return None if self.contrast is None or self.contrast.usable else self.contrast.doubt

    @property
    def _not_preferred(self) -> str | None:
        if self.performs:
            return None
        return f"the model does not clearly prefer the right answer ({self.accuracy_figures})"

    @property
    def _not_said(self) -> str | None:
        if self.open_answer or self.top1 >= LEAST_SAID:
            return None
        share = figure_apart(self.top1, LEAST_SAID)
        return f"the model says the right answer on {share} of {self._prompts}, though it may prefer it"

    @property
    def _prompts(self) -> str:
        return f"{self.n} prompt{'' if self.n == 1 else 's'}"

    @property
    def accuracy_figures(self) -> str:
        """The share of prompts on which the right answer is preferred, with its interval."""
        digits = digits_apart(self.accuracy_low, HALF)
        ends = f"[{self.accuracy_low:.{digits}f}, {self.accuracy_high:.{digits}f}]"
        return f"{self.accuracy:.{digits}f} {ends} of {self._prompts}"

    def facts(self) -> list[tuple[str, str]]:
        """What a result says of the behaviour before its circuit."""
        verdict = "" if self.performs else ": not performed, what is found may be noise"
        facts = [
            ("prefers the right answer", f"{self.accuracy_figures}{verdict}"),
            ("says it", f"{self.top1:.2f} of {self._prompts}"),
        ]
        if self.contrast is not None:
            facts.append(("contrast", self.contrast.figures))
        return [*facts, *(("but", doubt) for doubt in self.doubts if doubt != self._not_preferred)]

    @property
    def ld_interval(self) -> str:
        """The interval of the logit difference as text, after a space; one prompt has none."""
        if self.ld_low is None or self.ld_high is None:
            return " (one prompt: no interval)"
        return f" [{self.ld_low:.2f}, {self.ld_high:.2f}]"
