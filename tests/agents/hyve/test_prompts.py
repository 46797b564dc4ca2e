"""The prompts carry every field and rule of the paper's appendix A, and never the answer."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import vesalius_backbones.factory as factory
import vesalius_truth.key as key
from tests.agents.hyve.scripts import call, colourless, opened, spoken
from tests.agents.hyve.test_pipeline import FakeWorkspace
from tests.circuits.test_canary import leaks, secrets
from vesalius.api import load
from vesalius.components import Component
from vesalius_agents.hyve import explain_hyve
from vesalius_agents.hyve.prompting import PROMPTS, Known, StagePrompts
from vesalius_backbones import ModelRequest
from vesalius_session.briefing import TAXONOMY, Briefing, helper_lines
from vesalius_session.scope import LIBRARIES, TOOLBOX, public

HEAD = Component.parse("L1H2")
KNOWN = [Known("L0_MLP", "it marks something", "supported")]
TAGS = ("INDICATOR", "AGGREGATOR", "ROUTER", "MAPPER", "COMBINER")

ENVIRONMENT = [
    "list_directory(path)",
    "read_file(path)",
    "execute_python(code)",
    "model: the transformer",
    "run_with_cache",
    "run_with_hooks",
    "tokenize(sequences)",
    "BOS is put first",
    "decode(logits)",
    "BOS left out",
    "torch, np",
    "list the toolbox, read the file",
    "a process of its own",
    "complete in itself",
    "a dictionary called `result`",
    "You have 5 executions",
    "20 s of CPU time, 60.0 s in all",
    'Returns {"clean": outputs, "patched": outputs',
    "read the traceback, find the cause and revise",
]
PLAN = ["- stage:", "- goal:", "- procedure:", "- inputs:", "- expected_result:", "One to three sentences per field"]
JSON_ONLY = "no text around it"
COMPONENT = [
    "component to explain now: L1H2",
    "blocks.1.attn.hook_pattern [batch, head, query, key], head 2",
    "hook_z [batch, pos, head, 3]",
    "L0_MLP (supported): it marks something",
]
#: template -> what it must say.
RULES: dict[str, list[str]] = {
    "system.md": [
        '["c", "x"] -> [0.0, 0.5]',
        'Tokens: ["a", "b", "c", "x"]',
        "1 to 4 tokens",
        "Outputs are numbers",
        "A transformer with 2 layers, 4 attention heads per layer and an MLP",
        "causal",
        "BOS token stands before every input",
        "L0_MLP, L1H2",
        "found to matter causally",
        "null is the undefined value",
        "(a) Observation",
        "(b) Hypothesis",
        "(c) Validation",
        "(d) Classification",
        "(e) Summary",
        "at most 3",
        "Assume no component's role beforehand",
        "could prove wrong",
        "activations, interventions or the model's behaviour",
    ],
    "observe_plan.md": [
        *COMPONENT,
        *PLAN,
        JSON_ONLY,
        "no ablation, no patching, no other intervention",
        "Be concrete",
        "OBSERVATION PLAN for L1H2",
        "Helper functions exist",
    ],
    "observe.md": [
        *ENVIRONMENT,
        *COMPONENT,
        JSON_ONLY,
        "THE PLAN",
        "Do not intervene",
        "- observation:",
        "exactly one field",
    ],
    "hypothesize.md": [
        *COMPONENT,
        JSON_ONLY,
        "THE OBSERVATION",
        "(refuted) THE LOSER",
        "What speaks against it: THE REASON",
        "do not contradict it",
        "say why they failed",
        "(a) what the component computes, (b) on which positions or tokens, (c) what it hands on downstream",
        "we hypothesise that",
        "- hypothesis:",
        "- reasoning: one to three sentences",
    ],
    "validate_plan.md": [
        *PLAN,
        *COMPONENT,
        JSON_ONLY,
        "THE HYPOTHESIS",
        "THE OBSERVATION",
        "must intervene: activation patching, mean ablation, interchange",
        "must follow from the hypothesis",
        "Be concrete",
        "VALIDATION PLAN for L1H2",
        "counts as explained or a new hypothesis is needed",
    ],
    "validate_paper.md": [
        *ENVIRONMENT,
        *COMPONENT,
        JSON_ONLY,
        "THE HYPOTHESIS",
        "THE PLAN",
        "call them directly, without import",
        "at least one causal intervention",
        "fn(logits) -> float",
        "every position with an output, leaves BOS out and uses decode()",
        "- support:",
        "- refute:",
        "missing, reversed or inconsistent",
        "ambiguous, choose refute",
        "- decision: support or refute",
        "- explanation: two or three sentences",
        "- ruling_out: only with refute",
    ],
    "validate_typed.md": [
        "execute_python(code) runs a program that is complete in itself",
        "20 s of CPU time, 60.0 s in all",
        'Returns {"clean": outputs, "patched": outputs',
        "You have 5 executions",
        *COMPONENT,
        JSON_ONLY,
        "THE HYPOTHESIS",
        '"kind": "circuit"',
        'or "last": the program given before',
        "a formula never sees null",
        "A map may not read a numerical aggregate",
        "check_claim(claim)",
        "You have 5 claims",
        "no claim is refuted",
        '"kind": "computes"',
        '"kind": "depends_only_on"',
        "A PROGRAM says",
        "selector_width",
        "its results do not decide",
        "- own_code:",
    ],
    "classify.md": [
        *(f"- {tag}: " for tag in TAGS),
        "L0_MLP (supported): it marks something",
        "Exactly one tag per component",
        "Where two tags would fit, go by what the component takes in and gives out",
        "one sentence on what the component does in this particular task",
        "not from the meaning of the tag",
        "Nothing outside the JSON",
        "one entry for each of L0_MLP, L1H2",
        "- tag: one of",
        "- description: one sentence",
    ],
    "summarize.md": [
        JSON_ONLY,
        "L0_MLP, L1H2",
        "L0_MLP: MAPPER. it maps",
        "L0_MLP (supported): it marks something",
        "one account",
        "which component hands what to which",
        "believe the examples",
        "at least two examples, at positions that are neither the first nor the last",
        "Leave these trials out",
        "short specification",
        "Do not repeat values of the examples or the steps of the components",
        "- information_flow: one or two sentences",
        "- derived_task_description: one or two sentences",
    ],
    "name_system.md": ["What is said of each part was tested", "two to six plain words", "in one sentence"],
    "name.md": ['["c", "x"] -> [0.0, 0.5]', "- L0_MLP computes x", "- L1H2: says y", "L0_MLP, L1H2", '"task", one'],
}


@pytest.fixture(scope="module")
def prompts() -> StagePrompts:
    specimen = load("frac_prevs")
    return StagePrompts(Briefing(specimen, specimen.components))


def rendered(prompts: StagePrompts, template: str) -> str:
    if template == "system.md":
        return prompts.system()
    losers = [{"hypothesis": "THE LOSER", "how": "refuted", "why": "THE REASON"}]
    facts: dict[str, Any] = {
        "plan": "THE PLAN",
        "observation": "THE OBSERVATION",
        "hypothesis": "THE HYPOTHESIS",
        "failures": losers,
        "helpers": helper_lines(),
        "typed": template == "validate_typed.md",
        "known": KNOWN,
        "taxonomy": TAXONOMY,
        "roles": [("L0_MLP", "MAPPER", "it maps")],
        "programs": [],
        "parts": [("L0_MLP", "L0_MLP computes x"), ("L1H2", "says y")],
        **prompts.briefing.grammar(),
    }
    return prompts.stage(template, HEAD, **facts)


@pytest.mark.parametrize("template", RULES)
def test_every_field_and_rule_is_there(prompts: StagePrompts, template: str) -> None:
    text = rendered(prompts, template)
    assert [rule for rule in RULES[template] if rule not in text] == []
    assert "{{" not in text
    assert "{%" not in text


def test_every_template_is_held_to_its_rules() -> None:
    """All but the briefing of agents from elsewhere, which has no stages (tests/inspection)."""
    templates = {path.name for path in PROMPTS.glob("*.md") if not path.name.startswith("_")}
    assert templates == {*RULES, "briefing.md"}


@pytest.mark.parametrize("template", [name for name in RULES if name not in ("classify.md", "summarize.md")])
def test_no_tag_is_named_before_classification(prompts: StagePrompts, template: str) -> None:
    assert not re.search("|".join(TAGS), rendered(prompts, template))


def test_the_prompts_of_two_components_differ_only_at_their_end(prompts: StagePrompts) -> None:
    """What a provider's cache finds again: all of the system prompt, and a stage's instructions up to the component."""
    facts = {"hypothesis": "H", "plan": "", "programs": [], "helpers": helper_lines(), "typed": True}
    for template in ("observe.md", "validate_typed.md"):
        told = {**facts, **prompts.briefing.grammar()}
        one, other = (prompts.stage(template, part, known=[], **told) for part in prompts.briefing.circuit)
        shared = next(place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
        assert shared > 0.85 * len(one), template


def wordy(request: ModelRequest) -> Any:
    """A model that says as much as it may, and uses all experiments of every stage."""
    words, label = "word " * 100, request.label
    if label.endswith("observation"):
        names = {f"candidate {number}": f"tokens[i] == {number} or i == {number}" for number in range(12)}
        look = call("which_variable", candidates=names)
        return look if spoken(request) < 3 else {"json": {"observation": words, "hypothesis": words}}
    if "validation" in label:
        flags = [{"name": f"v{n}", "op": "map", "of": ["tokens"], "formula": "x == x"} for n in range(6)]
        program = {"variables": flags, "output": "v5"}
        claim = {"kind": "computes", "program": program, "carriers": {"L9H9": ["v5"]}}
        return call("check_claim", claim=claim) if spoken(request) < 3 else {"json": {"explanation": words}}
    if "hypothesis" in label:
        return {"json": {"hypothesis": words, "reasoning": words}}
    return {"json": {"information_flow": words, "derived_task_description": words}}


@pytest.mark.slow
@pytest.mark.parametrize("id", ["3", "21", "97", "113"])
def test_compact_conversations_fit_4096_tokens(id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request of a run with the abilities of a local model: three bytes to a token at the least, and 256 tokens
    left for the reply.
    """
    monkeypatch.setitem(factory.ABILITIES, "scripted", factory.ABILITIES["local"])
    monkeypatch.setattr("vesalius_session.session.LazyWorkspace", FakeWorkspace)
    specimen = load(id)
    backbone, wire = opened(lambda request: _as_text(wordy(request)), max_tokens=256, reasks=0)
    explain_hyve(specimen, backbone=backbone, compact=True)
    sizes = {
        request.label: sum(len(message.text.encode()) for message in request.messages) for request in wire.requests
    }
    assert len(specimen.components) * 3 < len(sizes)
    assert max(sizes.values()) / 3 <= 4096 - 256, max(sizes, key=lambda label: sizes[label])
    tools = [request for request in wire.requests if request.answer_schema and "anyOf" in request.answer_schema]
    assert not any(request.tools for request in wire.requests)
    assert len(tools) > len(specimen.components), "calls of tools are held to a schema"
    last = {request.label: request for request in wire.requests if request.label.endswith("observation")}
    assert not any("anyOf" in (request.answer_schema or {}) for request in last.values()), (
        "nothing is left but to answer"
    )


