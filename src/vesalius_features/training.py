"""Train the transcoders of a model's layers on rows of text, as a directory that `--features` reads.

    DIR/config.yaml, layer_0.safetensors, ...     circuit-tracer's layout; a layer's file is written when it is finished
    DIR/training.json                             what is trained on what; another training is refused there
    DIR/unfinished.safetensors                    where the layers in training are, while there are any

Layers are trained together as far as memory allows. The model's activations are collected a round of rows at a time:
once, where memory holds those of all rows. What a step sees follows from its number and the seed, so that a training
that was killed ends with the weights that it would have had.

BOS is the same in every text, and models write much larger numbers there than anywhere else. It is left out of the
training; latent 0 of each layer stands for it, alone and exactly.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.errors import BadInput
from vesalius.files import read_json, write_json, write_text
from vesalius.model.devices import available_bytes
from vesalius.model.dictionaries import SET_FILE, dtype_word
from vesalius.model.states import read_tensors, write_tensors
from vesalius.model.transformer import Transformer
from vesalius.progress import Progress, checkpoint, silent
from vesalius_features.rows import Rows
from vesalius_features.stack import Stack, Trainer, drawn_by, fast_products, stack_bytes

READS, WRITES = "mlp.hook_in", "hook_mlp_out"
TRAINING_FILE, UNFINISHED_FILE = "training.json", "unfinished.safetensors"
#: Tokens that the model runs at once, and batches that a round of activations holds at least.
AT_ONCE, ROUND_BATCHES = 4_096, 64
#: The share of free memory that is used, and seconds between saves.
ROOM, SAVE_EVERY = 0.5, 60.0
#: How far BOS lies from every other token along its own direction, as a share of that distance from the mean, for a
#: latent to stand for it.
APART = 0.05
#: The bias of a latent that stands for nothing: it is never among the largest.
NEVER = -1e6


@dataclass(frozen=True)
class Recipe:
    """What decides the weights, apart from the model's own and the rows."""

    layers: tuple[int, ...]
    latents: int
    k: int
    steps: int
    batch: int
    rate: float
    seed: int


@dataclass(frozen=True)
class Room:
    """How many layers are trained at a time, how many rows a round has, and the bytes that this takes."""

    layers: int
    rows: int
    bytes: int


