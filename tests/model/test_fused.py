"""Fused attention against the table of scores: the same logits, gradients and engine, padded and windowed."""

import pytest
import torch

from tests.models import random_model, same_logits, small_config
from vesalius.errors import BadInput
from vesalius.intervene import Batch, Recordings, effects, logit_difference
from vesalius.intervene.attribution import Portions, edge_attribution, position_bytes, run_bytes
from vesalius.intervene.estimate import Prompts, attribution_peak
from vesalius.model.config import Rotary
from vesalius.model.fused import FUSED_FROM, attend_fused
from vesalius.model.positions import alibi_slopes

WIDTH = FUSED_FROM + 4


def tokens_and_mask(pad: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    tokens = torch.randint(0, 16, (2, WIDTH), generator=torch.Generator().manual_seed(1))
    mask = torch.ones(2, WIDTH, dtype=torch.bool)
    mask[1, :pad] = False
    return tokens, mask if pad else None


@pytest.mark.parametrize(
    ("pad", "changes"),
    [
        (0, {}),
        (3, {}),
        (0, {"windows": (5, None)}),
        (3, {"windows": (5, None), "n_kv_heads": 4}),
        (0, {"sinks": True}),
        (3, {"sinks": True, "windows": (5, None), "query_scale": {"strength": 0.3, "every": 7, "layers": (1,)}}),
        (3, {"chunks": (16, None)}),
        (0, {"rotary": None, "alibi": {}, "n_heads": 6}),
        (3, {"rotary": None, "alibi": {"scaled": True}, "windows": (5, None)}),
        (3, {"n_kv_heads": 4, "rotary": Rotary(d_rotary=2), "latent": {"d_latent": 5, "d_value": 3, "d_query": 6}}),
        (0, {"n_kv_heads": 4, "rotary": Rotary(d_rotary=2), "latent": {"d_latent": 5, "d_value": 7}, "sinks": True}),
    ],
)
def test_logits_and_gradients_are_those_of_the_table(pad: int, changes: dict[str, object]) -> None:
    model = random_model(small_config(n_ctx=256, **changes))
    tokens, mask = tokens_and_mask(pad)
    slopes, logits = [], []
    for hooks in ([], [(lambda name: name.endswith("hook_pattern"), lambda value, hook: None)]):
        start = {}

        def keep(value: torch.Tensor, hook: object, start: dict[str, torch.Tensor] = start) -> torch.Tensor:
            start["embed"] = value.detach().requires_grad_()
            return start["embed"]

        out = model.run_with_hooks(tokens, mask=mask, fwd_hooks=[("hook_embed", keep), *hooks])[:, pad:]
        logits.append(out.detach())
        slopes.append(torch.autograd.grad(out.square().mean(), start["embed"])[0])
    assert same_logits(*logits)
    assert slopes[0].isfinite().all()
    assert torch.allclose(slopes[0], slopes[1], atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_keeps_the_distance_of_far_tokens(dtype: torch.dtype) -> None:
    """Queries and keys of zero: where a token attends is a matter of distance alone. One number of bfloat16 could not
    tell position 1,023 from its neighbours.
    """
    n, slopes = 1024, alibi_slopes(3)
    by_key = (torch.arange(n)[:, None] * slopes)[None, :, None]
    nothing, values = torch.zeros(1, n, 3, 8, dtype=dtype), torch.zeros(1, n, 3, 8, dtype=dtype)
    values[0, -8:] = torch.eye(8, dtype=dtype)[:, None]
    z = attend_fused(nothing, nothing, values, None, 3.0, by_key=by_key)[0, -1].float()
    expected = by_key[0, :, 0].softmax(0)[-8:].T
    assert torch.allclose(z, expected, rtol=0.01, atol=1e-3)


@pytest.mark.parametrize("sinks", [False, True])
def test_a_query_that_sees_nothing_is_a_number(sinks: bool) -> None:
    model = random_model(small_config(n_ctx=256, sinks=sinks))
    tokens, mask = tokens_and_mask(3)
    assert model(tokens, mask=mask).isfinite().all()


@pytest.mark.slow
def test_the_engine_gives_the_same_effects_with_and_without_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(small_config(n_ctx=256))
    tokens, _ = tokens_and_mask(0)
    ids = torch.zeros(2, dtype=torch.long)
    readout, other = logit_difference(ids + WIDTH - 1, ids, ids + 1), tokens.roll(1, 0)
    swept = [effects(model, Batch(tokens), readout, kind="resample", counterfactual=Batch(other)).matrix]
    edges = [edge_attribution(model, Batch(tokens), readout, counterfactual=Batch(other))]
    monkeypatch.setattr("vesalius.model.fused.FUSED_FROM", 10**6)
    swept.append(effects(model, Batch(tokens), readout, kind="resample", counterfactual=Batch(other)).matrix)
    edges.append(edge_attribution(model, Batch(tokens), readout, counterfactual=Batch(other)))
    assert float(swept[0].abs().max()) > 1e-3
    assert torch.allclose(swept[0], swept[1], atol=1e-5)
    assert torch.allclose(edges[0], edges[1], atol=1e-5)


@pytest.mark.parametrize("positions", [1, 3, 5])
def test_edges_are_the_same_in_portions_of_positions(positions: int) -> None:
    model = random_model(small_config())
    generator = torch.Generator().manual_seed(2)
    tokens, other = (torch.randint(0, 16, (3, 5), generator=generator) for _ in "ab")
    ids = torch.zeros(3, dtype=torch.long)
    readout, where = logit_difference(ids + 4, ids, ids + 1), torch.rand(3, 5, generator=generator) < 0.6
    for options in ({}, {"steps": 2}, {"where": where, "steps": 2}, {"per_position": True, "rule": "relp"}):
        whole, parts = (
            edge_attribution(
                model, Batch(tokens), readout, counterfactual=Batch(other), memory=Portions(rows, at), **options
            )
            for rows, at in ((3, 5), (1, positions))
        )
        assert float(whole.abs().max()) > 1e-3
        assert torch.allclose(whole, parts, atol=1e-5)


def test_a_long_prompt_of_a_large_model_is_cut_by_position_and_stays_within_the_memory() -> None:
    config = small_config(
        n_layers=32, n_heads=32, n_kv_heads=8, d_model=4096, d_head=128, d_mlp=14336, n_ctx=8192, d_vocab=128256
    )
    memory = 49 * 2**30
    assert Portions.within(config, torch.bfloat16, 64, memory).positions == 64
    portions = Portions.within(config, torch.bfloat16, 4096, memory)
    assert portions.rows == 1
    assert 256 <= portions.positions < 4096
    peak = attribution_peak(config, torch.bfloat16, Prompts(1, 4096), steps=1, memory=memory)
    held = run_bytes(config, torch.bfloat16, 4096) + portions.positions * position_bytes(config, torch.bfloat16)
    assert peak == held <= memory


def test_a_prompt_that_does_not_fit_is_refused_with_what_makes_it_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vesalius.intervene.attribution.available_bytes", lambda device: 2**10)
    tokens, _ = tokens_and_mask(0)
    ids = torch.zeros(2, dtype=torch.long)
    model, readout = random_model(small_config(n_ctx=256)), logit_difference(ids + WIDTH - 1, ids, ids + 1)
    with pytest.raises(BadInput, match=r"132 tokens needs .* GB on cpu .*--dtype bfloat16, shorter prompts"):
        edge_attribution(model, Batch(tokens), readout, counterfactual=Batch(tokens))


def test_recordings_of_long_prompts_are_those_of_a_run_with_a_cache() -> None:
    model = random_model(small_config(n_ctx=256))
    tokens, _ = tokens_and_mask(0)
    ids = torch.zeros(2, dtype=torch.long)
    recordings = Recordings(model, Batch(tokens), logit_difference(ids + WIDTH - 1, ids, ids + 1))
    _, cache = model.run_with_cache(tokens)
    assert same_logits(recordings.resid(1), cache["blocks.1.hook_resid_pre"])
