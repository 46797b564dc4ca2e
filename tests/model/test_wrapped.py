"""Models that run in transformers' own modules: the same engine, held to plain hooks on those modules."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import Tensor

import vesalius as ves
from tests.intervene.pairs import prompt_pairs
from tests.model.references import random_reference
from vesalius.behaviours.trial import trial
from vesalius.components import Component
from vesalius.discovery.head_tests import detect
from vesalius.errors import BadInput, Note
from vesalius.explanations.natural.explain import explain_natural
from vesalius.intervene import engine
from vesalius.intervene.ablations import Resample, Zero
from vesalius.intervene.attribution import attribute, edge_attribution
from vesalius.intervene.circuits import CircuitRuns
from vesalius.intervene.edges import EdgeGraph
from vesalius.intervene.patterns import PatternEdits
from vesalius.intervene.plan import Plan, Row
from vesalius.intervene.probes import HeadInputs
from vesalius.intervene.readout import Readout, all_logits
from vesalius.intervene.recordings import Recordings
from vesalius.intervene.sites import SiteValues, placed_sets, site_scores
from vesalius.intervene.values import Batch, activations, zeros
from vesalius.model.config import Config
from vesalius.model.sources import from_transformers
from vesalius.model.specimen import Specimen
from vesalius.model.states import save_model
from vesalius.model.transformer import Transformer
from vesalius.sites import parse_sites, sites_of

transformers = pytest.importorskip("transformers")

COMMON: dict[str, Any] = {
    "vocab_size": 53,
    "hidden_size": 24,
    "intermediate_size": 20,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "max_position_embeddings": 32,
    "pad_token_id": None,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
LINEAR = {
    **EXPERTS,
    "shared_expert_intermediate_size": 8,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 4,
    "linear_value_head_dim": 4,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
}
LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 8,
    "kv_lora_rank": 8,
    "head_dim": 4,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4,
    "v_head_dim": 6,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 8,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
MODELS: dict[str, dict[str, Any]] = {
    "glm4_moe_lite": LATENT,
    "qwen3_next": LINEAR,
    "cohere": {},
    "arcee": {},
}
#: Layers that are one mixer each.
NO_MLPS = {"mamba2": {"num_heads": 6, "head_dim": 8, "state_size": 4, "n_groups": 2, "num_key_value_heads": None}}


FURTHER = {"GptOss": {"num_local_experts": 4, "num_experts_per_tok": 2}, "DeepseekV3": LATENT}


@pytest.fixture(scope="module")
def model_of() -> Callable[[str], Any]:
    """transformers' model of a type with random weights, made once."""
    made: dict[str, Any] = {}

    def make(kind: str) -> Any:
        if kind not in made:
            torch.manual_seed(3)
            config = transformers.AutoConfig.for_model(kind, **{**COMMON, **{**MODELS, **NO_MLPS}[kind]})
            model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
            with torch.no_grad():
                for weight in model.parameters():
                    weight.add_(torch.randn_like(weight) * 0.15)
            made[kind] = model
        return made[kind]

    return make


def tokens_of(seed: int, n: int = 3, width: int = 7) -> Tensor:
    return torch.randint(3, 50, (n, width), generator=torch.Generator().manual_seed(seed))


def mixer_of(layer: Any) -> Any:
    return layer.linear_attn if hasattr(layer, "linear_attn") else layer.self_attn


def projection_of(layer: Any) -> Any:
    mixer = mixer_of(layer)
    return mixer.out_proj if hasattr(mixer, "out_proj") else mixer.o_proj


