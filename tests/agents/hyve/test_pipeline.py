"""The whole pipeline with scripted models: the paper's walkthrough, models that rave, and a run that is killed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agents.hyve.scripts import call, colourless, opened, raving, walkthrough
from tests.closeness import assert_same_document
from vesalius.api import load
from vesalius.documents.explanation import Explanation
from vesalius.documents.trace import Trace
from vesalius.errors import BadInput
from vesalius.explanations.verdicts import FREE_CODE, FREE_CODE_RULE
from vesalius.model.specimen import Specimen
from vesalius_agents.hyve import HyveResult, explain_hyve
from vesalius_backbones import (
    BackboneError,
    CapReached,
    ModelRequest,
    OutOfCredit,
    Rejected,
    Scripted,
    Unreachable,
)
from vesalius_session.briefing import STAGE
from vesalius_truth.grading import grade

pytestmark = pytest.mark.slow
EXECUTIONS, CLAIMS, LOOKS = (limit or 0 for limit in (STAGE.executions, STAGE.claims, STAGE.looks))


@pytest.fixture(scope="module")
def frac_prevs() -> Specimen:
    return load("frac_prevs")


@pytest.fixture(scope="module")
def typed(frac_prevs: Specimen) -> HyveResult:
    return explain_hyve(frac_prevs, backbone=opened(walkthrough())[0])


@pytest.fixture(scope="module")
def paper(frac_prevs: Specimen) -> HyveResult:
    return explain_hyve(frac_prevs, backbone=opened(walkthrough())[0], protocol="paper")


def valid(found: HyveResult) -> None:
    """Both documents survive a trip through a file that knows neither infinity nor lone surrogates."""
    for one, kind in ((found.explanation, Explanation), (found.trace, Trace)):
        text = json.dumps(one.model_dump(mode="json"), ensure_ascii=False, allow_nan=False).encode().decode()
        assert kind.model_validate_json(text) == one


def test_the_walkthrough_by_the_typed_protocol(typed: HyveResult) -> None:
    found = typed.explanation
    valid(typed)
    assert found.scientist == "hyve"
    assert [(part.id, part.tag, part.verdict) for part in found.components] == [
        ("L0_MLP", "INDICATOR", "supported"),
        ("L1H2", "AGGREGATOR", "supported"),
    ]
    assert [part.tag_by_model for part in found.components] == ["INDICATOR", "AGGREGATOR"]
    assert grade(found).tag_accuracy.value == 1.0
    assert found.executable is not None
    assert found.executable.carriers == {"L0_MLP": ("is_x",), "L1H2": ("share",)}
    assert found.program_agreement is not None
    assert found.program_agreement.value == 1.0
    kinds = [(claim.kind, claim.verdict) for claim in found.components[0].claims]
    assert kinds == [("depends_only_on", "supported"), ("computes", "supported"), (FREE_CODE, "supported")]
    assert found.components[1].refuted[0]["decided_by"] == "engine"


def test_the_walkthrough_leaves_a_trace(typed: HyveResult) -> None:
    first, second = typed.trace.components
    assert (first.resolved_at, second.resolved_at) == (1, 2)
    assert [attempt.verdict for attempt in second.attempts] == ["refuted", "supported"]
    assert {attempt.decided_by for part in (first, second) for attempt in part.attempts} == {"engine"}
    assert [run.category for run in second.executions] == ["Python", None]  # a name without quotes, then mended
    assert typed.trace.usage.malformed == 1  # a claim without its carriers came back with the reason
    assert "carriers must say" in second.attempts[1].claims[0]["error"]
    assert typed.trace.problems == ()


def test_the_figures_of_appendix_d_come_out_of_the_sandbox(paper: HyveResult) -> None:
    """Writes for 'x' stand far from the rest, which stand close; patching moves the output all the way, both ways."""
    first = paper.trace.components[0]
    found = json.loads(first.executions[0].result)
    apart = found["groups"]["x"]["distance"]
    alike = [group["distance"] for token, group in found["groups"].items() if token != "x"]
    assert apart > 5 * max(alike)
    assert found["share_of_variance"] > 0.9
    effects = json.loads(first.attempts[0].executions[0].result)
    assert effects == pytest.approx({"x_to_other": 1.0, "other_to_x": 1.0}, abs=0.05)


def test_the_paper_protocol_marks_its_verdicts(paper: HyveResult) -> None:
    valid(paper)
    claims = [claim for part in paper.explanation.components for claim in part.claims]
    assert {claim.kind for claim in claims} == {FREE_CODE}
    assert {one.rule for claim in claims for one in claim.evidence} == {FREE_CODE_RULE}
    assert [part.verdict for part in paper.explanation.components] == ["supported", "supported"]
    deciders = {attempt.decided_by for part in paper.trace.components for attempt in part.attempts}
    assert deciders == {"model"}
    assert paper.explanation.executable is None
    # No program was tested, so no experiment settled a tag; the tag is the one that the model chose.
    parts = paper.explanation.components
    assert [part.tag_by_experiment for part in parts] == [None, None]
    assert [part.tag for part in parts] == [part.tag_by_model for part in parts] == ["INDICATOR", "AGGREGATOR"]
    graded = grade(paper.explanation, programs=False)
    assert graded.tag_accuracy_by_model is not None
    assert (graded.tag_accuracy.value, graded.tag_accuracy_by_model.value) == (1.0, 1.0)
    assert graded.tag_accuracy_experiment_only.value == 0.0


def test_the_tag_follows_from_the_supported_program_not_from_the_model(frac_prevs: Specimen) -> None:
    script = walkthrough()

    def contrary(request: ModelRequest) -> Any:
        if request.label == "classification":
            return {"json": {name: {"tag": "ROUTER", "description": "It sees all."} for name in ("L0_MLP", "L1H2")}}
        return script(request)

    parts = explain_hyve(frac_prevs, backbone=opened(contrary)[0]).explanation.components
    assert [(part.tag, part.tag_by_model) for part in parts] == [("INDICATOR", "ROUTER"), ("AGGREGATOR", "ROUTER")]


def test_what_was_established_is_set_apart_from_what_the_model_says(typed: HyveResult) -> None:
    for part in typed.explanation.components:
        tested = [claim.text for claim in part.claims if claim.kind == "computes"]
        assert part.note.startswith("Established: ")
        assert all(text in part.note.split("In the model's words:")[0] for text in tested)


def test_free_code_never_makes_a_typed_verdict(frac_prevs: Specimen) -> None:
    def eager(request: ModelRequest) -> Any:
        if "validation" in request.label and "plan" not in request.label:
            done = any(message.role == "tool" for message in request.messages)
            conclusion = {"json": {"explanation": "my code says so", "own_code": "support"}}
            return conclusion if done else call("execute_python", code="result = 1")
        return colourless(request)

    found = explain_hyve(frac_prevs, backbone=opened(eager)[0], components=["L0_MLP"])
    part = found.explanation.components[0]
    assert part.verdict == "untested"
    assert [(claim.kind, claim.verdict) for claim in part.claims] == [(FREE_CODE, "supported")]
    assert part.note.endswith("(Tentative: no hypothesis was supported.)")
    assert len(found.trace.components[0].attempts) == 3


SHARE: dict[str, Any] = {
    "variables": [
        {"name": "is_x", "op": "map", "of": ["tokens"], "formula": "x == 'x'"},
        {"name": "so_far", "op": "select", "of": ["indices", "indices"], "comparison": "LEQ"},
        {"name": "share", "op": "aggregate", "of": ["so_far", "is_x"], "numerical": True},
    ],
    "output": "share",
}
CARRIERS = {"L0_MLP": ["is_x"], "L1H2": ["share"]}


def of_circuit(*claims: Any, looks: bool = True) -> Callable[[ModelRequest], Any]:
    """A model that looks, says what it thinks, and gives these claims one after the other, whatever the component."""

    def reply(request: ModelRequest) -> Any:
        step = sum(message.role == "assistant" for message in request.messages)
        if request.label == "classification":
            roles = {name: {"tag": "MAPPER", "description": f"{name} maps."} for name in CARRIERS}
            return {"json": {**roles, "information_flow": "on and on", "derived_task_description": "a share"}}
        if request.label == "names":
            return {"json": {**{name: f"{name} by name" for name in CARRIERS}, "task": "a share"}}
        if request.label.endswith("observation"):
            look = call("which_variable", candidates={"is x": "tokens[i] == 'x'", "token": "tokens[i]"})
            return look if looks and step == 0 else {"json": {"observation": "seen", "hypothesis": "it counts x"}}
        if step < len(claims):
            return call("check_claim", **claims[step])
        return {"json": {"explanation": "no more"}}

    return reply


def test_a_claim_about_the_circuit_settles_every_component(frac_prevs: Specimen) -> None:
    """A program that fails is not put to the other components; the right one, sent as a JSON text, ends the stage."""
    wrong = {"variables": SHARE["variables"][:1], "output": "is_x"}
    script = of_circuit(
        {"kind": "circuit", "program": SHARE, "carriers": {"L9H9": ["share"]}},
        {"claim": json.dumps({"kind": "circuit", "program": SHARE, "carriers": CARRIERS})},
    )
    backbone, wire = opened(script)
    found = explain_hyve(frac_prevs, backbone=backbone)
    valid(found)
    assert [request.label for request in wire.requests] == [
        *["L0_MLP observation"] * 2,
        *["L0_MLP validation 1"] * 2,
        "classification",
    ]
    parts = found.explanation.components
    assert [(part.verdict, part.tag, part.tag_by_model) for part in parts] == [
        ("supported", "INDICATOR", "MAPPER"),
        ("supported", "AGGREGATOR", "MAPPER"),
    ]
    assert found.explanation.executable is not None
    assert found.explanation.executable.carriers == {name: tuple(held) for name, held in CARRIERS.items()}
    assert found.trace.components[1].attempts[0].decided_by == "engine"
    assert "L9H9 is not in the circuit" in found.trace.components[0].attempts[0].claims[0]["error"]
    assert json.loads(found.trace.components[0].executions[0].result)[0]["variable"] == "is x"

    backbone, wire = opened(of_circuit({"kind": "circuit", "program": wrong, "carriers": {"L0_MLP": ["is_x"]}}))
    lost = explain_hyve(frac_prevs, backbone=backbone, components=["L0_MLP"])
    assert lost.explanation.components[0].verdict == "undecided", "it carries its value; the program fails elsewhere"
    said = [m.text for r in wire.requests for m in r.messages if m.role == "tool" and "validation" in r.label]
    assert "does not give the model's outputs yet" in said[0]


def test_a_corrected_claim_settles_a_component_without_another_hypothesis(frac_prevs: Specimen) -> None:
    wrong = {"variables": SHARE["variables"][:1], "output": "is_x"}
    script = of_circuit(
        {"claim": {"kind": "circuit", "program": wrong, "carriers": {"L0_MLP": ["is_x"]}}},
        {"claim": {"kind": "circuit", "program": SHARE, "carriers": CARRIERS}},
    )
    backbone, wire = opened(script)
    found = explain_hyve(frac_prevs, backbone=backbone)
    assert {request.label for request in wire.requests} == {
        "L0_MLP observation",
        "L0_MLP validation 1",
        "classification",
    }
    part = found.explanation.components[0]
    assert part.verdict == "supported"
    assert part.decided == {"supported": 1, "undecided": 1}


def test_the_program_given_last_need_not_be_written_again(frac_prevs: Specimen) -> None:
    first = {"kind": "depends_only_on", "program": SHARE, "carriers": CARRIERS, "variables": ["is_x"]}
    claims = [{"claim": {"kind": "computes", "program": "last"}}, first, {"kind": "circuit", "program": "last"}]
    claims[1] = {"claim": {"kind": "computes", "program": SHARE, "carriers": CARRIERS}}
    found = explain_hyve(frac_prevs, backbone=opened(of_circuit(*claims))[0])
    given = found.trace.components[0].attempts[0].claims
    assert 'program "last": no program was given before' in given[0]["error"]
    assert [one.get("verdict") for one in given[1:]] == ["supported", "supported"]
    assert given[2]["program"] == SHARE
    assert [part.verdict for part in found.explanation.components] == ["supported", "supported"]


def test_an_observation_without_any_program_is_sent_back_and_noted(frac_prevs: Specimen) -> None:
    backbone, wire = opened(of_circuit({"kind": "circuit", "program": SHARE, "carriers": CARRIERS}, looks=False))
    found = explain_hyve(frac_prevs, backbone=backbone)
    assert [request.label for request in wire.requests][:2] == ["L0_MLP observation"] * 2
    assert "No program has been run" in wire.requests[1].messages[-1].text
    assert found.trace.problems == ("L0_MLP observation: it answered without running any program",)


def prompts_of(wire: Scripted, label: str) -> list[str]:
    return [request.messages[1].text for request in wire.requests if request.label == label]


def test_refuted_claims_are_fed_back_and_the_taxonomy_is_withheld(frac_prevs: Specimen) -> None:
    backbone, wire = opened(walkthrough())
    explain_hyve(frac_prevs, backbone=backbone)
    (again,) = prompts_of(wire, "L1H2 hypothesis 2")
    assert "attends preferentially to positions that hold 'x'" in again
    assert "refuted: L1H2 reads from the token(s) x" in again
    assert "mass on the claimed keys" in again
    for request in wire.requests:
        shown = any(tag in request.messages[0].text + request.messages[1].text for tag in ("INDICATOR", "COMBINER"))
        assert shown == (request.label in ("classification", "summary")), request.label
    reused = [text for text in prompts_of(wire, "L1H2 validation 1") if "Programs that held" in text]
    assert reused, "the program that held for L0_MLP is offered again"


def test_the_budgets_hold_against_a_model_that_never_stops(frac_prevs: Specimen) -> None:
    def endless(request: ModelRequest) -> Any:
        offered = [tool["name"] for tool in request.tools]
        if not offered:
            return colourless(request)
        name = offered[len(request.messages) // 2 % len(offered)]
        arguments = {"execute_python": {"code": "x = 1"}, "check_claim": {"claim": {"kind": "necessary"}}}
        return call(name, **arguments.get(name, {"path": "."}))

    backbone, wire = opened(endless)
    found = explain_hyve(frac_prevs, backbone=backbone, components=["L0_MLP"])
    valid(found)
    part = found.trace.components[0]
    assert len(part.executions) <= EXECUTIONS
    assert {run.category for run in part.executions} == {"missing result"}
    assert len(part.attempts) == 3
    for attempt in part.attempts:
        assert len(attempt.executions) <= EXECUTIONS
        assert len(attempt.claims) <= CLAIMS
    tried = [claim.tried for claim in found.explanation.components[0].claims]
    assert max(tried) > CLAIMS, "claims of a kind are counted over all hypotheses of a component"
    longest = max(sum(message.role == "tool" for message in request.messages) for request in wire.requests)
    assert longest <= EXECUTIONS + CLAIMS + LOOKS + 3
    assert sum("never answered" in problem for problem in found.trace.problems) == 4


@pytest.mark.parametrize("tool", ["check_claim", "execute_python", "read_file", "sudo"])
def test_asking_for_one_tool_for_ever_comes_to_an_end(
    frac_prevs: Specimen, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    monkeypatch.setattr("vesalius_session.session.LazyWorkspace", FakeWorkspace)
    arguments = {"execute_python": {"code": "x"}, "check_claim": {"claim": {"kind": "necessary"}}}

    def stuck(request: ModelRequest) -> Any:
        return call(tool, **arguments.get(tool, {"path": "."})) if request.tools else colourless(request)

    backbone, wire = opened(stuck)
    valid(explain_hyve(frac_prevs, backbone=backbone, components=["L0_MLP"]))
    assert max(len(request.messages) for request in wire.requests) < 2 * (CLAIMS + LOOKS + 4) + 2


class FakeWorkspace:
    """Answers at once, so that many raving models can be tried."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        from vesalius.sandbox import Sandbox
        from vesalius_session.scope import TOOLBOX

        box = Sandbox(toolbox=TOOLBOX)
        self.list_directory, self.read_file = box.list_directory, box.read_file

    def execute(self, code: str) -> Any:
        from vesalius.sandbox import Outcome

        return (
            Outcome(result={"nan": float("nan")}, stdout="\ufffd") if len(code) % 2 else Outcome(error="TypeError: x")
        )


