"""A language model's run as it can be watched: its calls in order, with what they ran, and what came of them so far.

Texts are cut; `length` says how long the whole is.
"""

from typing import Literal

from pydantic import Field

from vesalius.documents.base import Record
from vesalius.documents.explanation import Verdict
from vesalius.documents.trace import Decider
from vesalius.documents.usage import RunUsage
from vesalius.documents.view import Answer, Facts, Sheet, View, Viewable, join_first

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
