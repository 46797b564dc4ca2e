"""HyVE on natural models: the scripted study of appendix G on models whose heads are set by hand."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.behaviours.word_tokenizer import word_tokenizer
from tests.explanations.hyve.scripts import ROOT, opened
from tests.explanations.induction_model import as_specimen, induction_model
from vesalius.behaviours.natural import with_behaviour
from vesalius.documents.explanation import Explanation
from vesalius.errors import BadInput
from vesalius.explanations.hyve import HyveResult, explain_hyve
from vesalius.explanations.hyve.natural.scope import INSTRUMENTS, instrument_lines, plain, prompts_from
from vesalius.explanations.natural.pool import Pool
from vesalius.model.specimen import Specimen

SCRIPT = ROOT / "examples" / "hyve_natural.py"


def specimen(strengths: dict[int, float], *, norm: str = "none") -> Specimen:
    model = induction_model(word_tokenizer().size, strengths=strengths, norm=norm)
    return with_behaviour(as_specimen(model), None, metric="probability")


@pytest.fixture(scope="module")
def backups() -> tuple[HyveResult, Any]:
    """Three induction heads of which one is enough, and a head without a part."""
    script = runpy.run_path(str(SCRIPT))["reply"]
    backbone, wire = opened(script)
    found = explain_hyve(
        specimen({0: 1.0, 1: 1.0, 2: 1.0}, norm="rms"), backbone=backbone, components=["L1H0", "L1H1", "L1H2"], n=16
    )
    return found, wire


def test_a_head_refuted_as_needed_is_supported_as_a_backup_of_the_other_two(backups: tuple[HyveResult, Any]) -> None:
    found, _ = backups
    assert found.trace.problems == ()
    for component, name in zip(found.explanation.components, ("L1H0", "L1H1", "L1H2"), strict=True):
        assert component.id == name
        assert component.verdict == "supported"
        kinds = [(claim.kind, claim.verdict) for claim in component.claims]
        assert kinds == [("backs_up", "supported")]
        first, second = found.trace.components[int(name[-1])].attempts
        assert (first.verdict, second.verdict) == ("refuted", "supported")
        assert "is needed and moves <B>" in first.hypothesis
    text = json.dumps(found.explanation.model_dump(mode="json"), allow_nan=False)
    assert Explanation.model_validate_json(text) == found.explanation
    assert found.explanation.behaviour == "induction"


def test_what_the_language_model_reads_names_neither_model_nor_behaviour(backups: tuple[HyveResult, Any]) -> None:
    _, wire = backups
    said = "\n".join(message.text for request in wire.requests for message in request.messages)
    assert "induction" not in said
    assert "hand-made" not in said


def test_a_primary_head_is_supported_at_the_first_hypothesis() -> None:
    backbone, _ = opened(runpy.run_path(str(SCRIPT))["reply"])
    found = explain_hyve(specimen({0: 1.0}), backbone=backbone, components=["L1H0"], n=16)
    (component,) = found.explanation.components
    assert component.verdict == "supported"
    assert [(claim.kind, claim.verdict) for claim in component.claims] == [
        ("necessary", "supported"),
        ("moves_role", "supported"),
    ]
    assert len(found.trace.components[0].attempts) == 1


def test_prompts_cross_into_the_sandbox_unchanged() -> None:
    pool = Pool.draw(specimen({0: 1.0}), 4, seed=0, split="train")
    again = prompts_from(json.loads(json.dumps(plain(pool.prompts))))
    assert plain(again) == plain(pool.prompts)


def test_every_instrument_is_described_with_what_it_returns() -> None:
    lines = instrument_lines()
    assert len(lines) == len(INSTRUMENTS) == 13
    assert all(len(line.partition(": ")[2]) > 30 for line in lines)


def test_a_metric_that_is_a_function_is_refused(tmp_path: Path) -> None:
    backbone, _ = opened(runpy.run_path(str(SCRIPT))["reply"])
    own = with_behaviour(specimen({0: 1.0}), None, metric=lambda logits, answers, wrongs: logits[:, 0])
    with pytest.raises(BadInput, match="metric that is a Python function"):
        explain_hyve(own, backbone=backbone, components=["L1H0"], n=16, force=True)


def test_a_natural_model_without_a_behaviour_is_refused() -> None:
    backbone, _ = opened(runpy.run_path(str(SCRIPT))["reply"])
    from dataclasses import replace

    with pytest.raises(BadInput, match="name what to explain it for"):
        explain_hyve(replace(specimen({0: 1.0}), behaviour=None), backbone=backbone)
