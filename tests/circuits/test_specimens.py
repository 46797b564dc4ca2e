"""The shipped specimens: what is listed, what loads, what is refused, and what a trial on one is made of."""

import json
import math
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

import vesalius_truth.key as key
from tests.models import same_logits, same_weights
from vesalius.api import load, specimens, sweep
from vesalius.behaviours.trial import trial
from vesalius.circuits.specimens import (
    Card,
    as_examples,
    benchmark_cards,
    benchmark_directory,
    known_names,
    load_specimen,
    write_specimen,
)
from vesalius.errors import BadInput
from vesalius.model.config import Config
from vesalius.model.specimen import FiniteVocabulary, Specimen, json_value
from vesalius.model.transformer import Transformer

# fmt: off
PUBLISHED_IDS = [str(number) for number in (
    2, 3, 4, 7, 8, 11, 13, 14, 15, 18, 19, 20, 21, 24, 25, 26, 29, 30, 31, 33, 34, 35, 36, 37, 39, 40, 41, 43, 44, 45,
    46, 49, 50, 51, 52, 53, 54, 55, 56, 58, 60, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 75, 77, 79, 80, 82,
    83, 84, 85, 86, 87, 90, 91, 93, 95, 97, 101, 102, 103, 104, 105, 106, 110, 111, 113, 114, 121, 122, 123, 124, 129,
    130,
)]
# fmt: on
VOCABULARY = FiniteVocabulary(("a", "b", 3), (False, None, ("x", 1)), 4)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The files of frac_prevs, free to be damaged."""
    directory = benchmark_directory("3")
    assert directory is not None
    return Path(shutil.copytree(directory, tmp_path / "specimen"))


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def load_error(directory: Path) -> str:
    with pytest.raises(BadInput) as error:
        load(directory)
    assert "\n" not in str(error.value)
    return str(error.value)


# What is there


def test_the_list_has_the_published_circuits_and_the_natural_models() -> None:
    rows = specimens()
    assert [row["id"] for row in rows] == [*PUBLISHED_IDS, "smollm2-135m", "arithmetic"]
    assert Counter(row["kind"] for row in rows) == {"benchmark": 84, "natural": 2}
    assert all(set(row) == {"id", "name", "kind", "components", "layers", "heads", "d_model"} for row in rows)
    json.dumps(rows, allow_nan=False)


def test_published_totals_of_components() -> None:
    rows = specimens()[:84]
    names = [name for row in rows for name in row["components"]]
    assert Counter(name.endswith("_MLP") for name in names) == {True: 120, False: 43}
    sizes = [len(row["components"]) for row in rows]
    assert max(sizes) == 10
    assert round(sum(sizes) / len(sizes), 2) == 1.94


@pytest.mark.slow
def test_the_list_describes_what_is_loaded() -> None:
    for row in specimens()[:84]:
        assert load(row["id"]).describe() == load(row["name"]).describe() == row


def test_ids_may_be_numbers() -> None:
    assert load(3).name == "frac_prevs"


@pytest.mark.slow
def test_cards_say_what_the_key_says() -> None:
    """Vocabulary, outputs (their types too: True is not 1), length, sampler and places, for every task."""
    for card in benchmark_cards():
        one, specimen = key.task(card.id), load(card.id)
        assert isinstance(specimen.vocabulary, FiniteVocabulary)
        assert (card.name, card.max_len, card.sampler) == (one.name, one.max_len, one.sampler)
        assert list(map(repr, specimen.vocabulary.tokens)) == list(map(repr, one.vocab))
        outputs = None if one.numerical else one.program().outputs
        assert repr(specimen.vocabulary.outputs) == repr(outputs)
        assert list(specimen.components) == [component for component, _ in one.components]
        assert specimen.model.config.causal == one.causal


def test_weights_together_stay_small() -> None:
    files = [benchmark_directory(id) for id in PUBLISHED_IDS]
    total = sum((folder / "model.safetensors").stat().st_size for folder in files if folder)
    assert 1_000_000 < total < 25_000_000


def test_every_card_has_its_gate_and_how_it_was_made() -> None:
    for card in benchmark_cards():
        figures = card.gate["figures"]
        assert min(value for name, value in figures.items() if name != "moved_worst") >= 0.98
        assert card.id in key.CARRY_MORE or figures["moved_worst"] >= 0.95
        assert min(figures[name] for name in ("accuracy", "iia_worst", "strict_worst", "strict_all")) >= 0.99
        assert card.gate["repetitive"] >= 0.98
        assert card.gate["rare_counts"] >= 0.95
        assert card.gate["n"] >= 256
        assert card.made_by.startswith(
            ("python -m vesalius_truth.key.make train (seed ", "python -m vesalius_truth.key.make polish (seed ")
        )


@pytest.mark.parametrize("id", PUBLISHED_IDS)
def test_examples_are_what_the_model_and_the_program_say(id: str) -> None:
    specimen, program = load(id), key.task(id).program()
    inputs = [example["input"] for example in specimen.examples]
    shown = [example["output"] for example in specimen.examples]
    assert len(inputs) == 5
    codes, lengths = program.encode(inputs)
    computed = program.decode(program.run(codes, lengths).output, lengths)
    predicted = specimen.predict(inputs)
    if program.numerical:
        assert [list(row) for row in computed] == [pytest.approx(row, abs=1e-6) for row in shown]
        assert predicted == [pytest.approx(row, abs=0.05) for row in shown]
    else:
        assert [[json_value(value) for value in row] for row in computed] == shown
        assert predicted == shown


# What is refused


def test_a_name_nobody_knows() -> None:
    known = r"'frac_prev' is not known; use smollm2-135m, arithmetic, 2 \(reverse\).*84 in all"
    with pytest.raises(BadInput, match=known):
        load("frac_prev")
    assert known_names(1) == "2 (reverse), ... (84 in all)"
    assert benchmark_directory("5") is None


def test_a_behaviour_of_a_benchmark_specimen() -> None:
    with pytest.raises(BadInput, match="'3' has one task of its own; leave out the behaviour 'ioi'"):
        load("3", behaviour="ioi")


def test_damaged_weights(directory: Path) -> None:
    weights = directory / "model.safetensors"
    whole = weights.read_bytes()
    for damaged in (whole[:-100], whole[:20], b"", b"\xff" * len(whole)):
        weights.write_bytes(damaged)
        assert load_error(directory).startswith(f"{weights}: not a complete safetensors file")
    weights.write_bytes(whole[:-4] + b"\x00\x00\xc0\x7f")
    assert "holds NaN or infinity" in load_error(directory)
    other = benchmark_directory("4")
    assert other is not None
    shutil.copyfile(other / "model.safetensors", weights)
    assert str(weights) in load_error(directory)


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_missing_file(directory: Path, name: str) -> None:
    (directory / name).unlink()
    assert load_error(directory) == f"{directory / name}: no such file"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"schema_version": 2}, "schema_version: Input should be 1"),
        ({"colour": "red"}, "colour: Extra inputs are not permitted"),
        ({"vocab": "abcx"}, "vocab: Input should be a valid tuple"),
        ({"sampler": "sideways"}, "sampler: Input should be 'uniform', 'often_sorted', 'often_equal' or 'often_even'"),
        ({"components": ["L0_MLP", "L2H0"]}, "component L2H0 is not in this model; it has layers 0 to 1"),
        ({"components": ["L0H4"]}, "component L0H4 is not in this model"),
        ({"components": ["banana"]}, "component 'banana' is not a name"),
        ({"components": []}, "the list of components is empty"),
    ],
)
def test_a_card_that_cannot_be(directory: Path, changes: dict, reason: str) -> None:
    edit(directory / "specimen.json", **changes)
    assert load_error(directory).startswith(f"{directory / 'specimen.json'}: {reason}")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"max_len": 5}, "n_ctx of model.json is 5, specimen.json needs 6"),
        ({"vocab": ["a", "b", "c"]}, "d_vocab of model.json is 6, specimen.json needs 5"),
        ({"outputs": [0, 1]}, "d_vocab_out of model.json is 1, specimen.json needs 2"),
    ],
)
def test_a_card_of_another_model(directory: Path, changes: dict, reason: str) -> None:
    edit(directory / "specimen.json", **changes)
    assert load_error(directory) == f"{directory}: {reason}"


def test_files_that_are_not_json(directory: Path) -> None:
    edit(directory / "model.json", schema=7)
    assert load_error(directory) == f"{directory / 'model.json'}: schema 7; this version reads schema 1"
    (directory / "specimen.json").write_text("{")
    assert load_error(directory).startswith(f"{directory / 'specimen.json'}: not readable as JSON")


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ([["a", "q"]], "token 'q' is not in this specimen's vocabulary: 'a', 'b', 'c', 'x'"),
        ([["a", None]], "token None is not in this specimen's vocabulary: 'a', 'b', 'c', 'x'"),
        ([[["a"]]], "token ['a'] is not in this specimen's vocabulary: 'a', 'b', 'c', 'x'"),
        ([["a", 1]], "token 1 is not in this specimen's vocabulary: 'a', 'b', 'c', 'x'"),
        ([["a"] * 5], "an input of 5 tokens does not fit: this specimen takes 1 to 4"),
        ([["a"], []], "an input of 0 tokens does not fit: this specimen takes 1 to 4"),
        ([], "the list of inputs is empty; give a list of lists of tokens such as [['a', 'b', 'c']]"),
        ("text", "input 'text' is not a list; give a list of lists of tokens such as [['a', 'b', 'c']]"),
        (None, "input None is not a list; give a list of lists of tokens such as [['a', 'b', 'c']]"),
        (["ab"], "input 'ab' is not a list of tokens; write for example ['a', 'b', 'c']"),
        ([7], "input 7 is not a list of tokens; write for example ['a', 'b', 'c']"),
    ],
)
def test_inputs_that_do_not_fit(inputs: Any, reason: str) -> None:
    with pytest.raises(BadInput) as error:
        load("3").predict(inputs)
    assert str(error.value) == reason


# Vocabulary and specimen, by hand


def test_bos_and_pad_follow_the_tokens() -> None:
    assert (VOCABULARY.bos, VOCABULARY.pad) == (3, 4)
    assert VOCABULARY.tokenize([["b"], [3, "a", "b"]]).tolist() == [[3, 1, 4, 4], [3, 2, 0, 1]]
    assert VOCABULARY.lengths([["b"], [3, "a", "b"]]) == [1, 3]
    assert VOCABULARY.summary() == ["a", "b", 3]


def test_true_is_not_a_number_here() -> None:
    with pytest.raises(BadInput, match="token True is not in"):
        FiniteVocabulary((0, 1), None, 2).tokenize([[True]])


def test_decode_leaves_bos_out_and_picks_the_largest() -> None:
    logits = torch.tensor([[[9.0, 0, 0], [0, 2, 1], [0, 1, 2], [1, 0, 0]]])
    assert VOCABULARY.decode(logits) == [[None, ("x", 1), False]]
    numbers = FiniteVocabulary(("a",), None, 4).decode(torch.tensor([[[5.0], [0.25], [-1.5]]]))
    assert numbers == [[0.25, -1.5]]


def test_sampling_is_settled_by_the_seed() -> None:
    specimen = load("19")
    first, again, other = (specimen.sample(300, seed) for seed in (5, 5, 6))
    assert first == again != other
    assert {len(tokens) for tokens in first} == set(range(specimen.vocabulary.min_len, 15))
    assert {token for tokens in first for token in tokens} == {"a", "b", "c"}
    with pytest.raises(BadInput, match="cannot sample 0 inputs"):
        specimen.sample(0)


def test_an_answer_does_not_depend_on_the_rest_of_the_batch() -> None:
    specimen = load("2")
    inputs = specimen.sample(70, seed=3)
    assert specimen.predict(inputs) == [specimen.predict([tokens])[0] for tokens in inputs]


def small_model(outputs: int) -> Transformer:
    torch.manual_seed(0)
    config = Config(
        n_layers=1, n_heads=2, d_model=4, d_head=2, d_mlp=8, d_vocab=5, d_vocab_out=outputs, n_ctx=5, bos_token=3,
        pad_token=4, norm="none",
    )  # fmt: skip
    model = Transformer(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape))
    return model


def small_card(**changes: object) -> Card:
    fields = {
        "id": "mine", "name": "made_up", "kind": "trained", "vocab": ("a", 2, 0.5), "max_len": 4,
        "outputs": (True, None, ("x", (1, 2.5)), "é"), "components": ("L0H1",), "layers": 1, "heads": 2, "d_model": 4,
        "examples": as_examples([(["a", 2], [("x", (1, 2.5)), math.inf])]), "gate": {}, "made_by": "hand",
    }  # fmt: skip
    return Card(**fields | changes)  # type: ignore[arg-type]


def test_a_specimen_comes_back_as_it_was_written(tmp_path: Path) -> None:
    model, card = small_model(4), small_card()
    write_specimen(tmp_path / "deep" / "here", model, card)
    back = load_specimen(tmp_path / "deep" / "here")
    assert isinstance(back, Specimen)
    assert back.vocabulary == FiniteVocabulary(("a", 2, 0.5), (True, None, ("x", (1, 2.5)), "é"), 4)
    assert back.describe() == card.describe()
    assert list(back.examples) == [{"input": ["a", 2], "output": [["x", [1, 2.5]], "inf"]}]
    tokens = torch.tensor([[3, 0, 2, 4]])
    assert same_weights(back.model, model)
    assert same_logits(back.model(tokens), model(tokens))
    assert Card.read(tmp_path / "deep" / "here" / "specimen.json").describe() == card.describe()


def test_infinite_outputs_are_not_taken_for_none(tmp_path: Path) -> None:
    write_specimen(tmp_path, small_model(3), small_card(outputs=(math.inf, None, -math.inf)))
    assert load_specimen(tmp_path).vocabulary.outputs == ("inf", None, "-inf")  # type: ignore[attr-defined]


# Trials


def test_a_trial_pairs_inputs_of_independent_lengths() -> None:
    specimen = load("7")
    material = trial(specimen, 40, seed=2)
    pad = specimen.model.config.pad_token
    lengths = [(batch.tokens != pad).sum(1) - 1 for batch in (material.batch, material.counterfactual)]
    assert material.batch.tokens.shape == material.counterfactual.tokens.shape
    assert not torch.equal(*lengths)
    assert material.where is not None
    assert torch.equal(material.where, material.counterfactual.tokens != pad)
    assert material.prompts is None
    again = trial(specimen, 40, seed=2)
    assert torch.equal(again.batch.tokens, material.batch.tokens)
    assert torch.equal(again.counterfactual.tokens, material.counterfactual.tokens)
    assert not torch.equal(trial(specimen, 40, seed=3).batch.tokens, material.batch.tokens)
    with pytest.raises(BadInput, match="0 prompts is not possible; request 1 to"):
        trial(specimen, 0)


@pytest.mark.parametrize("id", ["3", "8", "13", "18", "58", "103"])
@pytest.mark.parametrize("kind", ["zero", "mean", "resample"])
def test_only_the_circuit_matters_in_a_sweep(id: str, kind: str) -> None:
    """Outside the circuit nothing changes an output; inside, a value from another input or zero does."""
    specimen = load(id)
    effects = sweep(specimen, kind=kind, n=32, seed=11)
    effect = dict(zip([str(part) for (part,) in effects.sets], effects.matrix.mean(0).tolist(), strict=True))
    assert effects.baseline.tolist() == [1.0] * 32
    circuit = {str(component) for component in specimen.components}
    assert circuit < set(effect)
    assert all(abs(value) <= 0.02 for name, value in effect.items() if name not in circuit)
    assert all(value > 0.02 for name, value in effect.items() if name in circuit)
