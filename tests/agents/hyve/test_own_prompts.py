"""A user's own prompts: what is sent is the file, field by field, and what could not be a fair run is refused."""

import json
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.agents.hyve.scripts import PLAN, opened
from vesalius.api import load
from vesalius.components import Component
from vesalius.documents.scorecard import Scorecard
from vesalius.errors import BadInput
from vesalius.explanations.scientists import scientist_named
from vesalius.files import mark_of
from vesalius_agents.hyve import explain_hyve
from vesalius_agents.hyve.own_prompts import ABOUT_ONE, FIELDS, NEEDED, OwnPrompts
from vesalius_agents.hyve.prompting import PROMPTS
from vesalius_backbones import ModelRequest
from vesalius_bench.circuits.selection import chosen_circuits
from vesalius_bench.circuits.settings import BenchmarkSettings
from vesalius_bench.papers.comparison import card_details
from vesalius_session.briefing import Briefing

GOLDEN = Path(__file__).parents[2] / "documents" / "golden"

#: All fields that a file needs, in words that are not ours; braces that are not fields are text.
TEXTS = {
    name: f'As published, {name} {{"json": {{x}}}}: ' + " | ".join(f"{field}={{{field}}}" for field in fields)
    for name, fields in NEEDED.items()
}
TEXTS["system.md"] += " of {COMPONENT_IDENTIFIER} in {ALL_COMPONENTS}, {NUM_LAYERS}x{NUM_HEADS}, known: {VALIDATED}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in TEXTS.items():
        (tmp_path / name).write_text(text + "\n")
    return tmp_path


def refused(folder: Path) -> str:
    with pytest.raises(BadInput) as error:
        OwnPrompts.read(folder)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_directory_has_the_files_of_the_protocol_under_our_names(folder: Path) -> None:
    assert {name for name in NEEDED if (PROMPTS / name).is_file()} == set(NEEDED)
    assert set(ABOUT_ONE) == set(NEEDED) - {"system.md", "classify.md", "summarize.md"}
    own = OwnPrompts.read(folder)
    assert own.digests["observe.md"] == sha256((TEXTS["observe.md"] + "\n").encode()).hexdigest()
    assert mark_of(own.digests) != mark_of({**own.digests, "observe.md": "0" * 64})


def test_what_is_missing_or_unknown_is_named_in_one_line(folder: Path) -> None:
    assert "there is no such directory" in refused(folder / "nowhere")
    for name in ("classify.md", "observe.md"):
        (folder / name).rename(folder / f"my-{name}")
    assert "lacks observe.md, classify.md;" in refused(folder)
    for name in ("classify.md", "observe.md"):
        (folder / f"my-{name}").rename(folder / name)
    cases = {
        "{OBSERVATION_PLAN} {OBSERVATION}": "{OBSERVATION} is not a field of this file; it may hold ALL_COMPONENTS",
        "{OBSERVATION_PLAN} {TEMPERATURE}": "{TEMPERATURE} is not a field of this file",
        "OBSERVATION_PLAN": "lacks {OBSERVATION_PLAN}, so the model would not be told",
        "{OBSERVATION_PLAN}" + " " * 100_000: "is longer than 100,000 bytes",
    }
    for text, said in cases.items():
        (folder / "observe.md").write_text(text)
        assert said in refused(folder)
        assert str(folder / "observe.md") in refused(folder)
    (folder / "observe.md").write_bytes(b"\xff{OBSERVATION_PLAN}")
    assert "is not UTF-8 text" in refused(folder)
    (folder / "observe.md").write_text("{OBSERVATION_PLAN}")
    (folder / "system.md").write_text("{TASK_INFORMATION}")
    assert f"{folder / 'observe_plan.md'}: lacks {{COMPONENT_IDENTIFIER}}, as does system.md" in refused(folder)


def test_every_field_is_replaced_and_nothing_else(folder: Path) -> None:
    specimen = load("frac_prevs")
    briefing = Briefing(specimen, specimen.components)
    everything = " ".join(f"{field}:{{{field}}};" for field in FIELDS)
    (folder / "summarize.md").write_text(f"{{}} {{lower}} {everything} {{ROLES}} {{VALIDATED_HYPOTHESES}}")
    known = [("L0_MLP", "supported", "marks {ROLES}"), ("L1H2", "refuted", "guesses")]
    text = OwnPrompts.read(folder).filled(
        "summarize.md", briefing, known=known, roles=[("L0_MLP", "INDICATOR", "It marks.")]
    )
    assert text.startswith("{} {lower} NUM_LAYERS:2; NUM_HEADS:4; ALL_COMPONENTS:L0_MLP, L1H2; LOCALIZED:L0_MLP, L1H2;")
    assert "COMPONENT_IDENTIFIER:L0_MLP, L1H2; VALIDATED:L0_MLP: marks {ROLES};" in text
    assert "L0_MLP (supported): marks {ROLES}\nL1H2 (not supported): guesses" in text
    assert 'TASK_INFORMATION:["' in text
    assert '["c", "x"] -> [0.0, 0.5]' in text
    assert "MAX_EXECUTE_ROUNDS:5;" in text
    assert "L0_MLP: INDICATOR. It marks." in text


