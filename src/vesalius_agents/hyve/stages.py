"""The stages, each a function from the state to the next state.

A stage says something to the model, lets it work, and writes down what came of it. None of them uses a clock or chance,
so the same replies give the same state. Where the model gives nothing, the stage says so and the next goes on.

The protocol `paper` asks as published: a plan before every program. `typed` asks for less: no plans, the first
hypothesis together with the observation, the summary together with the classification; and components that a claim
about the whole circuit settled are not asked about at all.

    plan_observation -> observe -> hypothesize -> plan_validation -> validate -> conclude -> classify -> summarize
            ^                         ^   (not supported, tries left)   |            |
            |                         +---------------------------------+            |
            +------------------------------- (more components) ----------------------+

There is no checkpoint: every call of the model is on record, so a killed run is run again and finds its calls there
(docs/decisions/0008).
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from vesalius.components import Component
from vesalius.documents.explanation import ClaimRecord, Verdict
from vesalius.documents.trace import Attempt, ComponentTrace, Decider, Execution
from vesalius.documents.view import cut_text
from vesalius.explanations.verdicts import from_free_code, record_text, verdict_of
from vesalius_agents.hyve.asking import (
    Asker,
    CircuitSummary,
    Conclusion,
    Decision,
    ExperimentPlan,
    Looked,
    Observed,
    Proposal,
    Role,
    classification,
    names,
)
from vesalius_agents.hyve.own_prompts import OwnPrompts
from vesalius_agents.hyve.prompting import LONGEST_KNOWN, LONGEST_QUOTE, Known, StagePrompts, failures_of
from vesalius_agents.hyve.tools import Bench
from vesalius_backbones import Message, system, user
from vesalius_session.briefing import MAX_ITERATIONS, TAXONOMY, Briefing
from vesalius_session.findings import Checked, Finding
from vesalius_session.session import Session

#: Results of earlier programs that a natural model's prompts quote, and characters of each program.
MOST_MEASURED, LONGEST_CODE = 6, 120
NO_PLAN = "(no readable plan was given; go by the stage's aim)"
NO_OBSERVATION = "(no readable observation was given)"


@dataclass(frozen=True)
class State:
    """What the stages pass on. The first block belongs to the component under study, the second to the run."""

    plan: str = ""
    observation: str = ""
    observed: tuple[Execution, ...] = ()
    hypothesis: str = ""
    attempts: tuple[Attempt, ...] = ()
    claims: tuple[ClaimRecord, ...] = ()
    checked: tuple[Checked, ...] = ()

    findings: tuple[Finding, ...] = ()
    roles: Mapping[str, Role] = field(default_factory=dict)
    summary: CircuitSummary | None = None

    @property
    def settled(self) -> bool:
        """Whether the component is done: its last hypothesis is supported, or its attempts are used up."""
        supported = bool(self.attempts) and self.attempts[-1].verdict == "supported"
        return supported or len(self.attempts) >= MAX_ITERATIONS


@dataclass
class Stages:
    """The stages, and what they share: the asker at which the model is asked, and the session."""

    asker: Asker
    session: Session
    typed: bool
    own: OwnPrompts | None = None
    free: Counter[Component] = field(default_factory=Counter)

    @property
    def briefing(self) -> Briefing:
        """What the model is told of the session's specimen."""
        return self.session.setting.briefing

    @cached_property
    def prompts(self) -> StagePrompts:
        """The prompts of the session's specimen."""
        return StagePrompts(self.briefing, self.own)

    def component(self, state: State) -> Component:
        """The component under study: the first that has no finding."""
        return self.briefing.circuit[len(state.findings)]

    def plan_observation(self, state: State) -> State:
        """Say what to look at; of a component that is settled already, what settled it."""
        component = self.component(state)
        state = replace(state, plan="", observation="", observed=(), hypothesis="", attempts=(), claims=(), checked=())
        if component in self.session.memory.established:
            claim, record = self.session.memory.established[component]
            attempt = _by_circuit_claim(record, number=1)
            seen = "(not observed: a claim about the whole circuit settled it)"
            return replace(state, observation=seen, attempts=(attempt,), claims=(record,), checked=((claim, record),))
        self.asker.tell(f"observing {component}")
        if self.typed:
            return state
        prompt = self._stage("observe_plan.md", state)
        return replace(state, plan=self._plan(prompt, state, f"{component} observation plan"))

    def observe(self, state: State) -> State:
        """Look, and say what was seen; typed, also what it means."""
        if state.settled:
            return state
        component = self.component(state)
        prompt = self._stage(
            "observe.md", state, plan=state.plan, helpers=self.briefing.helpers("observation_tools"), typed=self.typed
        )
        subject = component if self.typed and self.briefing.scores_variables else None
        bench = Bench("observe", self.session, subject=subject)
        label = f"{component} observation"
        shape = Looked if self.typed else Observed
        answer = self.asker.work(self._turns(prompt, state), shape, label=label, bench=bench)
        seen = answer.observation if answer else NO_OBSERVATION
        meant = answer.hypothesis if isinstance(answer, Looked) else ""
        return replace(state, observation=seen, observed=tuple(bench.executions), hypothesis=meant.strip())

    def hypothesize(self, state: State) -> State:
        """Say what the component does, unless that was said with the observation."""
        component, number = self.component(state), len(state.attempts) + 1
        if number == 1 and state.hypothesis:
            return state
        self.asker.tell(f"hypothesis {number} about {component}")
        prompt = self._stage(
            "hypothesize.md",
            state,
            observation=self._quoted(state.observation),
            failures=failures_of(state.attempts, longest=LONGEST_QUOTE if self.briefing.compact else None),
        )
        reply = self.asker.ask(self._turns(prompt, state), Proposal, label=f"{component} hypothesis {number}")
        if reply is None or reply.parsed is None:
            return replace(state, hypothesis="", attempts=(*state.attempts, Attempt(iteration=number, hypothesis="")))
        return replace(state, hypothesis=reply.parsed.hypothesis)

    def plan_validation(self, state: State) -> State:
        """Say how to test it."""
        component, number = self.component(state), len(state.attempts) + 1
        self.asker.tell(f"testing hypothesis {number} about {component}")
        if self.typed:
            return state
        prompt = self._stage("validate_plan.md", state, hypothesis=state.hypothesis, observation=state.observation)
        return replace(state, plan=self._plan(prompt, state, f"{component} validation plan {number}"))

    def validate(self, state: State) -> State:
        """Test it: by the engine (typed), or by code that the model writes and reads itself (paper)."""
        component, number = self.component(state), len(state.attempts) + 1
        bench = Bench(
            "validate",
            self.session,
            component if self.typed else None,
            component if self.typed and self.briefing.scores_variables else None,
            self.briefing.claims_schema(component) if self.typed else None,
            self.asker.count_malformed,
        )
        lines = self.briefing.helpers(*(["validation_tools"] if self.typed else []))
        lines = [line for line in lines if not (self.typed and "which_variable(" in line)]  # it is a tool there
        facts: dict[str, Any] = {
            "hypothesis": self._quoted(state.hypothesis),
            "plan": state.plan,
            "helpers": lines,
            "typed": self.typed,
        }
        template = "validate_typed.md" if self.typed else "validate_paper.md"
        if self.typed:
            facts |= self.briefing.grammar()
            facts["programs"] = self._programs(state)
        turns = self._turns(self._stage(template, state, **facts), state)
        label = f"{component} validation {number}"
        answer: Any = self.asker.work(turns, Conclusion if self.typed else Decision, label=label, bench=bench)
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

    def revise(self, state: State) -> State:
        """Close components that a claim about the whole circuit supported after they were studied."""
        return replace(state, findings=tuple(self._revised(finding) for finding in state.findings))

    def classify(self, state: State) -> State:
        """Give every component a tag; the taxonomy is shown here for the first time."""
        self.asker.tell("classifying")
        known = self._known(state)
        prompt = self.prompts.stage(
            "classify.md", known=known, taxonomy=TAXONOMY, typed=self.typed, programs=self._programs(state)
        )
        circuit = [one.component for one in known]
        shape = classification(circuit, summary=self.typed)
        reply = self.asker.ask(self._turns(prompt, state), shape, label="classification")
        reply_roles = {} if reply is None or reply.parsed is None else dict(reply.parsed)
        roles = {name: role for name, role in reply_roles.items() if isinstance(role, Role)}
        if reply is not None and (missing := sorted(set(circuit) - set(roles))):
            self.asker.note(f"classification: it leaves out {', '.join(missing)}")
        told = {name: reply_roles.get(name) for name in CircuitSummary.model_fields}
        summary = CircuitSummary.model_validate(told) if all(told.values()) else None
        return replace(state, roles=roles, summary=summary)

    def summarize(self, state: State) -> State:
        """Say how information flows and what the task is, unless that was said with the classification."""
        if state.summary is not None:
            return state
        self.asker.tell("summarising")
        known = self._known(state)
        roles = [(name, role.tag, role.description) for name, role in state.roles.items()]
        prompt = self.prompts.stage("summarize.md", known=known, roles=roles)
        reply = self.asker.ask(self._turns(prompt, state), CircuitSummary, label="summary")
        return replace(state, summary=None if reply is None else reply.parsed)

    def name(self, parts: Sequence[tuple[str, str]]) -> dict[str, str]:
        """The model's names for components, of which it is told what was established, and for the `task`."""
        self.asker.tell("naming")
        turns = [system(self.prompts.stage("name_system.md")), user(self.prompts.stage("name.md", parts=parts))]
        reply = self.asker.ask(turns, names([name for name, _ in parts]), label="names")
        given = {} if reply is None or reply.parsed is None else dict(reply.parsed)
        return {name: said.strip() for name, said in given.items() if isinstance(said, str) and said.strip()}

    def _revised(self, finding: Finding) -> Finding:
        """A finding that a later claim about the whole circuit supports."""
        established = self.session.memory.established.get(Component.parse(finding.trace.component))
        if established is None or finding.verdict == "supported":
            return finding
        claim, record = established
        attempt = _by_circuit_claim(record, number=len(finding.trace.attempts) + 1)
        trace = finding.trace.model_copy(update={"attempts": (*finding.trace.attempts, attempt)})
        return Finding(trace, "supported", (record,), ((claim, record),))

    def _programs(self, state: State) -> list[dict[str, Any]]:
        """The distinct programs that held, the one that "last" stands for at the end; one alone where it is compact."""
        held = [finding.program for finding in state.findings if finding.program]
        last = self.session.memory.last
        held += [] if last is None or not held else [last]
        distinct = {json.dumps(one["program"], sort_keys=True): one for one in held}
        return list(distinct.values())[-1 if self.briefing.compact else 0 :]

    def _stage(self, template: str, state: State, **facts: Any) -> str:
        """A stage's instructions about the component under study, and what is known of those before it."""
        measured = [] if self.briefing.scores_variables or self.briefing.compact else measured_before(state.findings)
        known = self._known(state)
        return self.prompts.stage(template, self.component(state), known=known, measured=measured, **facts)

    def _known(self, state: State) -> list[Known]:
        """What is known of the components so far, in a few words each where prompts are compact."""
        known = [
            Known(one.trace.component, one.hypothesis, one.verdict, one.established, one.tag) for one in state.findings
        ]
        return [replace(one, longest=LONGEST_KNOWN) for one in known] if self.briefing.compact else known

    def _quoted(self, text: str) -> str:
        """The model's own text, cut where prompts are compact."""
        return cut_text(text, LONGEST_QUOTE) if self.briefing.compact else text

    def _turns(self, prompt: str, state: State) -> list[Message]:
        left = len(state.findings) < len(self.briefing.circuit)
        return [system(self.prompts.system(self.component(state) if left else None, self._known(state))), user(prompt)]

    def _plan(self, prompt: str, state: State, label: str) -> str:
        reply = self.asker.ask(self._turns(prompt, state), ExperimentPlan, label=label)
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
        own = from_free_code(
            hypothesis, verdict, programs=ran, tried=self.free[component], seed=self.session.setting.seed
        )
        return (*records, own)

    def _verdict(self, records: tuple[ClaimRecord, ...], bench: Bench, answer: Any) -> tuple[Verdict, Decider]:
        if self.typed:
            return verdict_of(records), ("engine" if bench.checked else "undecided")
        return (records[-1].verdict, "model") if answer is not None else ("untested", "undecided")


