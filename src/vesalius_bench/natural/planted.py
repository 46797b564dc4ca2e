"""Models that read text and whose weights are written by hand, as cases whose algorithm is known.

Nothing in a written model says what it computes: directories hold weights and a tokenizer, and are named by number.
What was planted stands in `key`, which grading alone opens; here it is only built.

- Two layers of attention that continue a repeated sequence: a head copies the token before into each position, and
  heads of the next layer look for it. With a norm before the logits two of these are enough one by one.
- Two layers that work out A - B + C, one pair of numbers after the other: the pair decides at which position the
  number in between stands. Every block of the stream holds one number as a one-hot vector; one neuron for each pair of
  numbers writes the result.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from vesalius.explanations.atlas.text import PASSAGES
from vesalius.model.config import Config
from vesalius.model.states import WEIGHTS_FILE, save_model
from vesalius.model.tokenizer import Tokenizer
from vesalius.model.transformer import Transformer

BOS = 0
ADDITION = "addition:signs=-+,high=4,answers=0..8,shots=0"
_WORDS = r"\d| ?[A-Za-z]+|[^\w\s]|\s"
#: Of the models that repeat: the width of a block, heads of a layer, context, and how sharply heads attend.
WIDTH, HEADS, CONTEXT, SHARP, SHARP_NORMED, NOISE = 64, 4, 48, 60.0, 3.5, 0.02
TOKEN, POSITION, PREVIOUS, ANSWER = (slice(i * WIDTH, (i + 1) * WIDTH) for i in range(4))
#: Of the models that add: positions of A, B, C and the last token after BOS, and the operands.
A, B, C, END, LENGTH, OPERANDS = 1, 3, 5, 6, 7, range(5)


@dataclass(frozen=True)
class Planted:
    """A model with the behaviour that it was written for."""

    id: str
    behaviour: str
    build: Callable[[], Transformer]

    def write(self, directory: Path) -> Path:
        """Write the model into a directory, where it is not there yet; it is then a natural model like any other."""
        place = directory / self.id
        if not (place / WEIGHTS_FILE).is_file():
            place.mkdir(parents=True, exist_ok=True)
            planted_tokenizer().save(place)
            save_model(self.build(), place)
        return place


def planted_models() -> list[Planted]:
    """Every planted model."""
    return [
        Planted("planted-1", "induction", lambda: repeating_model({1: 1.0})),
        Planted("planted-2", "induction", lambda: repeating_model({0: 4.0, 2: 4.0}, norm="rms")),
        Planted("planted-3", ADDITION, lambda: adding_model(first=A, then=B, last=C, signs=(-1, 1))),
        Planted("planted-4", ADDITION, lambda: adding_model(first=A, then=C, last=B, signs=(1, -1))),
    ]


@cache
def planted_tokenizer() -> Tokenizer:
    """Words of the atlas's passages with their leading space, digits and signs, each one token."""
    from tokenizers import Regex, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Backend

    texts = [*PASSAGES, "0123456789+-=\n"]
    pieces = [piece for text in texts for start in ("", " ") for piece in re.findall(_WORDS, start + text)]
    vocabulary = {"<bos>": BOS, "<unk>": BOS + 1}
    for piece in pieces:
        vocabulary.setdefault(piece, len(vocabulary))
    backend = Backend(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.add_special_tokens(["<bos>", "<unk>"])
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(_WORDS), "isolated")
    backend.decoder = decoders.Fuse()
    return Tokenizer(backend, bos=BOS)


def _config(**sizes: object) -> Config:
    size = planted_tokenizer().size
    return Config.model_validate({"n_layers": 2, "d_vocab": size, "d_vocab_out": size, "bos_token": BOS, **sizes})


@torch.no_grad()
def repeating_model(strengths: dict[int, float], *, norm: str = "none") -> Transformer:
    """One that continues a repeated sequence; `strengths` say how strongly which heads of the second layer write."""
    config = _config(n_heads=HEADS, d_model=4 * WIDTH, d_head=WIDTH, d_mlp=1, n_ctx=CONTEXT, norm=norm)
    model, generator = Transformer(config), torch.Generator().manual_seed(0)
    for block in model.blocks:
        for weight in (block.attn.qkv, block.attn.output):
            weight.copy_(NOISE * torch.randn(weight.shape, generator=generator))
    words = torch.randn(config.d_vocab, WIDTH, generator=generator)
    words = words / words.norm(dim=1, keepdim=True)
    assert model.W_pos is not None
    model.W_E[:, TOKEN] = words
    model.W_pos[:, POSITION] = torch.eye(CONTEXT, WIDTH)
    sharp = SHARP if norm == "none" else SHARP_NORMED
    _repeats(model, 0, 0, goal=PREVIOUS, strength=1.0)
    model.blocks[0].attn.W_Q[0][POSITION] = sharp * torch.diag(torch.ones(WIDTH - 1), -1)
    model.blocks[0].attn.W_K[0][POSITION] = torch.eye(WIDTH)
    for head, strength in strengths.items():
        _repeats(model, 1, head, goal=ANSWER, strength=strength)
        model.blocks[1].attn.W_Q[head][TOKEN] = sharp * torch.eye(WIDTH)
        model.blocks[1].attn.W_K[head][PREVIOUS] = torch.eye(WIDTH)
    model.unembed_weight[:, ANSWER] = 10 * words
    return model.eval().requires_grad_(False)


