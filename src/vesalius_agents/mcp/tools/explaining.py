"""Hypotheses put to the test (candidate variables, typed claims, code in the sandbox), and explanations: by our own
scientist, or by the agent, submitted once and then graded.
"""

import json
from typing import Annotated, Any, Literal

from pydantic import Field

from vesalius import api
from vesalius.documents import Explanation
from vesalius.documents.claims import EFFECT_FIELDS, ClaimRecord
from vesalius.errors import BadInput, quoted
from vesalius.files import plain_json
from vesalius.report.pages import render_page
from vesalius_agents.cases import grade_submission, require_graded
from vesalius_agents.mcp.desk import SCHEME, Call, place_of
from vesalius_agents.mcp.results import Explained, Graded, Ran, Received, Result, Rows, Verdict
from vesalius_agents.mcp.tools.arguments import (
    BehaviourName,
    Components,
    Force,
    Prompts,
    Seed,
    SpecimenName,
    cut,
    shown,
)
from vesalius_session.findings import Said, Statement

Tag = Literal["INDICATOR", "AGGREGATOR", "ROUTER", "MAPPER", "COMBINER"]
AUTHOR = "submitted"
#: What is told of an account; the resource has all of it.
ACCOUNTED = {"kept", "with_mlps", "left", "replacement", "omitted", "not_described"}
Words = Annotated[str, Field(max_length=4_000)]


def explain(
    call: Call,
    specimen: SpecimenName,
    behaviour: BehaviourName = None,
    components: Components | None = None,
    n: Prompts | None = None,
    seed: Seed = 0,
    force: Force = False,
) -> Explained:
    """Let the built-in scientist explain the components by experiment (takes seconds to minutes; no language model)."""
    loaded = call.specimen(specimen, behaviour)
    options: dict[str, Any] = {"n": n, "seed": seed, "force": force}
    if loaded.kind == "natural":
        call.require_memory(api.plan("explain", loaded, components=components, **options, progress=False).peak_bytes)
    result = api.explain(loaded, components, **options, progress=call.progress)
    rows = [
        {"id": part.id, "tag": part.tag, "verdict": part.verdict, "role": part.role, "note": cut(part.note, 400)}
        | {name: getattr(part, name) for name in EFFECT_FIELDS if getattr(part, name) is not None}
        | ({} if part.specificity is None else {"specificity": part.specificity.model_dump()})
        | {"program": None if part.program is None else cut(part.program, 400)}
        for part in result.components[:32]
    ]
    lines = [f"{row['id']} {row['role'] or row['tag'] or 'no tag'} ({row['verdict']}): {row['note']}" for row in rows]
    said, account = result.answered(), result.account
    first = [] if said is None else [str(said)]
    first += [] if account is None else [f"{label}: {words}" for label, words in account.lines()]
    text = cut("\n".join([*first, *lines, f"task: {result.task_description}"]), 3_000)
    program = None if result.program is None else cut(result.program, 2_000)
    return Explained(
        text=text,
        answer=result.answer,
        account=None if account is None else account.model_dump(mode="json", include=ACCOUNTED),
        components=rows,
        task=cut(result.task_description, 2_000),
        program=program,
        resource=call.keep(result.as_data()),
    )


def report(call: Call, explanation: Annotated[str, Field(description="Address of an explain result")]) -> Result:
    """The evidence page (HTML) of an explanation made here, as a resource."""
    name = explanation.removeprefix(f"{SCHEME}://results/")
    if not call.desk.run.has_result(name):
        raise BadInput(f"explanation {quoted(explanation, 80)} is not here; give the `resource` of an explain result")
    document = Explanation.from_data(call.desk.run.read_result(name), source="the result")
    page = call.desk.run.result_path(call.key, "html")
    render_page(document, page)
    return Result(
        text=f"evidence page of {document.title}: {page.stat().st_size:,} bytes of HTML",
        resource=f"{SCHEME}://pages/{call.key}",
    )


def submit_explanation(
    call: Call,
    specimen: SpecimenName,
    components: Annotated[dict[str, Tag], Field(min_length=1, max_length=64, description="Component: tag")],
    notes: Annotated[dict[str, Words] | None, Field(description="Component: what it does")] = None,
    program: Annotated[dict[str, Any] | None, Field(description="PROGRAM of vesalius://grammar/claims")] = None,
    carriers: Annotated[dict[str, list[str]] | None, Field(description="Component: variables of the program")] = None,
    task_description: Words = "",
    information_flow: Words = "",
) -> Received:
    """Submit your explanation of a benchmark circuit, with the claims that were decided for you. Once per specimen: it
    cannot be changed afterwards. INDICATOR: a
    flag; AGGREGATOR: a head that collects over positions; ROUTER: a head that moves a value; MAPPER: a function of one
    variable; COMBINER: a function of several.
    """
    session = call.session(specimen, free=True)
    loaded = call.specimen(specimen, free=True)
    name = str(loaded.id)
    if name in call.connection.explanations:
        raise BadInput(f"specimen {specimen!r}: an explanation was submitted already; it cannot be changed, call grade")
    require_graded(loaded.source or loaded.id)
    words = notes or {}
    said = {part: Said(tag=tag, description=words.get(part, "")) for part, tag in components.items()}
    told = Statement(said, information_flow, task_description)
    explanation = session.submit(told, program=program, carriers=carriers, scientist=AUTHOR)
    call.noted["explanation"] = {name: explanation.as_data()}
    text = f"taken: {len(said)} components{' and a program' if program else ''}; now call grade"
    return Received(text=text, received=specimen)


def grade(call: Call, specimen: SpecimenName) -> Graded:
    """The grade of your submission: share of right tags, and how well your program predicts the model."""
    loaded = call.specimen(specimen, free=True)
    given = call.connection.explanations.get(str(loaded.id))
    if given is None:
        raise BadInput(f"specimen {specimen!r}: nothing was submitted on this connection; call submit_explanation")
    call.require("seconds")
    name = call.desk.names.specimen(specimen)
    result = grade_submission(Explanation.from_data(given, source="the submission"), name)
    metrics = {
        name: {"value": metric.value, "low": metric.low, "high": metric.high, "n": metric.n}
        for name, metric in result.metrics.items()
    }
    shown = ", ".join(f"{name} {metric.figures}" for name, metric in result.metrics.items())
    return Graded(text=cut(shown, 1_000), metrics=metrics)


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
    """Put one typed claim to the engine: it experiments, with controls, and decides supported, refuted or undecided by
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
