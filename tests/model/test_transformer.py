"""The decoder itself: padding, restarts, chosen logits, hook points, and a model one can work out on paper."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.models import ROUNDING, configs, random_model, small_config
from vesalius.errors import BadInput
from vesalius.model import Config, Transformer
from vesalius.model import attention as module
from vesalius.model.hooks import HookPoint, Tap

CLOSE = ROUNDING
seeds = st.integers(0, 2**20)


def random_tokens(config: Config, seed: int, rows: int = 3, width: int = 6) -> Tensor:
    return torch.randint(0, config.d_vocab, (rows, width), generator=torch.Generator().manual_seed(seed))


def distance(a: Tensor, b: Tensor) -> float:
    """Largest difference, relative where the numbers are large."""
    return float((a - b).abs().max()) / max(1.0, float(b.abs().max()))


# --- padding and batches


@settings(max_examples=20, deadline=None)
@given(configs(), seeds)
def test_padding_on_either_side_changes_nothing(config: Config, seed: int) -> None:
    model, tokens = random_model(config, seed), random_tokens(config, seed)
    expected = model(tokens)
    for before, after in ((0, 3), (2, 0), (1, 4)):
        filler = random_tokens(config, seed + 1, width=before + after)
        padded = torch.cat([filler[:, :before], tokens, filler[:, before:]], 1)
        mask = torch.zeros(3, padded.shape[1], dtype=torch.bool)
        mask[:, before : before + 6] = True
        assert distance(model(padded, mask=mask)[:, before : before + 6], expected) <= CLOSE


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(configs(), seeds)
def test_rows_of_a_batch_do_not_see_each_other(config: Config, seed: int) -> None:
    """Prompts of different lengths together, alone, and in a batch of other size."""
    model, rng = random_model(config, seed), random.Random(seed)
    lengths = [rng.randint(1, 7) for _ in range(5)]
    tokens = random_tokens(config, seed, rows=5, width=7)
    mask = torch.arange(7)[None] < torch.tensor(lengths)[:, None]
    together, some = model(tokens, mask=mask), model(tokens[1:3], mask=mask[1:3])
    for i, length in enumerate(lengths):
        alone = model(tokens[i : i + 1, :length])[0]
        assert distance(together[i, :length], alone) <= CLOSE
        if i in (1, 2):
            assert distance(some[i - 1, :length], alone) <= CLOSE


def test_the_pad_token_masks_itself() -> None:
    model = random_model(small_config(pad_token=16))
    short = torch.tensor([[3, 1, 4]])
    assert distance(model(torch.tensor([[3, 1, 4, 16, 16]]))[:, :3], model(short)) <= CLOSE
    assert distance(model(torch.tensor([[16, 16, 3, 1, 4]]))[:, 2:], model(short)) <= CLOSE


def test_a_causal_model_does_not_see_the_future_and_a_bidirectional_one_does() -> None:
    first, second = torch.tensor([[3, 1, 4, 1]]), torch.tensor([[3, 1, 4, 9]])
    causal, both = (random_model(small_config(causal=causal)) for causal in (True, False))
    assert distance(causal(first)[:, :3], causal(second)[:, :3]) <= CLOSE
    assert distance(both(first)[:, :3], both(second)[:, :3]) > 1e-3


# --- restarts and chosen logits


@settings(max_examples=25, deadline=None)
@given(configs(), seeds)
def test_continuing_from_a_cached_residual(config: Config, seed: int) -> None:
    model, tokens = random_model(config, seed), random_tokens(config, seed)
    mask = torch.ones_like(tokens, dtype=torch.bool)
    mask[0, :2] = False
    full, cache = model.run_with_cache(tokens, mask=mask)
    for layer in range(config.n_layers):
        resid = cache[f"blocks.{layer}.hook_resid_pre"]
        assert distance(model(tokens, mask=mask, start_layer=layer, resid=resid), full) <= CLOSE


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(configs(), seeds)
def test_chosen_positions_and_tokens_are_slices_of_all_logits(config: Config, seed: int) -> None:
    model, tokens = random_model(config, seed), random_tokens(config, seed)
    full, rows = model(tokens), torch.arange(3)[:, None]
    at = torch.randint(0, 6, (3, 2), generator=torch.Generator().manual_seed(seed))
    choose = torch.randint(0, config.d_vocab_out, (3, 4), generator=torch.Generator().manual_seed(seed))
    picked = full.gather(2, choose[:, None].expand(-1, 6, -1))
    assert distance(model(tokens, at=at), full[rows, at]) <= CLOSE
    assert distance(model(tokens, choose=choose), picked) <= CLOSE
    assert distance(model(tokens, at=at, choose=choose), picked[rows, at]) <= CLOSE
    assert distance(model.run_with_cache(tokens, at=at, choose=choose)[0], picked[rows, at]) <= CLOSE


def test_wrong_calls_are_refused_in_one_line() -> None:
    model = random_model(small_config())
    tokens = torch.tensor([[1, 2, 3]])
    wrong = [
        ({"tokens": torch.zeros(0, 3, dtype=torch.long)}, "at least one prompt"),
        ({"tokens": torch.zeros(3, 0, dtype=torch.long)}, "at least one prompt"),
        ({"tokens": torch.tensor([1, 2])}, r"expected \[batch, pos\]"),
        ({"tokens": torch.zeros(1, 17, dtype=torch.long)}, "17 tokens is longer than this model's context of 16"),
        ({"tokens": torch.tensor([[1, 17]])}, "token id 17 is outside this model's vocabulary of 17"),
        ({"tokens": torch.tensor([[-1, 3]])}, "token id -1 is outside"),
        ({"tokens": tokens, "mask": torch.zeros(1, 2, dtype=torch.bool)}, "mask has shape"),
        ({"tokens": tokens, "start_layer": 2}, "outside this model's layers 0 to 1"),
        ({"tokens": tokens, "start_layer": 1}, "needs resid"),
        ({"tokens": tokens, "start_layer": 1, "resid": torch.zeros(1, 2, 12)}, "resid has shape"),
    ]
    for arguments, reason in wrong:
        with pytest.raises(BadInput, match=reason):
            model(**arguments)


# --- hook points


def block_shapes(layer: int, config: Config, *, batch: int, pos: int) -> dict[str, tuple[int, ...]]:
    """TransformerLens' names of one layer with their shapes."""
    d, h, kv, dh = config.d_model, config.n_heads, config.n_kv_heads, config.d_head
    names = {
        "hook_resid_pre": (d,),
        "ln1.hook_scale": (1,),
        "ln1.hook_normalized": (d,),
        "attn.hook_q": (h, dh),
        "attn.hook_k": (kv, dh),
        "attn.hook_v": (kv, dh),
        "attn.hook_z": (h, dh),
        "hook_attn_out": (d,),
        "hook_resid_mid": (d,),
        "hook_mlp_in": (d,),
        "ln2.hook_scale": (1,),
        "ln2.hook_normalized": (d,),
        "mlp.hook_pre": (config.d_mlp,),
        "mlp.hook_post": (config.d_mlp,),
        "hook_mlp_out": (d,),
        "hook_resid_post": (d,),
    }
    if config.rotary:
        names |= {"attn.hook_rot_q": (h, dh), "attn.hook_rot_k": (kv, dh)}
    if config.gated:
        names["mlp.hook_pre_linear"] = (config.d_mlp,)
    shapes: dict[str, tuple[int, ...]] = {f"blocks.{layer}.{name}": (batch, pos, *rest) for name, rest in names.items()}
    return shapes | {
        f"blocks.{layer}.attn.{name}": (batch, h, pos, pos) for name in ("hook_attn_scores", "hook_pattern")
    }