def naive(model: Any, tokens: Tensor, other: Tensor, *, head: tuple[int, int] | None, mlp: int | None) -> Tensor:
    """Logits with a head's slice before the output projection, or what an MLP returns, from another prompt: plain hooks
    of torch, one intervention at a time.
    """
    kept: list[Tensor] = []
    with ExitStack() as stack:
        if head is not None:
            layer, place = head
            module = projection_of(model.model.layers[layer])
            reading = module.register_forward_pre_hook(lambda _, args: kept.append(args[0]))
            model(other)
            reading.remove()
            width = kept[0].shape[-1] // COMMON["num_attention_heads"]

            def patch(_: Any, args: tuple[Tensor]) -> tuple[Tensor]:
                new = args[0].clone()
                new[..., place * width : (place + 1) * width] = kept[0][..., place * width : (place + 1) * width]
                return (new,)

            stack.callback(module.register_forward_pre_hook(patch).remove)
        else:
            assert mlp is not None
            module = model.model.layers[mlp].mlp
            reading = module.register_forward_hook(lambda _, __, out: kept.append(out))
            model(other)
            reading.remove()
            stack.callback(module.register_forward_hook(lambda *_: kept[0]).remove)
        return model(tokens).logits


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
@torch.no_grad()
def test_every_component_is_patched_as_plain_hooks_do(kind: str, model_of: Callable[[str], Any]) -> None:
    model, tokens, other = model_of(kind), tokens_of(0), tokens_of(1)
    wrapped = from_transformers(model)
    assert wrapped.config.wrapped == kind
    torch.testing.assert_close(wrapped(tokens), model(tokens).logits, rtol=0, atol=1e-4)
    parts = wrapped.components
    plan = Plan.of(wrapped.config, [Row(p, {part: p}) for part in parts for p in range(3)], width=7)
    scores = engine.run(
        Recordings(wrapped, Batch(tokens), all_logits()), plan, activations(wrapped, Batch(other))
    ).unflatten(0, (len(parts), 3))
    moved = 0.0
    for part, score in zip(parts, scores, strict=True):
        head = None if part.head is None else (part.layer, part.head)
        expected = naive(model, tokens, other, head=head, mlp=None if part.is_head else part.layer)
        torch.testing.assert_close(score, expected, rtol=0, atol=1e-4, msg=str(part))
        moved += float((score - model(tokens).logits).abs().max() > 1e-3)
    assert moved == len(parts)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Gemma2", "GptOss", "DeepseekV3"])
