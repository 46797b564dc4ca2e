"""What heads and neurons read and write in tokens, from weights: the two ends of the residual stream are the embedding
and the unembedding, with the norms between folded in.

A head reads a token as its layer's norm makes it of the token's embedding, alone (*plain*) or with what the first MLP
adds to it (*effective*: nearly all that a later layer finds of a token; attention is left out). What it writes passes
the norm after attention, where a family has one, and the last norm; both only scale it, apart from their weights, and
figures are standardised over tokens, so the scale does not matter. Biases write the same for every token and are left
out.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from vesalius.components import Component
from vesalius.model.config import Config
from vesalius.model.hooks import Cache, HookPoint, Tap
from vesalius.model.mlp import widened
from vesalius.model.transformer import Block, Transformer

_QUIET = Tap()
#: Tokens that a list of raised or lowered ones has.
TOP = 5


class Writing:
    """The two ends of a model on a sample of tokens; `columns` are the tokens whose logits are read, of which the first
    `n` are the sample that figures are standardised over.
    """

    def __init__(self, model: Transformer, sample: Int[Tensor, " n"], further: Int[Tensor, " m"]) -> None:
        self.model, self.n = model, len(sample)
        columns = torch.cat([sample, further]).to(model.unembed_weight.device)
        self.unembed = widened(model.unembed_weight[columns])
        self.plain = embedded(model, sample)
        self.effective = self.plain + model.blocks[0].write_mlp(self.plain[:, None], _QUIET)[:, 0]
        self._of_heads: dict[int, Tensor] = {}

    def of_heads(self, layer: int) -> Float[Tensor, "head d_head column"]:
        """What the z of each head of a layer does to the logits of the columns; kept, since all tests need it."""
        if layer not in self._of_heads:
            block = self.model.blocks[layer]
            self._of_heads[layer] = (folded(self.model, block, block.attn.W_O) @ self.unembed.T).to(block.device)
        return self._of_heads[layer]

    def of_neurons(self, layer: int) -> Float[Tensor, " neuron"]:
        """How far each neuron of a layer's MLP moves one token of the sample beyond the others: the largest
        standardised logit, by size.
        """
        written = neuron_vectors(self.model, layer)
        return self.standardised(written @ self.unembed[: self.n].T).abs().amax(-1).cpu()

    def standardised(self, logits: Float[Tensor, "*batch column"]) -> Float[Tensor, "*batch column"]:
        """Logits in standard deviations from their mean over the sample."""
        centred = logits - logits[..., : self.n].mean(-1, keepdim=True)
        size = torch.linalg.vector_norm(centred[..., : self.n], dim=-1, keepdim=True)
        return centred / (size / max(self.n - 1, 1) ** 0.5).clamp(min=1e-12)

    def own_token(
        self, layer: int, inputs: Float[Tensor, "n d_model"]
    ) -> tuple[Float[Tensor, " head"], Float[Tensor, " head"]]:
        """What each head writes about the token that it reads: its standardised logit, mean over the sample, and its
        rank, median over the sample (0: no other token is raised more, 1: all are).
        """
        block = self.model.blocks[layer]
        values = read_values(block, inputs.to(block.device))
        logits = torch.einsum("nhk,hkc->hnc", values, self.of_heads(layer)[..., : self.n])
        own = self.standardised(logits).diagonal(dim1=1, dim2=2)
        rank = (logits > logits.diagonal(dim1=1, dim2=2)[..., None]).float().mean(-1)
        return own.mean(1).cpu(), rank.median(1).values.cpu()

    def in_run(
        self,
        layer: int,
        z: Float[Tensor, "prompt pos head d_head"],
        read: Float[Tensor, "prompt head query key"],
        columns: Int[Tensor, "prompt key"],
    ) -> Float[Tensor, " head"]:
        """What each head writes about the tokens that it reads in a run: the standardised logits of the tokens at the
        keys (`columns`, -1 where a key is none), weighted by `read`, how much it attends to each.
        """
        known = (columns >= 0).to(z.device)
        shape = (len(z), z.shape[2], z.shape[1], columns.shape[1])
        at_keys = columns.clamp(min=0).to(z.device)[:, None, None].expand(shape)
        logits = torch.einsum("pqhk,hkc->phqc", widened(z), self.of_heads(layer))
        own = self.standardised(logits).gather(-1, at_keys)
        weights = widened(read) * known[:, None, None]
        return ((own * weights).sum((0, 2, 3)) / weights.sum((0, 2, 3)).clamp(min=1e-12)).cpu()


def embedded(model: Transformer, tokens: Int[Tensor, " n"]) -> Float[Tensor, "n d_model"]:
    """The embeddings of tokens, without a position."""
    return F.embedding(tokens.to(model.device), model.W_E) * model.config.embed_scale


def read_values(block: Block, inputs: Float[Tensor, "n d_model"]) -> Float[Tensor, "n head d_head"]:
    """What every query head of a layer takes from a token, without the value bias; in a wrapped model with it."""
    return block.attn.read_values(widened(block.ln1(inputs[:, None].clone(), _QUIET))[:, 0])


def folded(model: Transformer, block: Block, written: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_model"]:
    """Vectors that attention writes, behind the norms that follow it, at scale 1; where the unembedding is."""
    return last_norm(model, block.ln1_post.share(widened(written), torch.ones(1, device=written.device)))


def last_norm(model: Transformer, written: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_model"]:
    """Vectors of the last residual stream behind the last norm, at scale 1; where the unembedding is."""
    device = model.unembed_weight.device
    return widened(model.ln_final.share(widened(written.to(device)), torch.ones(1, device=device)))


def raised_and_lowered(
    model: Transformer, vectors: Float[Tensor, "row d_model"], top: int = TOP
) -> tuple[Int[Tensor, "row top"], Int[Tensor, "row top"]]:
    """The tokens of the whole vocabulary whose logits vectors behind the last norm raise and lower most."""
    logits = vectors.to(model.unembed_weight.dtype) @ model.unembed_weight.T
    top = min(top, logits.shape[1])
    return logits.topk(top).indices.cpu(), logits.topk(top, largest=False).indices.cpu()


def written_for(model: Transformer, words: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
    """For every layer the tokens that its heads raise and lower where they read each of these tokens
    (`[head, word, top]`).
    """
    plain = embedded(model, torch.tensor(words))
    effective = plain + model.blocks[0].write_mlp(plain[:, None], _QUIET)[:, 0]
    found = []
    for layer, block in enumerate(model.blocks):
        values = read_values(block, (effective if layer else plain).to(block.device))
        vectors = folded(model, block, torch.einsum("nhk,hkd->hnd", values, widened(block.attn.W_O)))
        raised, lowered = raised_and_lowered(model, vectors.flatten(0, 1))
        shape = (block.attn.config.n_heads, len(words), -1)
        found.append((raised.view(shape), lowered.view(shape)))
    return found


def neuron_vectors(
    model: Transformer, layer: int, neurons: Sequence[int] | None = None
) -> Float[Tensor, "neuron d_model"]:
    """What neurons of a layer (None: all) write where they are active, behind the norms that follow."""
    block = model.blocks[layer]
    written = widened(block.mlp.W_out if neurons is None else block.mlp.W_out[list(neurons)])
    return last_norm(model, block.ln2_post.share(written, torch.ones(1, device=written.device)))


def weight_arithmetic(config: Config, *, sample: int, words: int, neurons: int) -> float:
    """The multiplications of the tests from weights, about."""
    h, k, d = config.n_heads, config.d_value, config.d_model
    heads = h * k * sample * (d + 3 * sample) + words * h * d * config.d_vocab_out
    mlps = config.d_mlp * d * sample + neurons * d * config.d_vocab_out
    return float(config.n_layers) * (heads + mlps)


# One MLP taken apart: what it reads, what it writes with some of its neurons kept or from another input, and where a
# token stands in that. One layer's arithmetic each; no forward pass.


def mlp_input(model: Transformer, layer: int, cache: Cache) -> Float[Tensor, "prompt pos d_model"]:
    """What a layer's MLP reads, before its norm, in a run that has kept `RECORDED_HOOKS`."""
    before = cache[f"blocks.{layer}.hook_resid_pre"]
    return model.blocks[layer].mlp_input(before, before + cache[f"blocks.{layer}.hook_attn_out"])


