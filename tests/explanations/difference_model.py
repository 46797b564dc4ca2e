"""A two-layer transformer whose weights are set by hand to compute A - B + C by way of A - B.

Another computes the same answers without any A - B: its second layer reads A, B and C apart and looks them up.

Operands are 0 to 4. Every block of the residual stream holds one number as a one-hot vector.

    L0H0     copies A's token to B's position
    L0_MLP   one neuron for each A and B: writes A - B at B's position
    L1H0     copies A - B to the last position
    L1H1     copies C's token to the last position
    L1_MLP   one neuron for each A - B and C: writes the answer
"""

from itertools import product

import torch

from tests.behaviours.word_tokenizer import BOS, word_tokenizer
from vesalius.model import Config, Transformer

LOW, HIGH, WIDTH = 0, 4, 7
OPERANDS, DIFFERENCES, ANSWERS = range(5), range(-4, 5), range(9)
#: Where A, B, C and the last token stand in `A-B+C=`, after BOS.
A, B, C, END = 1, 3, 5, 6
BEHAVIOUR = "addition:signs=-+,high=4,answers=0..8,shots=0"


def _blocks(**widths: int) -> dict[str, slice]:
    blocks, start = {}, 0
    for name, width in widths.items():
        blocks[name] = slice(start, start + width)
        start += width
    return blocks


BLOCKS = _blocks(token=5, a=5, difference=9, moved=9, c=5, answer=9, position=WIDTH)
D_MODEL = max(block.stop for block in BLOCKS.values())


def digit(number: int) -> int:
    """The token of a digit."""
    return word_tokenizer().token(str(number))


def difference_model() -> Transformer:
    """The model; it reads the word tokenizer's tokens."""
    d_vocab = word_tokenizer().size
    config = Config.model_validate(
        {
            "n_layers": 2,
            "n_heads": 2,
            "d_model": D_MODEL,
            "d_head": 16,
            "d_mlp": len(DIFFERENCES) * len(OPERANDS),
            "d_vocab": d_vocab,
            "d_vocab_out": d_vocab,
            "n_ctx": WIDTH,
            "norm": "none",
            "activation": "relu",
            "bos_token": BOS,
        }
    )
    model = Transformer(config)
    assert model.W_pos is not None
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        for number in OPERANDS:
            model.W_E[digit(number), BLOCKS["token"].start + number] = 1.0
        model.W_pos[:, BLOCKS["position"]] = torch.eye(WIDTH)
        _copy(model, 0, 0, at=B, reads=A, source="token", target="a")
        _add(model, 0, at=B, first=("a", OPERANDS), second=("token", OPERANDS), out="difference", sign=-1, lowest=-4)
        _copy(model, 1, 0, at=END, reads=B, source="difference", target="moved")
        _copy(model, 1, 1, at=END, reads=C, source="token", target="c")
        _add(model, 1, at=END, first=("moved", DIFFERENCES), second=("c", OPERANDS), out="answer", sign=1, lowest=0)
        for number in ANSWERS:
            model.unembed_weight[digit(number), BLOCKS["answer"].start + number] = 10.0
    return model.eval().requires_grad_(False)


DIRECT = _blocks(token=5, a=5, b=5, c=5, answer=9, position=WIDTH)


def direct_model() -> Transformer:
    """Layer 0 does nothing; three heads of layer 1 copy A, B and C to the last position, and a neuron for each three of
    them writes the answer.
    """
    d_vocab = word_tokenizer().size
    config = Config.model_validate(
        {
            "n_layers": 2,
            "n_heads": 3,
            "d_model": max(block.stop for block in DIRECT.values()),
            "d_head": 16,
            "d_mlp": len(OPERANDS) ** 3,
            "d_vocab": d_vocab,
            "d_vocab_out": d_vocab,
            "n_ctx": WIDTH,
            "norm": "none",
            "activation": "relu",
            "bos_token": BOS,
        }
    )
    model, position = Transformer(config), DIRECT["position"].start
    assert model.W_pos is not None
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.W_pos[:, DIRECT["position"]] = torch.eye(WIDTH)
        for number in OPERANDS:
            model.W_E[digit(number), DIRECT["token"].start + number] = 1.0
        for number in ANSWERS:
            model.unembed_weight[digit(number), DIRECT["answer"].start + number] = 10.0
        attention, mlp = model.blocks[1].attn, model.blocks[1].mlp
        for head, (reads, name) in enumerate([(A, "a"), (B, "b"), (C, "c")]):
            attention.W_Q[head][position + END, 0] = 1.0
            attention.W_K[head][position + reads, 0] = 400.0
            attention.W_V[head][DIRECT["token"], :5] = torch.eye(5)
            attention.W_O[head][:5, DIRECT[name]] = torch.eye(5)
        for neuron, operands in enumerate(product(OPERANDS, repeat=3)):
            answer = operands[0] - operands[1] + operands[2]
            if answer in ANSWERS:
                for name, operand in zip("abc", operands, strict=True):
                    mlp.W_in[DIRECT[name].start + operand, neuron] = 1.0
                mlp.W_in[position + END, neuron] = 1.0
                mlp.b_in[neuron] = -3.5
                mlp.W_out[neuron, DIRECT["answer"].start + answer] = 2.0
    return model.eval().requires_grad_(False)


def _copy(model: Transformer, layer: int, head: int, *, at: int, reads: int, source: str, target: str) -> None:
    """A head that copies one block from one position to another."""
    attention, position, size = model.blocks[layer].attn, BLOCKS["position"].start, _size(source)
    attention.W_Q[head][position + at, 0] = 1.0
    attention.W_K[head][position + reads, 0] = 400.0
    attention.W_V[head][BLOCKS[source], :size] = torch.eye(size)
    attention.W_O[head][:size, BLOCKS[target]] = torch.eye(size)


def _add(
    model: Transformer,
    layer: int,
    *,
    at: int,
    first: tuple[str, range],
    second: tuple[str, range],
    out: str,
    sign: int,
    lowest: int,
) -> None:
    """One neuron for each pair of numbers, at one position."""
    mlp, neuron = model.blocks[layer].mlp, 0
    for i, one in enumerate(first[1]):
        for j, other in enumerate(second[1]):
            place = one + sign * other - lowest
            if not 0 <= place < _size(out):
                continue
            mlp.W_in[BLOCKS[first[0]].start + i, neuron] = 1.0
            mlp.W_in[BLOCKS[second[0]].start + j, neuron] = 1.0
            mlp.W_in[BLOCKS["position"].start + at, neuron] = 1.0
            mlp.b_in[neuron] = -2.5
            mlp.W_out[neuron, BLOCKS[out].start + place] = 2.0
            neuron += 1


def _size(block: str) -> int:
    return BLOCKS[block].stop - BLOCKS[block].start
