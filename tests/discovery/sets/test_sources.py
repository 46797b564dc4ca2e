"""Tables of pairs on disk: what they hold, and what they refuse."""

from pathlib import Path

import pytest

from tests.behaviours.word_tokenizer import word_tokenizer
from tests.discovery.test_matrices import corpus
from tests.explanations.induction_model import as_specimen, induction_model
from vesalius.behaviours.trial import trial
from vesalius.errors import BadInput
from vesalius.model.specimen import Specimen
from vesalius_mechrl.matrices import ControlText, behaviour_matrix
from vesalius_mechrl.sets.sources import LiveSource, PairEffects, SetQueries, head_pool, pair_effects

POOLS = {"validation": 4, "test": 3}
OPTIONS = {"pools": POOLS, "kind": "zero", "block": 2}


@pytest.fixture
def specimen() -> Specimen:
    return as_specimen(induction_model(word_tokenizer().size))


def test_the_table_is_what_running_the_model_gives(specimen: Specimen, tmp_path: Path) -> None:
    table = pair_effects(specimen, tmp_path, **OPTIONS).source("validation")
    live = LiveSource(specimen, trial(specimen, 4, split="validation"), head_pool(specimen, None), kind="zero")
    assert table.heads == live.heads
    assert table.clean == pytest.approx(live.clean, abs=1e-4)
    sets = [frozenset({0}), frozenset({1, 3}), frozenset({0, 2})]
    assert table.effects(sets) == pytest.approx(live.effects(sets), abs=1e-4)


def test_ordinary_text_is_a_control(specimen: Specimen, tmp_path: Path) -> None:
    task = pair_effects(specimen, tmp_path / "task", **OPTIONS).source("test")
    text = pair_effects(specimen, tmp_path / "text", text=ControlText(corpus(), 8), **OPTIONS).source("test")
    queries = SetQueries(task, control=text, weight=0.5)
    pair = frozenset({0, 1})
    expected = task.effects([pair]).mean() - 0.5 * text.effects([pair]).mean()
    assert queries.one(pair) == pytest.approx(expected)
    assert (task.unit, text.unit) == ("logits", "nats")


def test_an_interrupted_table_resumes(specimen: Specimen, tmp_path: Path) -> None:
    class Interrupted(Exception):
        pass

    def stop(step: str, done: int, total: int) -> None:
        if (tmp_path / "pairs" / "blocks.json").exists() and done >= 2:
            raise Interrupted

    with pytest.raises(Interrupted):
        pair_effects(specimen, tmp_path, progress=stop, **OPTIONS)
    block_file = tmp_path / "pairs" / "block-validation-000000.safetensors"
    before = block_file.stat().st_mtime_ns
    times: list[int] = []

    def record(step: str, done: int, total: int) -> None:
        times.append(block_file.stat().st_mtime_ns if block_file.exists() else 0)

    pair_effects(specimen, tmp_path, progress=record, **OPTIONS)
    assert set(times) == {before}


def test_tables_that_do_not_belong_together(specimen: Specimen, tmp_path: Path) -> None:
    tables = pair_effects(specimen, tmp_path / "one", **OPTIONS)
    other = pair_effects(specimen, tmp_path / "other", **{**OPTIONS, "pools": {"test": 2}})
    for single, pairs in ((tables.single, tables.single), (tables.pairs, tables.single), (tables.single, other.pairs)):
        with pytest.raises(BadInput, match="measure both with the same options"):
            PairEffects(single, pairs)
    with pytest.raises(BadInput, match="sets of 3 of 2 heads"):
        behaviour_matrix(specimen, tmp_path / "three", heads=["L0H0", "L0H1"], size=3, **OPTIONS)
    with pytest.raises(BadInput, match="run the model"):
        tables.source("test").effects([frozenset({0, 1, 2})])
