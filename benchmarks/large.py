"""Large models: a sweep of all components against loops of hooked transformers forwards, edge attribution, memory
against the plan, and the same scores over two devices.

Weights are random, made on the device in the shape of a published model; nothing is downloaded. Prompts are random
tokens, the readout is a logit difference at the last position, heads and MLPs are zeroed.

Two rivals run transformers' own module with hooks. `loop` is what one writes: one forward per component over all
prompts. `batched_loop` puts many components into one forward, each in rows of its own, as far as memory allows; it
computes every layer of every row. Both read the last position only, without a key-value cache. A sample of components
is timed, evenly spread over the model, and scaled to all of them.

    python -m benchmarks.large --shape 8b --device cuda
    python -m benchmarks.large --shape tiny --device cpu
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vesalius.components import Component
from vesalius.intervene import Batch, Readout, effects, logit_difference
from vesalius.intervene.attribution import edge_attribution
from vesalius.intervene.edges import EdgeGraph
from vesalius.intervene.estimate import Prompts, attribution_peak, sweep_peak
from vesalius.intervene.recordings import FREE_SHARE, activation_memory
from vesalius.model import Config, Transformer
from vesalius.model.config import Rotary
from vesalius.model.devices import spread, weight_bytes

STEPS = 5
#: Bytes of one NVIDIA H200, for plans of models that are not loaded.
H200 = 139 * 2**30


@dataclass(frozen=True)
class Shape:
    """Sizes of a Llama model, and of the prompts it is measured on."""

    n_layers: int
    d_model: int
    n_heads: int
    n_kv_heads: int
    d_mlp: int
    d_vocab: int
    prompts: int = 4
    width: int = 64
    sample: int = 32
    dtype: torch.dtype = torch.bfloat16

    def config(self) -> Config:
        """The shape as our transformer takes it."""
        return Config(
            n_layers=self.n_layers,
            n_heads=self.n_heads,
            n_kv_heads=self.n_kv_heads,
            d_model=self.d_model,
            d_head=self.d_model // self.n_heads,
            d_mlp=self.d_mlp,
            d_vocab=self.d_vocab,
            d_vocab_out=self.d_vocab,
            n_ctx=8192,
            norm="rms",
            rotary=Rotary(base=500_000.0),
            activation="silu",
            gated=True,
        )


SHAPES = {
    "tiny": Shape(4, 64, 4, 2, 160, 512, prompts=4, width=16, sample=20, dtype=torch.float32),
    "1b": Shape(16, 2048, 32, 8, 8192, 128256),
    "8b": Shape(32, 4096, 32, 8, 14336, 128256),
    "70b": Shape(80, 8192, 64, 8, 28672, 128256),
}


def random_weights(shape: Shape, device: torch.device) -> Transformer:
    """A model whose weights are drawn on the device."""
    with torch.device("meta"):
        model = Transformer(shape.config())
    for name, weight in model.named_parameters():
        if not name.endswith(".w"):
            weight.data = weight.data.to(shape.dtype)
    model.to_empty(device=device)
    generator = torch.Generator(device=device).manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(".w"):
                weight.fill_(1.0)
            elif weight.ndim == 1:
                weight.zero_()
            else:
                weight.normal_(0, 0.02 if shape.d_model > 64 else 0.2, generator=generator)
    return model.eval().requires_grad_(False)


def transformers_twin(shape: Shape, model: Transformer, device: torch.device) -> Any:
    """transformers' own module with copies of our weights."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(
        vocab_size=shape.d_vocab,
        hidden_size=shape.d_model,
        intermediate_size=shape.d_mlp,
        num_hidden_layers=shape.n_layers,
        num_attention_heads=shape.n_heads,
        num_key_value_heads=shape.n_kv_heads,
        max_position_embeddings=8192,
        rms_norm_eps=model.config.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": 500_000.0},
        tie_word_embeddings=False,
    )
    with torch.device(device):
        twin = AutoModelForCausalLM.from_config(config, dtype=shape.dtype, attn_implementation="sdpa")
    with torch.no_grad():
        twin.model.embed_tokens.weight.copy_(model.W_E)
        twin.lm_head.weight.copy_(model.unembed_weight)
        for ours, theirs in zip(model.blocks, twin.model.layers, strict=True):
            attention, mlp = theirs.self_attn, theirs.mlp
            pairs = [(attention.q_proj, ours.attn.query), (attention.k_proj, ours.attn.key)]
            pairs += [(attention.v_proj, ours.attn.value), (attention.o_proj, ours.attn.output)]
            pairs += [(mlp.up_proj, ours.mlp.W_in), (mlp.gate_proj, ours.mlp.W_gate), (mlp.down_proj, ours.mlp.W_out)]
            for projection, weight in pairs:
                projection.weight.copy_(weight.T)
    return twin.eval().requires_grad_(False)