@torch.no_grad()
def mlp_output(model: Transformer, mlp: Component, read: Float[Tensor, "prompt d_model"]) -> Tensor:
    """What an MLP writes from an input, without its output bias."""
    block = model.blocks[mlp.layer]
    return (block.write_mlp(read[:, None], Tap()) - block.mlp_bias)[:, 0]


@torch.no_grad()
def with_neurons_kept(
    model: Transformer,
    mlp: Component,
    neurons: Sequence[int],
    *,
    read: Float[Tensor, "prompt pos d_model"],
    other: Float[Tensor, "prompt pos d_model"],
) -> Float[Tensor, "prompt pos d_model"]:
    """What an MLP writes where some neurons put out what they do for one input and all others what they do for
    another, without its output bias.
    """
    block, name = model.blocks[mlp.layer], f"blocks.{mlp.layer}.mlp.hook_post"
    tap = Tap(keep=lambda kept: kept == name)
    block.write_mlp(other, tap)
    put_out, kept = tap.stored[name], torch.tensor(list(neurons), dtype=torch.long, device=block.device)

    def swap(post: Tensor, _: HookPoint) -> Tensor:
        new = put_out.clone()
        new[..., kept] = post[..., kept]
        return new

    return block.write_mlp(read, Tap([(name, swap)])) - block.mlp_bias


@torch.no_grad()
def ranks(
    model: Transformer, vectors: Float[Tensor, "prompt d_model"], tokens: Int[Tensor, " prompt"]
) -> Float[Tensor, " prompt"]:
    """Of the other prompts' tokens the share that each prompt's own lies above, under the unembedding of a vector of
    each prompt; half of those that are equal. NaN where all prompts have one token.
    """
    ids = tokens.unique()
    read = last_norm(model, vectors)  # at any scale: the order of the logits is the same
    logits = (read @ widened(model.unembed_weight[ids.to(read.device)]).T).cpu()
    own = logits[torch.arange(len(tokens)), torch.searchsorted(ids, tokens)][:, None]
    above = (own > logits).float().sum(1) + 0.5 * ((own == logits).float().sum(1) - 1)
    return above / (len(ids) - 1) if len(ids) > 1 else torch.full((len(tokens),), torch.nan)


@torch.no_grad()
def final_margin(
    model: Transformer,
    resid: Float[Tensor, "prompt d_model"],
    over: Int[Tensor, " prompt"],
    under: Int[Tensor, " prompt"],
) -> Float[Tensor, " prompt"]:
    """logit(over) - logit(under) of last residual streams."""
    logits = model.unembed(resid[:, None], None, Tap())[:, 0]
    rows = torch.arange(len(resid), device=logits.device)
    return (logits[rows, over.to(logits.device)] - logits[rows, under.to(logits.device)]).float().cpu()
