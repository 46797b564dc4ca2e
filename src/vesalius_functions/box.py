"""A black-box function: it can be queried up to a budget, and every query is logged.

    box = Box(function, budget=400)
    replies = box.ask([0.5, 1.5, 1.5])     # one reply each, in order; a bad input costs only its own reply
    box.asked, box.left, box.log

An interpreter gets the box and not the function. The box has no public way to the function, around the budget or past
the log, so no interpreter reaches it by accident. This is a convention: Python hides nothing from code in the same
process that looks for it. A function is called with many inputs at once and with the number of the first call, so that
noise is seeded by (function, call) and a run can be repeated. A box of white-box access also shows `layers`, those of a
function that is a neural net; what the net was trained on is not among them.
"""

import cmath
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypedDict

from pydantic import BaseModel, ConfigDict, Field, field_validator

from vesalius.errors import BadInput

Category = Literal["numeric", "strings", "entities", "relations"]
#: A longer output is not handed on: it is a fault of the function, not something to read.
LONGEST_OUTPUT = 10_000


@dataclass(frozen=True)
class Reply:
    """What a function answered to one input: a value, or why there is none. NaN and inf are values."""

    value: Any = None
    error: str | None = None


class Layer(TypedDict):
    """A layer of a net, `activation(weights @ inputs + biases)`: one row of weights per unit."""

    weights: list[list[float]]
    biases: list[float]
    activation: Literal["relu", "identity"]


class Function(Protocol):
    """Something that can be asked. `truth` is for graders and oracles; a box does not hand it on."""

    @property
    def id(self) -> str:
        """The function's name in its suite or dataset, such as `f00042`."""
        ...

    @property
    def category(self) -> Category:
        """Which kind of inputs and outputs it has."""
        ...

    @property
    def family(self) -> str:
        """The group it is counted under when failures are listed, such as `rational` or `sum`."""
        ...

    def truth(self) -> dict[str, Any]:
        """What the function is, as JSON."""
        ...

    def replies(self, inputs: Sequence[object], *, first_call: int = 0) -> list[Reply]:
        """One reply per input, in order; call `first_call + i` draws its noise from a seed of its own."""
        ...


@dataclass(frozen=True)
class Asked:
    """One query of the log."""

    input: Any
    reply: Reply


class OutOfQueries(BadInput):
    """More was asked than the budget has left; nothing of it was asked."""


class Box:
    """A function that can only be queried.

    Args:
        function: what is inside.
        budget: how many inputs may be asked in all; None for any number.
        asked: what was asked before, which counts.
        white_box: whether `layers` shows those of a function that is a net.
    """

    __slots__ = ("_ask", "_budget", "_category", "_layers", "_log")

    def __init__(
        self, function: Function, *, budget: int | None = None, asked: Sequence[Asked] = (), white_box: bool = False
    ) -> None:
        if budget is not None and budget < 1:
            raise BadInput(f"budget {budget}: a function that may not be asked cannot be interpreted; give 1 or more")
        self._category: Category = function.category
        self._budget = budget
        self._layers = layers_of(function) if white_box else None
        self._ask, self._log = _door(function.replies, budget, asked)

    @property
    def category(self) -> Category:
        """Which kind of inputs and outputs the function has."""
        return self._category

    @property
    def budget(self) -> int | None:
        """How many inputs may be asked in all; None for any number."""
        return self._budget

    @property
    def layers(self) -> list[Layer] | None:
        """The layers of the net that the function is, in order; None for other functions and without such access."""
        return self._layers

    @property
    def log(self) -> tuple[Asked, ...]:
        """Everything asked so far, in order."""
        return self._log()

    @property
    def asked(self) -> int:
        """How many inputs were asked so far."""
        return len(self._log())

    @property
    def left(self) -> int | None:
        """How many inputs may still be asked; None for any number."""
        return None if self._budget is None else self._budget - self.asked

    def ask(self, inputs: Sequence[object]) -> list[Reply]:
        """Ask all of them: one reply each, in order. Raises `OutOfQueries`, asking none, if the budget is too small."""
        return self._ask(inputs)


def layers_of(function: Function) -> list[Layer] | None:
    """The layers of a function that is a net; None for any other."""
    net = getattr(function, "net", None)
    return None if net is None else net.layers()


def _door(
    replies: Callable[..., list[Reply]], budget: int | None, asked: Sequence[Asked]
) -> tuple[Callable[[Sequence[Any]], list[Reply]], Callable[[], tuple[Asked, ...]]]:
    """How to ask, and how to read what was asked: the only two that hold the function, the budget and the log."""
    log: list[Asked] = list(asked)

    def ask(inputs: Sequence[object]) -> list[Reply]:
        inputs = list(inputs)
        left = None if budget is None else budget - len(log)
        if left is not None and len(inputs) > left:
            raise OutOfQueries(f"{len(inputs)} inputs asked, {left} of the budget of {budget} left; ask fewer")
        given = [_readable(reply) for reply in replies(inputs, first_call=len(log))]
        assert len(given) == len(inputs)
        log.extend(Asked(value, reply) for value, reply in zip(inputs, given, strict=True))
        return given

    return ask, lambda: tuple(log)


