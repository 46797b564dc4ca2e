"""A user's own prompts for functions: what is sent is the file, field by field, and what could not be a fair run is
refused before anything is asked.
"""

from hashlib import sha256
from pathlib import Path

import pytest

from tests.functions.fakes import Line, speaking
from vesalius.errors import BadInput
from vesalius_backbones import Scripted, open_backbone
from vesalius_functions import Box
from vesalius_functions.agents import DialogueLimits, Exemplars, interpret_with
from vesalius_functions.bench.settings import FunctionSettings, own_prompts
from vesalius_functions.knowledge.scoring import Concept, ModelMapper, ModelScorer
from vesalius_functions.own_prompts import ANSWERING, FunctionPrompts
from vesalius_functions.suite import Suite

TEXTS = {
    "system.md": "As published: up to {MAX_COMMANDS} commands, {json: {x}}",
    "numeric.md": "A number to a number. Begin with\n{EXEMPLARS}",
    "relations.md": "A rule about words.",
    "entity_system.md": "You spot words.",
    "entity.md": "1 if {CONCEPT}, else 0: {INPUT}",
    "entity_pair.md": "1 if {CONCEPT_1}, 1 if {CONCEPT_2}, else 0: {INPUT}",
    "relation_system.md": "You map words.",
    "relation.md": "If {CONCEPT_1}, say {CONCEPT_2}: {INPUT}",
    "relation_exception.md": "If {CONCEPT_1}, say {CONCEPT_2}, unless {EXCEPTION}: {INPUT}",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "prompts"
    place.mkdir()
    for name, text in TEXTS.items():
        (place / name).write_text(text + "\n")
    return place


def test_an_interpreter_is_told_what_the_files_say(folder: Path) -> None:
    prompts = FunctionPrompts.read(folder, "numeric", shows=True)
    backbone, script = speaking("[DESCRIPTION]: doubles x")
    limits = DialogueLimits(rounds=7)
    answer = interpret_with(
        backbone, Box(Line(0)), exemplars=Exemplars((1, 3)), limits=limits, mode="published", prompts=prompts
    )
    assert (answer.description, answer.queries) == ("doubles x", 2)
    assert [message.text for message in script.requests[0].messages] == [
        "As published: up to 7 commands, {json: {x}}\n",
        "A number to a number. Begin with\nf(1) = 2\nf(3) = 6\n",
    ]
    assert prompts.digests["numeric.md"] == sha256((TEXTS["numeric.md"] + "\n").encode()).hexdigest()
    assert set(prompts.digests) == {"system.md", "numeric.md"}, "only what this run asks with"


def test_the_model_behind_functions_is_told_what_the_files_say(folder: Path) -> None:
    script = Scripted(lambda request: "Illinois")
    relations = FunctionPrompts.read(folder, "relations", interprets=False, answers=True)
    for exception in (None, "it begins with S"):
        mapper = ModelMapper(open_backbone(script), "a city", "its state", exception, "published", relations)
        assert mapper.map(["Peoria {INPUT}"])[0].value == "Illinois"
    assert [[message.text for message in request.messages] for request in script.requests] == [
        ["You map words.\n", "If a city, say its state: Peoria {INPUT}\n"],
        ["You map words.\n", "If a city, say its state, unless it begins with S: Peoria {INPUT}\n"],
    ]
    asked = []

    class Digits:
        name = "digits"

        def logprobs(self, turns, options, label):
            asked.append([turn.text for turn in turns])
            raise AssertionError

    entities = FunctionPrompts.read(folder, "entities", interprets=False, answers=True)
    scorer = ModelScorer(Digits(), mode="published", prompts=entities)  # type: ignore[arg-type]
    for names in (("the sea",), ("the sea", "cooking")):
        with pytest.raises(AssertionError):
            scorer.score(["salt"], [Concept(name) for name in names])
    assert asked == [
        ["You spot words.\n", "1 if the sea, else 0: salt\n"],
        ["You spot words.\n", "1 if the sea, 1 if cooking, else 0: salt\n"],
    ]


def refused(folder: Path, category: str, **options: bool) -> str:
    with pytest.raises(BadInput) as error:
        FunctionPrompts.read(folder, category, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_is_missing_or_unknown_is_named_in_one_line(folder: Path) -> None:
    assert "there is no such directory; give one that holds system.md, numeric.md" in refused(folder / "no", "numeric")
    assert "lacks strings.md;" in refused(folder, "strings")
    assert "are for a language model" in refused(folder, "numeric", interprets=False)
    assert "lacks {LAYERS}, so the model would not be told" in refused(folder, "numeric", shows=True, layers=True)
    assert "{EXEMPLARS} is not a field of this file; it may hold MAX_COMMANDS" in refused(folder, "numeric")
    for category, files in ANSWERING.items():
        for name, fields in files.items():
            kept = (folder / name).read_text()
            (folder / name).write_text(kept.replace("{INPUT}", "INPUT") if fields else "{INPUT}")
            said = refused(folder, category, interprets=False, answers=True)
            assert (f"{name}: lacks {{INPUT}}" if fields else f"{name}: {{INPUT}} is not a field") in said
            (folder / name).write_text(kept)
    with pytest.raises(BadInput, match="replace those of `mode` published"):
        Suite("relations", prompts=FunctionPrompts.read(folder, "relations"))


def test_a_run_knows_its_prompts_again_and_refuses_others(folder: Path) -> None:
    plain = Suite("relations", count=2, mode="published")
    prompts = own_prompts(folder, plain, "aia", white_box=False)
    suite = Suite("relations", count=2, mode="published", prompts=prompts)
    settings = FunctionSettings(suite=suite, interpreter="aia", backbone="scripted:x.py")
    assert settings.request().options["prompts"] == str(folder)
    run = {"settings": settings.as_data(), **settings.notes()}
    assert run["settings"]["prompts"] == prompts.digests
    assert "prompts" not in FunctionSettings(plain, "aia", "scripted:x.py").as_data()
    assert FunctionSettings.of_run(run) == settings
    with pytest.raises(BadInput, match="give one of them; your own system prompt"):
        FunctionSettings(suite, "aia", "scripted:x.py", talk=DialogueLimits(system="llama-2"))
    (folder / "relations.md").write_text("Another.")
    with pytest.raises(BadInput, match="are not those of the run; put them back"):
        FunctionSettings.of_run(run)
