"""What the tools return. Every result has a short text for the conversation and its figures as typed data; whatever is
long is a resource, whose address is `resource`.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

Figures = dict[str, Any]


class Result(BaseModel):
    """What all results share. `left` is what is left of the budget."""

    model_config = ConfigDict(extra="forbid")

    text: str
    resource: str | None = None
    left: dict[str, float] = Field(default_factory=dict)


class Rows(Result):
    """A table."""

    rows: list[Figures]


class Outputs(Result):
    """One list of outputs per input."""

    outputs: list[list[Any]]


class Effect(Result):
    """What an intervention changes."""

    clean: Any
    edited: Any
    effect: float | None
    low: float | None = None
    high: float | None = None
    n: int
    rows: list[Figures]


class Verdict(Result):
    """A claim decided by rule."""

    verdict: str
    claim: str
    tried: int
    evidence: list[Figures]
    components: dict[str, str]
    counterexamples: list[Figures]


class Ran(Result):
    """What a program did."""

    result: Any = None
    stdout: str = ""
    error: str | None = None


class Explained(Result):
    """An explanation. Of a natural model: whether its components carry the behaviour, and the account of that."""

    answer: dict[str, str] | None = None
    account: Figures | None = None
    components: list[Figures]
    task: str
    program: str | None = None


class Received(Result):
    """A submission was taken."""

    received: str


class Graded(Result):
    """The figures of a submission, and nothing of the answer."""

    metrics: dict[str, Any]
    fault: str | None = None
