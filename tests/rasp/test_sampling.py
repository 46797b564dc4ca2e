"""Repetitive inputs: every count of a token occurs, and the same seed gives the same inputs."""

import pytest
import torch

from vesalius.errors import BadInput
from vesalius.rasp import Map, compile_program, tokens
from vesalius.rasp.inputs import mixed_inputs, repetitive_inputs


def test_repetitive_inputs_reach_every_count() -> None:
    codes, lengths = repetitive_inputs(5, 8, 2000, seed=1, min_length=2)
    real = codes >= 0
    assert torch.equal(real.sum(1), lengths)
    assert (int(lengths.min()), int(lengths.max())) == (2, 8)
    assert bool((real[:, :-1] | ~real[:, 1:]).all())  # no gap before the end
    longest = codes[lengths == 8]
    most = torch.stack([(longest == token).sum(1) for token in range(5)]).amax(0)
    assert {4, 5, 6, 7, 8} <= set(most.tolist())
    constant = ((codes == codes[:, :1]) | ~real).all(1).float().mean()
    assert 0.3 < float(constant) < 0.7


def test_the_same_seed_gives_the_same_inputs() -> None:
    first, again, other = (repetitive_inputs(3, 5, 50, seed=seed)[0] for seed in (4, 4, 5))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_share_of_mixed_inputs_is_repetitive() -> None:
    program = compile_program(Map(lambda t: t, tokens), list("abcdefghij"), 8, causal=False)
    codes, lengths = mixed_inputs(program, 1000, seed=0, min_length=6, repetitive=0.3)
    real = codes >= 0
    constant = ((codes == codes[:, :1]) | ~real).all(1)
    assert len(codes) == 1000
    assert torch.equal(real.sum(1), lengths)
    assert 60 < int(constant.sum()) < 180  # a third of 300, or a little more; uniform tokens give none


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(BadInput, match="repetitive_inputs: n=0"):
        repetitive_inputs(3, 5, 0, seed=0)
