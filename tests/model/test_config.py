"""Impossible shapes are refused in one line that names the field."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.models import configs, small_config
from vesalius.errors import BadInput
from vesalius.model import Config

SIZES = ("n_layers", "n_heads", "n_kv_heads", "d_model", "d_head", "d_mlp", "d_vocab", "d_vocab_out", "n_ctx")
VALID = small_config().model_dump()


def refusal(**changes: Any) -> str:
    data = {name: value for name, value in {**VALID, **changes}.items() if value is not ...}
    with pytest.raises(BadInput) as error:
        Config.read(data, where="model.json")
    message = str(error.value)
    assert message.startswith("model.json: ")
    assert "\n" not in message
    return message


@given(st.sampled_from(SIZES), st.one_of(st.integers(max_value=0), st.floats(), st.text(max_size=3), st.none()))
def test_sizes_are_whole_and_positive(name: str, value: object) -> None:
    try:
        whole = isinstance(value, int | float | str) and float(value) > 0 and float(value) == int(float(value))
    except (ValueError, OverflowError):
        whole = False
    if not whole:
        assert name in refusal(**{name: value})


@given(st.integers(1, 40), st.integers(1, 40))
def test_key_value_heads_divide_the_heads(n_heads: int, n_kv_heads: int) -> None:
    if n_heads % n_kv_heads == 0:
        config = small_config(n_heads=n_heads, n_kv_heads=n_kv_heads)
        assert config.queries_per_kv * config.n_kv_heads == n_heads
    else:
        message = refusal(n_heads=n_heads, n_kv_heads=n_kv_heads)
        assert f"n_heads {n_heads} is not a multiple of n_kv_heads {n_kv_heads}" in message


LATENT = {"d_latent": 3, "d_value": 5}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_model": ...}, "d_model: Field required"),
        ({"d_modle": 3}, "d_modle: Extra inputs are not permitted"),
        ({"d_head": 3}, "d_head 3 must be even"),
        ({"norm": "batch"}, "norm: Input should be 'none', 'layer' or 'rms'"),
        ({"activation": "swish"}, "activation: Input should be 'gelu', 'gelu_tanh', 'relu', 'relu2', 'silu' or"),
        ({"norm_eps": 0}, "norm_eps"),
        ({"norm_eps": math.nan}, "norm_eps"),
        ({"norm_eps": math.inf}, "norm_eps"),
        ({"bos_token": 17}, "bos_token 17 is outside the vocabulary of 17"),
        ({"pad_token": -1}, "pad_token -1 is outside the vocabulary of 17"),
        ({"rotary": {"base": -1.0}}, "rotary.base"),
        ({"rotary": {"scaling": "spiral"}}, "rotary.scaling"),
        ({"rotary": {"scaling": "llama3", "low_freq_factor": 4.0, "high_freq_factor": 4.0}}, "low_freq_factor 4.0"),
        ({"rotary": {"theta": 1e4}}, "rotary.theta"),
        ({"alibi": {}}, "alibi compares keys before a query: rotary must be null"),
        ({"alibi": {}, "rotary": None, "causal": False}, "causal true"),
        ({"alibi": {}, "rotary": None, "sinks": True}, "sinks false"),
        ({"latent": LATENT}, "latent needs rotary with d_rotary less than d_head"),
        ({"latent": LATENT, "rotary": {"d_rotary": 2}}, "n_kv_heads 2 does not go with latent, which needs 4"),
        ({"latent": LATENT, "rotary": {"d_rotary": 2}, "n_kv_heads": 4, "clip_qkv": 1.0}, "clip_qkv 1.0 does not go"),
    ],
)
def test_one_line_names_the_field(changes: dict[str, Any], message: str) -> None:
    assert message in refusal(**changes)


def test_an_odd_head_is_fine_without_rotation() -> None:
    assert small_config(d_head=3, rotary=None).d_head == 3


def test_key_value_heads_default_to_the_heads() -> None:
    data = {name: value for name, value in VALID.items() if name != "n_kv_heads"}
    assert Config.model_validate(data).n_kv_heads == 4


@given(configs())
def test_round_trip(config: Config) -> None:
    assert Config.read(config.model_dump(), where="") == config
    assert Config.model_validate_json(config.model_dump_json(exclude_defaults=True)) == config


def test_a_config_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        small_config().n_layers = 3  # type: ignore[misc]


def test_padding_and_the_beginning_of_a_text_are_absent_where_a_model_has_no_token_for_them() -> None:
    tokens = torch.tensor([[1, 2, 0], [1, 3, 2]])
    without = small_config().model_copy(update={"bos_token": None, "pad_token": None})
    assert without.not_padding(tokens).all()
    assert not without.begin_with_bos(tokens)
    with_both = without.model_copy(update={"bos_token": 1, "pad_token": 0})
    assert with_both.not_padding(tokens).tolist() == [[True, True, False], [True, True, True]]
    assert with_both.begin_with_bos(tokens)
    assert not with_both.begin_with_bos(tokens.flip(1))