def _repeats(model: Transformer, layer: int, head: int, *, goal: slice, strength: float) -> None:
    """Clear a head and let it copy the token block into another."""
    attention = model.blocks[layer].attn
    for weight in (attention.W_Q, attention.W_K, attention.W_V, attention.W_O):
        weight[head].zero_()
    attention.W_V[head][TOKEN] = torch.eye(WIDTH)
    attention.W_O[head][:, goal] = strength * torch.eye(WIDTH)


@torch.no_grad()
def adding_model(*, first: int, then: int, last: int, signs: tuple[int, int]) -> Transformer:
    """One that works out A - B + C by way of the operand at `first`, with `signs[0]` that at `then`, whose position
    holds what lies between; and with `signs[1]` that at `last`.
    """
    most = OPERANDS[-1]
    between = range(-most, most + 1) if signs[0] < 0 else range(2 * most + 1)
    widths = {"token": 5, "moved": 5, "between": len(between), "carried": len(between), "other": 5, "answer": 9}
    blocks, start = {}, 0
    for name, width in {**widths, "position": LENGTH}.items():
        blocks[name] = slice(start, start + width)
        start += width
    pairs = len(between) * len(OPERANDS)
    model = Transformer(
        _config(n_heads=2, d_model=start, d_head=16, d_mlp=pairs, n_ctx=LENGTH, norm="none", activation="relu")
    )
    for parameter in model.parameters():
        parameter.zero_()
    assert model.W_pos is not None
    digit = planted_tokenizer().token
    for number in OPERANDS:
        model.W_E[digit(str(number)), blocks["token"].start + number] = 1.0
    for number in range(widths["answer"]):
        model.unembed_weight[digit(str(number)), blocks["answer"].start + number] = 10.0
    model.W_pos[:, blocks["position"]] = torch.eye(LENGTH)
    adder = _Adder(model, blocks)
    adder.copy(0, 0, at=then, reads=first, source="token", target="moved")
    adder.add(0, at=then, one=("moved", OPERANDS), other="token", out=("between", between), sign=signs[0])
    adder.copy(1, 0, at=END, reads=then, source="between", target="carried")
    adder.copy(1, 1, at=END, reads=last, source="token", target="other")
    adder.add(1, at=END, one=("carried", between), other="other", out=("answer", range(9)), sign=signs[1])
    return model.eval().requires_grad_(False)


@dataclass(frozen=True)
class _Adder:
    """Writes the parts of a model that adds."""

    model: Transformer
    blocks: dict[str, slice]

    def copy(self, layer: int, head: int, *, at: int, reads: int, source: str, target: str) -> None:
        """A head that copies one block from one position to another."""
        attention, position = self.model.blocks[layer].attn, self.blocks["position"].start
        size = self.blocks[source].stop - self.blocks[source].start
        attention.W_Q[head][position + at, 0] = 1.0
        attention.W_K[head][position + reads, 0] = 400.0
        attention.W_V[head][self.blocks[source], :size] = torch.eye(size)
        attention.W_O[head][:size, self.blocks[target]] = torch.eye(size)

    def add(
        self, layer: int, *, at: int, one: tuple[str, range], other: str, out: tuple[str, range], sign: int
    ) -> None:
        """A neuron for each pair of numbers, at one position."""
        mlp, neuron = self.model.blocks[layer].mlp, 0
        for i, number in enumerate(one[1]):
            for operand in OPERANDS:
                if (result := number + sign * operand) not in out[1]:
                    continue
                mlp.W_in[self.blocks[one[0]].start + i, neuron] = 1.0
                mlp.W_in[self.blocks[other].start + operand, neuron] = 1.0
                mlp.W_in[self.blocks["position"].start + at, neuron] = 1.0
                mlp.b_in[neuron] = -2.5
                mlp.W_out[neuron, self.blocks[out[0]].start + out[1].index(result)] = 2.0
                neuron += 1
