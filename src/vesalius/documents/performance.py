"""How well a model performs a behaviour: measured before a circuit is searched for or explained."""

from vesalius.documents.base import Record


class Performance(Record):
    """How well a model does its behaviour on `n` prompts, with 95 % intervals (Wilson for the accuracy, bootstrap for
    the mean logit difference, Student's below 8 prompts, none for one prompt); `performs` follows from `rule`.
    """

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

    def describe(self) -> str:
        """Accuracy and logit difference with their intervals, as text."""
        return (
            f"accuracy {self.accuracy:.2f} [{self.accuracy_low:.2f}, {self.accuracy_high:.2f}], logit difference "
            f"{self.logit_difference:.2f}{self.ld_interval}"
        )

    @property
    def accuracy_figures(self) -> str:
        """The accuracy with its interval and its number of prompts, and that the behaviour is not performed, if so."""
        verdict = "" if self.performs else ": not performed, what is found may be noise"
        return f"{self.accuracy:.2f} [{self.accuracy_low:.2f}, {self.accuracy_high:.2f}] of {self.n} prompts{verdict}"

    @property
    def ld_interval(self) -> str:
        """The interval of the logit difference as text, after a space; one prompt has none."""
        if self.ld_low is None or self.ld_high is None:
            return " (one prompt: no interval)"
        return f" [{self.ld_low:.2f}, {self.ld_high:.2f}]"