@pytest.mark.parametrize(
    "config", [small_config(), small_config(norm="layer", rotary=None, gated=False, activation="gelu")]
)
def test_every_hook_point_has_its_name_and_shape(config: Config) -> None:
    expected = {"hook_embed": (2, 5, 12), "ln_final.hook_scale": (2, 5, 1), "ln_final.hook_normalized": (2, 5, 12)}
    if config.rotary is None:
        expected["hook_pos_embed"] = (2, 5, 12)
    for layer in range(2):
        expected |= block_shapes(layer, config, batch=2, pos=5)
    _, cache = random_model(config).run_with_cache(random_tokens(config, 0, 2, 5))
    assert {name: tuple(value.shape) for name, value in cache.items()} == expected


def test_hooks_run_in_order_of_computation() -> None:
    seen: list[str] = []
    config = small_config(n_layers=1)
    model = random_model(config)

    def note(value: Tensor, hook: HookPoint) -> None:
        seen.append(hook.name.removeprefix("blocks.0."))

    model.run_with_hooks(random_tokens(config, 0), fwd_hooks=[(lambda name: "_input" not in name, note)])
    assert seen == [
        "hook_embed",
        "hook_resid_pre",
        "ln1.hook_scale",
        "ln1.hook_normalized",
        "attn.hook_q",
        "attn.hook_k",
        "attn.hook_v",
        "attn.hook_q_heads",
        "attn.hook_k_heads",
        "attn.hook_v_heads",
        "attn.hook_rot_q",
        "attn.hook_rot_k",
        "attn.hook_attn_scores",
        "attn.hook_pattern",
        "attn.hook_z",
        "attn.hook_result",
        "hook_attn_out",
        "hook_resid_mid",
        "hook_mlp_in",
        "ln2.hook_scale",
        "ln2.hook_normalized",
        "mlp.hook_in",
        "mlp.hook_pre",
        "mlp.hook_pre_linear",
        "mlp.hook_post",
        "hook_mlp_out",
        "hook_resid_post",
        "ln_final.hook_scale",
        "ln_final.hook_normalized",
    ]


