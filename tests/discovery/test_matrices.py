"""Effect matrices: values are the direct rewards, pools share no prompt, and a file belongs to one model."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.behaviours.word_tokenizer import word_tokenizer
from tests.closeness import same_tensors
from tests.explanations.induction_model import as_specimen, induction_model
from vesalius.behaviours import Corpus, control, factbook
from vesalius.behaviours.builtin import NAMES, OBJECTS, PLACES
from vesalius.behaviours.controls import Article
from vesalius.behaviours.trial import trial
from vesalius.circuits.specimens import benchmark_directory, load_specimen
from vesalius.errors import BadInput
from vesalius.intervene import Batch, Readout, Recordings, Values, run
from vesalius.intervene.plan import Plan
from vesalius.intervene.values import value_bias
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.model.states import fingerprint
from vesalius.model.transformer import Transformer
from vesalius_mechrl import matrices
from vesalius_mechrl.environment import Episodes
from vesalius_mechrl.matrices import ControlText, Matrix, behaviour_matrix, control_matrix, load_matrix
from vesalius_mechrl.tables import CONTROL_SEED_OFFSET, Tables

SIZE = word_tokenizer().size
POOLS = {"train": 6, "validation": 3, "test": 4}


def corpus() -> Corpus:
    """Nine articles of words the tokenizer knows."""
    words = [*NAMES, *PLACES, *OBJECTS]
    return Corpus("lists", tuple(Article(str(i), " ".join(words[i : i + 40])) for i in range(9)))


@pytest.fixture
def specimen() -> Specimen:
    return as_specimen(induction_model(SIZE))


def edited_mean(model: Transformer, batch: Batch, readout: Readout, values: Values, head: str) -> float:
    """The readout of a whole batch with one head replaced."""
    plan = Plan.grid(
        model.config,
        [tuple(c for c in model.components if str(c) == head)],
        choices=torch.zeros(len(batch), dtype=torch.long),
    )
    return float(run(Recordings(model, batch, readout), plan, values).mean())


@pytest.mark.slow
def test_averages_of_rows_are_the_reward_of_the_batch(specimen: Specimen, tmp_path: Path) -> None:
    """r = [m(M) - m(M without a)] - [CE(M without a) - CE(M)], both sides run directly."""
    task = behaviour_matrix(specimen, tmp_path / "task", pools=POOLS, block=4)
    text = control_matrix(specimen, ControlText(corpus(), 8), tmp_path / "text", pools=POOLS, block=4)
    tables = Tables.from_matrices({"induction": task}, text, split="train", rows=6)
    assert tables.unit == "logits - 1 * nats"
    vocabulary = specimen.vocabulary
    assert isinstance(vocabulary, TextVocabulary)
    prompts = trial(specimen, 6, seed=0, split="train")
    rows = control(
        corpus(), vocabulary.tokenizer, n=6, length=8, seed=0, split="train", n_ctx=specimen.model.config.n_ctx
    )
    values = value_bias(specimen.model)
    game = Episodes(tables, 1, paper=True)
    game.begin(0, 3, "induction")
    for action, head in enumerate(tables.heads):
        metric = float(Recordings(specimen.model, prompts.batch, prompts.readout).scores().mean())
        loss = -float(Recordings(specimen.model, rows.batch, rows.readout).scores().mean())
        drop = metric - edited_mean(specimen.model, prompts.batch, prompts.readout, values, head)
        damage = -edited_mean(specimen.model, rows.batch, rows.readout, values, head) - loss
        assert game.step(np.array([[action]]))[0] == pytest.approx(drop - damage, abs=1e-4)
    assert CONTROL_SEED_OFFSET == 13103


def test_a_finished_matrix_is_loaded_and_another_models_is_refused(specimen: Specimen, tmp_path: Path) -> None:
    matrix = behaviour_matrix(specimen, tmp_path, pools=POOLS)
    loaded = load_matrix(tmp_path, model=specimen.model)
    assert loaded.identity == matrix.identity
    assert {split: tuple(loaded.pool(split).shape) for split in POOLS} == {
        split: (n, len(loaded.heads)) for split, n in POOLS.items()
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["matrix.json", "matrix.safetensors"]
    other = induction_model(SIZE)
    with torch.no_grad():
        other.W_E[0, 0] += 1e-3
    assert fingerprint(other) != fingerprint(specimen.model)
    with pytest.raises(BadInput, match=r"effects of model .*measure them again"):
        load_matrix(tmp_path, model=other)
    with pytest.raises(BadInput, match="another effect matrix"):
        behaviour_matrix(specimen, tmp_path, pools=POOLS, seed=1)


def test_an_interrupted_measurement_resumes(
    specimen: Specimen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = behaviour_matrix(specimen, tmp_path / "whole", pools=POOLS, block=2)
    measure, calls = matrices.effects, []

    def interrupt_at(limit: int) -> Callable[..., object]:
        def interrupted(*args: object, **options: object) -> object:
            if len(calls) == limit:
                raise KeyboardInterrupt
            calls.append(1)
            return measure(*args, **options)  # type: ignore[arg-type]

        return interrupted

    monkeypatch.setattr(matrices, "effects", interrupt_at(4))
    with pytest.raises(KeyboardInterrupt):
        behaviour_matrix(specimen, tmp_path / "part", pools=POOLS, block=2)
    assert not (tmp_path / "part" / "matrix.json").exists()
    with pytest.raises(BadInput, match="blocks of another effect matrix"):
        behaviour_matrix(specimen, tmp_path / "part", pools=POOLS, block=2, seed=9)
    monkeypatch.setattr(matrices, "effects", interrupt_at(7))
    resumed = behaviour_matrix(specimen, tmp_path / "part", pools=POOLS, block=2)
    assert len(calls) == 7, "3 + 2 + 2 blocks in all, none measured twice"
    assert all(same_tensors(resumed.pool(split), whole.pool(split)) for split in POOLS)


def test_numbers_that_are_not_finite_are_refused(specimen: Specimen, tmp_path: Path) -> None:
    with torch.no_grad():
        specimen.model.W_E.fill_(float("nan"))
    with pytest.raises(BadInput, match="not finite"):
        behaviour_matrix(specimen, tmp_path, pools={"train": 2})
    assert not (tmp_path / "matrix.json").exists()


def test_pools_of_a_finite_specimen_share_no_input(tmp_path: Path) -> None:
    directory = benchmark_directory("3")
    assert directory is not None
    specimen = load_specimen(directory)
    pools = matrices._distinct_inputs(specimen, POOLS, 0)
    inputs = [tuple(tokens) for pool in pools.values() for tokens in pool]
    assert len(inputs) == len(set(inputs)) == 13
    matrix: Matrix = behaviour_matrix(specimen, tmp_path, pools=POOLS, kind="zero")
    assert matrix.unit == "share of outputs"
    assert bool((matrix.pool("test") >= 0).all()), "clean outputs agree with themselves, edited ones at most"
    constant = replace(specimen, draw=lambda n, seed: [[1]] * n)
    with pytest.raises(BadInput, match=r"need 13 distinct inputs and a sample has 1; request fewer rows"):
        behaviour_matrix(constant, tmp_path / "constant", pools=POOLS)


def test_bad_requests_are_one_line(specimen: Specimen, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="kind 'nothing'"):
        behaviour_matrix(specimen, tmp_path, kind="nothing")
    with pytest.raises(BadInput, match="split 'exam'"):
        behaviour_matrix(specimen, tmp_path, pools={"exam": 2})
    with pytest.raises(BadInput, match="0 heads"):
        behaviour_matrix(specimen, tmp_path, pools={"train": 2}, heads=["L0_MLP"])
    one = behaviour_matrix(specimen, tmp_path / "a", pools={"train": 2}, heads=["L0H0"])
    two = behaviour_matrix(specimen, tmp_path / "b", pools={"train": 2}, heads=["L1H0"])
    with pytest.raises(BadInput, match="different models, heads or kinds"):
        Tables.from_matrices({"a": one, "b": two}, None, split="train", rows=2)
    with pytest.raises(BadInput, match="no test rows"):
        one.pool("test")


@pytest.mark.smollm
def test_a_small_matrix_of_the_embedded_model(smollm: object, tmp_path: Path) -> None:
    """L16H0 finds the previous token: without it induction loses logits, and ordinary text hardly anything."""
    from vesalius.behaviours.natural import load_natural

    specimen = load_natural("smollm2-135m", behaviour="induction")
    heads = ["L16H0", "L18H6", "L29H0"]
    task = behaviour_matrix(specimen, tmp_path / "task", pools={"train": 4}, heads=heads)
    text = control_matrix(specimen, ControlText(factbook(), 16), tmp_path / "text", pools={"train": 4}, heads=heads)
    rewards = Tables.from_matrices({"induction": task}, text, split="train", rows=4).mean("induction")
    assert rewards.argmax() == 0
    assert rewards[0] > 3