def room_for(recipe: Recipe, model: Transformer, rows: Rows) -> Room:
    """What fits into the memory that is free; refused where not even one layer does."""
    free, d = available_bytes(model.device), model.config.d_model
    room = int(ROOM * free) if free is not None else 1 << 40
    wanted = rows.n_tokens
    while True:
        per_layer = stack_bytes(1, d, recipe.latents, recipe.batch) + 8 * d * wanted
        if (layers := min(len(recipe.layers), room // per_layer)) == len(recipe.layers) or (
            layers and wanted <= ROUND_BATCHES * recipe.batch
        ):
            per_row = rows.n_tokens / len(rows)
            return Room(layers, min(len(rows), max(1, round(wanted / per_row))), layers * per_layer)
        if wanted <= 2 * recipe.batch:
            raise BadInput(
                f"latents={recipe.latents}, batch={recipe.batch}: training one layer takes {per_layer / 1e9:.1f} GB, "
                f"and {room / 1e9:.1f} GB may be used; lower `latents` or `batch`"
            )
        wanted //= 2


@torch.no_grad()
def activations(
    model: Transformer, rows: Rows, layers: tuple[int, ...]
) -> tuple[Float[Tensor, "layer token d"], Float[Tensor, "layer token d"]]:
    """What the MLPs of some layers read and write at the counted tokens of rows."""
    n, d = rows.n_tokens, model.config.d_model
    read, written = (torch.empty(len(layers), n, d, device=model.device) for _ in range(2))
    done = 0
    for part in rows.parts(max(1, AT_ONCE // rows.tokens.shape[1])):
        checkpoint()
        names = [f"blocks.{layer}.{hook}" for layer in layers for hook in (READS, WRITES)]
        first = torch.zeros(len(part), 1, dtype=torch.long, device=model.device)
        _, cache = model.run_with_cache(part.tokens, mask=part.mask, names=names, choose=first)
        counted, end = part.counted.to(model.device), done + part.n_tokens
        for i, layer in enumerate(layers):
            read[i, done:end] = cache[f"blocks.{layer}.{READS}"].to(model.device)[counted]
            written[i, done:end] = cache[f"blocks.{layer}.{WRITES}"].to(model.device)[counted]
        done = end
    return read, written


class Rounds:
    """Which rows each round has, and which of its tokens each step takes: by seed and number alone."""

    def __init__(self, rows: Rows, per_round: int, recipe: Recipe) -> None:
        self.rows, self.per_round, self.recipe = rows, per_round, recipe
        self.in_epoch = max(1, len(rows) // per_round)

    def rows_of(self, number: int) -> Rows:
        """The rows of a round: every epoch deals all rows anew; what is left over goes to its last round."""
        epoch, place = divmod(number, self.in_epoch)
        if self.in_epoch == 1:
            return self.rows
        order = torch.randperm(len(self.rows), generator=self._drawn(2 * epoch))
        last = place == self.in_epoch - 1
        return self.rows.take(order[place * self.per_round : None if last else (place + 1) * self.per_round])

    def batches(self, number: int, n: int, device: torch.device) -> list[Tensor]:
        """The tokens of each step of a round of n tokens."""
        order = torch.randperm(n, generator=self._drawn(2 * number + 1)).to(device)
        return [
            order[start : start + self.recipe.batch] for start in range(0, n - self.recipe.batch + 1, self.recipe.batch)
        ]

    def _drawn(self, number: int) -> torch.Generator:
        return drawn_by(self.recipe.seed, 7_919 * number + 17)


@dataclass
class Training:
    """A training in a directory: the model, the rows, and what is finished."""

    model: Transformer
    rows: Rows
    recipe: Recipe
    directory: Path
    bos: int | None
    marks: dict[str, str]
    progress: Progress = silent

    def run(self) -> None:
        """Train what is not finished."""
        if self.rows.n_tokens < self.recipe.batch:
            raise BadInput(
                f"text: {self.rows.n_tokens} tokens to train on, and batch={self.recipe.batch}; give more text, or a "
                "smaller `batch`"
            )
        room = room_for(self.recipe, self.model, self.rows)
        per_round = self._begin(room.rows)
        rounds = Rounds(self.rows, per_round, self.recipe)
        unfinished = self.directory / UNFINISHED_FILE
        trainer = self._left(unfinished)
        while layers := (trainer.stack.layers if trainer is not None else self._missing()[: room.layers]):
            self._train(rounds, layers, trainer)
            unfinished.unlink(missing_ok=True)
            trainer = None

    def _begin(self, rows: int) -> int:
        """Say in the directory what is trained there, or read what is; returns the rows of a round."""
        file = self.directory / TRAINING_FILE
        asked = {**asdict(self.recipe), "layers": list(self.recipe.layers), **self.marks}
        if file.is_file():
            begun = read_json(file)
            per_round = begun.pop("rows_per_round", None)
            if begun != asked or not isinstance(per_round, int) or per_round < 1:
                other = next((name for name in asked if begun.get(name) != asked[name]), "schema")
                raise BadInput(
                    f"{self.directory}: holds another training ({other} {str(begun.get(other))[:40]}, here "
                    f"{str(asked.get(other))[:40]}); choose another `out`"
                )
            rows = per_round
        elif any(self.directory.glob("layer_*.safetensors")) or (self.directory / SET_FILE).exists():
            raise BadInput(f"{self.directory}: holds dictionaries that were not trained here; choose another `out`")
        else:
            write_json(file, {**asked, "rows_per_round": rows})
        lines = (
            "model_kind: transcoder_set",
            f"model_name: {self.marks['name']}",
            f"model_dtype: {dtype_word(self.model)}",
            f"model_fingerprint: {self.marks['model']}",
            f"feature_input_hook: {READS}",
            f"feature_output_hook: {WRITES}",
            "activation: topk",
        )
        if not (self.directory / SET_FILE).is_file():  # also where a training ended between the two files
            write_text(self.directory / SET_FILE, "\n".join(lines) + "\n")
        return rows

    def file_of(self, layer: int) -> Path:
        """Where the transcoder of a layer is, or will be."""
        return self.directory / f"layer_{layer}.safetensors"

    def _missing(self) -> tuple[int, ...]:
        return tuple(layer for layer in self.recipe.layers if not self.file_of(layer).exists())

    def _left(self, file: Path) -> Trainer | None:
        """The training of some layers where it was interrupted."""
        if not file.is_file():
            return None
        recipe = self.recipe
        return Trainer.resume(
            read_tensors(file), k=recipe.k, steps=recipe.steps, rate=recipe.rate, device=self.model.device
        )

    def _train(self, rounds: Rounds, layers: tuple[int, ...], trainer: Trainer | None) -> None:
        """Train some layers to the end, and write them."""
        recipe = self.recipe
        named = f"training layers {layers[0]} to {layers[-1]}" if len(layers) > 1 else f"training layer {layers[0]}"
        saved = time.monotonic()
        for read, written, batches in self._rounds(rounds, layers, 0 if trainer is None else trainer.step):
            if trainer is None:
                stack = Stack.start(
                    layers, read, written, latents=recipe.latents - (self.bos is not None), k=recipe.k, seed=recipe.seed
                )
                trainer = Trainer(stack, steps=recipe.steps, rate=recipe.rate)
            for places in batches[: recipe.steps - trainer.step]:
                with fast_products(self.model.device):
                    trainer.take(read[:, places], written[:, places])
                checkpoint(named, trainer.step, recipe.steps)
                self.progress(named, trainer.step, recipe.steps)
                if time.monotonic() - saved > SAVE_EVERY:
                    trainer.require_finite()
                    write_tensors(self.directory / UNFINISHED_FILE, trainer.state())
                    saved = time.monotonic()
            trainer.require_finite()
            if trainer.step >= recipe.steps:
                return self._write(trainer.stack, read)

    def _rounds(
        self, rounds: Rounds, layers: tuple[int, ...], step: int
    ) -> Iterator[tuple[Tensor, Tensor, list[Tensor]]]:
        """The activations of each round with the tokens of its steps, from a step on; collected once where a round has
        all rows.
        """
        number, first, kept = 0, 0, None
        while True:
            rows = rounds.rows_of(number)
            end = first + rows.n_tokens // self.recipe.batch
            if end > step or end == self.recipe.steps:
                if kept is None or rounds.in_epoch > 1:
                    self.progress("collecting activations", 0, 0)
                    kept = None  # so that two rounds are never held
                    with fast_products(self.model.device):
                        kept = activations(self.model, rows, layers)
                batches = rounds.batches(number, rows.n_tokens, self.model.device)
                yield *kept, batches[max(0, step - first) :]
            number, first = number + 1, end

    @torch.no_grad()
    def _write(self, stack: Stack, read: Float[Tensor, "layer token d"]) -> None:
        """Write the finished layers, each with a latent for BOS where the model has one."""
        first = None
        if self.bos is not None:
            names = [f"blocks.{layer}.{hook}" for layer in stack.layers for hook in (READS, WRITES)]
            _, first = self.model.run_with_cache(torch.tensor([[self.bos]]), names=names)
        for i, layer in enumerate(stack.layers):
            weights = stack.unscaled(i)
            if first is not None:
                x, y = (first[f"blocks.{layer}.{hook}"][0, 0].float().to(read.device) for hook in (READS, WRITES))
                weights = with_latent_for(x, y, read[i], weights, k=stack.k)
            weights["W_enc"] = weights["W_enc"].T
            weights["k"] = torch.tensor([stack.k])
            write_tensors(self.file_of(layer), {name: value.cpu().contiguous() for name, value in weights.items()})


def with_latent_for(
    x: Float[Tensor, " d"],
    y: Float[Tensor, " d"],
    others: Float[Tensor, "token d"],
    weights: dict[str, Tensor],
    *,
    k: int,
) -> dict[str, Tensor]:
    """The weights with a latent before all others that is active at `x` alone, where the sum is then exactly `y`; one
    that is never active where `x` cannot be told from others.
    """
    middle = others.mean(0)
    toward = torch.nn.functional.normalize(x - middle, dim=0)
    own, nearest = float((x - middle) @ toward), float(((others - middle) @ toward).max())
    pre = x @ weights["W_enc"] + weights["b_enc"]
    active = pre.topk(k - 1) if k > 1 else None
    beside = weights["b_dec"] if active is None else active.values @ weights["W_dec"][active.indices] + weights["b_dec"]
    left = y - beside
    size = float(left.norm())
    apart = own - nearest > APART * own
    # Beside the others it has to be among the k largest at `x`, and far below them elsewhere.
    if not apart or size <= float(pre.topk(k).values[-1]):
        toward, slope, threshold = torch.zeros_like(toward), 0.0, -NEVER
    else:
        halfway = (own + nearest) / 2
        slope = size / (own - halfway)
        threshold = slope * (halfway + float(middle @ toward))
    direction = left / max(size, 1e-12)
    return {
        "W_enc": torch.cat([(slope * toward)[:, None], weights["W_enc"]], 1),
        "b_enc": torch.cat([weights["b_enc"].new_tensor([-threshold]), weights["b_enc"]]),
        "W_dec": torch.cat([direction[None], weights["W_dec"]]),
        "b_dec": weights["b_dec"],
    }


def marks_of(model: str, fingerprint: str, text: str, context: int, **more: Any) -> dict[str, str]:
    """What a directory says of the model and the text, so that another training is not continued there."""
    return {"name": model, "model": fingerprint, "text": text, "context": str(context), **more}
