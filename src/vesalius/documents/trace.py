"""How an explanation came about, step by step: what was observed, tried, run and decided, and what it cost.

A trace is what diagnostics are computed from (execution success, soundness of plans, grounding of hypotheses,
convergence) and what a reader follows when an explanation looks wrong. The explanation itself never depends on it.
"""

from typing import Literal

from pydantic import Field

from vesalius.documents.base import FrozenList, JsonMap, Record, ShownDocument
from vesalius.documents.explanation import Verdict
from vesalius.documents.printed import RunUsage
from vesalius.documents.request import Request
from vesalius.documents.view import Answer, Facts, Sheet, View, Viewable, join_first

TRACE_FILE = "trace.json"
#: The recorded calls of a language model.
CALLS_FILE = "calls.jsonl"
Stage = Literal["observe", "hypothesize", "validate", "classify", "summarize"]
#: How HyVE tests hypotheses: by typed claims that the engine decides, or by the model's own code, as published.
Protocol = Literal["typed", "paper"]
DEFAULT_PROTOCOL: Protocol = "typed"
Decider = Literal["engine", "model", "undecided"]


class Execution(Record):
    """One run of generated code. `category` names the kind of failure; None when it ran and gave a result."""

    stage: Stage
    code: str
    category: str | None = None
    error: str = ""
    result: str = ""
    stdout: str = ""

    @property
    def succeeded(self) -> bool:
        """It ran to its end and gave a result."""
        return self.category is None


class Attempt(Record):
    """One hypothesis about a component: the plan to test it, the claims or code that did, and the decision.

    `decided_by` is `engine` where typed claims were checked, `model` where the language model read its own code's
    result, `undecided` where the budget ended first.
    """

    iteration: int
    hypothesis: str
    plan: str = ""
    claims: tuple[JsonMap, ...] = ()
    executions: tuple[Execution, ...] = ()
    verdict: Verdict = "untested"
    reasoning: str = ""
    decided_by: Decider = "undecided"


class ComponentTrace(Record):
    """Everything that was tried on one component; `resolved_at` is the iteration whose hypothesis was supported."""

    component: str
    observation: str
    executions: tuple[Execution, ...] = ()
    attempts: tuple[Attempt, ...] = ()

    @property
    def resolved_at(self) -> int | None:
        """The first iteration that ended in support, counted from 1; None if none did."""
        return next((attempt.iteration for attempt in self.attempts if attempt.verdict == "supported"), None)