@torch.no_grad()
def test_a_wrapped_model_gives_what_the_family_gives(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gemma 2 has norms on both sides, soft caps, windows and grouped queries, GPT-OSS sinks and experts, DeepSeek V3
    latents: edges, plans and attributions of the family and of the wrapped module are the same.
    """
    reference = random_reference(kind, {**COMMON, "sliding_window": 4, **FURTHER.get(kind, {})})
    native = from_transformers(reference)
    monkeypatch.setattr("vesalius.model.families._BY_TYPE", {})
    wrapped = from_transformers(reference)
    assert (native.config.wrapped, wrapped.config.wrapped) == (None, reference.config.model_type)
    edges = ("a0.h1->a2.h2<q>", "a0.h1->a2.h2<k>", "a0.h2->a1.h3<v>", "m0->m2", "a0.h0->logits", "input->a2.h1<k>")
    rows = [Row(i % 3, edges={edge: 1}) for i, edge in enumerate(edges)]
    rows += [Row(1, {"L0H2": 0}, {edges[1]: 2, "m0->a2.h2<q>": 0}), Row(2, {"L2H0": 1}, positions=[3, 5])]

    def ran(model: Transformer) -> Tensor:
        plan = Plan.of(model.config, rows, width=7)
        recordings = Recordings(model, Batch(tokens_of(0)), all_logits())
        return engine.run(recordings, plan, activations(model, Batch(tokens_of(1))))

    torch.testing.assert_close(ran(wrapped), ran(native), rtol=0, atol=1e-4)
    batch, other, readout = prompt_pairs(native.config, 3)
    slopes, circuits = [], []
    for model in (wrapped, native):
        slopes.append(edge_attribution(model, batch, readout, counterfactual=other))
        inside = EdgeGraph.of(model.config).real
        kept = torch.rand(4, *inside.shape, generator=torch.Generator().manual_seed(2)) < 0.5
        circuits.append(CircuitRuns(model, batch, readout, counterfactual=other, inside=inside).scores(kept & inside))
    torch.testing.assert_close(*slopes, rtol=0, atol=1e-4)
    torch.testing.assert_close(*circuits, rtol=0, atol=1e-4)
    with pytest.raises(BadInput, match="rule 'relp' changes the gradients inside norms and MLPs"):
        edge_attribution(wrapped, batch, readout, counterfactual=other, rule="relp")
    inputs = [HeadInputs(m, batch, activations(m, batch).embed, Component(0, 3)) for m in (wrapped, native)]
    torch.testing.assert_close(inputs[0].pattern(), inputs[1].pattern(), rtol=0, atol=1e-5)
    torch.testing.assert_close(inputs[0].values, inputs[1].values, rtol=0, atol=1e-5)
    ours, theirs = (model.run_with_cache(tokens_of(0))[1] for model in (wrapped, native))
    for name in (
        "hook_resid_mid",
        "hook_attn_out",
        "hook_mlp_out",
        *(() if kind == "DeepseekV3" else ("attn.hook_rot_k",)),  # which the family has in another order
        "attn.hook_v",
        "attn.hook_pattern",
    ):
        torch.testing.assert_close(ours[f"blocks.1.{name}"], theirs[f"blocks.1.{name}"], rtol=0, atol=1e-4)


@pytest.mark.slow
@torch.no_grad()
def test_patterns_are_seen_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Setting attention to a position to zero takes out the value there, sinks included in what remains."""
    monkeypatch.setattr("vesalius.model.families._BY_TYPE", {})
    wrapped = from_transformers(random_reference("GptOss", {**COMMON, **FURTHER["GptOss"]}))
    tokens = tokens_of(0)
    _, cache = wrapped.run_with_cache(tokens)
    pattern, values = cache["blocks.1.attn.hook_pattern"], cache["blocks.1.attn.hook_v"]
    assert float(pattern.sum(-1).mean()) < 0.95  # the sink has a share

    def cut(value: Tensor, _: object) -> Tensor:
        value = value.clone()
        value[:, 2, 6, 1] = 0
        return value

    kept: list[Tensor] = []
    hooks = [("blocks.1.attn.hook_pattern", cut), ("blocks.1.attn.hook_z", lambda z, _: kept.append(z))]
    wrapped.run_with_hooks(tokens, fwd_hooks=hooks)
    expected = cache["blocks.1.attn.hook_z"][:, 6, 2] - pattern[:, 2, 6, 1, None] * values[:, 1, 1]
    torch.testing.assert_close(kept[0][:, 6, 2], expected, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_layers_without_attention_say_so(model_of: Callable[[str], Any]) -> None:
    wrapped = from_transformers(model_of("qwen3_next"))
    assert wrapped.wrapping is not None
    assert wrapped.wrapping.endswith(
        "(linear attention); layers 0, 2 have groups of channels in the place of heads, without patterns"
    )
    names = list(wrapped.run_with_cache(tokens_of(0))[1])
    assert [f"blocks.{layer}.attn.hook_pattern" in names for layer in range(3)] == [False, True, False]
    with pytest.raises(BadInput, match="layer 2 of this wrapped qwen3_next model has groups of channels in the place"):
        Plan.of(wrapped.config, [Row(0, edges={"m0->a2.h1<q>": 0})], width=7)
    for name in ("blocks.1.attn.hook_q", "blocks.0.mlp.hook_post"):
        with pytest.raises(BadInput, match="is not seen in a wrapped qwen3_next model; there are hook_resid_pre"):
            wrapped.run_with_hooks(tokens_of(0), fwd_hooks=[(name, lambda value, _: value)])
    with pytest.raises(BadInput, match="no weights of queries, keys and values apart"):
        _ = wrapped.blocks[1].attn.W_V


@pytest.mark.slow
@torch.no_grad()
def test_sites_inside_modules_are_refused_and_others_are_replaced(model_of: Callable[[str], Any]) -> None:
    """What heads read stands in the place of queries there, so that an edit of those would give other numbers."""
    wrapped, batch = from_transformers(model_of("glm4_moe_lite")), Batch(tokens_of(0))
    config, other = wrapped.config, Batch(tokens_of(1))
    for name in ("L1H1.q", "L1.k", "L0H0.v", "L1.mlp_pre", "L1.mlp_post"):
        with pytest.raises(BadInput, match="is not seen in a wrapped glm4_moe_lite model; take a stream"):
            parse_sites(name, config)
    with pytest.raises(BadInput, match="hook_q_heads is not seen in a wrapped glm4_moe_lite model"):
        wrapped.run_with_cache(tokens_of(0), names="blocks.1.attn.hook_q_heads")

    def edited(model: Transformer, name: str, kind: Resample | Zero) -> Tensor:
        (placed,) = placed_sets([parse_sites(name, model.config)], lambda at: None)
        values = SiteValues.make(model, kind, batch, [placed], counterfactual=other)
        return site_scores(Recordings(model, batch, all_logits()), values, placed)

    _, cache = wrapped.run_with_cache(tokens_of(1))
    for name, hook in (("L1.resid", "hook_resid_post"), ("L1.mlp_out", "hook_mlp_out"), ("L1.z", "attn.hook_z")):
        point = f"blocks.1.{hook}"
        plain = wrapped.run_with_hooks(tokens_of(0), fwd_hooks=[(point, lambda _, at: cache[at.name])])
        torch.testing.assert_close(edited(wrapped, name, Resample()), plain, rtol=0, atol=1e-4)
    plan = Plan.of(config, [Row(p, edges={"m0->a1.h1<q>": p}) for p in range(3)], width=7)
    scores = engine.run(Recordings(wrapped, batch, all_logits()), plan, activations(wrapped, other))
    torch.testing.assert_close(edited(wrapped, "L0_MLP->L1H1.q", Resample()), scores, rtol=0, atol=1e-4)


def words(n: int) -> Tokenizer:
    """A tokenizer of the words w0, w1, ... up to a number."""
    tokenizer = Tokenizer(WordLevel({f"w{i}": i for i in range(n)}, unk_token="w0"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return tokenizer


def asked(module: Any) -> Specimen:
    """A model with prompts whose last word is another one in the counterfactual: what it says more, and what less."""
    tokens = tokens_of(5, n=12)
    others = torch.cat([tokens[:, :-1], tokens_of(6, n=12)[:, -1:]], 1)
    with torch.no_grad():
        more = module(tokens).logits[:, -1] - module(others).logits[:, -1]
    said = [[" ".join(f"w{token}" for token in row) for row in rows.tolist()] for rows in (tokens, others)]
    rows = [
        {"prompt": prompt, "counterfactual": other, "answer": f" w{up}", "wrong": f" w{down}"}
        for prompt, other, up, down in zip(*said, more.argmax(1).tolist(), more.argmin(1).tolist(), strict=True)
    ]
    return ves.load(module, tokenizer=words(53), behaviour=rows, device="cpu")


@torch.no_grad()
def test_a_behaviour_is_swept_as_by_plain_hooks(model_of: Callable[[str], Any]) -> None:
    """The logits of right, wrong and the rest among the readings: all that a native model holds is there."""
    module = model_of("glm4_moe_lite")
    specimen = asked(module)
    assert vars(Transformer(Config.model_validate(specimen.model.config.model_dump()))).keys() <= {
        *vars(specimen.model),
        *vars(Transformer),
    }
    effects = ves.sweep(specimen, sites="mlp_out", kind="zero", n=4, force=True)
    material = trial(specimen, 4, seed=0)
    prompts, rows = material.prompts, torch.arange(len(material.batch))
    assert prompts is not None

    def scores() -> Tensor:
        logits = module(material.batch.tokens).logits[:, -1]
        return logits[rows, prompts.correct] - logits[rows, prompts.wrong]

    clean = scores()
    for layer, column in zip(module.model.layers, effects.matrix.T, strict=True):
        handle = layer.mlp.register_forward_hook(lambda _, __, out: torch.zeros_like(out))
        torch.testing.assert_close(column, clean - scores(), rtol=0, atol=1e-4)
        handle.remove()


@pytest.mark.slow
@torch.no_grad()
def test_a_set_pattern_weighs_values_and_not_what_heads_read(model_of: Callable[[str], Any]) -> None:
    wrapped, tokens, head = from_transformers(model_of("glm4_moe_lite")), tokens_of(0), Component(1, 2)
    table = torch.zeros(1, 7, 7)  # each token to the one before it, the first to itself
    table[:, 0, 0] = 1.0
    table[:, 1:] = torch.eye(7)[:-1]

    def put(value: Tensor, _: object) -> Tensor:
        value = value.clone()
        value[:, head.head] = table[0]
        return value

    plain = wrapped.run_with_hooks(tokens, fwd_hooks=[("blocks.1.attn.hook_pattern", put)])
    choice = torch.full((3, len(wrapped.components)), -1)
    patterns = PatternEdits.of(wrapped.config, [{head: 0}] * 3, table)
    plan = Plan(torch.arange(3), choice, patterns=patterns)
    scores = engine.run(Recordings(wrapped, Batch(tokens), all_logits()), plan, zeros(wrapped))
    torch.testing.assert_close(scores, plain, rtol=0, atol=1e-4)
    gated = from_transformers(model_of("qwen3_next"))
    plan = Plan(torch.arange(3), choice, patterns=PatternEdits.of(gated.config, [{head: 0}] * 3, table))
    with pytest.raises(BadInput, match="does not write its values by its patterns alone"):
        engine.run(Recordings(gated, Batch(tokens), all_logits()), plan, zeros(gated))


@pytest.mark.slow
@torch.no_grad()
def test_layers_without_heads_are_left_out_or_refused_by_name(model_of: Callable[[str], Any]) -> None:
    """Layers 0 and 2 have groups of channels; their patterns are not there, and layer 1's are not taken for them."""
    specimen = asked(model_of("qwen3_next"))
    model, config = specimen.model, specimen.model.config
    assert config.mixers == (0, 2)
    assert [str(site) for site in sites_of("pattern", config)] == [f"L1H{head}.pattern" for head in range(4)]
    none = "layer 0 of this wrapped qwen3_next model has groups of channels in the place of heads"
    for name in ("L0.pattern", "L0H1.q", "L0H0.v", "input->L0H1.q"):
        with pytest.raises(BadInput, match=none):
            parse_sites(name, config)
    with pytest.raises(BadInput, match="L1E0: neurons and experts are not taken apart in a wrapped qwen3_next model"):
        parse_sites("L1E0", config)
    with pytest.raises(BadInput, match=none):
        _ = model.run_with_cache(tokens_of(0), names="blocks.0.attn.hook_pattern")[1]["blocks.0.attn.hook_pattern"]
    with pytest.raises(BadInput, match="what heads attend to needs the patterns of every layer"):
        detect(specimen)
    with pytest.raises(BadInput, match="atlas needs the patterns of every layer"):
        ves.atlas(specimen)
    with pytest.raises(BadInput, match="method 'eap-ig' scores edges: layer 0 of this wrapped"):
        ves.discover(specimen, "eap-ig", n=4, force=True)
    with pytest.warns(Note, match="edges into it cannot be cut, so no connected circuit is searched"):
        found = ves.discover(specimen, n=8, force=True)
    assert found.method == "sweep"
    assert len(found.components) == len(model.components)
    assert "what heads attend to needs" in found.checks.missing["detectors"]


@pytest.mark.slow
@torch.no_grad()
def test_a_directory_is_wrapped_and_marked(model_of: Callable[[str], Any], tmp_path: Path) -> None:
    model_of("glm4_moe_lite").save_pretrained(tmp_path / "tiny")
    specimen = ves.load(tmp_path / "tiny", device="cpu")
    assert (specimen.id, specimen.name) == ("tiny", "tiny (wrapped)")
    assert "no family of this model_type" in specimen.describe()["wrapped"]
    values = zeros(specimen.model)
    rows = Plan.of(specimen.model.config, [Row(0, {"L1_MLP": 0})], width=7)
    assert engine.run(Recordings(specimen.model, Batch(tokens_of(0)), all_logits()), rows, values).shape == (1, 7, 53)
    agreement = ves.check(tmp_path / "tiny", device="cpu", progress=False)
    assert agreement.agrees
    assert agreement.family == "glm4_moe_lite"
    assert "wrapped (no family of this model_type)" in agreement.describe()
    with pytest.raises(BadInput, match="a wrapped glm4_moe_lite model is not written in our format"):
        save_model(specimen.model, tmp_path / "copy")
    with pytest.raises(BadInput, match="neurons and experts are not taken apart in a wrapped glm4_moe_lite model"):
        Plan.of(specimen.model.config, [Row(0, {"L0N3": 0})], width=7)


@pytest.mark.slow
def test_explain_refuses_layers_without_patterns(model_of: Callable[[str], Any]) -> None:
    model = from_transformers(model_of("qwen3_next"))
    behaviour = ves.load("arithmetic", device="cpu")
    with pytest.raises(BadInput, match="explain needs the patterns of every layer; sweep, what-if and discover do not"):
        explain_natural(replace(behaviour, model=model))


def test_what_cannot_be_wrapped_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = transformers.T5Config(vocab_size=53, d_model=16, d_kv=4, num_layers=2, num_heads=2, d_ff=16)
    with pytest.raises(BadInput, match="encoder"):
        from_transformers(transformers.T5ForConditionalGeneration(config))
    config = transformers.XLNetConfig(vocab_size=53, d_model=16, n_layer=2, n_head=2, d_inner=16)
    with pytest.raises(BadInput, match="'xlnet' is not supported, and transformers' module cannot be wrapped: "):
        from_transformers(transformers.XLNetLMHeadModel(config))
    monkeypatch.setattr("vesalius.model.huggingface.installed", lambda: False)
    with pytest.raises(BadInput, match=r"or wrap transformers' own module: pip install 'vesalius\[transformers\]'"):
        from_transformers(transformers.XLNetLMHeadModel(config))


@pytest.mark.slow
def test_attribution_where_a_layer_has_no_mlp(model_of: Callable[[str], Any]) -> None:
    """Nothing is written there on either prompt, so nothing is attributed; heads have what a gradient gives them."""
    wrapped, batch, other = from_transformers(model_of("mamba2")), Batch(tokens_of(0)), Batch(tokens_of(1))
    readout = Readout(lambda logits, _: logits[:, 0, 5] - logits[:, 0, 6], torch.full((3, 1), 6))
    scores = attribute(wrapped, batch, readout, Resample().table(wrapped, batch, counterfactual=other))
    of_mlps = [place for place, part in enumerate(wrapped.components) if part.head is None]
    assert not scores[:, of_mlps].any()
    tokens, hook = tokens_of(0), "blocks.1.attn.hook_z"
    new = wrapped.run_with_cache(tokens_of(1))[1][hook]
    with torch.enable_grad():
        kept: list[Tensor] = []

        def leaf(z: Tensor, _: object) -> Tensor:
            kept.append(z.detach().requires_grad_())
            return kept[-1]

        logits = wrapped.run_with_hooks(tokens, fwd_hooks=[(hook, leaf)])[:, 6]
        (slope,) = torch.autograd.grad((logits[:, 5] - logits[:, 6]).sum(), kept)
    expected = ((kept[0] - new) * slope).sum((1, 3))
    of_heads = [place for place, part in enumerate(wrapped.components) if part.layer == 1 and part.head is not None]
    torch.testing.assert_close(scores[:, of_heads], expected.detach().to(scores), rtol=1e-3, atol=1e-4)
