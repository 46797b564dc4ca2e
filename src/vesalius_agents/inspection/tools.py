"""Our instruments as tools, for any agent of inspect_ai.

    react(tools=instruments(), submit=AgentSubmit(tool=submit_explanation()))
    basic_agent(init=[opened("frac_prevs", brief=True)], tools=[*instruments(), submit_explanation()])

They work on the specimen that `sessions.opened` made known; tasks of ours begin with it. What cannot be done is told to
the model in one line; an infrastructure failure ends the sample.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from inspect_ai.tool import Tool, ToolError, tool
from inspect_ai.util import store

from vesalius.errors import BadInput
from vesalius.explanations.verdicts import record_text
from vesalius.sandbox import Outcome
from vesalius_agents.cases import scored_circuit
from vesalius_agents.hyve.tools import outcome_text
from vesalius_agents.inspection.sessions import ANSWER, OPTIONS, box_of_sample, in_thread, investigation, ours
from vesalius_agents.session import AgentSession, statement
from vesalius_functions.bench.functions import ask_box
from vesalius_functions.box import Answer

#: Characters of one result.
LONGEST = 6_000
DIGITS = 4
SUBMITTED = "submitted"


@contextmanager
def _told() -> Iterator[None]:
    """What was asked wrongly is told to the model."""
    try:
        yield
    except BadInput as error:
        raise ToolError(str(error)) from None


async def _asked(question: Callable[[AgentSession], Any]) -> str:
    with _told():
        return _text(await in_thread(lambda: question(investigation())))


@tool
@ours
def predict() -> Tool:
    """What the model says."""

    async def execute(inputs: list[Any]) -> str:
        """Run the model on inputs. A model with listed tokens gives its output at every position; a language model the
        likeliest next tokens.

        Args:
            inputs: up to 64 inputs: lists of tokens, or texts for a language model.
        """
        return await _asked(lambda study: study.predict(inputs))

    return execute


@tool
@ours
def attention() -> Tool:
    """Attention patterns."""

    async def execute(prompt: Any, layer: int) -> str:
        """Show the attention of every head of one layer on one input: pattern[query][key], BOS first.

        Args:
            prompt: one input: a list of tokens, or a text for a language model.
            layer: the layer, counted from 0.
        """

        def patterns(study: AgentSession) -> dict[str, Any]:
            found = study.attention(prompt, layer)
            return {"tokens": found.tokens, **{head.head: head.pattern for head in found.heads}}

        return await _asked(patterns)

    return execute


@tool
@ours
def sweep() -> Tool:
    """Replace every component in turn."""

    async def execute(kind: str = "resample", n: int = 32) -> str:
        """Measure what each component of the model is worth: the score lost when it is replaced, with its interval.

        Args:
            kind: what takes its place: zero, mean or resample (its value on another input).
            n: prompts to measure on, up to 64.
        """

        def effects(study: AgentSession) -> dict[str, Any]:
            found = study.sweep(kind=kind, n=n)
            rows = {row.id: [row.effect, row.ci_low, row.ci_high] for row in found.components}
            return {"unit": found.unit, "baseline": found.baseline, "effect, low, high": rows}

        return await _asked(effects)

    return execute


@tool
@ours
def intervene() -> Tool:
    """Replace components together."""

    async def execute(
        components: list[str],
        kind: str = "resample",
        at: str | None = None,
        prompt: Any = None,
        source: Any = None,
        n: int = 16,
    ) -> str:
        """Replace some components together and see what the model says then, on prompts of the task or on one of yours.

        Args:
            components: names such as L0H1 and L0_MLP.
            kind: what takes their place: zero, mean, resample, or patch (their values on source).
            at: only at one position: a number from 0, "end", or a role of the prompts.
            prompt: an input of your own; leave it out for prompts of the task.
            source: the input that values are taken from, as long as prompt.
            n: prompts of the task, up to 64.
        """

        def changed(study: AgentSession) -> dict[str, Any]:
            found = study.intervene(components, kind=kind, at=at, prompt=prompt, source=source, n=n)
            rows = [{"prompt": row.prompt, "clean": row.clean, "edited": row.edited} for row in found.rows]
            named = ("clean", "edited", "effect", "effect_right", "effect_wrong", "effect_rest", "changed")
            figures = {name: metric.value for name in named if (metric := getattr(found, name)) is not None}
            return {"unit": found.unit, **figures, "rows": rows[:8]}

        return await _asked(changed)

    return execute


@tool
@ours
def lens() -> Tool:
    """The logit lens."""

    async def execute(prompt: str, components: list[str]) -> str:
        """Show the tokens whose logits each component's output raises most; of language models alone.

        Args:
            prompt: a text.
            components: names such as L0H1 and L0_MLP.
        """

        def raised(study: AgentSession) -> dict[str, Any]:
            found = study.lens(prompt, components)
            return {"tokens": found.tokens, **found.components}

        return await _asked(raised)

    return execute


@tool
@ours
def which_variable() -> Tool:
    """Score candidate variables."""

    async def execute(component: str, candidates: dict[str, str]) -> str:
        """Score candidate variables by moving the component's value between inputs: which one does it carry?

        Args:
            component: a name such as L0_MLP.
            candidates: a name for each, and a Python expression in tokens (the input) and i (the position).
        """

        def scored(study: AgentSession) -> str:
            return _ran(study, study.which_variable(study.part(component), candidates))

        return await _asked(scored)

    return execute


@tool
@ours
def check_claim() -> Tool:
    """Put a claim to the engine."""

    async def execute(component: str, claim: dict[str, Any]) -> str:
        """Put one claim about a component, or about the whole circuit with it, to the engine, which experiments on
        held-out inputs and decides: supported, refuted or undecided. With a refutation come inputs that contradict it.

        Args:
            component: the component that the claim is about.
            claim: a JSON object in the claim grammar, such as {"kind": "necessary"}.
        """

        def decided(study: AgentSession) -> str:
            found = study.check(claim, study.part(component))
            said = [*map(record_text, found.records), *([found.note] if found.note else [])]
            return "\n".join([*said, _left(study, "claims")])

        return await _asked(decided)

    return execute


@tool
@ours
def run_code() -> Tool:
    """Run code in the sandbox."""

    async def execute(code: str) -> str:
        """Run a self-contained Python program in a sandbox with the model and helper functions at hand; it must assign
        `result`.

        Args:
            code: the program.
        """
        return await _asked(lambda study: _ran(study, study.execute(code)))

    return execute


@tool
@ours
def submit_explanation() -> Tool:
    """Submit an explanation."""

    async def execute(
        components: dict[str, Any],
        information_flow: str,
        task_description: str,
        program: dict[str, Any] | None = None,
        carriers: dict[str, list[str]] | None = None,
    ) -> str:
        """Submit the explanation, once: it ends the work.

        Args:
            components: for each component {"tag": TAG, "description": one sentence on what it does}.
            information_flow: how information flows through the circuit.
            task_description: what the model computes.
            program: the program of the whole task, if you have one; it is run against the model.
            carriers: which variables of the program each component carries, such as {"L0_MLP": ["v1"]}.
        """

        def made(study: AgentSession) -> dict[str, Any]:
            said = statement(components, information_flow, task_description)
            return study.submit(said, program=program, carriers=carriers).as_data()

        with _told():
            explanation = await in_thread(lambda: made(investigation()))
        store().set(ANSWER, explanation)
        return task_description

    return execute


@tool
@ours
def submit_circuit() -> Tool:
    """Submit the circuit."""

    async def execute(scores: dict[str, float], edges: dict[str, float] | None = None) -> str:
        """Submit the circuit, once: it ends the work.

        Args:
            scores: a score for each component, such as {"L0H1": 0.8}; what is left out scores 0.
            edges: scores of edges, such as {"a0.h1->m1": 0.5}, if you have them.
        """
        with _told():
            if store().get(ANSWER) is not None:
                raise BadInput("a circuit is submitted already; only the first counts")
            specimen = store().get(OPTIONS, {}).get("specimen")
            circuit = await in_thread(lambda: scored_circuit(specimen, scores, edges))
        store().set(ANSWER, circuit.as_data())
        return SUBMITTED

    return execute


@tool
@ours
def query_function() -> Tool:
    """Ask the black-box function."""

    async def execute(inputs: list[Any]) -> str:
        """Ask the black-box function for its outputs.

        Args:
            inputs: a list of inputs: numbers for numeric functions, texts for the others.
        """
        with _told():
            return await in_thread(lambda: ask_box(box_of_sample(), inputs))

    return execute


@tool
@ours
def submit_function() -> Tool:
    """Submit what the function does."""

    async def execute(description: str, domain: str | None = None, code: str | None = None) -> str:
        """Submit what the function does, once: it ends the work.

        Args:
            description: what f does, in words.
            domain: for which inputs the rule holds, and what happens elsewhere.
            code: Python that defines def f(x): and behaves like f.
        """
        with _told():
            if store().get(ANSWER) is not None:
                raise BadInput("an answer is submitted already; only the first counts")
            queries = box_of_sample().asked
        answer = Answer(description=description, domain=domain, code=code, interpreter="agent", queries=queries)
        store().set(ANSWER, answer.model_dump(mode="json"))
        return description

    return execute


def instruments(*, natural: bool = False) -> list[Tool]:
    """Every tool that measures, decides or runs code on a circuit with listed tokens, or on a natural model; those that
    submit are separate.
    """
    own = lens() if natural else which_variable()
    return [predict(), attention(), sweep(), intervene(), own, check_claim(), run_code()]


def _ran(study: AgentSession, outcome: Outcome) -> str:
    return f"{outcome_text(outcome)}\n{_left(study, 'executions')}"


def _left(study: AgentSession, name: str) -> str:
    left, limit = study.spending.left()[name], getattr(study.spending.budget, name)
    return f"({left} of {limit} {name} left)"


def _text(result: Any) -> str:
    said = result if isinstance(result, str) else json.dumps(_rounded(result), ensure_ascii=False)
    return said if len(said) <= LONGEST else f"{said[:LONGEST]}... (cut; {len(said)} characters)"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, dict):
        return {str(name): _rounded(part) for name, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list | tuple) else value
