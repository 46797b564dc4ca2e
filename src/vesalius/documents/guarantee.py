"""What a circuit keeps at least on new prompts of the same distribution, with 95 % confidence."""

from typing import Literal

from vesalius.documents.base import Record


class Bound(Record):
    """A share on `n` held-out prompts, and the lower bound of the true one; `baseline` is the share on these prompts
    with everything ablated, which an empty circuit has.
    """

    value: float
    low: float
    n: int
    baseline: float | None = None


class Guarantee(Record):
    """Bounds of a circuit of `size` components or edges, each with confidence `level`, on `n` prompts that had no part
    in choosing it.

    `answers`: of the prompts that the model gets right, the share that the circuit gets right (exact binomial bound).
    `kept`: the mean, over prompts on which the model scores above the ablated model, of the share of the score kept,
    each clipped to 0 and 1 (bound by betting). None where the metric has no right answers, or no prompt loses anything
    by the ablation.
    """

    by: Literal["edges", "components"]
    size: int
    level: float
    n: int
    answers: Bound | None = None
    kept: Bound | None = None
    rows: float

    def sentence(self) -> str:
        """The guarantee in words; empty where there is none."""
        parts = []
        if self.answers is not None:
            given = self.answers.baseline
            empty = "" if given is None else f"; {given:.3f} with everything ablated"
            parts.append(
                f"at least {self.answers.low:.3f} of the prompts that the model gets right (observed "
                f"{self.answers.value:.3f} of {self.answers.n}{empty})"
            )
        if self.kept is not None:
            parts.append(
                f"at least {self.kept.low:.3f} of the score on average over prompts that lose by ablating everything, "
                f"each clipped to 0 and 1 (observed {self.kept.value:.3f} on {self.kept.n})"
            )
        if not parts:
            return ""
        circuit = f"the one {self.by[:-1]} alone keeps" if self.size == 1 else f"the {self.size} {self.by} alone keep"
        return f"with {100 * self.level:.0f} % confidence each, {circuit} " + ", and ".join(parts)
