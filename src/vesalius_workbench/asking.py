"""What the page may ask of a specimen: every question is bounded before it is worked on."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Text = Annotated[str, Field(max_length=20_000)]
Name = Annotated[str, Field(min_length=1, max_length=1_000)]


class Question(BaseModel):
    """What is asked about one specimen."""

    model_config = ConfigDict(extra="forbid")

    specimen: Name
    behaviour: Name | None = None


class PromptQuestion(Question):
    """One prompt: a text, or a list of tokens."""

    prompt: Text | Annotated[list[str | int | float], Field(max_length=512)]


class AttentionQuestion(PromptQuestion):
    """The attention of one layer."""

    layer: int


class LensQuestion(PromptQuestion):
    """What components write."""

    components: Annotated[list[Name], Field(min_length=1, max_length=64)]
    top: Annotated[int, Field(ge=1, le=20)] = 5


class SweepQuestion(Question):
    """The effect of every component."""

    kind: Name = "zero"
    n: Annotated[int, Field(ge=1, le=64)] = 8
    seed: Annotated[int, Field(ge=0, le=2**62)] = 0


class WhatIfQuestion(Question):
    """Components replaced together."""

    components: Annotated[list[Name], Field(min_length=1, max_length=2_000)]
    kind: Name = "zero"
    at: Annotated[str, Field(max_length=200)] | int | None = None
    prompt: Text | Annotated[list[str | int | float], Field(max_length=512)] | None = None
    source: Text | Annotated[list[str | int | float], Field(max_length=512)] | None = None
    n: Annotated[int, Field(ge=1, le=100_000)] = 16
    seed: Annotated[int, Field(ge=0, le=2**62)] = 0
    split: Name = "test"
