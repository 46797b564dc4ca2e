"""A base that trains in seconds: a tiny random transformer whose tokens are bytes and a few answer words."""

import json
import random
from pathlib import Path

from tests.models import random_model, small_config
from vesalius.model.states import save_model

ANSWERS = ("yes", "no", "A", "B", "C")


def write_base(directory: Path, *, seed: int = 0) -> Path:
    """A model directory with a tokenizer in which " yes" and the other answers are one token each."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {symbol: place for place, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = []
    for word in ANSWERS:
        made = "Ġ"
        for letter in word:
            merges.append((made, letter))
            made += letter
            vocabulary.setdefault(made, len(vocabulary))
    backend = Tokenizer(models.BPE(vocabulary, list(dict.fromkeys(merges))))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    size = len(vocabulary)
    model = random_model(small_config(d_vocab=size, d_vocab_out=size, n_ctx=160), seed)
    save_model(model, directory)
    backend.save(str(directory / "tokenizer.json"))
    return directory


def write_data(directory: Path, *, train: int = 48, held: int = 12, seed: int = 0) -> Path:
    """Tests that a tiny model can learn in a few steps: the right output is always x."""
    dice, number = random.Random(seed), 0
    directory.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", train), ("validation", held), ("test", held)):
        lines = []
        for _ in range(count):
            letters = dice.sample("xyz", 3)
            answer = letters.index("x")
            number += 1
            row = {
                "category": "strings",
                "function": f"f{number}",
                "group": [f"program {number}"],
                "description": "x",
                "examples": [{"input": "a", "output": letter} for letter in letters],
                "answer": answer + 1,
            }
            lines.append(json.dumps(row) + "\n")
        (directory / f"{split}.jsonl").write_text("".join(lines))
    return directory