@settings(max_examples=20, deadline=None)
@given(configs(), seeds)
def test_activations_add_up(config: Config, seed: int) -> None:
    model, tokens = random_model(config, seed), random_tokens(config, seed)
    logits, cache = model.run_with_cache(tokens)
    for layer, block in enumerate(model.blocks):
        name = f"blocks.{layer}."
        result = cache[name + "attn.hook_result"]
        assert result.shape == (*tokens.shape, config.n_heads, config.d_model)
        assert distance(result.sum(2) + block.attn.b_O, cache[name + "hook_attn_out"]) <= CLOSE
        assert distance(cache[name + "attn.hook_pattern"].sum(-1), torch.ones(3, config.n_heads, 6)) <= CLOSE
        assert (
            distance(cache[name + "hook_resid_pre"] + cache[name + "hook_attn_out"], cache[name + "hook_resid_mid"])
            <= CLOSE
        )
        assert (
            distance(cache[name + "hook_resid_mid"] + cache[name + "hook_mlp_out"], cache[name + "hook_resid_post"])
            <= CLOSE
        )
        of_head = cache[name + "attn.hook_z"][:, :, 0] @ block.attn.W_O[0]
        assert distance(cache.component(f"L{layer}H0"), of_head) <= CLOSE
        assert distance(cache.component(f"m{layer}") + block.mlp.b_out, cache[name + "hook_mlp_out"]) <= CLOSE
    last = cache[f"blocks.{config.n_layers - 1}.hook_resid_post"]
    assert distance(model.ln_final(last, Tap()) @ model.W_U + model.b_U, logits) <= CLOSE


