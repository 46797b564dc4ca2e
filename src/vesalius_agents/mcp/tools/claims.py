"""Hypotheses put to the test: candidate variables, typed claims decided by rule, and code in the sandbox."""

import json
from typing import Annotated, Any

from pydantic import Field

from vesalius.documents.claims import ClaimRecord
from vesalius.files import plain_json
from vesalius_agents.mcp.desk import Call, place_of
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
    session = call.session(specimen)
    call.check()
    outcome = session.which_variable(component, candidates)
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
    rule; a refutation comes with inputs that contradict it. The kind circuit checks every component in its carriers.
    The more claims of a kind you try on a component, the stricter the rule; claims about one program count once.
    """
    decided = call.session(specimen, behaviour).check(claim)
    records = decided.records
    call.noted["decided"] = {place_of(call.specimen(specimen, behaviour)): decided.singly()}
    fields = {"experiment", "measure", "value", "low", "high", "n", "rule", "passed"}
    lines = [*(_record_text(record) for record in records), *([decided.note] if decided.note else [])]
    whole = [record.as_data() for record in records]
    return Verdict(
        text=cut("\n".join(lines), 3_000),
        verdict=decided.verdict,
        claim=" ".join(record.text for record in records),
        tried=records[0].tried,
        evidence=[one.model_dump(mode="json", include=fields) for record in records for one in record.evidence],
        components={claim.component: record.verdict for claim, record in decided.checked},
        counterexamples=[dict(one) for record in records for one in record.counterexamples],
        resource=call.keep(whole[0] if len(whole) == 1 else whole),
    )


def _record_text(record: ClaimRecord) -> str:
    """A decided claim in a few lines: the experiments that failed first, then inputs that contradict it."""
    lines = [
        f"{one.mark}: {one.experiment}: {one.measure} {shown(one.value)} (n {one.n}; rule {one.rule})"
        for one in sorted(record.evidence, key=lambda one: one.passed is not False)[:6]
    ]
    against = [f"contradicted by {json.dumps(plain_json(dict(one)))}" for one in record.counterexamples]
    return "\n".join([f"{record.verdict}: {record.text}", *lines, *against])


def run_code(
    call: Call,
    specimen: SpecimenName,
    code: Annotated[str, Field(max_length=20_000, description="Must assign `result`")],
    behaviour: BehaviourName = None,
) -> Ran:
    """Run Python in the sandbox (no network, no files): model, tokenize, decode, vocab, examples, inputs, torch, np
    and the helpers of vesalius://grammar/claims are there. One execution.
    """
    session = call.session(specimen, behaviour)
    call.check()
    outcome = session.execute(code)
    stdout, text = cut(outcome.stdout, LONGEST_OUTPUT), str(outcome.result)
    result = outcome.result if len(text) <= LONGEST_RESULT else cut(text, LONGEST_RESULT)
    if outcome.error is not None:
        partial = "" if result is None else f"\nresult, as far as it came = {cut(text, LONGEST_RESULT)}"
        said = f"error: {cut(outcome.error, LONGEST_OUTPUT)}{partial}"
        return Ran(text=said, result=result, error=_last_line(outcome.error), stdout=stdout)
    printed = f"\nprinted: {stdout}" if stdout else ""
    kept = call.keep(outcome.result)
    return Ran(text=f"result = {cut(text, LONGEST_RESULT)}{printed}", result=result, stdout=stdout, resource=kept)


def _last_line(error: str | None) -> str:
    lines = [line for line in (error or "no result").splitlines() if line.strip()]
    return cut(lines[-1].strip(), 400)
