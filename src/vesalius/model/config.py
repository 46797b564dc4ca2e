"""The shape of a transformer; an impossible one cannot be constructed.

There is no `positions` switch: rotary settings are present or positions are learned. There is no `tie` switch:
whether the unembedding shares the embedding is a fact about the weights, not about the shape.
"""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError, model_validator

from vesalius.errors import BadInput

Norm = Literal["none", "layer", "rms"]
Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]


class Rotary(BaseModel):
    """Rotary positions: angle of pair i at position p is p * base ** (-2i / d_head), then Llama-3's or linear
    scaling.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    base: PositiveFloat = 10_000.0
    scaling: Literal["none", "linear", "llama3"] = "none"
    factor: PositiveFloat = 1.0
    low_freq_factor: PositiveFloat = 1.0
    high_freq_factor: PositiveFloat = 4.0
    original_n_ctx: PositiveInt = 8192

    @model_validator(mode="after")
    def _factors_in_order(self) -> Self:
        if self.low_freq_factor >= self.high_freq_factor:
            raise ValueError(
                f"low_freq_factor {self.low_freq_factor} must be less than high_freq_factor {self.high_freq_factor}"
            )
        return self


class Config(BaseModel):
    """Everything about a decoder but its weights."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    n_layers: PositiveInt
    n_heads: PositiveInt
    d_model: PositiveInt
    d_head: PositiveInt
    d_mlp: PositiveInt
    d_vocab: PositiveInt
    d_vocab_out: PositiveInt
    n_ctx: PositiveInt
    n_kv_heads: PositiveInt = Field(default=0, validate_default=False, description="defaults to n_heads")
    norm: Norm = "none"
    norm_eps: PositiveFloat = 1e-5
    rotary: Rotary | None = None
    activation: Activation = "gelu"
    gated: bool = False
    causal: bool = True
    bos_token: int | None = None
    pad_token: int | None = None

    @model_validator(mode="before")
    @classmethod
    def _default_kv_heads(cls, data: dict) -> dict:
        return {"n_kv_heads": data.get("n_heads"), **data} if isinstance(data, dict) else data

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.n_heads % self.n_kv_heads:
            raise ValueError(f"n_heads {self.n_heads} is not a multiple of n_kv_heads {self.n_kv_heads}")
        if self.rotary and self.d_head % 2:
            raise ValueError(f"rotary positions rotate pairs: d_head {self.d_head} must be even")
        for name in ("bos_token", "pad_token"):
            token = getattr(self, name)
            if token is not None and not 0 <= token < self.d_vocab:
                raise ValueError(f"{name} {token} is outside the vocabulary of {self.d_vocab}")
        return self

    @classmethod
    def read(cls, data: dict, *, where: str) -> "Config":
        """Validate a parsed JSON object; a wrong field becomes one line that names `where` and the field."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or "config"
            raise BadInput(f"{where}: {field}: {first['msg'].removeprefix('Value error, ')}") from None

    @property
    def queries_per_kv(self) -> int:
        """How many query heads read one key-value head (1 without grouped-query attention)."""
        return self.n_heads // self.n_kv_heads
