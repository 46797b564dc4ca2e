"""A hand-written transformer with redundant heads: ablating single heads does not reveal what a pair of them does.

The task: output the previous letter, and `.` where there is none. The residual stream has subspaces for the token, the
position, the copied letter and the output; the seed assigns each head one of three jobs at random:

- `copies` heads (two) all copy the previous letter to the same subspace. The last MLP writes a letter to the output
  when at least `quorum` (one) of them copied it, and never more than a fixed amount: its ramp lies between quorum - 0.7
  and quorum - 0.2. So with two copies and a quorum of one, one copy is enough and two count as one.
- Ten specialists. Position p adds a wrong letter to the output, and one head for each p removes it again. A sweep of
  single heads finds them.
- All others write noise too small to change an output.

The model survives ablation of either copy (zero, mean, or patching from a prompt with nothing to copy), but not a wrong
letter beside a right one: resampling from another random prompt ends in a tie. Three copies with a quorum of two
outvote the wrong one.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Generator, Tensor

from vesalius.circuits.specimens import SPECIMEN_FILE, Card, as_examples, load_specimen, write_specimen
from vesalius.components import Component, all_components
from vesalius.errors import BadInput
from vesalius.model.config import Config
from vesalius.model.specimen import Specimen
from vesalius.model.transformer import Transformer

LETTERS = "abcdefg"
NOTHING = "."
VOCABULARY = (*LETTERS, NOTHING)
SHORTEST, LONGEST = 3, 10
EXAMPLES: tuple[list[str], ...] = (list("abc"), list("gg.a"), list("dcba.ef"), list("a.b.c.d."), list("gfedcbagfe"))

SHARP = 80.0  # attention score of the position a head looks at, before the division by sqrt(d_head)
PUSH = 1.0  # what a position adds to a wrong letter; a correctly copied letter has 0.5
WRITTEN, UNSURE = 0.5, 0.25
NOISE = 0.002
CONTRAST = 10.0

TOKEN = slice(0, len(VOCABULARY))
POSITION = slice(TOKEN.stop, TOKEN.stop + LONGEST + 1)
COPIED = slice(POSITION.stop, POSITION.stop + len(LETTERS))
OUTPUT = slice(COPIED.stop, COPIED.stop + len(VOCABULARY))


@dataclass(frozen=True)
class RedundantModel:
    """The model, and which heads are copies and specialists."""

    model: Transformer
    copies: tuple[Component, ...]
    specialists: tuple[Component, ...]
    seed: int
    quorum: int

    def write(self, directory: Path) -> Path:
        """Write a specimen directory, which does not name the copies and specialists."""
        config = self.model.config
        card = Card(
            id=f"redundancy-{self.seed}",
            name=f"previous_letter_{len(self.copies)}_{self.quorum}_{self.seed}",
            kind="trained",
            vocab=VOCABULARY,
            max_len=LONGEST,
            min_len=SHORTEST,
            outputs=VOCABULARY,
            components=tuple(map(str, all_components(config))),
            layers=config.n_layers,
            heads=config.n_heads,
            d_model=config.d_model,
            examples=as_examples([(letters, previous_letter(letters)) for letters in EXAMPLES]),
            gate={},
            made_by=f"vesalius_mechrl.sets.planted.plant(seed={self.seed})",
        )
        write_specimen(Path(directory), self.model, card)
        return Path(directory)

    def specimen(self, directory: Path) -> Specimen:
        """Write it and load it again as a specimen."""
        return load_specimen((self.write(directory) / SPECIMEN_FILE).parent)


def previous_letter(letters: list[str]) -> list[str]:
    """The correct output of the task."""
    return [NOTHING, *letters[:-1]]


def plant(
    *, seed: int = 0, n_layers: int = 4, n_heads: int = 8, copies: int = 2, quorum: int = 1, specialists: int = LONGEST
) -> RedundantModel:
    """Build the model; the seed assigns the heads their jobs."""
    if not 1 <= quorum <= copies or not 0 <= specialists <= LONGEST or copies + specialists > n_layers * n_heads:
        raise BadInput(
            f"{copies} copies with a quorum of {quorum} and {specialists} specialists do not fit: the quorum must be 1 "
            f"to the number of copies, specialists at most {LONGEST}, and all need a head among {n_layers} x {n_heads}"
        )
    generator = torch.Generator().manual_seed(seed)
    model = Transformer(_config(n_layers, n_heads))
    heads = all_components(model.config, mlps=False)
    order = [heads[i] for i in torch.randperm(len(heads), generator=generator).tolist()]
    copy_heads, specialist_heads = order[:copies], order[copies : copies + specialists]
    wrong_letters = torch.randint(len(LETTERS), (LONGEST + 1,), generator=generator).tolist()
    with torch.no_grad():
        _write_embeddings(model, wrong_letters, specialists)
        _write_readout(model, quorum)
        for head in copy_heads:
            _write_copy(model, head)
        for position, head in enumerate(specialist_heads, 1):
            _write_specialist(model, head, position, wrong_letters[position])
        for head in order[copies + specialists :]:
            _write_noise(model, head, generator)
    return RedundantModel(model, tuple(sorted(copy_heads)), tuple(sorted(specialist_heads)), seed, quorum)


def _config(n_layers: int, n_heads: int) -> Config:
    return Config(
        n_layers=n_layers,
        n_heads=n_heads,
        d_model=OUTPUT.stop,
        d_head=LONGEST + 1,
        d_mlp=2 * len(LETTERS),
        d_vocab=len(VOCABULARY) + 2,
        d_vocab_out=len(VOCABULARY),
        n_ctx=LONGEST + 1,
        activation="relu",
        bos_token=len(VOCABULARY),
        pad_token=len(VOCABULARY) + 1,
    )


def _write_embeddings(model: Transformer, wrong_letters: list[int], specialists: int) -> None:
    """One-hot tokens and positions, a wrong letter at some positions; outputs, `.` by default."""
    assert model.W_pos is not None
    model.W_E[TOKEN, TOKEN] = torch.eye(len(VOCABULARY))
    model.W_pos[:, POSITION] = torch.eye(LONGEST + 1)
    for position in range(1, specialists + 1):
        model.W_pos[position, OUTPUT.start + wrong_letters[position]] = PUSH
    model.unembed_weight[:, OUTPUT] = CONTRAST * torch.eye(len(VOCABULARY))
    model.b_U[-1] = CONTRAST * UNSURE


def _write_readout(model: Transformer, quorum: int) -> None:
    """The last MLP: from the copied letter to the output, flat below the quorum and above it."""
    mlp, n = model.blocks[-1].mlp, len(LETTERS)
    for first, (edge, sign) in enumerate(((quorum - 0.2 - WRITTEN, 1.0), (quorum - 0.2, -1.0))):
        units = slice(first * n, (first + 1) * n)
        mlp.W_in[COPIED, units] = torch.eye(n)
        mlp.b_in[units] = -edge
        mlp.W_out[units, OUTPUT.start : OUTPUT.start + n] = sign * torch.eye(n)


def _write_copy(model: Transformer, head: Component) -> None:
    query, key, value, output = _weights(model, head)
    query[POSITION] = SHARP * torch.eye(LONGEST + 1)
    key[POSITION] = torch.eye(LONGEST + 1).roll(1, 1)
    key[POSITION.stop - 1] = 0  # no position follows the last one
    value[: len(LETTERS), : len(LETTERS)] = torch.eye(len(LETTERS))
    output[: len(LETTERS), COPIED] = torch.eye(len(LETTERS))


def _write_specialist(model: Transformer, head: Component, position: int, letter: int) -> None:
    query, key, value, output = _weights(model, head)
    query[POSITION] = SHARP * torch.eye(LONGEST + 1)
    key[POSITION] = torch.eye(LONGEST + 1)
    value[POSITION.start + position, 0] = 1.0
    output[0, OUTPUT.start + letter] = -PUSH


def _write_noise(model: Transformer, head: Component, generator: Generator) -> None:
    query, key, value, output = _weights(model, head)
    inputs = slice(TOKEN.start, POSITION.stop)
    for weight in (query, key, value):
        weight[inputs] = torch.randn(POSITION.stop, weight.shape[1], generator=generator)
    width = OUTPUT.stop - COPIED.start
    output[:, COPIED.start :] = NOISE * torch.randn(output.shape[0], width, generator=generator)


def _weights(model: Transformer, head: Component) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Writable views of one head's matrices."""
    attention = model.blocks[head.layer].attn
    return attention.W_Q[head.head], attention.W_K[head.head], attention.W_V[head.head], attention.W_O[head.head]
