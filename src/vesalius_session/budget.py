"""What an agent may use, and what it has used: counted the same way for HyVE, MCP, inspect and outside commands.

Everything counted is counted whether or not it is limited. A claim counts one when it is given, readable or not, and a
claim about a whole circuit counts one too; a program, or a scoring of candidate variables, counts one when it is run.
"""

from dataclasses import asdict, dataclass, field

from vesalius.errors import BadInput, require_whole

#: What is counted, in words. `looks` are measurements that run no program of the agent's own.
COUNTED = {
    "looks": "looks",
    "executions": "executions of code",
    "claims": "claims",
    "forwards": "forward passes",
    "seconds": "seconds of computing",
}
#: What a budget says when a part of it is used up.
REFUSAL = "budget: all {limit:,.0f} {name} are used; submit what you found"


class OutOfBudget(BadInput):
    """A part of a budget is used up."""


@dataclass(frozen=True)
class Budget:
    """Limits of an agent; None: no limit. Passes that a program makes in the sandbox are not `forwards`: `executions`
    and `seconds` bound them. `memory` (bytes) holds for every call on its own, and `queries` for every black-box
    function.
    """

    looks: int | None = None
    executions: int | None = None
    claims: int | None = None
    forwards: float | None = None
    seconds: float | None = None
    memory: int | None = None
    queries: int | None = None

    def __post_init__(self) -> None:
        given = {name: value for name, value in asdict(self).items() if value is not None}
        require_whole(**{name: value for name, value in given.items() if name in ("looks", "executions", "claims")})
        for name, value in given.items():
            if not value >= 0:
                raise BadInput(f"budget: {name} {value} is less than none; give 0 or more")

    def in_words(self) -> str:
        """The limits in one sentence."""
        parts = {
            "forwards": "{:,.0f} forward passes of one prompt (those of your code in the sandbox do not count)",
            "looks": "{:,.0f} looks",
            "executions": "{:,.0f} executions of code",
            "claims": "{:,.0f} claims",
            "seconds": "{:,.0f} seconds of computing",
            "queries": "{:,.0f} inputs per black-box function",
        }
        limits = [text.format(value) for name, text in parts.items() if (value := getattr(self, name)) is not None]
        return ", ".join([*limits, *([] if self.memory is None else [f"{self.memory / 2**20:,.0f} MB per call"])])


@dataclass
class Spending:
    """What was used of a budget. `before` is what others have used of the same one: a call counts on from what its
    connection has used, and is added to it when it is over.
    """

    budget: Budget = field(default_factory=Budget)
    refusal: str = REFUSAL
    before: "Spending | None" = None
    used: dict[str, float] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0.0))

    def add(self, **amounts: float) -> None:
        """Count what was used, whatever is left."""
        for name, amount in amounts.items():
            self.used[name] += amount

    def spend(self, name: str, amount: float = 1.0) -> None:
        """Count what is about to be used; refused where less is left."""
        self.require(name, amount)
        self.used[name] += amount

    def require(self, name: str, amount: float = 0.0) -> None:
        """Refuse work where nothing is left, or less than `amount`."""
        limit, used = getattr(self.budget, name), self.total(name)
        if limit is not None and (used + amount > limit or used >= limit):
            raise OutOfBudget(self.refusal.format(limit=limit, name=name, words=COUNTED[name]))

    def total(self, name: str) -> float:
        """What was used in all."""
        return self.used[name] + (0.0 if self.before is None else self.before.total(name))

    def left_of(self, name: str) -> float:
        """What is left of one limit, never below 0."""
        limit = getattr(self.budget, name)
        return float("inf") if limit is None else max(0.0, limit - self.total(name))

    def left(self) -> dict[str, float]:
        """What is left of every limit, whole numbers but for seconds; `memory_mb` is what every call may use."""
        limited = [name for name in COUNTED if getattr(self.budget, name) is not None]
        left: dict[str, float] = {
            name: round(self.left_of(name), 1) if name == "seconds" else int(self.left_of(name)) for name in limited
        }
        return left if self.budget.memory is None else {**left, "memory_mb": round(self.budget.memory / 2**20)}
