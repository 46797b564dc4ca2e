"""The clean run of a batch, kept: what edited rows start from, and what can be read from it without another run."""

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode  # documented in "Extending PyTorch"
from torch.utils._pytree import tree_leaves

from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.intervene.readout import Readout
from vesalius.intervene.values import Batch
from vesalius.model.attention import take_positions
from vesalius.model.config import Config
from vesalius.model.devices import free_bytes
from vesalius.model.hooks import Cache, Tap
from vesalius.model.positions import Layout
from vesalius.model.transformer import Block, Transformer

#: Bytes of activations held at once where the device does not say how much it has free.
DEFAULT_MEMORY = 512 * 2**20
#: Bytes of the rows that a CPU computes together. Tensors of more than 32 MB are mapped anew, page by page, whenever
#: one is made; matrix products of a few thousand tokens are as fast as larger ones.
CHUNK_MEMORY = 128 * 2**20
#: Of a GPU's free memory, the part that activations may take: sums and copies under way need some as well.
FREE_SHARE = 0.4
#: Ends of the names of what a cached run keeps for a recording.
RECORDED_HOOKS = (".hook_resid_pre", ".attn.hook_z", ".hook_attn_out", ".hook_mlp_out")
_CLEAN = Tap()


@dataclass(frozen=True)
class Recording:
    """The clean run, each layer's part on its device. In the last layer z, mid, mlp and the final residual hold the
    readout's positions only.
    """

    layout: Layout
    at: Int[Tensor, "prompt query"] | None
    choose: Int[Tensor, "prompt choice"] | None
    pre: tuple[Float[Tensor, "prompt pos d_model"], ...]
    z: tuple[Float[Tensor, "prompt pos head d_head"], ...]
    mid: tuple[Float[Tensor, "prompt pos d_model"], ...]
    mlp: tuple[Float[Tensor, "prompt pos d_model"], ...]
    final: Float[Tensor, "prompt query d_model"]
    attention_share: float
    _keys_and_values: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def make(cls, model: Transformer, batch: Batch, readout: Readout) -> "Recording":
        """Run the prompts once, keeping what later rows start from."""
        batch, last = batch.to(model.device), model.config.n_layers - 1
        at = None if readout.at is None else readout.at.to(model.blocks[last].device)
        layout = model.layout(batch.tokens, batch.mask)
        resid = model.embed(batch.tokens, layout, _CLEAN)
        pre, z, mid, mlp = [], [], [], []
        for layer, block in enumerate(model.blocks):
            here, on_device = at if layer == last else None, layout.on(block.device)
            resid = resid.to(block.device)
            pre.append(resid)
            z.append(block.attn.mix(block.attn.heads(block.ln1(resid, _CLEAN), here, _CLEAN), on_device, here, _CLEAN))
            mid.append(_at(resid, here) + block.write_heads(z[-1], _CLEAN))
            mlp.append(block.write_mlp(block.mlp_input(_at(resid, here), mid[-1]), _CLEAN))
            resid = mid[-1] + mlp[-1]
        choose = None if readout.choose is None else readout.choose.to(model.b_U.device)
        return cls(
            layout, at, choose, tuple(pre), tuple(z), tuple(mid), tuple(mlp), resid, attention_share(model.blocks[0])
        )

    @classmethod
    def of_run(cls, model: Transformer, batch: Batch, readout: Readout, cache: Cache) -> "Recording":
        """The same from a cached run of the prompts, which has kept `RECORDED_HOOKS` and the last residual stream."""
        layers, last = range(model.config.n_layers), model.config.n_layers - 1
        at = None if readout.at is None else readout.at.to(model.blocks[last].device)

        def kept(name: str) -> tuple[Tensor, ...]:
            parts = [cache[f"blocks.{layer}.{name}"] for layer in layers]
            return (*parts[:last], _at(parts[last], at))

        pre = tuple(cache[f"blocks.{layer}.hook_resid_pre"] for layer in layers)
        mid = (a + b for a, b in zip((*pre[:last], _at(pre[last], at)), kept("hook_attn_out"), strict=True))
        batch, choose = batch.to(model.device), None if readout.choose is None else readout.choose.to(model.b_U.device)
        return cls(
            model.layout(batch.tokens, batch.mask),
            at,
            choose,
            pre,
            kept("attn.hook_z"),
            tuple(mid),
            kept("hook_mlp_out"),
            _at(cache[f"blocks.{last}.hook_resid_post"], at),
            attention_share(model.blocks[0]),
        )

    def keys_and_values(self, model: Transformer, layer: int) -> tuple[Tensor, Tensor]:
        """The keys, rotated to their places, and the values of a layer; computed when first needed, and kept."""
        if layer not in self._keys_and_values:
            block, pre = model.blocks[layer], self.pre[layer]
            one_query = torch.zeros(len(pre), 1, dtype=torch.long, device=pre.device)
            _, k, v = block.attn.heads(block.ln1(pre, _CLEAN), one_query, _CLEAN)
            self._keys_and_values[layer] = block.attn.keys_at(k, self.layout.on(block.device)), v
        return self._keys_and_values[layer]

    def output(
        self, model: Transformer, component: Component, prompts: slice | Int[Tensor, " n"] = slice(None)
    ) -> Float[Tensor, "n pos width"]:
        """What a component wrote, in the form of `Values`: a head's z, an MLP's output without its bias."""
        if component.head is None:
            return self.mlp[component.layer][prompts] - model.blocks[component.layer].mlp_bias
        return self.z[component.layer][prompts, :, component.head]