@settings(max_examples=20, deadline=None)
@given(configs(), seeds)
def test_hooks_that_only_read_change_nothing(config: Config, seed: int) -> None:
    """Hooks that return None, and the activations computed only on demand, leave the logits as they were."""
    model, tokens = random_model(config, seed), random_tokens(config, seed)
    seen: set[str] = set()

    def look(value: Tensor, hook: HookPoint) -> None:
        seen.add(hook.name)

    assert distance(model.run_with_hooks(tokens, fwd_hooks=[(lambda name: True, look)]), model(tokens)) <= CLOSE
    on_demand = {f"blocks.0.{name}" for name in ("attn.hook_result", "hook_q_input", "hook_k_input", "hook_v_input")}
    assert on_demand <= seen


def test_a_replaced_activation_reaches_later_layers() -> None:
    model, tokens = random_model(small_config()), random_tokens(small_config(), 0)
    other = random_tokens(small_config(), 1)
    logits, cache = model.run_with_cache(other)
    patched = model.run_with_hooks(
        tokens, fwd_hooks=[("blocks.1.hook_resid_pre", lambda value, hook: cache[hook.name])]
    )
    assert distance(patched, logits) <= CLOSE


def test_what_a_hook_may_return() -> None:
    model, tokens = random_model(small_config()), torch.tensor([[1, 2, 3]])
    wrong = [torch.zeros(1, 3, 11), torch.zeros(1, 1, 12), 0.0]
    for value in wrong:
        with pytest.raises(BadInput, match=r"hook at blocks.0.hook_resid_mid returned .* expected a tensor of shape"):
            model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.hook_resid_mid", lambda v, hook, value=value: value)])
    assert HookPoint("blocks.12.hook_mlp_out").layer() == 12
    with pytest.raises(BadInput, match="belongs to no layer"):
        HookPoint("hook_embed").layer()


def test_a_cache_holds_what_was_asked_for() -> None:
    model, tokens = random_model(small_config()), torch.tensor([[1, 2, 3]])
    _, one = model.run_with_cache(tokens, names="hook_embed")
    _, two = model.run_with_cache(tokens, names=["hook_embed", "blocks.1.attn.hook_result"])
    assert (list(one), len(two)) == (["hook_embed"], 2)
    assert two["blocks.1.attn.hook_result"].shape == (1, 3, 4, 12)
    with pytest.raises(BadInput, match="'hook_nothing' is not in this cache; it holds names such as hook_embed"):
        one["hook_nothing"]


# --- the fast path for many small rows


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(configs(), seeds)
def test_the_fast_path_for_many_small_rows_computes_the_same(config: Config, seed: int) -> None:
    # In double precision: two orders of summation differ by float32 noise that a badly conditioned model enlarges.
    model, tokens = random_model(config, seed).double(), random_tokens(config, seed, rows=module._MANY_ROWS + 3)
    mask = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(seed)) < 0.7
    mask[:, 0] = True
    at = torch.randint(0, 6, (len(tokens), 2), generator=torch.Generator().manual_seed(seed))
    busy = Tap([("hook_embed", lambda value, hook: None)])  # a tap that is not idle takes the general path
    for options in ({}, {"mask": mask}, {"at": at}, {"mask": mask, "at": at}):
        assert distance(model(tokens, **options), model(tokens, tap=busy, **options)) <= CLOSE


def test_the_fast_path_is_used_from_64_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    original = module._mix_rows_last
    monkeypatch.setattr(module, "_mix_rows_last", lambda *a: (calls.append(len(a[0])), original(*a))[1])
    model = random_model(small_config())
    model(random_tokens(small_config(), 0, rows=63))
    assert calls == []
    model(random_tokens(small_config(), 0, rows=64))
    assert calls == [64, 64]


# --- on paper


