"""The stages, each a function from the state to the next state.

A stage says something to the model, lets it work, and writes down what came of it. None of them uses a clock or chance,
so the same replies give the same state. Where the model gives nothing, the stage says so and the next goes on.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vesalius.backbones import Message, system, user
from vesalius.components import Component
from vesalius.documents.explanation import ClaimRecord, Verdict
from vesalius.documents.trace import Attempt, ComponentTrace, Decider, Execution
from vesalius.explanations.claims import Claim, Lab
from vesalius.explanations.hyve.asking import Desk
from vesalius.explanations.hyve.prompting import MAX_ITERATIONS, TAXONOMY, Known, Prompts, failures_of
from vesalius.explanations.hyve.shapes import (
    Conclusion,
    Decision,
    Observed,
    Plan,
    Proposal,
    Role,
    Summary,
    classification,
)
from vesalius.explanations.hyve.tools import Bench, ComponentJudge, Workspace, record_text
from vesalius.explanations.hyve.verdicts import FUNCTIONAL, FUNCTIONAL_NATURAL, from_free_code, verdict_of

NO_PLAN = "(no readable plan was given; go by the stage's aim)"
NO_OBSERVATION = "(no readable observation was given)"
NO_HYPOTHESIS = "(no readable hypothesis was given)"


@dataclass(frozen=True)
class Finding:
    """What is left of a component when its stages are over. `checked` are the claims of its last hypothesis."""

    trace: ComponentTrace
    verdict: Verdict
    claims: tuple[ClaimRecord, ...]
    checked: tuple[tuple[Claim, ClaimRecord], ...]

    @property
    def hypothesis(self) -> str:
        """The last hypothesis that could be read."""
        stated = [attempt.hypothesis for attempt in self.trace.attempts if attempt.hypothesis]
        return stated[-1] if stated else NO_HYPOTHESIS

    @property
    def program(self) -> dict[str, Any] | None:
        """The program and carriers, as the model wrote them, that a supported claim rests on."""
        for attempt in reversed(self.trace.attempts):
            for given in reversed(attempt.claims):
                if given.get("verdict") == "supported" and "carriers" in given:
                    return {"program": given.get("program"), "carriers": given["carriers"]}
        return None

    @property
    def known(self) -> Known:
        """As later prompts show it."""
        return Known(self.trace.component, self.hypothesis, self.verdict, self.established)

    @property
    def established(self) -> str:
        """What supported claims, as they were tested, say; empty where the model judged itself."""
        checked = [
            record
            for _, record in self.checked
            if record.kind in FUNCTIONAL | FUNCTIONAL_NATURAL and record.verdict == "supported"
        ]
        return " ".join(dict.fromkeys(record.text for record in checked)) if self.verdict == "supported" else ""


@dataclass(frozen=True)
class State:
    """What the stages pass on. The first block belongs to the component under study, the second to the run."""

    plan: str = ""
    observation: str = ""
    observed: tuple[Execution, ...] = ()
    hypothesis: str = ""
    attempts: tuple[Attempt, ...] = ()
    claims: tuple[ClaimRecord, ...] = ()
    checked: tuple[tuple[Claim, ClaimRecord], ...] = ()

    findings: tuple[Finding, ...] = ()
    roles: Mapping[str, Role] = field(default_factory=dict)
    summary: Summary | None = None

    @property
    def settled(self) -> bool:
        """Whether the component is done: its last hypothesis is supported, or its attempts are used up."""
        supported = bool(self.attempts) and self.attempts[-1].verdict == "supported"
        return supported or len(self.attempts) >= MAX_ITERATIONS


@dataclass
class Stages:
    """The stages, and what they share: the desk, the prompts, the sandbox, the laboratory."""

    desk: Desk
    prompts: Prompts
    workspace: Workspace
    lab: Callable[[], Lab]
    typed: bool
    seed: int
    judges: dict[Component, ComponentJudge] = field(default_factory=dict)
    free: Counter[Component] = field(default_factory=Counter)

    def component(self, state: State) -> Component:
        """The component under study: the first that has no finding."""
        return self.prompts.circuit[len(state.findings)]

    def plan_observation(self, state: State) -> State:
        """Say what to look at."""
        component = self.component(state)
        self.desk.tell(f"observing {component}")
        plan = self._plan(state, self.prompts.stage("observe_plan.md", component), f"{component} observation plan")
        return replace(state, plan=plan, attempts=(), claims=(), checked=())

    def observe(self, state: State) -> State:
        """Look, and say what was seen."""
        component = self.component(state)
        prompt = self.prompts.stage(
            "observe.md", component, plan=state.plan, helpers=self.prompts.helpers("observation_tools")
        )
        bench = Bench("observe", self.workspace)
        answer = self.desk.work(self._turns(state, prompt), Observed, label=f"{component} observation", bench=bench)
        seen = answer.observation if answer else NO_OBSERVATION
        return replace(state, observation=seen, observed=tuple(bench.executions))

    def hypothesize(self, state: State) -> State:
        """Say what the component does."""
        component, number = self.component(state), len(state.attempts) + 1
        self.desk.tell(f"hypothesis {number} about {component}")
        prompt = self.prompts.stage(
            "hypothesize.md", component, observation=state.observation, failures=failures_of(state.attempts)
        )
        reply = self.desk.ask(self._turns(state, prompt), Proposal, label=f"{component} hypothesis {number}")
        if reply is None or reply.parsed is None:
            return replace(state, hypothesis="", attempts=(*state.attempts, Attempt(iteration=number, hypothesis="")))
        return replace(state, hypothesis=reply.parsed.hypothesis)

    def plan_validation(self, state: State) -> State:
        """Say how to test it."""
        component, number = self.component(state), len(state.attempts) + 1
        self.desk.tell(f"testing hypothesis {number} about {component}")
        prompt = self.prompts.stage(
            "validate_plan.md",
            component,
            hypothesis=state.hypothesis,
            observation=state.observation,
            typed=self.typed,
        )
        return replace(state, plan=self._plan(state, prompt, f"{component} validation plan {number}"))

    def validate(self, state: State) -> State:
        """Test it: by the engine (typed), or by code that the model writes and reads itself (paper)."""
        component, number = self.component(state), len(state.attempts) + 1
        judge = ComponentJudge(self.lab, component, self.prompts.read_claim)
        judge = self.judges.setdefault(component, judge) if self.typed else None
        bench = Bench("validate", self.workspace, judge, self.desk.count_malformed)
        facts: dict[str, Any] = {"hypothesis": state.hypothesis, "plan": state.plan, "helpers": self.prompts.helpers()}
        template = "validate_typed.md" if self.typed else "validate_paper.md"
        if self.typed:
            facts |= self.prompts.grammar(component)
            facts["programs"] = [finding.program for finding in state.findings if finding.program]
        turns = self._turns(state, self.prompts.stage(template, component, **facts))
        label = f"{component} validation {number}"
        answer: Any = self.desk.work(turns, Conclusion if self.typed else Decision, label=label, bench=bench)
        records = self._records(component, state.hypothesis, answer, bench)
        verdict, decider = self._verdict(records, bench, answer)
        attempt = Attempt(
            iteration=number,
            hypothesis=state.hypothesis,
            plan=state.plan,
            claims=tuple(bench.given),
            executions=tuple(bench.executions),
            verdict=verdict,
            reasoning=_reasoning(answer, bench),
            decided_by=decider,
        )
        return replace(state, attempts=(*state.attempts, attempt), claims=records, checked=tuple(bench.checked))

    def conclude(self, state: State) -> State:
        """Close the component: explained, or kept as tentative."""
        component, attempts = self.component(state), state.attempts
        trace = ComponentTrace(
            component=str(component),
            observation=state.observation,
            executions=state.observed,
            attempts=attempts,
        )
        # An attempt without a hypothesis tested nothing: what was found before it stands.
        stated: list[Verdict] = [attempt.verdict for attempt in attempts if attempt.hypothesis]
        finding = Finding(trace, stated[-1] if stated else "untested", state.claims, state.checked)
        return replace(state, findings=(*state.findings, finding))

    def classify(self, state: State) -> State:
        """Give every component a tag; the taxonomy is shown here for the first time."""
        self.desk.tell("classifying")
        known = [finding.known for finding in state.findings]
        prompt = self.prompts.stage("classify.md", known=known, taxonomy=TAXONOMY)
        names = [one.component for one in known]
        reply = self.desk.ask(self._turns(state, prompt, last=True), classification(names), label="classification")
        reply_roles = {} if reply is None or reply.parsed is None else dict(reply.parsed)
        roles = {name: role for name, role in reply_roles.items() if isinstance(role, Role)}
        if reply is not None and (missing := sorted(set(names) - set(roles))):
            self.desk.note(f"classification: it leaves out {', '.join(missing)}")
        return replace(state, roles=roles)

    def summarize(self, state: State) -> State:
        """Say how information flows and what the task is."""
        self.desk.tell("summarising")
        known = [finding.known for finding in state.findings]
        roles = [(name, role.tag, role.description) for name, role in state.roles.items()]
        prompt = self.prompts.stage("summarize.md", known=known, roles=roles)
        reply = self.desk.ask(self._turns(state, prompt, last=True), Summary, label="summary")
        return replace(state, summary=None if reply is None else reply.parsed)

    def _turns(self, state: State, prompt: str, *, last: bool = False) -> list[Message]:
        component = None if last else self.component(state)
        known = [finding.known for finding in state.findings]
        return [system(self.prompts.system(component, known)), user(prompt)]

    def _plan(self, state: State, prompt: str, label: str) -> str:
        reply = self.desk.ask(self._turns(state, prompt), Plan, label=label)
        return NO_PLAN if reply is None or reply.parsed is None else str(reply.parsed)

    def _records(self, component: Component, hypothesis: str, answer: Any, bench: Bench) -> tuple[ClaimRecord, ...]:
        """The checked claims, and the model's own reading of its code where it gave one."""
        records = tuple(record for _, record in bench.checked)
        decision = "none" if answer is None else answer.own_code if self.typed else answer.decision
        ran = sum(execution.succeeded for execution in bench.executions)
        if decision == "none" or (self.typed and not ran):
            return records
        self.free[component] += 1
        verdict: Verdict = "supported" if decision == "support" else "refuted"
        own = from_free_code(hypothesis, verdict, programs=ran, tried=self.free[component], seed=self.seed)
        return (*records, own)

    def _verdict(self, records: tuple[ClaimRecord, ...], bench: Bench, answer: Any) -> tuple[Verdict, Decider]:
        if self.typed:
            return verdict_of(records), ("engine" if bench.checked else "undecided")
        return (records[-1].verdict, "model") if answer is not None else ("untested", "undecided")


def _reasoning(answer: Any, bench: Bench) -> str:
    """Feedback for the next hypothesis: the engine's findings against this one, then the model's words."""
    against = [record_text(record) for _, record in bench.checked if record.verdict != "supported"]
    own = [] if answer is None else [answer.explanation, answer.ruling_out]
    return "\n".join(part for part in (*against, *own) if part)