class Measurement:
    """Tokens, readout and components of one shape."""

    def __init__(self, shape: Shape, device: torch.device) -> None:
        self.shape, self.device = shape, device
        generator = torch.Generator().manual_seed(1)
        n, width, size = shape.prompts, shape.width, shape.d_vocab
        self.tokens, self.others = (torch.randint(0, size, (n, width), generator=generator).to(device) for _ in "ab")
        self.right, self.wrong = (torch.randint(0, size, (n,), generator=generator).to(device) for _ in "ab")
        self.readout: Readout = logit_difference(torch.full((n,), width - 1), self.right.cpu(), self.wrong.cpu())

    def read(self, logits: Tensor) -> Tensor:
        """The readout of transformers' logits [row, 1, vocabulary]; rows run over components, then prompts."""
        rows, times = torch.arange(len(logits), device=logits.device), len(logits) // len(self.tokens)
        return logits[rows, -1, self.right.repeat(times)].float() - logits[rows, -1, self.wrong.repeat(times)].float()

    def timed(self, work: Callable[[], Any]) -> tuple[Any, float]:
        """What `work` returns, and its seconds."""
        self._wait()
        start = time.perf_counter()
        result = work()
        self._wait()
        return result, time.perf_counter() - start

    def with_peak(self, work: Callable[[], Any]) -> tuple[Any, float, int | None]:
        """The same with the bytes allocated at the peak (None where the device does not count them)."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)
        result, seconds = self.timed(work)
        return result, seconds, torch.cuda.max_memory_allocated(self.device) if self.device.type == "cuda" else None

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


@torch.no_grad()
def hooked(measured: Measurement, twin: Any, components: Sequence[Component]) -> Tensor:
    """Edited scores [component, prompt] by one forward of transformers' module, each component zeroed in its rows."""
    n, d_head, handles = len(measured.tokens), measured.shape.d_model // measured.shape.n_heads, []
    for i, component in enumerate(components):
        rows, layer = slice(i * n, (i + 1) * n), twin.model.layers[component.layer]
        if component.head is None:
            handles.append(
                layer.mlp.register_forward_hook(lambda _, __, out, rows=rows: _zeroed(out, rows, slice(None)))
            )
        else:
            span = slice(component.head * d_head, (component.head + 1) * d_head)
            handles.append(
                layer.self_attn.o_proj.register_forward_pre_hook(
                    lambda _, inputs, rows=rows, span=span: (_zeroed(inputs[0], rows, span),)
                )
            )
    try:
        logits = twin(measured.tokens.repeat(len(components), 1), use_cache=False, logits_to_keep=1).logits
        return measured.read(logits).view(len(components), n).cpu()
    finally:
        for handle in handles:
            handle.remove()


def _zeroed(x: Tensor, rows: slice, span: slice) -> Tensor:
    x[rows, :, span] = 0
    return x


