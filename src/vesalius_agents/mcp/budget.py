"""What one connection may use: stated at the start, counted down with every call."""

from dataclasses import asdict, dataclass, field

from vesalius.errors import BadInput

FORWARDS, EXECUTIONS, SECONDS = "forwards", "executions", "seconds"


class OutOfBudget(BadInput):
    """A connection has used up a part of its budget."""


@dataclass(frozen=True)
class Budget:
    """Limits of a connection. Passes that a program makes in the sandbox are not `forwards`: `executions` and `seconds`
    bound them. `memory` is in bytes and holds for every call on its own: for what the work needs at its
    peak, and for a program in the sandbox. `queries` are the inputs of one black-box function.
    """

    forwards: float = 2_000_000
    executions: int = 100
    seconds: float = 1_800
    memory: int = 2 << 30
    queries: int = 400

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value > 0:
                raise BadInput(f"{name} {value}: the budget must be above 0")

    def in_words(self) -> str:
        """The budget in one sentence."""
        return (
            f"{self.forwards:,.0f} forward passes of one prompt (those of your code in the sandbox do not count), "
            f"{self.executions} executions of code, "
            f"{self.seconds:,.0f} seconds of computing, {self.memory / 2**20:,.0f} MB per call, "
            f"{self.queries} inputs per black-box function"
        )


@dataclass
class Spending:
    """What a connection has used so far."""

    budget: Budget
    used: dict[str, float] = field(default_factory=lambda: {FORWARDS: 0.0, EXECUTIONS: 0.0, SECONDS: 0.0})

    def add(self, **amounts: float) -> None:
        """Count what was used."""
        for name, amount in amounts.items():
            self.used[name] += amount

    def left(self) -> dict[str, float]:
        """What is left, never below 0; `memory_mb` is what every call may use."""
        left = {name: max(0.0, getattr(self.budget, name) - used) for name, used in self.used.items()}
        left = {name: round(value, 1 if name == SECONDS else 0) for name, value in left.items()}
        return {**left, "memory_mb": round(self.budget.memory / 2**20)}

    def require(self, name: str, amount: float = 0.0) -> None:
        """Refuse work where nothing is left, or less than `amount`."""
        limit = getattr(self.budget, name)
        if self.used[name] + amount > limit or self.used[name] >= limit:
            raise OutOfBudget(
                f"budget exhausted: all {limit:,.0f} {_WORDS[name]} of this connection are used; "
                "submit what you have (submit_explanation, submit_function), or ask for a larger budget"
            )


_WORDS = {FORWARDS: "forward passes", EXECUTIONS: "executions of code", SECONDS: "seconds of computing"}
