"""`vesalius explain` and `vesalius report` on a circuit with a known answer."""

import html
import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from tests.agents.hyve.scripts import WALKTHROUGH
from tests.behaviours.word_tokenizer import word_tokenizer
from tests.cli.conftest import Vesalius
from tests.closeness import assert_same_document
from tests.explanations.induction_model import induction_model
from vesalius.api.explanations import _mark
from vesalius.circuits.specimens import Card, benchmark_directory, load_specimen, write_specimen
from vesalius.cli.terminal import lines_of
from vesalius.documents.circuit import Circuit
from vesalius.documents.explanation import ComponentExplanation, Explanation
from vesalius.explanations.scientists import Builtin, Task
from vesalius.model.states import save_model
from vesalius.model.transformer import Transformer
from vesalius_truth.grading import grade

#: A screen: lines of a benchmark circuit, of a natural model, and columns.
LINES, NATURAL_LINES, COLUMNS = 28, 48, 100


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
    then = f"vesalius open {shlex.quote(str(tmp_path / 'run'))}"  # the same on every face
    assert document["answer"]["next"] == then
    assert then in html.unescape(page)
    assert json.loads((tmp_path / "run" / "explanation.json").read_text())["answer"]["next"] == then
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
        (["explain", tiny, "-b", "induction"], "tiny does not perform induction: prefers the right answer on 0."),
        (["explain", tiny, "-b", "induction", "-c", "L9H9"], "component L9H9 is not in this model"),
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
        "previous-token head, necessary at B, feeds L1H0",
        "induction head, primary mover",
        "no effect alone",
    ]
    assert found.behaviour == "induction"
    page = (tmp_path / "run" / "report.html").read_text()
    for words in ("previous-token head, necessary at B, feeds L1H0", "only at the answer position"):
        assert words in page
    assert "--components L0H0,L1H0,L1H3 --scientist builtin --n 6 --seed 0" in page
    assert "No program was found" not in page
    assert vesalius("report", tmp_path / "run", "--json").code == 0
    summary = vesalius(*arguments, "--out", tmp_path / "run").out
    assert "main path: tokens -> L0H0 -> keys of L1H0 -> logits" in summary
    assert "Not established\n  a role: L1H3\n" in summary
    assert len(summary.splitlines()) <= NATURAL_LINES
    claims = vesalius(*arguments, "--out", tmp_path / "run", "--claims").out
    timeless, again = (re.sub(r"(?m)^(effort: )[\d.]+ \w+", r"\1", text) for text in (summary, claims))
    assert again.startswith(timeless)
    assert "L1H0 induction head, primary mover (supported)" in claims


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
    assert "copy the circuit elsewhere" in got.err


def test_the_summary_is_one_screen_with_the_page_last(vesalius: Vesalius, tmp_path: Path) -> None:
    """As wide as the terminal: what it computes, a line per component, the counts, where the page is."""
    lines = vesalius("explain", "frac_prevs", "--out", tmp_path / "run").out.splitlines()
    assert len(lines) <= LINES
    assert lines[0].startswith(
        "Yes: The circuit gives the share of 'x' among the tokens up to each position. Its program "
    )
    assert lines[1] == f"next: vesalius open {tmp_path / 'run'}"
    assert lines[2] == "frac_prevs, explained by builtin: 2 components (2 supported)"
    assert any(re.match(r"L0_MLP +INDICATOR +supported +Map\(", line) for line in lines)
    assert "what components compute: 2 of 2 supported, 0 refuted, 0 undecided" in lines
    assert not any("at a fixed position only" in line for line in lines)
    assert lines[-1] == f"page: {tmp_path / 'run' / 'report.html'}"


def long_explanation(n: int) -> Explanation:
    part = ComponentExplanation(
        id="L0H0",
        tag="ROUTER",
        tag_by_experiment="ROUTER",
        note="It moves. " * 30,
        verdict="untested",
        role="mover " * 20,
    )
    parts = [part.model_copy(update={"id": f"L{number}H0"}) for number in range(n)]
    parts[-1] = parts[-1].model_copy(update={"verdict": "supported"})
    return Explanation(
        specimen="3",
        scientist="builtin",
        components=tuple(parts),
        information_flow="",
        task_description="many words " * 100,
        program="name = 'x'\n\n" + "a = b\n" * 50,
        seconds=1.0,
        seed=0,
        directory="somewhere",
    )


