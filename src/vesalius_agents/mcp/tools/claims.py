"""Hypotheses put to the test: candidate variables, typed claims decided by rule, and code in the sandbox."""

from typing import Annotated, Any

from pydantic import Field

from vesalius_agents.mcp.call import Call
from vesalius_agents.mcp.results import Ran, Rows, Verdict
from vesalius_agents.mcp.tools.arguments import BehaviourName, SpecimenName, cut, shown

LONGEST_RESULT, LONGEST_OUTPUT = 6_000, 2_000


def which_variable(
    call: Call,
    specimen: SpecimenName,
    component: str,
    candidates: Annotated[
        dict[str, str], Field(min_length=1, max_length=24, description="Name: Python expression in tokens and i")
    ],
) -> Rows:
    """Which variable a component carries: scores candidates by moving the component's value between positions. One
    execution.
    """
    experiments = call.experiments(specimen)
    call.execution()
    outcome = experiments.which_variable(component, candidates)
    if outcome.error is not None or not isinstance(outcome.result, list):
        return Rows(text=f"the candidates could not be scored: {_last_line(outcome.error)}", rows=[])
    lines = [f"{row['variable']}: separation {shown(row['separation'])}" for row in outcome.result]
    return Rows(text="; ".join(lines), rows=outcome.result)


def check_claim(
    call: Call,
    specimen: SpecimenName,
    claim: Annotated[
        dict[str, Any], Field(description='{"kind": ..., "component": ...}; kinds: vesalius://grammar/claims')
    ],
    behaviour: BehaviourName = None,
) -> Verdict:
    """Put one typed claim to the engine: it experiments, with controls, and decides supported, refuted or untested by
    rule. The more claims of a kind you try on a component, the stricter the rule; claims about one program count once.
    """
    experiments = call.experiments(specimen, behaviour)
    subject = experiments.subject_of(claim)
    record, counted = experiments.check_claim(claim, tries=call.connection.tries_of(subject))
    call.noted["tried"] = [[subject, *counted]]
    evidence = [
        one.model_dump(mode="json", include={"experiment", "measure", "value", "low", "high", "n", "rule", "passed"})
        for one in record.evidence
    ]
    lines = [
        f"{one.mark}: {one.experiment}: {one.measure} {shown(one.value)} (n {one.n}; rule {one.rule})"
        for one in sorted(record.evidence, key=lambda one: one.passed is not False)[:6]
    ]
    text = cut("\n".join([f"{record.verdict}: {record.text}", *lines]), 2_000)
    resource = call.keep(record.as_data())
    return Verdict(
        text=text, verdict=record.verdict, claim=record.text, tried=record.tried, evidence=evidence, resource=resource
    )


def run_code(
    call: Call,
    specimen: SpecimenName,
    code: Annotated[str, Field(max_length=20_000, description="Must assign `result`")],
    behaviour: BehaviourName = None,
) -> Ran:
    """Run Python in the sandbox (no network, no files): model, tokenize, decode, vocab, examples, inputs, torch, np
    and the helpers of vesalius://grammar/claims are there. One execution.
    """
    experiments = call.experiments(specimen, behaviour)
    call.execution()
    outcome = experiments.run_code(code)
    stdout = cut(outcome.stdout, LONGEST_OUTPUT)
    if outcome.error is not None:
        return Ran(text=f"error: {cut(outcome.error, LONGEST_OUTPUT)}", error=_last_line(outcome.error), stdout=stdout)
    resource = call.keep(outcome.result)
    text = str(outcome.result)
    result = outcome.result if len(text) <= LONGEST_RESULT else cut(text, LONGEST_RESULT)
    printed = f"\nprinted: {stdout}" if stdout else ""
    return Ran(text=f"result = {cut(text, LONGEST_RESULT)}{printed}", result=result, stdout=stdout, resource=resource)


def _last_line(error: str | None) -> str:
    lines = [line for line in (error or "no result").splitlines() if line.strip()]
    return cut(lines[-1].strip(), 400)