def _as_text(reply: Any) -> Any:
    """A tool call as a model without native calls writes it."""
    calls = reply.get("tool_calls")
    return {"json": {"tool": calls[0]["name"], "arguments": calls[0]["arguments"]}} if calls else reply


def test_helpers_are_listed_with_their_signatures() -> None:
    lines = "\n".join(helper_lines())
    for library, kind in LIBRARIES.items():
        for name in public(kind):
            assert f"{library}: {name}(" in lines
    assert "ablate(component, inputs, how)" in lines


@pytest.mark.slow
@pytest.mark.parametrize("id", ["3", "24"])
@pytest.mark.parametrize("protocol", ["typed", "paper"])
def test_no_prompt_or_tool_result_holds_the_answer(id: str, protocol: Any) -> None:
    """A model that says nothing of its own, so whatever is said of the task was said by us."""
    specimen = load(id)
    names = tuple(str(component) for component in specimen.components[:2])
    backbone, wire = opened(lambda request: colourless(request, components=names))
    explain_hyve(specimen, backbone=backbone, protocol=protocol, components=names)
    assert len(secrets(id)) > 5
    roles = set(TAGS)
    assert any(message.role == "tool" for request in wire.requests for message in request.messages)
    for request in wire.requests:
        said = "\n".join([*(message.text for message in request.messages), json.dumps(request.tools)])
        allowed = roles if request.label in ("classification", "summary") else set()
        assert set(leaks(said, id)) <= allowed, request.label
        assert specimen.name not in said
        assert "benchmark" not in said


def test_the_toolbox_holds_no_answer_of_any_circuit() -> None:
    files = sorted(path for path in TOOLBOX.iterdir() if path.suffix == ".py")
    assert len(files) == 3
    text = "\n".join(path.read_text() for path in files)
    for task in key.all_tasks():
        sentences = {task.description, key.answer(task.id).program, *task.notes.values()}
        assert not [sentence for sentence in sentences if sentence in text]


def test_the_handed_over_files_hold_no_answer(tmp_path: Path) -> None:
    from vesalius_session.scope import handed_over

    argument = handed_over(load("3"), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.json", "model.safetensors"]
    said = json.dumps({**argument, "directory": ""}) + (tmp_path / "model.json").read_text()
    assert leaks(said, "3") == []
    assert "frac" not in said