def loops(measured: Measurement, model: Transformer, twin: Any, batch: int) -> dict[str, Any]:
    """Seconds of both rivals for all components, from a sample of them; scores of the sample."""
    every = model.components
    step = max(1, len(every) // measured.shape.sample)
    sample = every[step // 2 :: step]
    hooked(measured, twin, sample[:1])
    one_by_one, seconds = measured.timed(lambda: torch.cat([hooked(measured, twin, [part]) for part in sample]))
    many = (sample * (1 + batch // len(sample)))[:batch]
    hooked(measured, twin, many)
    _, batched_seconds = measured.timed(lambda: hooked(measured, twin, many))
    return {
        "sample": sample,
        "scores": one_by_one,
        "loop_seconds": seconds * len(every) / len(sample),
        "batched_loop_seconds": batched_seconds * len(every) / len(many),
        "sampled_components": len(sample),
        "components_per_batch": len(many),
    }


def memory_line(planned: int, measured: int | None) -> dict[str, Any]:
    """Planned and measured bytes, and how far the plan is off."""
    off = None if measured is None else planned / measured - 1
    return {"planned_bytes": planned, "measured_bytes": measured, "plan_off_by": off}


def ours(measured: Measurement, model: Transformer) -> tuple[dict[str, Any], Any]:
    """Seconds and memory of the sweep, of EAP and of EAP-IG, each against its plan; and the effects."""
    shape, config = measured.shape, model.config
    batch, other, readout = Batch(measured.tokens), Batch(measured.others), measured.readout
    every, weights, memory = [(part,) for part in model.components], weight_bytes(model), activation_memory(model, None)
    sizes = Prompts(shape.prompts, shape.width)
    planned = {"sweep": sweep_peak(config, shape.dtype, sizes, every, "zero", memory=memory)}
    planned |= {
        name: attribution_peak(config, shape.dtype, sizes, steps=steps, memory=memory)
        for name, steps in (("eap", 1), ("eap_ig", STEPS))
    }

    def attributed(steps: int) -> Tensor:
        return edge_attribution(model, batch, readout, counterfactual=other, steps=steps, memory=memory)

    effects(model, batch, readout, sets=every[:: max(1, len(every) // 16)], memory=memory)
    swept, seconds, peak = measured.with_peak(lambda: effects(model, batch, readout, memory=memory))
    lines = {
        "components": len(every),
        "sweep": {"seconds": seconds, "forwards": swept.forwards, **memory_line(weights + planned["sweep"], peak)},
    }
    attributed(1)
    for name, steps in (("eap", 1), ("eap_ig", STEPS)):
        scores, seconds, peak = measured.with_peak(lambda steps=steps: attributed(steps))
        line = {"seconds": seconds, "edges": int(EdgeGraph.of(config).real.sum()), "steps": steps}
        lines[name] = {**line, **memory_line(weights + planned[name], peak)}
        del scores
    return lines, swept


def two_devices(measured: Measurement, model: Transformer) -> dict[str, Any]:
    """Largest relative difference of scores when layers are spread over two logical devices (the same one twice)."""
    batch, other, readout = Batch(measured.tokens), Batch(measured.others), measured.readout
    memory = activation_memory(model, None)
    one = effects(model, batch, readout, memory=memory)
    before = edge_attribution(model, batch, readout, counterfactual=other, memory=memory)
    spread(model, [measured.device, measured.device], [1, 1])
    again = effects(model, batch, readout, memory=memory)
    after = edge_attribution(model, batch, readout, counterfactual=other, memory=memory)
    return {
        "devices": [str(measured.device)] * 2,
        "sweep_difference": relative(one.matrix, again.matrix),
        "eap_difference": relative(before, after),
    }


def relative(one: Tensor, other: Tensor) -> float:
    """Largest difference as a share of the largest magnitude."""
    return float((one - other).abs().max() / one.abs().max().clamp(min=1e-30))


def plan_only(name: str) -> dict[str, Any]:
    """Memory of a sweep at a shape that is not loaded, on as many H200s as its weights need."""
    shape = SHAPES[name]
    config, sizes = shape.config(), Prompts(shape.prompts, shape.width)
    with torch.device("meta"):
        model = Transformer(config)
    weights = sum(weight.numel() for weight in model.parameters()) * shape.dtype.itemsize
    devices = 1
    while weights / devices > 0.75 * H200:
        devices += 1
    memory = int(FREE_SHARE * (H200 - weights / devices))
    every = [(part,) for part in model.components]
    activations = sweep_peak(config, shape.dtype, sizes, every, "zero", memory=memory)
    return {
        "shape": name,
        "weight_bytes": weights,
        "activation_bytes": activations,
        "peak_bytes": weights + activations,
        "devices": devices,
        "components": len(every),
    }


def measure(name: str, device: torch.device) -> dict[str, Any]:
    """The whole document of one shape."""
    shape = SHAPES[name]
    measured = Measurement(shape, device)
    model, made = measured.timed(lambda: random_weights(shape, device))
    lines, swept = ours(measured, model)
    lines["two_devices"] = two_devices(measured, model)
    if device.type == "cuda":
        torch.cuda.empty_cache()
    twin = transformers_twin(shape, model, device)
    rival = loops(measured, model, twin, batch=64)
    sample, theirs = rival.pop("sample"), rival.pop("scores")
    places = [model.components.index(part) for part in sample]
    edited = (swept.baseline[:, None] - swept.matrix)[:, places].T
    seconds = lines["sweep"]["seconds"]
    return {
        "shape": name,
        "dtype": str(shape.dtype).removeprefix("torch."),
        "prompts": shape.prompts,
        "tokens": shape.width,
        "weights_seconds": made,
        **lines,
        "transformers": {**rival, "largest_difference": float((edited - theirs).abs().max())},
        "largest_score": float(swept.baseline.abs().max()),
        "ratio_to_loop": rival["loop_seconds"] / seconds,
        "ratio_to_batched_loop": rival["batched_loop_seconds"] / seconds,
    }


def main() -> None:
    """Measure one shape and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=[name for name in SHAPES if name != "70b"], default="8b")
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    device, start = torch.device(arguments.device), time.perf_counter()
    device = torch.device("cuda", torch.cuda.current_device()) if device.type == "cuda" else device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    document: dict[str, object] = {"benchmark": "large", "machine": {"device": name, "torch": torch.__version__}}
    document |= measure(arguments.shape, device)
    document["plans"] = [plan_only("70b")]
    document["seconds"] = time.perf_counter() - start
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
