"""The options of this package, declared once: how transcoders are trained."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from vesalius.errors import BadInput, quoted
from vesalius.options import Draw, OptionRecord, flag
from vesalius.options.verbs import require_share

#: The prompts that latents are chosen by.
CHOSEN = Draw(n=16)
#: The prompts of a behaviour that splicing is measured on.
MEASURED = Draw(n=32)
_LAYERS = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")


class TranscoderTraining(OptionRecord):
    """What transcoders are trained on, of which layers, how wide and for how long."""

    text: Annotated[
        Sequence[Any],
        flag(
            "Text to train on: a file whose articles are separated by blank lines, factbook, or wikitext:PATH. May be "
            "given several times.",
            asked="always",
        ),
    ] = ()
    layers: Annotated[str, flag("Layers whose MLPs are learnt: all, or 0,3-5.", word="layers{}")] = "all"
    latents: Annotated[
        int | None, flag("Latents of each layer. Default: 8 times the width of the model.", least=2, word="latents{}")
    ] = None
    k: Annotated[int, flag("Latents that are active at a token.", least=1, asked="always", word="k{}")] = 32
    steps: Annotated[int, flag("Steps of training of each layer.", least=1, asked="always", word="steps{}")] = 2_000
    batch: Annotated[int, flag("Tokens of a step.", least=2, asked="always")] = 2_048
    context: Annotated[
        int, flag("Tokens that the model reads at once, at most its own context. A row never crosses an article.")
    ] = 128
    learning_rate: Annotated[
        float | None,
        flag("Highest learning rate of Adam. Default: 0.0008 at 1,024 latents, falling with their root.", rare=True),
    ] = None

    def __post_init__(self) -> None:
        texts = (self.text,) if isinstance(self.text, str | Path) else self.text
        object.__setattr__(self, "text", tuple(map(str, texts)))
        least = {"k": 1, "steps": 1, "batch": 2, "context": 2, **({} if self.latents is None else {"latents": 2})}
        for name, smallest in least.items():
            if (value := getattr(self, name)) < smallest:
                raise BadInput(f"{name}={value} is too small; give {smallest} or more")
        if self.latents is not None and self.k >= self.latents:
            raise BadInput(f"k={self.k} of {self.latents} latents is not sparse; give `k` below `latents`")
        if self.learning_rate is not None and not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise BadInput(f"learning_rate={self.learning_rate} learns nothing; give a number above 0, such as 0.0004")

    def require_text(self) -> None:
        """Refuse a training without a text."""
        if not self.text:
            raise BadInput("no text to train on; give `text`: a file, factbook, or wikitext:PATH")

    def layers_of(self, n_layers: int) -> tuple[int, ...]:
        """The layers that are named, in order."""
        if self.layers.strip() == "all":
            return tuple(range(n_layers))
        found: set[int] = set()
        for part in self.layers.split(","):
            match = _LAYERS.fullmatch(part.strip())
            if match is None:
                raise BadInput(
                    f"layers {quoted(self.layers, 40)}: {quoted(part, 20)} is not a layer; write all, or 0,3-5"
                )
            first, last = int(match[1]), int(match[2] or match[1])
            if last < first or last >= n_layers:
                raise BadInput(
                    f"layers {quoted(self.layers, 40)}: {part.strip()} is not in this model; it has layers 0 to "
                    f"{n_layers - 1}"
                )
            found.update(range(first, last + 1))
        return tuple(sorted(found))


class LatentSearch(OptionRecord):
    """How much of a behaviour a set of latents keeps."""

    keep: Annotated[
        float, flag("Share of the behaviour to keep, above 0, at most 1.", asked="always", word="keep{:g}")
    ] = 0.8

    def __post_init__(self) -> None:
        require_share(self.keep)