def test_the_examples_of_a_natural_model_are_prompts_and_answers(folder: Path) -> None:
    config = SimpleNamespace(n_layers=30, n_heads=9)
    shown = {"prompt": "A B A", "answer": " B", "roles": {"end": " A"}, "right": True}
    facts = {"config": config, "examples": [shown], "components": ["L1H2"], "max_executions": 5}
    natural: Any = SimpleNamespace(facts=facts, scores_variables=False)
    text = OwnPrompts.read(folder).filled("system.md", natural, Component.parse("L1H2"))
    assert text.endswith('TASK_INFORMATION="A B A" -> " B" of L1H2 in L1H2, 30x9, known: none\n')


def test_a_run_sends_these_texts_and_keeps_their_checksums(folder: Path) -> None:
    def reply(request: ModelRequest) -> Any:
        label = request.label
        if "plan" in label:
            return {"json": PLAN}
        if "hypothesis" in label:
            return {"json": {"hypothesis": "it {does} this"}}
        if "validation" in label:
            return {"json": {"decision": "support", "explanation": "yes"}}
        if label == "classification":
            return {"json": {"L0_MLP": {"tag": "MAPPER", "description": "It maps."}}}
        return {
            "json": {"observation": "it is seen"}
            if "observation" in label
            else {"information_flow": "f", "derived_task_description": "t"}
        }

    backbone, wire = opened(reply)
    specimen = load("frac_prevs")
    found = explain_hyve(specimen, backbone=backbone, protocol="paper", components=["L0_MLP"], prompts=folder)
    sent = {request.label: [message.text for message in request.messages[:2]] for request in reversed(wire.requests)}
    examples = "\n".join(f"{json.dumps(one['input'])} -> {json.dumps(one['output'])}" for one in specimen.examples)
    systems = {label: texts[0] for label, texts in sent.items()}
    start = f'As published, system.md {{"json": {{x}}}}: TASK_INFORMATION={examples} of L0_MLP in L0_MLP, 2x4, known: '
    assert systems["L0_MLP observation plan"] == start + "none\n"
    assert systems["classification"] == systems["summary"] == start + "L0_MLP: it {does} this\n"
    plan = "Goal: g\nProcedure: one\ntwo\nInputs: i\nExpected result: e"
    head = 'As published, {} {{"json": {{x}}}}: '.format
    assert {label: texts[1] for label, texts in sent.items()} == {
        "L0_MLP observation plan": head("observe_plan.md").strip() + "\n",
        "L0_MLP observation": head("observe.md") + f"OBSERVATION_PLAN={plan}\n",
        "L0_MLP hypothesis 1": head("hypothesize.md") + "OBSERVATION=it is seen | REFUTED=none\n",
        "L0_MLP validation plan 1": head("validate_plan.md")
        + "CURRENT_HYPOTHESIS=it {does} this | OBSERVATION=it is seen\n",
        "L0_MLP validation 1": head("validate_paper.md")
        + f"CURRENT_HYPOTHESIS=it {{does}} this | VALIDATION_PLAN={plan}\n",
        "classification": head("classify.md") + "VALIDATED_HYPOTHESES=L0_MLP (supported): it {does} this\n",
        "summary": head("summarize.md")
        + "VALIDATED_HYPOTHESES=L0_MLP (supported): it {does} this | ROLES=L0_MLP: MAPPER. It maps.\n",
    }
    assert found.explanation.prompts == OwnPrompts.read(folder).digests
    assert f"your own, {mark_of(found.explanation.prompts)}" in str(found.explanation.view().sections)


def test_only_the_protocol_that_asks_as_published_takes_them(folder: Path) -> None:
    with pytest.raises(BadInput, match=r"^`prompts` replace those of `protocol` paper, this is typed; add `protocol`"):
        scientist_named("hyve", prompts=str(folder))
    with pytest.raises(BadInput, match=r"`prompts` cannot be given with `scientist` builtin"):
        scientist_named("builtin", prompts=str(folder))
    hyve = scientist_named("hyve", protocol="paper", prompts=str(folder))
    assert hyve.options == {"protocol": "paper", "prompts": str(folder)}


def test_a_benchmark_keeps_to_the_prompts_that_it_began_with(folder: Path) -> None:
    circuits = tuple(chosen_circuits(None, ["3"], None, None))
    settings = BenchmarkSettings(circuits, "hyve", backbone="a:b", protocol="paper", prompts=str(folder))
    assert settings.request().options["prompts"] == str(folder)
    run = {"settings": settings.as_data(), **settings.notes()}
    assert BenchmarkSettings.of_run(run) == settings
    (folder / "observe.md").write_text("{OBSERVATION_PLAN} changed")
    with pytest.raises(BadInput, match=r"^`prompts` .* are not those of the run; put them back$"):
        BenchmarkSettings.of_run(run)


def test_a_row_of_the_papers_tables_says_whose_prompts_it_was_made_with(folder: Path) -> None:
    card = Scorecard.read(GOLDEN / "scorecard_circuits.json")
    digests = OwnPrompts.read(folder).digests
    assert "own prompts" not in card_details(card)
    assert f"own prompts {mark_of(digests)}, n = " in card_details(card.model_copy(update={"own_prompts": digests}))