@pytest.mark.parametrize("n", [1, 8, 9, 300])
def test_no_summary_is_longer_than_a_screen(n: int) -> None:
    lines = list(lines_of(long_explanation(n).view(), width=COLUMNS))
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS
    shown = [line for line in lines if re.match(r"L\d+H0 {2,}", line)]
    assert any(line.startswith(f"L{n - 1}H0 ") for line in shown), "what is supported is shown before what is not"
    left_out = n - len(shown)
    assert (f"... {left_out} more; --claims prints them" in lines) == bool(left_out)
    assert lines[-1] == "page: somewhere/report.html"


def printed_command(page: Path) -> list[str]:
    """The command that a page says makes it again, as the words after `vesalius`."""
    found = re.findall(r"vesalius ((?:explain|discover) [^<\n]*)", page.read_text())  # the first may be the next one
    return shlex.split(html.unescape(found[-1]))


@pytest.mark.parametrize(
    "arguments",
    [
        ["frac_prevs", "-c", "L0_MLP"],
        ["frac_prevs", "--leave-out", "mean", "--seed", "1"],
        pytest.param(["frac_prevs", "-c", "L0_MLP", "--backbone", f"scripted:{WALKTHROUGH}"], marks=pytest.mark.slow),
    ],
)
def test_the_printed_command_of_an_explanation_runs(vesalius: Vesalius, arguments: list[str]) -> None:
    first = vesalius("explain", *arguments, "--out", "here", "--json")
    assert first.code == 0, first.err
    again = vesalius(*printed_command(Path("here/report.html")), "--out", "again", "--json")
    assert again.code == 0, again.err
    one, other = (json.loads(outcome.out) for outcome in (first, again))
    assert_same_document(one["components"], other["components"])
    assert one["request"] == other["request"]


def test_the_printed_command_of_a_discovery_runs_and_explains(vesalius: Vesalius) -> None:
    arguments = ["discover", "frac_prevs", "--method", "bandit", "--budget", 8, "--seeds", 2, "--n", 4, "--quick"]
    first = vesalius(*arguments, "--out", "here", "--json")
    assert first.code == 0, first.err
    again = vesalius(*printed_command(Path("here/discovery.html")), "--out", "again", "--json")
    assert again.code == 0, again.err
    one, other = (json.loads(outcome.out) for outcome in (first, again))
    assert_same_document(one["components"], other["components"])
    assert one["request"] == other["request"]


@pytest.mark.parametrize("nodes", [{}, {"m0": {"in_graph": False}}, {"m0": {"in_graph": True, "score": 0.0}}])
def test_an_empty_circuit_is_an_abstention(vesalius: Vesalius, tmp_path: Path, nodes: dict) -> None:
    circuit = {"cfg": {"n_layers": 2, "n_heads": 4, "d_model": 12}, "nodes": nodes, "edges": {}}
    (tmp_path / "empty.json").write_text(json.dumps(circuit))
    for scientist in ([], ["--backbone", f"scripted:{WALKTHROUGH}"]):
        left = vesalius("explain", "frac_prevs", "--circuit", "empty.json", *scientist, "--json", "--out", "here")
        assert left.code == 0, left.err
        explanation = Explanation.model_validate_json(left.out)
        assert explanation.components == ()
        assert "Nothing was established" in explanation.task_description
        assert "Nothing was established" in Path("here/report.html").read_text()
    assert vesalius("explain", "frac_prevs", "--circuit", "empty.json", "--out", "here").code == 0


@pytest.mark.parametrize("n", [1, 9, 300])
def test_the_screen_of_a_natural_model_is_never_longer(n: int) -> None:
    names = [f"L{number}H0" for number in range(n)]
    chain = ["tokens", *names, "logits"]
    edges = [(a, b, 0.5) for a, b in pairwise(chain)]
    natural = long_explanation(n).model_copy(update={"behaviour": "my " * 60, "edges": tuple(edges)})
    lines = list(lines_of(natural.view(), width=COLUMNS))
    assert len(lines) <= NATURAL_LINES
    assert max(map(len, lines)) <= COLUMNS
    assert any(line.startswith("  main path: tokens -> L0H0 -> ") for line in lines)
    assert "Not established" in lines or n == 1
    assert lines[-1] == "page: somewhere/report.html"


def test_explanations_of_other_components_have_other_places() -> None:
    """All were written to one directory, where the last took the place of the others."""
    plain = Task("frac_prevs")
    marks = {
        _mark(task)
        for task in (
            plain,
            replace(plain, components=("L0H0",)),
            replace(plain, components=("L0_MLP",)),
            replace(plain, circuit_file="found/circuit.json"),
            replace(plain, scientist=Builtin(top=3)),
        )
    }
    assert len(marks) == 5
    assert _mark(plain) is None  # the usual one keeps its short name