@settings(max_examples=24)
@given(seed=st.integers(0, 10**6), protocol=st.sampled_from(["typed", "paper"]))
def test_whatever_the_model_says_the_explanation_is_valid(
    frac_prevs: Specimen, monkeypatch_module: pytest.MonkeyPatch, seed: int, protocol: Any
) -> None:
    monkeypatch_module.setattr("vesalius_session.session.LazyWorkspace", FakeWorkspace)
    found = explain_hyve(frac_prevs, backbone=opened(raving(seed), reasks=1)[0], protocol=protocol)
    valid(found)
    assert [part.id for part in found.explanation.components] == ["L0_MLP", "L1H2"]
    assert all(len(part.attempts) <= 3 for part in found.trace.components)


@pytest.fixture(scope="module")
def monkeypatch_module() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.mark.parametrize("text", ["", "no", '{"half": '])
def test_a_model_that_says_nothing_usable_is_counted(frac_prevs: Specimen, text: str) -> None:
    found = explain_hyve(frac_prevs, backbone=opened(lambda request: text, reasks=0)[0])
    valid(found)
    assert [part.verdict for part in found.explanation.components] == ["untested", "untested"]
    parts = found.explanation.components
    assert [(part.tag, part.tag_by_experiment, part.tag_by_model) for part in parts] == [(None, None, None)] * 2
    assert grade(found.explanation, programs=False).tag_accuracy.value == 0.0
    assert found.trace.usage.failed == 10  # an observation and three hypotheses of each component, and the last two
    assert len(found.trace.problems) == 10