def run_stages(stages: Stages) -> State:
    """Run all stages over all components and return the final state."""
    return stages.summarize(stages.classify(study_components(stages)))


def study_components(stages: Stages, given: Mapping[str, Finding] | None = None) -> State:
    """Study all components but those whose finding is `given`."""
    state = State()
    for component in stages.briefing.circuit:
        finding = (given or {}).get(str(component))
        if finding is None:
            state = _study_component(stages, state)
        else:
            state = replace(state, findings=(*state.findings, finding))
    return stages.revise(state)


def _study_component(stages: Stages, state: State) -> State:
    """Observe the next component, then state and test hypotheses until one is supported or the attempts are used up."""
    state = stages.observe(stages.plan_observation(state))
    while not state.settled:
        state = stages.hypothesize(state)
        if state.hypothesis:
            state = stages.validate(stages.plan_validation(state))
    return stages.conclude(state)


def measured_before(findings: Sequence[Finding]) -> list[str]:
    """What programs found while other components were studied, so that a natural model is not measured again for
    each: the latest results, with how each program began.
    """
    traces = [finding.trace for finding in findings]
    executions = [one for trace in traces for made in (trace, *trace.attempts) for one in made.executions]
    found = [
        f"{cut_text(one.code, LONGEST_CODE)} gave {cut_text(one.result, LONGEST_QUOTE)}"
        for one in executions
        if one.result
    ]
    return found[-MOST_MEASURED:]


def _by_circuit_claim(record: ClaimRecord, *, number: int) -> Attempt:
    """The attempt that stands for a component which a claim about the whole circuit settled."""
    return Attempt(
        iteration=number,
        hypothesis=record.text,
        verdict="supported",
        reasoning="a claim about the whole circuit was checked for this component too",
        decided_by="engine",
    )


def _reasoning(answer: Any, bench: Bench) -> str:
    """Feedback for the next hypothesis: the engine's findings against this one and for it, then the model's words."""
    ordered = sorted((record for _, record in bench.checked), key=lambda record: record.verdict == "supported")
    against = [record_text(record) for record in ordered]
    own = [] if answer is None else [answer.explanation, answer.ruling_out]
    return "\n".join(part for part in (*against, *own) if part)