class Recordings:
    """Clean runs of a batch, made once and kept where they fit into `memory`, else made again chunk by chunk at every
    use. `n_run` counts the prompts run. `ran` gives the run of all prompts where another has been made anyway.
    """

    def __init__(
        self,
        model: Transformer,
        batch: Batch,
        readout: Readout,
        *,
        memory: int | None = None,
        ran: Callable[[], Recording] | None = None,
    ) -> None:
        if not len(batch):
            raise BadInput("the list of prompts is empty; give at least one")
        self.model, self.batch, self.readout, self.n_run = model, batch, readout, 0
        per_prompt = prompt_bytes(model, batch.tokens.shape[1])
        self._at_once = max(1, activation_memory(model, memory) // per_prompt)
        self._kept: tuple[Readout, Recording] | None = None
        self._runs: Recordings | None = None
        self._ran = ran

    def read_as(self, readout: Readout) -> "Recordings":
        """The same clean runs under another readout of the same positions. Where they are kept, they are made once for
        both.
        """
        other = Recordings(self.model, self.batch, readout)
        other._at_once = self._at_once
        if _same(self.readout.at, readout.at):
            other._runs = self._runs or self
        return other

    @torch.no_grad()
    def chunks(self) -> Iterator[tuple[int, int, Readout, Recording]]:
        """First prompt, number of prompts, their readout and their clean run."""
        n = len(self.batch)
        if n <= self._at_once:
            if self._kept is None:
                self._kept = self.readout, self._made() if self._runs is None else self._shared(self._runs)
            yield 0, n, *self._kept
            return
        for start in range(0, n, self._at_once):
            prompts = torch.arange(start, min(start + self._at_once, n))
            readout = self.readout.take(prompts)
            self.n_run += len(prompts)
            yield start, len(prompts), readout, Recording.make(self.model, self.batch.take(prompts), readout)

    def _made(self) -> Recording:
        if self._ran is not None:
            return self._ran()
        self.n_run = len(self.batch)
        return Recording.make(self.model, self.batch, self.readout)

    def _shared(self, runs: "Recordings") -> Recording:
        """The run of other recordings, with the tokens that this readout asks for."""
        ((_, _, _, recording),) = runs.chunks()
        choose = self.readout.choose
        return replace(recording, choose=None if choose is None else choose.to(self.model.b_U.device))

    @torch.no_grad()
    def scores(self) -> Tensor:
        """The readout of every prompt with nothing replaced."""
        parts = []
        for _, n, readout, recording in self.chunks():
            logits = self.model.unembed(recording.final, recording.choose, _CLEAN, mean=readout.mean)
            parts.append(readout.score(logits, torch.arange(n, device=logits.device)))
        return torch.cat(parts)

    def outputs(self, components: Sequence[Component]) -> dict[Component, Float[Tensor, "prompt pos width"]]:
        """What components wrote, in the form of `Values`: a head's z, an MLP's output without its bias."""
        parts = [
            {component: recording.output(self.model, component) for component in components}
            for _, _, _, recording in self.chunks()
        ]
        return {component: torch.cat([part[component] for part in parts]) for component in components}

    @torch.no_grad()
    def patterns(self, heads: Sequence[Component]) -> dict[Component, Float[Tensor, "prompt query key"]]:
        """The attention patterns of heads, computed again from the streams that enter their layers."""
        layers, found = sorted({head.layer for head in heads}), dict[Component, list[Tensor]]()
        for _, _, _, recording in self.chunks():
            for layer in layers:
                block, tap = self.model.blocks[layer], Tap(keep=lambda name: name.endswith("hook_pattern"))
                inputs = block.attn.heads(block.ln1(recording.pre[layer], _CLEAN), None, _CLEAN)
                block.attn.mix(inputs, recording.layout.on(block.device), None, tap)
                (pattern,) = tap.stored.values()
                for head in heads:
                    if head.layer == layer:
                        found.setdefault(head, []).append(pattern[:, head.head or 0].cpu())
        return {head: torch.cat(found[head]) for head in heads}

    def resid(self, layer: int) -> Float[Tensor, "prompt pos d_model"]:
        """The residual stream that enters a layer."""
        return torch.cat([recording.pre[layer] for _, _, _, recording in self.chunks()])


def memory_for(device: torch.device, memory: int | None) -> int:
    """The bytes of activations to hold at once: what the caller said, else a share of what a GPU has free, else 512
    MB.
    """
    if memory is not None:
        return memory
    if device.type != "cuda":
        return DEFAULT_MEMORY
    return int(FREE_SHARE * free_bytes(device))


def activation_memory(model: Transformer, memory: int | None) -> int:
    """The same for a model: of several devices, the one with least room decides."""
    return min(memory_for(device, memory) for device in model.devices)


def chunk_memory(model: Transformer, memory: int | None) -> int:
    """The same for the rows that are computed together: what the caller said, on CPUs `CHUNK_MEMORY`."""
    on_cpu = all(device.type == "cpu" for device in model.devices)
    return CHUNK_MEMORY if memory is None and on_cpu else activation_memory(model, memory)


def _same(first: Tensor | None, second: Tensor | None) -> bool:
    if first is None or second is None:
        return first is second
    return torch.equal(first.cpu(), second.cpu())


def _at(x: Tensor, at: Tensor | None) -> Tensor:
    return x if at is None else take_positions(x, at)


def prompt_bytes(model: Transformer, width: int) -> int:
    """Bytes of the clean run of one prompt."""
    config = model.config
    per_token = config.d_model * 4 + config.n_kv_heads * (config.d_head + config.d_value)
    return width * per_token * config.n_layers * model.W_E.element_size()


def attention_share(block: Block) -> float:
    """Attention's part of a layer's work, by weights."""
    attention = sum(p.numel() for p in block.attn.parameters())
    return attention / (attention + sum(p.numel() for p in block.mlp.parameters()))


def kept_bytes(model: Transformer, width: int) -> int:
    """Bytes of what an explanation keeps of a run of one prompt: the clean run, and where every token looks."""
    config = model.config
    patterns = config.n_heads * width**2 * config.n_layers * model.W_E.element_size()
    return prompt_bytes(model, width) + patterns


# How many bytes a computation holds at its peak, found without the numbers.
#
# A model without weights (on torch's `meta` device) is run through the same code as the real one: every tensor has its
# shape and no content. `LiveMemory` counts the storages that are alive at the same time, as a GPU's allocator does.


class LiveMemory(TorchDispatchMode):
    """Within this context, the bytes of tensors on one kind of device that are alive (`current`) and were at most
    (`peak`). What `known` holds is not counted. Numbers that leave the `meta` device are zeros.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch's compiler takes seconds to import, and nothing is compiled here

    def __init__(self, device: str, known: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.device, self.current, self.peak = device, 0, 0
        self._alive: dict[int, Any] = {id(tensor.untyped_storage()): tensor for tensor in known}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._to_copy.default and args[0].is_meta and kwargs.get("device") == torch.device("cpu"):
            return torch.zeros(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
        result = func(*args, **kwargs)
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and tensor.device.type == self.device:
                self._note(tensor.untyped_storage())
        return result

    def _note(self, storage: torch.UntypedStorage) -> None:
        name, size = id(storage), storage.nbytes()
        if name in self._alive:
            return
        self._alive[name] = weakref.finalize(storage, self._free, name, size)
        self.current += size
        self.peak = max(self.peak, self.current)

    def _free(self, name: int, size: int) -> None:
        self._alive.pop(name, None)
        self.current -= size


def runnable_shape(config: Config, dtype: torch.dtype) -> Transformer:
    """A model of this shape that runs without numbers. MLPs made of experts become one MLP as wide as the experts that
    a token passes, since which ones it passes is decided by numbers.
    """
    if config.experts is not None:
        config = config.model_copy(update={"experts": None, "d_mlp": max(config.d_mlp, config.experts.d_active)})
    return shape_of(config, dtype)


def shape_of(config: Config, dtype: torch.dtype) -> Transformer:
    """A model of this shape without memory for its weights."""
    with torch.device("meta"):
        model = Transformer(config)
    for name, weight in model.named_parameters():
        if not name.endswith((".w", ".b")):
            weight.data = weight.data.to(dtype)
    return model.eval().requires_grad_(False)