@pytest.mark.parametrize(
    ("kind", "raised"),
    [("unreachable", Unreachable), ("out_of_credit", OutOfCredit), ("cap_reached", CapReached), ("rejected", Rejected)],
)
def test_failures_that_say_nothing_about_the_model_are_raised(
    frac_prevs: Specimen, kind: str, raised: type[BackboneError]
) -> None:
    with pytest.raises(raised):
        explain_hyve(frac_prevs, backbone=opened(lambda request: {"fail": kind})[0])


def test_a_refusal_and_an_outgrown_context_end_their_stage_only(frac_prevs: Specimen) -> None:
    def moody(request: ModelRequest) -> Any:
        if request.label == "L0_MLP hypothesis 1":
            return {"fail": "rejected"}  # as a server does when the conversation is longer than its context
        return {"fail": "refused"} if "hypothesis" in request.label else colourless(request)

    found = explain_hyve(frac_prevs, backbone=opened(moody)[0], components=["L0_MLP"])
    valid(found)
    assert found.trace.usage.failed == 3
    assert found.explanation.task_description == "something"


@pytest.mark.parametrize("survived", [7, 14])
def test_a_killed_run_goes_on_from_its_records(frac_prevs: Specimen, tmp_path: Path, survived: int) -> None:
    """The run dies in some call; run again, it asks what is left and one call at most once more."""

    class Killed(BaseException):
        pass

    def until(limit: int, script: Callable[[ModelRequest], Any]) -> Callable[[ModelRequest], Any]:
        made = iter(range(limit))

        def reply(request: ModelRequest) -> Any:
            if next(made, None) is None:
                raise Killed
            return script(request)

        return reply

    whole, wire = opened(walkthrough(), record=tmp_path / "whole")
    expected = explain_hyve(frac_prevs, backbone=whole)
    with pytest.raises(Killed):
        explain_hyve(frac_prevs, backbone=opened(until(survived, walkthrough()), record=tmp_path / "half")[0])
    backbone, rest = opened(walkthrough(), record=tmp_path / "half")
    again = explain_hyve(frac_prevs, backbone=backbone)
    assert len(rest.requests) == len(wire.requests) - survived
    assert_same_document(again.trace.model_dump(mode="json"), expected.trace.model_dump(mode="json"))
    assert_same_document(again.explanation.model_dump(mode="json"), expected.explanation.model_dump(mode="json"))


def test_what_cannot_be_explained_is_refused(frac_prevs: Specimen) -> None:
    backbone, wire = opened(walkthrough())
    with pytest.raises(BadInput, match="protocol 'free' does not exist"):
        explain_hyve(frac_prevs, backbone=backbone, protocol="free")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="list of components is empty"):
        explain_hyve(frac_prevs, backbone=backbone, components=[])
    with pytest.raises(BadInput, match="L5H0"):
        explain_hyve(frac_prevs, backbone=backbone, components=["L5H0"])
    assert wire.requests == []
