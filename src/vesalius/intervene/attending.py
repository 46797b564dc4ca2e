"""Why a head attends, and what it carries: the score of one query on one key as a sum over what was written upstream.

1. The residual stream that enters the head's layer is, at the query and at the key, a sum over *sources*: the token's
   embedding, the position's (where positions are learned), every head and MLP of earlier layers, and all biases. ALiBi
   positions write nothing; what their distance takes from the score is the pair of the position with itself.
2. Norms divide by the scale that they have in the run, also those on queries, keys and latents, and limits on
   projections keep the factor that they have there. Held fixed, everything from the stream to a rotated query or key
   is linear.
3. So the score, before a soft cap, is a sum over pairs (source at the query, source at the key), and the value that the
   head reads at the key a sum over sources; both sums are exact.
4. A pair is *confirmed* by path patching: its sources' contributions to the head's query input and to its key input
   alone are taken out, or replaced by those on another prompt, norms run again, and what the score loses by both
   together but not by each alone is compared with what the sum says.

Sums are in float64, whatever the model's number format: what is left is what the run itself rounds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.intervene.values import OUTPUT_HOOKS
from vesalius.model.attention import HeadPort
from vesalius.model.hooks import Tap
from vesalius.model.positions import Layout, rotate
from vesalius.model.transformer import Block, Transformer

TOKEN, POSITION, BIASES = "token", "position", "biases"
_CLEAN = Tap()


@dataclass(frozen=True)
class AttentionParts:
    """One head on one prompt, at one query and one key; tensors of places hold the query's first, then the key's, then
    those of the rivals.
    """

    model: Transformer
    tokens: Int[Tensor, "1 pos"]
    head: Component
    query: int
    key: int
    #: The same head on another prompt of as many tokens: what contributions are replaced by; None takes them out.
    other: "AttentionParts | None" = None
    #: Other keys, which `pairs_beyond` compares with.
    rivals: tuple[int, ...] = ()
    #: A run of the prompt that was made before, which has kept what `_cache` keeps.
    ran: Mapping[str, Tensor] | None = None
    _alone: dict[tuple[int | None, int | None], float] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def _cache(self) -> Mapping[str, Tensor]:
        if self.ran is not None:
            return self.ran
        layer = self.head.layer
        last = f"blocks.{self.model.config.n_layers - 1}.hook_resid_post"
        own = (f"blocks.{layer}.attn.hook_pattern", f"blocks.{layer}.attn.hook_z", last)
        named = {"hook_embed", "hook_pos_embed", *own}

        def kept(name: str) -> bool:
            return name in named or name.endswith((*OUTPUT_HOOKS, ".hook_resid_pre"))

        with torch.no_grad():
            return self.model.run_with_cache(self.tokens.to(self.model.device), names=kept)[1]

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """Names of the terms, in order of computation; the biases at the end."""
        parts = [str(part) for part in self.model.components if part.layer < self.head.layer]
        return (TOKEN, *([POSITION] if self._has_positions else []), *parts, BIASES)

    @cached_property
    def resid(self) -> Float[Tensor, "place d_model"]:
        """What enters the head's layer."""
        return self._at(self._cache[f"blocks.{self.head.layer}.hook_resid_pre"])

    @cached_property
    def streams(self) -> Float[Tensor, "source place d_model"]:
        """What every source has written there; their sum is `resid`."""
        parts = [self._at(self._cache["hook_embed"])[None]]
        if self.model.W_pos is not None:
            parts.append(self._at(self._cache["hook_pos_embed"].expand_as(self._cache["hook_embed"]))[None])
        elif self._has_positions:
            parts.append(torch.zeros_like(parts[0]))
        for layer, block in enumerate(self.model.blocks[: self.head.layer]):
            z = self._cache[f"blocks.{layer}.attn.hook_z"][:, list(self._places)]
            parts.append(block.shares(z)[0].transpose(0, 1).to(self.resid.device, self.resid.dtype))
            parts.append(self._at(self._cache[f"blocks.{layer}.hook_mlp_out"] - block.mlp_bias)[None])
        written = torch.cat(parts)
        return torch.cat([written, (self.resid - written.sum(0))[None]])

    @cached_property
    def queries(self) -> Float[Tensor, "source d_head"]:
        """What every source adds to the rotated query."""
        return self._projected("q")[:, 0]

    @cached_property
    def keys(self) -> Float[Tensor, "source d_head"]:
        """What every source adds to the rotated key."""
        return self._projected("k")[:, 1]

    @cached_property
    def pairs(self) -> Float[Tensor, "source source"]:
        """What every pair of sources, at the query and at the key, adds to the score."""
        pairs = self.queries @ self.keys.T / self._block.attn.divisor
        return self._with_distance(pairs, self._by_distance[0])

    @property
    def pairs_beyond(self) -> Float[Tensor, "source source"]:
        """What every pair adds to the score beyond what it adds, on average, to those of the rivals: why the head
        attends to this key rather than to others.
        """
        keys = self._projected("k")[:, 1:]
        pairs = self.queries @ (keys[:, 0] - keys[:, 1:].mean(1)).T / self._block.attn.divisor
        return self._with_distance(pairs, self._by_distance[0] - self._by_distance[1:].mean())

    @property
    def score(self) -> float:
        """The score of the query on the key, before a soft cap: the sum of all pairs."""
        return float(self.pairs.sum())

    @property
    def pattern(self) -> Float[Tensor, " key"]:
        """The attention from the query to every token."""
        return self._cache[f"{self._block.attn.prefix}hook_pattern"][0, self._own, self.query]

    @property
    def weight(self) -> float:
        """The attention that the key gets."""
        return float(self.pattern[self.key])

    # What it carries.

    @cached_property
    def carried(self) -> Float[Tensor, "source d_model"]:
        """What the head moves from the key to the query, by the source that wrote it at the key."""
        attn, own = self._block.attn, self._own
        values = self.weight * self._projected("v")[:, 1] @ attn.W_O[own].to(self.resid)
        norm = self._block.ln1_post
        if norm.w is None:
            return values
        z = self._cache[f"{attn.prefix}hook_z"][:, [self.query]]
        return norm.share(values, norm.scale(attn.out(z, _CLEAN))[0].to(self.resid))

    @property
    def final(self) -> Float[Tensor, "1 d_model"]:
        """The residual stream at the query's position before the last norm."""
        return self._cache[f"blocks.{self.model.config.n_layers - 1}.hook_resid_post"][:, self.query]

    # Path patching.

    @torch.no_grad()
    def patched_score(self, at_query: int | None = None, at_key: int | None = None) -> float:
        """The score with one source's contribution to the head's query input replaced, and one to its key input; norms
        are run again. None replaces nothing.
        """
        nothing = torch.zeros_like(self.resid[0])
        taken = [nothing if i is None else self._lost[i, side] for side, i in enumerate((at_query, at_key))]
        attn, rotated = self._block.attn, []
        ports: tuple[HeadPort, ...] = ("q", "k")
        for side, (port, at) in enumerate(zip(ports, (self.query, self.key), strict=True)):
            stream = (self.resid[side] - taken[side]).to(attn.output.dtype)[None, None]
            own = attn.own(port, self._block.ln1(stream, _CLEAN), [self._own])
            rotated.append(self._placed(port, own.double().flatten(), at))
        score = float(rotated[0] @ rotated[1]) / attn.divisor
        distance_taken = self.other is None and self._has_positions and self._position in (at_query, at_key)
        return score if distance_taken else score + float(self._by_distance[0])

    @cached_property
    def _lost(self) -> Float[Tensor, "source place d_model"]:
        """What a replacement takes from the stream."""
        return self.streams if self.other is None else self.streams - self.other.streams

    @cached_property
    def expected_pairs(self) -> Float[Tensor, "source source"]:
        """What `patched_pair` is by the sum, the norms held: the pairs themselves, or of the changes by `other`."""
        if self.other is None:
            return self.pairs
        queries, keys = self._projected("q", self._lost)[:, 0], self._projected("k", self._lost)[:, 1]
        return queries @ keys.T / self._block.attn.divisor

    def patched_pair(self, at_query: int, at_key: int) -> float:
        """What both sources together, but neither alone, add to the score."""
        edits = ((None, None), (at_query, None), (None, at_key), (at_query, at_key))
        for edit in edits[:3]:
            if edit not in self._alone:
                self._alone[edit] = self.patched_score(*edit)
        clean, by_query, by_key = (self._alone[edit] for edit in edits[:3])
        return clean - by_query - by_key + self.patched_score(*edits[3])

    # ALiBi positions, whose pair is a part of the score that nothing in the stream makes.

    @property
    def _has_positions(self) -> bool:
        return self.model.W_pos is not None or self.model.config.alibi is not None

    @property
    def _position(self) -> int:
        return self.sources.index(POSITION)

    @cached_property
    def _by_distance(self) -> Float[Tensor, " key"]:
        """What the distance adds to the scores of the key and of its rivals."""
        if (alibi := self._layout.alibi) is None:
            return self.resid.new_zeros(len(self._places) - 1)
        by_place = alibi[0, list(self._places), 0, self._own].double()
        return by_place[1:] - by_place[0]

    def _with_distance(self, pairs: Float[Tensor, "source source"], distance: Tensor) -> Tensor:
        if self.model.config.alibi is not None:
            pairs[self._position, self._position] += distance
        return pairs

    # The linear map from the stream to queries, keys and values, everything that divides held at the run's.

    @property
    def _block(self) -> Block:
        return self.model.blocks[self.head.layer]

    @property
    def _own(self) -> int:
        assert self.head.head is not None
        return self.head.head

    @property
    def _places(self) -> tuple[int, ...]:
        return (self.query, self.key, *self.rivals)

    def _at(self, x: Float[Tensor, "1 pos d_model"]) -> Float[Tensor, "place d_model"]:
        return x[0, list(self._places)].double().to(self._block.device)

    @torch.no_grad()
    def _projected(self, port: HeadPort, changes: Tensor | None = None) -> Float[Tensor, "source place d_head"]:
        """What every source (or each of some `changes` of the stream) adds to the head's query, key or value at all
        places, rotated.
        """
        norm = self._block.ln1
        scale = None if norm.w is None else norm.scale(self.resid)
        read = self.streams if scale is None else norm.share(self.streams, scale)
        if norm.b is not None:
            read = torch.cat([read[:-1], read[-1:] + norm.b.double()])  # the biases are the last source
        whole, parts = read.sum(0), read
        if changes is not None:
            parts = changes if scale is None else norm.share(changes, scale)
        parts = self._block.attn.held(port, self._own, whole, parts, biased=changes is None)
        if port == "v":
            return parts
        return torch.stack([self._placed(port, parts[:, i], at) for i, at in enumerate(self._places)], 1)

    def _placed(self, port: HeadPort, x: Float[Tensor, "*row d_head"], at: int) -> Float[Tensor, "*row d_head"]:
        """Queries or keys as they are compared: rotated, and queries scaled, by where they stand."""
        attn, layout = self._block.attn, self._layout
        if port == "q" and attn.scales_queries and layout.query_scale is not None:
            x = x * layout.query_scale[:, at].double().flatten()
        if attn.rotary is None:
            return x
        cos, sin = (part[:, [at]].double() for part in layout.rotations[attn.rotary])
        return rotate(x.reshape(-1, 1, 1, x.shape[-1]), cos, sin).reshape(x.shape)

    @cached_property
    def _layout(self) -> Layout:
        return self.model.layout(self.tokens.to(self.model.device)).on(self._block.device)
