"""Explanations: by the built-in scientist, or one's own, submitted once and then graded."""

from typing import Annotated, Any, Literal

from pydantic import Field

from vesalius import api
from vesalius.documents import Explanation
from vesalius.errors import BadInput, quoted
from vesalius.explanations.findings import Account, Said
from vesalius.report.page import render_page
from vesalius_agents.cases import grade_submission, require_graded
from vesalius_agents.mcp.desk import SCHEME, Call
from vesalius_agents.mcp.results import Explained, Graded, Received, Result
from vesalius_agents.mcp.tools.arguments import BehaviourName, Components, Prompts, Seed, SpecimenName, cut

Tag = Literal["INDICATOR", "AGGREGATOR", "ROUTER", "MAPPER", "COMBINER"]
AUTHOR = "submitted"
Words = Annotated[str, Field(max_length=4_000)]


def explain(
    call: Call,
    specimen: SpecimenName,
    behaviour: BehaviourName = None,
    components: Components | None = None,
    n: Prompts | None = None,
    seed: Seed = 0,
) -> Explained:
    """Let the built-in scientist explain the components by experiment (takes seconds to minutes; no language model)."""
    loaded = call.specimen(specimen, behaviour)
    options: dict[str, Any] = {"n": n, "seed": seed}
    if loaded.kind == "natural":
        call.require_memory(api.plan("explain", loaded, components=components, **options, progress=False).peak_bytes)
    result = api.explain(loaded, components, **options, progress=call.progress)
    rows = [
        {"id": part.id, "tag": part.tag, "verdict": part.verdict, "role": part.role, "note": cut(part.note, 400)}
        | {"program": None if part.program is None else cut(part.program, 400)}
        for part in result.components[:32]
    ]
    lines = [f"{row['id']} {row['role'] or row['tag'] or 'no tag'} ({row['verdict']}): {row['note']}" for row in rows]
    text = cut("\n".join([*lines, f"task: {result.task_description}"]), 3_000)
    program = None if result.program is None else cut(result.program, 2_000)
    return Explained(
        text=text,
        components=rows,
        task=cut(result.task_description, 2_000),
        program=program,
        resource=call.keep(result.as_data()),
    )


def report(call: Call, explanation: Annotated[str, Field(description="Address of an explain result")]) -> Result:
    """The evidence page (HTML) of an explanation made here, as a resource."""
    name = explanation.removeprefix(f"{SCHEME}://results/")
    path = call.desk.run.result_path(name)
    if not name.isalnum() or not path.is_file():
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
    told = Account(said, information_flow, task_description)
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
