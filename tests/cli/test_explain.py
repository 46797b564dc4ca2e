"""`vesalius explain` and `vesalius report` on a circuit with a known answer."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.behaviours.word_tokenizer import word_tokenizer
from tests.cli.conftest import Vesalius
from tests.explanations.induction_model import induction_model
from vesalius.circuits.specimens import Card, benchmark_directory, load_specimen, write_specimen
from vesalius.documents.circuit import Circuit
from vesalius.documents.explanation import Explanation
from vesalius.grading import grade
from vesalius.model.files import save_model
from vesalius.model.transformer import Transformer


def test_explain_keeps_the_contract_and_leaves_a_page(vesalius: Vesalius, tmp_path: Path) -> None:
    left = vesalius("explain", "frac_prevs", "--json", "--out", tmp_path / "run")
    assert left.code == 0, left.err
    document = json.loads(left.out)
    assert {"specimen", "scientist", "components", "information_flow", "task_description", "cost", "seconds"} <= set(
        document
    )
    assert [part["id"] for part in document["components"]] == ["L0_MLP", "L1H2"]
    for part in document["components"]:
        assert {"id", "tag", "note", "verdict", "claims"} <= set(part)
        assert all({"text", "verdict", "evidence"} <= set(claim) for claim in part["claims"])
    found = Explanation.model_validate(document)
    assert grade(found).tag_accuracy.value == 1.0
    assert [part.verdict for part in found.components] == ["supported", "supported"]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "L1H2" in page
    again = vesalius("report", tmp_path / "run", "--json")
    assert json.loads(again.out)["page"].endswith("report.html")


def test_what_was_discovered_is_explained(vesalius: Vesalius, tmp_path: Path) -> None:
    assert vesalius("discover", "60", "--n", 8, "--out", tmp_path / "found").code == 0
    file = tmp_path / "found" / "circuit.json"
    left = vesalius("explain", "60", "--circuit", file, "--json", "--out", tmp_path / "run")
    assert left.code == 0, left.err
    explanation = Explanation.model_validate_json(left.out)
    assert [part.id for part in explanation.components] == [str(part) for part in Circuit.read(file).chosen()]


def test_what_cannot_be_explained_is_one_line(vesalius: Vesalius, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "explanation.json").write_text('{"specimen": "3"}')
    for arguments, reason in (
        (["explain", "frac_prevs", "-c", "L9H9"], "component L9H9 is not in this model"),
        (["explain", "frac_prevs", "--n", "8"], "n, top and force are for natural models"),
        (["explain", tiny], "name what to explain it for, --behaviour induction, induction-out, ioi"),
        (["explain", tiny, "-b", "juggling"], "behaviour 'juggling' does not exist"),
        (["explain", tiny, "-b", "induction"], "tiny does not perform induction: accuracy 0."),
        (["explain", tiny, "-b", "induction", "-c", "L9H9"], "component L9H9 is not in this model"),
        (["explain", tiny, "-b", "induction", "-c", ","], "the list of components is empty"),
        (["explain", tiny, "-b", "induction", "--n", "2"], "--n"),
        (["explain", tiny, "-b", "induction", "--top", "0"], "--top"),
        (["report", tmp_path / "nowhere"], "no such directory"),
        (["report", tmp_path / "damaged"], "Field required"),
    ):
        left = vesalius(*arguments)
        assert left.code == 2
        assert reason in left.err
        assert left.err.count("\n") == 1
        assert left.out == ""


def spoilt(directory: Path, spoil: Callable[[Transformer], None]) -> Path:
    """A specimen directory like frac_prevs with other weights."""
    origin = benchmark_directory("frac_prevs")
    assert origin is not None
    specimen = load_specimen(origin)
    with torch.no_grad():
        spoil(specimen.model)
    write_specimen(directory, specimen.model, Card.read(origin / "specimen.json"))
    return directory


def randomise(model: Transformer) -> None:
    generator = torch.Generator().manual_seed(5)
    for weight in model.parameters():
        weight.copy_(torch.randn(weight.shape, generator=generator) * 0.4)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (randomise, "Nothing was established"),
        (lambda model: model.unembed_weight.zero_(), "the outputs are the same on every input"),
        (lambda model: model.blocks[0].mlp.W_in.mul_(1e30), "activations are not finite"),
    ],
)
def test_a_model_about_which_nothing_can_be_said(
    vesalius: Vesalius, tmp_path: Path, spoil: Callable[[Transformer], None], said: str
) -> None:
    left = vesalius("explain", spoilt(tmp_path / "made", spoil), "--json", "--out", tmp_path / "run")
    assert left.code == 0, left.err
    found = Explanation.model_validate_json(left.out)
    assert said in found.task_description
    assert all(part.verdict != "supported" for part in found.components)
    assert (tmp_path / "run" / "report.html").exists()


def test_weights_that_are_no_numbers_are_refused_in_one_line(vesalius: Vesalius, tmp_path: Path) -> None:
    left = vesalius("explain", spoilt(tmp_path / "made", lambda model: model.W_E.fill_(float("nan"))))
    assert left.code == 2
    assert "holds NaN or infinity" in left.err
    assert left.err.count("\n") == 1


def test_a_natural_model_keeps_the_contract_and_leaves_a_page(vesalius: Vesalius, tmp_path: Path) -> None:
    directory = tmp_path / "by_hand"
    tokenizer = word_tokenizer()
    save_model(induction_model(tokenizer.size), directory)
    tokenizer._backend.save(str(directory / "tokenizer.json"))
    arguments = ["explain", directory, "--behaviour", "induction", "--components", "L0H0,L1H0,L1H3", "--n", "6"]
    left = vesalius(*arguments, "--json", "--out", tmp_path / "run")
    assert left.code == 0, left.err
    found = Explanation.model_validate(json.loads(left.out))
    assert [part.role for part in found.components] == [
        "previous-token head, necessary upstream",
        "induction head, primary mover",
        "no role established",
    ]
    assert found.behaviour == "induction"
    page = (tmp_path / "run" / "report.html").read_text()
    for words in ("previous-token head, necessary upstream", "only at the answer position"):
        assert words in page
    assert "--components L0H0,L1H0,L1H3 --n 6" in page
    assert "No program was found" not in page
    assert vesalius("report", tmp_path / "run", "--json").code == 0
    printed = vesalius(*arguments, "--out", tmp_path / "run").out
    assert "L1H0  induction head, primary mover  (supported)" in printed


def test_a_behaviour_that_is_not_performed_gives_attention_only_by_force(
    vesalius: Vesalius, tiny: Path, tmp_path: Path
) -> None:
    arguments = ["explain", tiny, "-b", "induction", "-c", "L0H0,L1_MLP", "--force", "--n", "4", "--json"]
    left = vesalius(*arguments, "--out", tmp_path / "run")
    assert left.code == 0, left.err
    assert {part["role"] for part in json.loads(left.out)["components"]} == {"no role established"}


def test_a_circuit_found_in_other_weights(vesalius: Vesalius, tmp_path: Path) -> None:
    """Circuits 3 and 11 have one shape; only the discovery beside the circuit tells them apart."""
    assert vesalius("discover", "3", "--quick", "--n", "4", "--out", "found").code == 0
    got = vesalius("explain", "11", "--circuit", "found/circuit.json")
    assert (got.code, got.out) == (2, "")
    assert "(3), not in this one" in got.err
    assert "copy the file elsewhere" in got.err