def _readable(reply: Reply) -> Reply:
    """The reply without unreadable values: over-long texts, objects that are neither text nor number."""
    value = reply.value
    if isinstance(value, str) and len(value) > LONGEST_OUTPUT:
        return Reply(error=f"the output has {len(value)} characters, more than {LONGEST_OUTPUT}")
    if value is None or isinstance(value, (str, bool, int, float)):
        return reply
    if isinstance(value, complex):
        return Reply(value.real) if value.imag == 0 and not cmath.isnan(value) else reply
    return Reply(error=f"the output is a {type(value).__name__}, neither a number nor a text")


# What an interpreter says about a function, and what a grader says about that.

#: `published` repeats the published benchmark with its faults, for comparison; `fixed` is the default.
Mode = Literal["fixed", "published"]
#: The name under which submitted code defines its function. Without it the last function defined counts, as published.
ENTRY = "f"
#: The published rule for numeric functions: a normalised squared error below this.
SUCCESS = 0.1
#: Integers of more bits are not floats either; such an input or output is only mentioned.
LONGEST_INTEGER = 1000


class Answer(BaseModel):
    """An interpretation: in words, where the function departs from its rule, and as code that can be run.

    `structure` holds the parts that a program can check, under the names of the function's truth (`family`, `noise`,
    `interval`, `operations`, `concepts`, `rule`, `exception`, ...). Built-in interpreters fill it; of a language model
    it holds the interval, where that was given in its structured form. `table` says that the code looks values up and
    names no rule: such an answer may predict, but does not count as understanding.
    """

    model_config = ConfigDict(frozen=True)

    description: str
    domain: str | None = None
    code: str | None = None
    structure: dict[str, Any] = Field(default_factory=dict)
    table: bool = False
    interpreter: str = ""
    queries: int = 0
    rounds: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    #: Outputs that a language model invented instead of asking for them.
    hallucinated: int | None = None

    @field_validator("description", "domain", "code")
    @classmethod
    def _can_be_written(cls, text: str | None) -> str | None:
        return None if text is None else writable(text)


def writable(text: str) -> str:
    """A text that a file can hold: halves of characters, which language models sometimes send, become `?`."""
    return text.encode("utf-8", "replace").decode("utf-8")


def json_value(value: object) -> Any:
    """A value as JSON holds it: NaN, infinities, complex and endless numbers as texts, tuples as lists."""
    if isinstance(value, dict):
        return {writable(str(name)): json_value(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    if isinstance(value, str):
        return writable(value)
    if value is None or isinstance(value, bool) or (isinstance(value, int) and value.bit_length() <= LONGEST_INTEGER):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return f"an integer of {value.bit_length()} bits" if isinstance(value, int) else writable(str(value))


class Grade(BaseModel):
    """How good one answer is: figures by name (None where a figure does not apply), and what a picture needs."""

    model_config = ConfigDict(frozen=True)

    metrics: dict[str, float | None]
    #: Points to draw, e.g. `{"x": [...], "truth": [...], "answer": [...]}`, or examples to list.
    picture: dict[str, Any] = Field(default_factory=dict)
    #: Why code could not be graded, if so.
    fault: str | None = None


class Interpreter(Protocol):
    """An interpreter explains a function from its box alone."""

    def __call__(self, box: Box, *, seed: int) -> Answer: ...


# Unit tests of a description: of three examples, which one is the function's?
#
# A category makes them (`unit_tests(function, seed)`). Its grader takes them by running an answer, or an LM evaluator
# by reading its description (`agents.evaluator`).

#: The score of a random choice.
CHANCE = 1 / 3
#: Fits this close are a tie.
_TIE = 1e-12


@dataclass(frozen=True)
class Example:
    """An input and, unless inputs alone are shown, the output that goes with it."""

    input: Any
    output: Any = None


@dataclass(frozen=True)
class UnitTest:
    """Three examples; the one at index `correct` is the function's own, the others come from other functions."""

    examples: tuple[Example, ...]
    correct: int

    def __post_init__(self) -> None:
        assert len(self.examples) == 3
        assert 0 <= self.correct < 3

    @classmethod
    def of_inputs(cls, inputs: Sequence[object], correct: int) -> "UnitTest":
        """Inputs alone."""
        return cls(tuple(map(Example, inputs)), correct)

    @classmethod
    def of_pairs(cls, pairs: Sequence[tuple[Any, Any]], correct: int) -> "UnitTest":
        """Inputs with outputs."""
        return cls(tuple(Example(*pair) for pair in pairs), correct)

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The three inputs."""
        return tuple(example.input for example in self.examples)

    @property
    def outputs(self) -> tuple[Any, ...]:
        """The three outputs; None where inputs alone are shown."""
        return tuple(example.output for example in self.examples)

    @property
    def right(self) -> Example:
        """The function's own example."""
        return self.examples[self.correct]


def credit(fits: Sequence[float | None], correct: int) -> float:
    """1 if the right example fits best, a share if it is tied, else 0; one without a fit (None) is never chosen."""
    known = [fit for fit in fits if fit is not None]
    if not known:
        return 0.0
    best = [index for index, fit in enumerate(fits) if fit is not None and fit >= max(known) - _TIE]
    return (correct in best) / len(best)
