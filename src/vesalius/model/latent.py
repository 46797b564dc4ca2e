"""Latent attention, as in DeepSeek: keys and values are read from one small normed vector of every token.

Weights have the names of DeepSeek's papers: `W_DKV` goes down to the latent, `W_UK` and `W_UV` up from it to the keys
and values of every head; `W_KR` reads the part of the key that rotates and that all heads share. Queries come from a
latent of their own (`W_DQ`, `W_UQ`) or from the input (`W_Q`). The rotated numbers of queries and keys come first.

What a head reads is the normed residual stream, as in other attention: an input of its own for its queries, keys or
values goes through latents of its own. Norms stand between, so that no one matrix leads from the stream to a key or
value.
"""

from collections.abc import Sequence
from typing import NoReturn

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vesalius.errors import BadInput
from vesalius.model.attention import Attention, HeadPort, Heads, per_head, take_positions
from vesalius.model.hooks import Tap
from vesalius.model.mlp import NormLayer, widened

_QUIET = Tap()


class LatentAttention(Attention):
    """Attention whose keys and values, and queries where `d_query` is given, come from normed latents."""

    def make_inputs(self) -> None:
        """The weights of latents and of what is read from them."""
        config, latent, d = self.config, self.config.latent, self.config.d_model
        assert latent is not None
        assert config.rotary is not None
        assert config.rotary.d_rotary is not None
        self.latent, self.d_rotary = latent, config.rotary.d_rotary
        h, plain = config.n_heads, config.d_head - self.d_rotary

        def matrix(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(shape))

        def norm(width: int, name: str) -> NormLayer:
            return NormLayer("rms" if width else "none", width, latent.norm_eps, f"{self.prefix}{name}")

        self.W_DQ = matrix(d, latent.d_query) if latent.d_query else None
        self.b_DQ = matrix(latent.d_query) if latent.d_query else None
        self.up_q = matrix(latent.d_query or d, h * config.d_head)
        self.W_DKV, self.b_DKV = matrix(d, latent.d_latent), matrix(latent.d_latent)
        self.W_KR, self.b_KR = matrix(d, self.d_rotary), matrix(self.d_rotary)
        self.up_k, self.up_v = matrix(latent.d_latent, h * plain), matrix(latent.d_latent, h * latent.d_value)
        self.q_latent_norm = norm(latent.d_query, "q_latent_norm")
        self.latent_norm = norm(latent.d_latent, "latent_norm")

    W_UQ = property(lambda self: per_head(self.up_q, self.config.n_heads), doc="[n_heads, d_query, d_head]")
    W_UK = property(lambda self: per_head(self.up_k, self.config.n_heads), doc="[n_heads, d_latent, d_head - d_rotary]")
    W_UV = property(lambda self: per_head(self.up_v, self.config.n_heads), doc="[n_heads, d_latent, d_value]")

    linear = property(lambda self: False, doc="Whether queries, keys and values are linear in their input.")
    norms = ("q_latent_norm", "latent_norm")

    @property
    def weights(self) -> tuple[str, ...]:  # type: ignore[override]
        """The names of its weights."""
        queries = ("W_DQ", "b_DQ", "W_UQ") if self.latent.d_query else ("W_Q",)
        return (*queries, "W_DKV", "b_DKV", "W_KR", "b_KR", "W_UK", "W_UV", "W_O", "b_O", "sinks")

    @property
    def W_Q(self) -> Float[Tensor, "head d_model d_head"]:  # type: ignore[override]
        """Queries that are read from the input."""
        return self._none() if self.latent.d_query else self.W_UQ

    def _none(self) -> NoReturn:
        raise BadInput(
            "this model has latent attention: a norm stands between its input and its queries, keys and values, so no "
            "head has a matrix or bias of them; read attn.hook_q, hook_k and hook_v in a run instead"
        )

    query = key = value = property(_none, doc="Not one matrix.")
    W_K = W_V = b_Q = b_K = b_V = property(_none, doc="Not one matrix or bias.")

    def heads(self, x: Float[Tensor, "batch pos d_model"], at: Int[Tensor, "batch query"] | None, tap: Tap) -> Heads:
        """Queries (at chosen positions only, if given), keys and values, before rotation."""
        n = self.config.n_heads
        q = (self._read_by_queries(x if at is None else take_positions(x, at), tap) @ self.up_q).unflatten(-1, (n, -1))
        latent, shared = self._latent(x, tap), self._shared_key(x)
        k = (latent @ self.up_k).unflatten(-1, (n, -1))
        k = torch.cat([shared.unsqueeze(2).expand(-1, -1, n, -1), k], -1)
        parts = zip("qkv", (q, k, (latent @ self.up_v).unflatten(-1, (n, -1))), strict=True)
        return Heads(*(tap(f"{self.prefix}hook_{port}", part) for port, part in parts))

    def own(
        self,
        port: HeadPort,
        x: Float[Tensor, "*batch head row d_model"],
        query_heads: Sequence[int],
        *,
        tap: Tap = _QUIET,
    ) -> Float[Tensor, "*batch head row d_head"]:
        """The queries, keys or values of heads, each from an input of its own."""
        heads = list(query_heads)
        if port == "q":
            return self._read_by_queries(x, tap) @ self.W_UQ[heads]
        latent = self._latent(x, tap)
        if port == "v":
            return latent @ self.W_UV[heads]
        return torch.cat([self._shared_key(x), latent @ self.W_UK[heads]], -1)

    def held(
        self,
        port: HeadPort,
        head: int,
        x: Float[Tensor, "place d_model"],
        parts: Float[Tensor, "part place d_model"],
        *,
        biased: bool,
    ) -> Float[Tensor, "part place d_head"]:
        """What parts of a normalised input add to a head's query, key or value, with the norms of latents held."""

        def down(weight: Tensor, bias: Tensor, norm: NormLayer | None = None) -> Tensor:
            weight, bias, added = weight.to(x), bias.to(x), parts @ weight.to(x)
            if biased:
                added[-1] += bias
            return added if norm is None else norm.share(added, norm.scale(x @ weight + bias))

        if port == "q":
            read = parts if self.W_DQ is None or self.b_DQ is None else down(self.W_DQ, self.b_DQ, self.q_latent_norm)
            return read @ self.W_UQ[head].to(x)
        latent = down(self.W_DKV, self.b_DKV, self.latent_norm)
        if port == "v":
            return latent @ self.W_UV[head].to(x)
        return torch.cat([down(self.W_KR, self.b_KR), latent @ self.W_UK[head].to(x)], -1)

    def read_values(self, x: Float[Tensor, "n d_model"]) -> Float[Tensor, "n head d_value"]:
        """The values that every head takes from normalised input, with what the latent's bias adds."""
        latent = self.latent_norm(x @ widened(self.W_DKV) + widened(self.b_DKV), _QUIET)
        return torch.einsum("nl,hlv->nhv", latent, widened(self.W_UV))

    def _read_by_queries(self, x: Float[Tensor, "*batch d_model"], tap: Tap) -> Float[Tensor, "*batch read"]:
        """What queries are read from: their latent, or the input."""
        if self.W_DQ is None or self.b_DQ is None:
            return x
        return self.q_latent_norm(x @ self.W_DQ + self.b_DQ, tap)

    def _latent(self, x: Float[Tensor, "*batch d_model"], tap: Tap) -> Float[Tensor, "*batch d_latent"]:
        return self.latent_norm(x @ self.W_DKV + self.b_DKV, tap)

    def _shared_key(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_rotary"]:
        return x @ self.W_KR + self.b_KR