def paper_model() -> Transformer:
    """One layer, one head, d_model 2, no norm, ReLU: checkable by hand.

    Embedding: token 0 -> (1, 0), token 1 -> (0, 2). Positions: all zero but position 2 -> (1, 1).
    Head: W_Q = W_K = 0, so a token attends evenly to everything up to itself. W_V (2 x 1) reads the second
    coordinate, b_V = 1, W_O writes twice the head's value into the first coordinate, b_O = (0, 1).
    MLP: one neuron, relu(x0 - x1 + 1), written into the second coordinate times 3, b_out = (0, -1).
    Unembedding: logits (x0, x1, x0 + x1 + 10).
    """
    config = Config(
        n_layers=1,
        n_heads=1,
        d_model=2,
        d_head=1,
        d_mlp=1,
        d_vocab=2,
        d_vocab_out=3,
        n_ctx=3,
        activation="relu",
    )
    model = Transformer(config)
    block = model.blocks[0]
    with torch.no_grad():
        model.W_E.copy_(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
        model.W_pos.copy_(torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]]))
        block.attn.W_V[0].copy_(torch.tensor([[0.0], [1.0]]))
        block.attn.b_V[0].copy_(torch.tensor([1.0]))
        block.attn.W_O[0].copy_(torch.tensor([[2.0, 0.0]]))
        block.attn.b_O.copy_(torch.tensor([0.0, 1.0]))
        block.mlp.W_in.copy_(torch.tensor([[1.0], [-1.0]]))
        block.mlp.b_in.copy_(torch.tensor([1.0]))
        block.mlp.W_out.copy_(torch.tensor([[0.0, 3.0]]))
        block.mlp.b_out.copy_(torch.tensor([0.0, -1.0]))
        model.W_U.copy_(torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]))
        model.b_U.copy_(torch.tensor([0.0, 0.0, 10.0]))
    return model.eval().requires_grad_(False)


PROMPT = torch.tensor([[0, 1, 1]])


def test_on_paper() -> None:
    # residual before:    (1, 0)     (0, 2)     (0, 2) + (1, 1) = (1, 3)
    # v = x1 + 1:          1          3          4
    # z = mean so far:     1          2          8/3
    # + (2 z, 1):         (3, 1)     (4, 3)     (19/3, 4)
    # relu(x0 - x1 + 1):   3          2          10/3
    # + (0, 3 r - 1):     (3, 9)     (4, 8)     (19/3, 13)
    expected = [[3, 9, 22], [4, 8, 22], [19 / 3, 13, 19 / 3 + 23]]
    logits, cache = paper_model().run_with_cache(PROMPT)
    assert torch.allclose(logits[0], torch.tensor(expected))
    assert torch.allclose(cache["blocks.0.attn.hook_z"][0, :, 0, 0], torch.tensor([1, 2, 8 / 3]))
    assert torch.allclose(cache["blocks.0.mlp.hook_post"][0, :, 0], torch.tensor([3, 2, 10 / 3]))


def test_an_ablation_on_paper() -> None:
    # The head silenced at position 1 only (z = 0 there):
    # position 1: (0, 2) + (0, 1) = (0, 3); relu(0 - 3 + 1) = 0; + (0, -1) -> (0, 2); logits (0, 2, 12).
    # The other positions stay: there is no second layer to carry the change.
    def silence(z: Tensor, hook: HookPoint) -> Tensor:
        z = z.clone()
        z[:, 1] = 0
        return z

    model = paper_model()
    logits = model.run_with_hooks(PROMPT, fwd_hooks=[("blocks.0.attn.hook_z", silence)])
    assert torch.allclose(logits[0, 1], torch.tensor([0.0, 2.0, 12.0]))
    assert distance(logits[0, [0, 2]], model(PROMPT)[0, [0, 2]]) <= CLOSE


def test_a_cache_does_not_keep_a_product_for_the_sake_of_a_part() -> None:
    """Queries, keys and values are parts of one product; values that are kept alone are a tensor of their own."""
    config = small_config(n_heads=4, n_kv_heads=1)
    _, cache = random_model(config).run_with_cache(random_tokens(config, 0, 2, 5), names="blocks.0.attn.hook_v")
    values = cache["blocks.0.attn.hook_v"]
    assert values.untyped_storage().nbytes() == values.nbytes