class Usage(Record):
    """Calls, tokens and dollars; `cost` is None where a price is not known. `cached_tokens` is the part of
    `input_tokens` that came from the provider's cache and was priced as such. `repaired` and `reasked` count answers
    that could not be read at first, `failed` calls that gave nothing in the end, `malformed` claims and tool calls that
    could not be carried out.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float | None = 0.0
    repaired: int = 0
    reasked: int = 0
    failed: int = 0
    malformed: int = 0


class Trace(ShownDocument, kind="trace"):
    """The whole way from specimen to explanation. `problems` are failures that were worked around, one line each."""

    FILE = TRACE_FILE
    RANK = None
    SCHEMA = 2
    REMEDY = "run `vesalius explain` again"

    schema_version: Literal[2] = 2
    request: Request | None = None
    specimen: str
    protocol: Protocol
    backbone: str
    components: FrozenList[ComponentTrace]
    usage: Usage = Usage()
    problems: tuple[str, ...] = ()

    def view(self) -> View:
        """What the scientist tried on each component."""
        calls, cost = self.usage.calls, self.usage.cost
        price = "" if cost is None else f", {cost:.2f} dollars"
        solved = [f"{part.component} at {part.resolved_at}" for part in self.components if part.resolved_at is not None]
        rows = [
            (
                part.component,
                part.resolved_at,
                len(part.attempts),
                len(part.executions) + sum(len(one.executions) for one in part.attempts),
                part.attempts[-1].hypothesis if part.attempts else None,
            )
            for part in self.components
        ]
        problems = [("problems", str(len(self.problems)))] if self.problems else []
        return View(
            f"Trace of {self.specimen} by {self.backbone}",
            Answer(
                f"Trace of {self.specimen} by {self.backbone}, protocol {self.protocol}: {len(self.components)} "
                f"components, {calls} calls{price}"
            ),
            [
                Facts([("supported at iteration", join_first(solved, 6) or "none"), *problems]),
                Sheet(
                    ("component", "resolved_at", "attempts", "executions", "last_hypothesis"), rows, title="Components"
                ),
            ],
        )


# A language model's run as it can be watched: its calls in order, with what they ran, and what came of them so far.

#: `stopped`: there is work left and no process does it.
RunState = Literal["running", "finished", "stopped"]


class Text(Record):
    """A text, cut at some length; `length` is that of the whole, in characters."""

    text: str
    length: int

    @property
    def whole(self) -> bool:
        """Whether nothing was cut."""
        return self.length == len(self.text)


class ToolUse(Record):
    """One use of a tool: code that was run, a claim that was checked, a file that was read.

    `result` is what the model was told, None until its next call is on record; `verdict` the engine's, of a claim.
    """

    tool: str
    given: Text
    is_code: bool = False
    claim: str | None = None
    result: Text | None = None
    verdict: Verdict | None = None


class AgentCall(Record):
    """One call of the model. `label` names its stage as recorded, `stage`, `component` and `attempt` say it in parts.

    `prompt` is there for the first call of a conversation; `answer` are the fields of an answer that is a JSON object,
    `text` any other answer; `reply` what the model was told after an answer without tools. A call of a tool that
    another agent made has `forwards`, the forward passes it cost, and no tokens.
    """

    number: int
    label: str
    stage: str
    component: str | None = None
    attempt: int | None = None
    prompt: Text | None = None
    tools: tuple[ToolUse, ...] = ()
    answer: dict[str, Text] = Field(default_factory=dict)
    text: Text | None = None
    reply: Text | None = None
    failure: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    seconds: float | None = None
    forwards: float | None = None


class HypothesisState(Record):
    """One hypothesis about a component and how it stands; `verdict` is None while it is being tested."""

    component: str
    attempt: int
    hypothesis: Text
    verdict: Verdict | None = None
    decided_by: Decider | None = None


class AgentCase(Record):
    """One case of a benchmark run: how many calls it has, and whether it is explained."""

    case: str
    name: str
    calls: int
    explained: bool


class AgentRun(Viewable, Record):
    """A run of a language model: of one explanation, of one case of a benchmark, or of the tools that one connection of
    `vesalius mcp` called, with the `forwards` and `seconds` they took.

    `calls` are those from `first` on, of `n_calls`. `step` is what the process is doing, `problems` are what could not
    be read, one line each.
    """

    run: str
    state: RunState
    scientist: str = ""
    specimen: str = ""
    step: str = ""
    done: int = 0
    total: int = 0
    started: float | None = None
    case: str | None = None
    cases: tuple[AgentCase, ...] = ()
    first: int = 0
    n_calls: int = 0
    calls: tuple[AgentCall, ...] = ()
    hypotheses: tuple[HypothesisState, ...] = ()
    usage: RunUsage
    forwards: float | None = None
    seconds: float | None = None
    problems: tuple[str, ...] = ()

    def view(self) -> View:
        """What was asked, and how the hypotheses stand."""
        rows = [(call.number, call.label, call.input_tokens + call.output_tokens) for call in self.calls]
        sheet = Sheet(("call", "label", "tokens"), rows, title="Calls")
        if self.forwards is not None:
            answer = f"{self.run}: {self.specimen}, {self.n_calls} calls, {self.forwards:,.0f} forward passes"
            return View(self.run, Answer(answer), [sheet])
        used = self.usage.total
        cost = "cost not known" if used.cost is None else f"{used.cost:.2f} dollars"
        stood = [f"{one.component} {one.verdict or 'under test'}" for one in self.hypotheses]
        return View(
            self.run,
            Answer(f"{self.run}: {self.state}, {self.n_calls} calls, {cost}"),
            [Facts([("hypotheses", join_first(stood, 6) or "none")]), sheet],
        )
