"""Small programs and settings that the training tests share."""

import torch

from vesalius.model import Transformer
from vesalius.model.states import build
from vesalius.rasp import Map, Program, SequenceMap, compile_program, frac_prevs, indices, tokens
from vesalius.rasp.language import shift_by
from vesalius_truth.training.setting import Setting, Size, setting_of
from vesalius_truth.training.stack import Copy, Stack

CPU = torch.device("cpu")


def fraction() -> Program:
    """The running fraction of x: a flag in L0_MLP, its mean in L1H0."""
    flag = Map(lambda token: token == "x", tokens, name="is_x")
    return compile_program(frac_prevs(flag), ["a", "b", "c", "x"], 4, causal=True, name="fraction")


def lookup() -> Program:
    """The next letter: one look-up in L0_MLP."""
    following = dict(zip("abcde", "bcdea", strict=True))
    return compile_program(Map(following.get, tokens), list("abcde"), 6, causal=False, name="lookup")


def odd_places() -> Program:
    """Add one at odd positions: a position flag in L0_MLP, where an interchange at the same position has no effect, and
    a sum in L1_MLP.
    """
    is_odd = Map(lambda position: position % 2, indices, name="is_odd")
    total = SequenceMap(lambda token, odd: token + odd, tokens, is_odd, name="total")
    return compile_program(total, [0, 1, 2, 3], 5, causal=False, name="odd_places")


def place_added() -> Program:
    """Two minus the token in L0_MLP, and the position added in L1_MLP."""
    rest = Map(lambda token: 2 - token, tokens, name="rest")
    total = SequenceMap(lambda value, position: value + position, rest, indices, name="total")
    return compile_program(total, [0, 1, 2], 3, causal=False, name="place_added")


def by_hand(*, place_in_first: bool) -> Transformer:
    """`place_added` in weights set by hand: as the program says, or with the position already in L0_MLP.

    Directions of the residual stream: 0 to 2 the token, 3 to 5 the position, 6 to 8 two minus the token, 9 to 17 that
    with its position, 18 to 22 the sum. A hidden unit is on (5 before and after gelu) where all of its inputs are.
    """
    setting = setting_of(place_added(), size=Size(2, 4, 24, 6, 96))
    exported = Stack([setting], [Copy(0, 0, 1.0)], device=CPU).export(0)
    state = {name: torch.zeros_like(weight) for name, weight in exported.items()}

    def unit(layer: int, number: int, reads: list[int], writes: int) -> None:
        mlp = f"blocks.{layer}.mlp."
        state[mlp + "W_in"][reads, number] = 10.0
        state[mlp + "b_in"][number] = 5.0 - 10.0 * len(reads)
        state[mlp + "W_out"][number, writes] = 0.2

    for value in range(3):
        state["embed.W_E"][value, value] = 1.0
        state["pos_embed.W_pos"][value + 1, 3 + value] = 1.0
        if not place_in_first:
            unit(0, value, [2 - value], 6 + value)
        for position in range(3):
            cell = 3 * value + position
            if place_in_first:
                unit(0, cell, [2 - value, 3 + position], 9 + cell)
            unit(1, cell, [9 + cell] if place_in_first else [6 + value, 3 + position], 18 + value + position)
    for total in range(5):
        state["unembed.W_U"][18 + total, setting.program.outputs.index(total)] = 1.0
    return build(setting.config, state, where="by hand")


def shift() -> Program:
    """The token before: one head."""
    return compile_program(shift_by(1, tokens), list("abc"), 7, causal=False, name="shift")


def small(program: Program, *, n_layers: int = 2, d_head: int = 2) -> Setting:
    """A setting of a given width with four heads."""
    return setting_of(program, size=Size(n_layers, 4, 4 * d_head, d_head, 16 * d_head))


def mixed_stack() -> Stack:
    """Four tasks of different depth, width, length, mask and output kind, one copy each, one twice."""
    settings = [small(fraction(), d_head=3), small(lookup()), small(odd_places(), d_head=1), small(shift(), n_layers=3)]
    return Stack(
        settings, [Copy(0, 5, 1e-2), Copy(1, 6, 1e-2), Copy(2, 7, 1e-2), Copy(3, 8, 1e-2), Copy(1, 9, 5e-3)], device=CPU
    )
