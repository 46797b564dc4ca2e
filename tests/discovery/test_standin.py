"""The stand-in for GPT-2 small: its rows, its training, and its files read by our own loader."""

import random
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from vesalius.behaviours import behaviour
from vesalius.errors import BadInput
from vesalius.files import read_json
from vesalius.model.sources import read_model
from vesalius.model.states import read_tensors
from vesalius_mechrl.standin import rows, training
from vesalius_mechrl.standin.network import Gpt2
from vesalius_mechrl.standin.packed import PACKAGED
from vesalius_mechrl.standin.rows import docstring_text, draw_random, ioi_text
from vesalius_mechrl.standin.training import CARD, CHECKPOINT, Recipe, train

TINY = Recipe(layers=1, heads=2, width=16, vocabulary=3000, length=72, rows=2, steps=4)


@pytest.fixture(scope="module")
def small_text() -> Iterator[dict[bool, list[str]]]:
    """A few entries and few rows: what is tested does not depend on how many there are."""
    patch = pytest.MonkeyPatch()
    whole = {test: rows.entries(test=test) for test in (False, True)}
    patch.setattr(rows, "entries", lambda *, test: [text[:2000] for text in whole[test][:6]])
    patch.setattr(rows, "TOKENIZER_ROWS", 200)
    patch.setattr(training, "WRITTEN_ROWS", 40)
    patch.setattr(training, "NEW_ROWS", 20)
    yield whole
    patch.undo()


@pytest.fixture(scope="module")
def trained(small_text: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("standin") / "whole"
    train(directory, TINY, every=2)
    return directory


def test_sentences_say_who_receives_and_docstrings_keep_the_order() -> None:
    rng = random.Random(0)
    for _ in range(40):
        names = [word for word in re.findall("[A-Z][a-z]+", ioi_text(rng)) if word in rows.NAMES]
        assert len(names) == 4
        assert names.count(names[-1]) == 2, "the receiver is named once before"
        assert names.count(names[2]) == 2, "the giver twice"
        text = docstring_text(rng)
        signature = re.search(r"\(\w+, (.*)\)", text)
        assert signature is not None
        assert re.findall(r"[:@]param (\w+):", text) == signature[1].split(", ")


def test_only_what_a_repetition_foretells_is_learned() -> None:
    """A slow second reading: where a token is learned, the pair of it and the one before stood earlier in the row."""
    drawn = draw_random(10, 3999, 200, 40, torch.Generator().manual_seed(0))
    published = 0
    for tokens, weights in zip(drawn.tokens.tolist(), drawn.weights.tolist(), strict=True):
        assert tokens[0] == 3999
        assert min(tokens[1:]) >= 10
        learned = [i for i, weight in enumerate(weights) if weight]
        assert learned
        for i in learned:
            before = [j for j in range(2, i) if tokens[j - 1 : j + 1] == tokens[i - 1 : i + 1]]
            assert before, (tokens, i)
        published += len(learned) == 1 and tokens[1] == tokens[learned[0] - 1]
    assert published > 20, "[A B ... A B] from the first token on, as in the published batches"


def test_no_paragraph_of_a_test_entry_is_trained_on(small_text: dict[bool, list[str]]) -> None:
    trained, tested = ({line for text in small_text[test] for line in text.split("\n")} for test in (False, True))
    assert len(trained) > 1000
    assert not trained & tested


def test_its_files_are_gpt2s_and_both_readings_agree(trained: Path) -> None:
    assert {path.name for path in trained.iterdir()} == {
        *("config.json", "model.safetensors", "tokenizer.json", "vocab.json", "merges.txt", "card.json")
    }
    loaded = read_model(str(trained))
    assert loaded.family == "gpt2"
    assert loaded.tokenizer is not None
    assert loaded.tokenizer.bos == loaded.tokenizer.size - 1, "the beginning is the last token, as in GPT-2"
    weights = read_tensors(trained / "model.safetensors")
    network = Gpt2(loaded.tokenizer.size, layers=1, heads=2, width=16, context=128).eval()
    network.load_state_dict({name.removeprefix("transformer."): value for name, value in weights.items()})
    tokens = torch.randint(0, loaded.tokenizer.size, (3, 20), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(network(tokens), loaded.model(tokens), rtol=1e-4, atol=1e-5)
    for name in ("mechrl-induction", "mechrl-ioi", "mechrl-docstring"):
        behaviour(name).sample(loaded.tokenizer, 8, seed=0, n_ctx=128, d_vocab=loaded.tokenizer.size)


def test_a_card_says_how_many_steps_were_taken(small_text: object, trained: Path, tmp_path: Path) -> None:
    """The recipe says how many there are to be; a training that was ended before them is not one of them all."""
    card = train(tmp_path, TINY, every=2, until=2)
    assert (card["recipe"]["steps"], card["steps_taken"], card["curve"][-1]["step"]) == (4, 2, 2)
    assert train(trained, TINY)["steps_taken"] == 4
    ended, whole = (read_tensors(place / "model.safetensors") for place in (tmp_path, trained))
    assert any(not torch.equal(ended[name], whole[name]) for name in whole)
    packaged = read_json(PACKAGED / CARD)
    assert packaged["steps_taken"] == packaged["curve"][-1]["step"] < packaged["recipe"]["steps"]
    for until in (0, 5):
        with pytest.raises(BadInput, match=f"`until` {until}: the recipe has 1 to 4 steps"):
            train(tmp_path / "new", TINY, until=until)


class Completing:
    """Says the token after the first A at every position, in a share of its rows; the rest say the last token."""

    wte = SimpleNamespace(weight=torch.zeros(60, 4))
    context = 128

    def __init__(self, share: float) -> None:
        self.share = share

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        said = tokens[:, 2].clone()
        said[round(self.share * len(said)) :] = len(self.wte.weight) - 1
        return torch.nn.functional.one_hot(said, len(self.wte.weight))[:, None].expand(-1, tokens.shape[1], -1).float()


@pytest.mark.parametrize(("share", "shown"), [(1.0, True), (0.5, True), (0.496, False)])
def test_a_card_says_whether_induction_is_shown(share: float, shown: bool) -> None:
    card = training.induction_shown(Completing(share), seed=3)  # type: ignore[arg-type]
    assert (card["top1"], card["rows"], card["shown"]) == (pytest.approx(share), 1000, shown)
    assert card["low"] <= share <= card["high"]


def test_a_killed_training_ends_in_the_same_weights(
    small_text: object, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(label: str, done: int, total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # after step 4 is reported and before it is kept
        train(tmp_path, TINY, every=2, progress=kill)
    assert (tmp_path / CHECKPOINT).exists()
    assert not (tmp_path / "model.safetensors").exists()
    card = train(tmp_path, TINY, every=2)
    whole, resumed = (read_tensors(place / "model.safetensors") for place in (trained, tmp_path))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert card == train(trained, TINY), "and a finished one is only read"
    with pytest.raises(BadInput, match="another recipe"):
        train(trained, Recipe())
