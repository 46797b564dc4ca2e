"""Training the stand-in: the same model from the same seed on the same machine, resumed where it was stopped.

Every step draws its rows from a generator that is seeded by the step, so a training that was killed continues from its
last checkpoint as if nothing had happened. `card.json`, written last, says how it was trained, for how many of the
recipe's steps, and what it does.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer as Backend
from torch import Tensor, nn

from vesalius.behaviours.mechrl import FILLERS
from vesalius.errors import BadInput
from vesalius.files import read_json, write_json, write_text
from vesalius.model.states import read_tensors, write_tensors
from vesalius.progress import Progress, silent
from vesalius.statistics import share_interval
from vesalius_mechrl.standin.network import Gpt2
from vesalius_mechrl.standin.rows import (
    TEXTS,
    WRITTEN_ROWS,
    Written,
    draw_random,
    draw_text,
    make_tokenizer,
    text_ids,
    written_rows,
)

CARD, CHECKPOINT, STATE = "card.json", "training.json", "training.safetensors"
#: A stand-in shows induction where, of this many new published batches' rows [A B ... A], B is the likeliest of all
#: tokens in at least this share. A guess among the tokens is right in one of some thousands.
INDUCTION_ROWS, SHOWS_INDUCTION = 1_000, 0.5
#: The first token that random rows draw, as in the published batches.
FIRST_TOKEN = 10
#: Rows of each task that its card's losses are measured on, of which a batch is drawn.
NEW_ROWS = 2_000


@dataclass(frozen=True)
class Recipe:
    """How the stand-in is trained; the defaults make the one that figures are given for."""

    seed: int = 0
    layers: int = 12
    heads: int = 12
    width: int = 144
    vocabulary: int = 4096
    context: int = 128
    length: int = 96
    rows: int = 64
    steps: int = 4_000
    rate: float = 1e-3
    dropout: float = 0.0
    weight_decay: float = 0.1

    def __post_init__(self) -> None:
        if self.width % self.heads or min(self.layers, self.heads, self.rows, self.steps) < 1:
            raise BadInput("the width must be a multiple of the heads, and layers, heads, rows and steps at least 1")
        if not 16 <= self.length <= self.context:
            raise BadInput(f"rows of {self.length} tokens; use 16 to {self.context} (the context)")

    def rate_at(self, step: int) -> float:
        """Linear warm-up, then a cosine down to a tenth."""
        warm = min(1.0, (step + 1) / 300)
        return self.rate * warm * (0.55 + 0.45 * math.cos(math.pi * step / self.steps))


@dataclass(frozen=True)
class Sources:
    """Everything that rows are drawn from, by name."""

    text: Tensor
    written: Mapping[str, Written]
    bos: int

    @classmethod
    def of(cls, backend: Backend, recipe: Recipe, *, test: bool = False) -> "Sources":
        """The sources of training, or new ones to test on."""
        seed, rows = recipe.seed + test, NEW_ROWS if test else WRITTEN_ROWS
        written = {t: written_rows(t, backend, length=recipe.length, seed=seed, rows=rows) for t in TEXTS}
        return cls(text_ids(backend, test=test), written, backend.get_vocab_size() - 1)

    def draw(self, recipe: Recipe, rng: torch.Generator) -> dict[str, Written]:
        """As many rows of every source."""
        batch = {
            "text": draw_text(self.text, recipe.rows, recipe.length, rng),
            "induction": draw_random(FIRST_TOKEN, self.bos, recipe.rows, recipe.length, rng),
        }
        for task, written in self.written.items():
            chosen = torch.randint(len(written.tokens), (recipe.rows,), generator=rng)
            batch[task] = Written(written.tokens[chosen], written.weights[chosen])
        return batch


def losses(network: nn.Module, batch: Mapping[str, Written], device: torch.device) -> dict[str, Tensor]:
    """The mean loss of every source over what is learned of it, in nats."""
    tokens = torch.cat([rows.tokens for rows in batch.values()]).to(device)
    weights = torch.cat([rows.weights for rows in batch.values()]).to(device)[:, 1:]
    logits = network(tokens)[:, :-1]
    each = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten(), reduction="none").view_as(weights)
    sizes = [len(rows.tokens) for rows in batch.values()]
    parts = zip((each * weights).split(sizes), weights.split(sizes), strict=True)
    return {name: loss.sum() / weight.sum() for name, (loss, weight) in zip(batch, parts, strict=True)}


def train(
    directory: Path | str,
    recipe: Recipe | None = None,
    *,
    device: str | torch.device = "cpu",
    every: int = 500,
    until: int | None = None,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Train the stand-in into a directory, or continue there; returns its card. With `until` the training ends after
    that many of the recipe's steps, at the rate that it has then.
    """
    recipe, directory, device = recipe or Recipe(), Path(directory), torch.device(device)
    last = recipe.steps if until is None else until
    if not 1 <= last <= recipe.steps:
        raise BadInput(f"`until` {last}: the recipe has 1 to {recipe.steps} steps")
    if (directory / CARD).exists():
        return _card(directory, recipe)
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(directory, recipe)
    sources = Sources.of(tokenizer, recipe)
    torch.manual_seed(recipe.seed)
    network = Gpt2(
        tokenizer.get_vocab_size(),
        layers=recipe.layers,
        heads=recipe.heads,
        width=recipe.width,
        context=recipe.context,
        dropout=recipe.dropout,
    ).to(device)
    matrices = [weight for weight in network.parameters() if weight.ndim > 1]
    others = [weight for weight in network.parameters() if weight.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": recipe.weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=recipe.rate, betas=(0.9, 0.98), fused=device.type == "cuda")
    start, curve = _resume(directory, recipe, network, optimiser)
    if start > last:
        raise BadInput(f"`until` {last}: the training in {directory} has taken {start} steps; choose an empty one")
    network.train()
    for step in range(start, last):
        for group in optimiser.param_groups:
            group["lr"] = recipe.rate_at(step)
        batch = sources.draw(recipe, torch.Generator().manual_seed(recipe.seed * 10_000_019 + step))
        torch.manual_seed(recipe.seed * 10_000_019 + step)  # of dropout
        each = losses(network, batch, device)
        optimiser.zero_grad(set_to_none=True)
        torch.stack(list(each.values())).sum().backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        if (step + 1) % every == 0 or step + 1 == last:
            curve.append({"step": step + 1, **{name: float(loss.detach()) for name, loss in each.items()}})
            told = ", ".join(f"{name} {loss:.3f}" for name, loss in curve[-1].items() if name != "step")
            progress(f"training the stand-in: {told}", step + 1, last)
            _save(directory, recipe, network, optimiser, curve)
    return _finish(directory, recipe, network, tokenizer, curve)


def _tokenizer(directory: Path, recipe: Recipe) -> Backend:
    """The tokenizer of the directory, or a new one: GPT-2's two files, and the same as one file."""
    file = directory / "tokenizer.json"
    if not file.exists():
        backend = make_tokenizer(recipe.vocabulary, seed=recipe.seed)
        backend.model.save(str(directory))
        write_text(file, backend.to_str())
    return Backend.from_file(str(file))


def _save(
    directory: Path, recipe: Recipe, network: Gpt2, optimiser: torch.optim.Optimizer, curve: list[dict[str, float]]
) -> None:
    """Everything that the rest of the training depends on."""
    tensors = {f"network.{name}": tensor for name, tensor in network.state_dict().items()}
    for number, moments in optimiser.state_dict()["state"].items():
        tensors |= {f"adam.{number}.{name}": tensor for name, tensor in moments.items()}
    step = int(curve[-1]["step"])
    name = f"{step}-{STATE}"
    write_tensors(directory / name, {key: value.detach().cpu().contiguous().clone() for key, value in tensors.items()})
    write_json(directory / CHECKPOINT, {"recipe": asdict(recipe), "file": name, "curve": curve})
    for old in directory.glob(f"*-{STATE}"):
        if old.name != name:
            old.unlink()


def _resume(
    directory: Path, recipe: Recipe, network: Gpt2, optimiser: torch.optim.Optimizer
) -> tuple[int, list[dict[str, float]]]:
    if not (directory / CHECKPOINT).exists():
        return 0, []
    data = read_json(directory / CHECKPOINT)
    if data.get("recipe") != asdict(recipe):
        raise BadInput(f"{directory}: a stand-in of another recipe is trained there; choose an empty directory")
    tensors = read_tensors(directory / data["file"])
    network.load_state_dict({k.removeprefix("network."): v for k, v in tensors.items() if k.startswith("network.")})
    moments: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        if key.startswith("adam."):
            _, number, name = key.split(".")
            moments.setdefault(int(number), {})[name] = tensor
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": moments, "param_groups": groups})
    return int(data["curve"][-1]["step"]), data["curve"]


def _card(directory: Path, recipe: Recipe) -> dict[str, Any]:
    card = read_json(directory / CARD)
    if card.get("recipe") != asdict(recipe):
        raise BadInput(f"{directory}: holds a stand-in of another recipe; choose an empty directory")
    return card


@torch.no_grad()
def _finish(
    directory: Path, recipe: Recipe, network: Gpt2, tokenizer: Backend, curve: list[dict[str, float]]
) -> dict[str, Any]:
    """Write GPT-2's files and the card; remove the checkpoint. Weights are rounded to the numbers that float16 has, so
    that a copy of half the size is the same model.
    """
    network.eval()
    for weight in network.parameters():
        weight.copy_(weight.half())
    device = network.wte.weight.device
    batch = Sources.of(tokenizer, recipe, test=True).draw(recipe, torch.Generator().manual_seed(recipe.seed + 1))
    held_out = {name: float(loss) for name, loss in losses(network, batch, device).items()}
    weights = {f"transformer.{name}": value.cpu().contiguous() for name, value in network.state_dict().items()}
    write_tensors(directory / "model.safetensors", weights)
    write_json(directory / "config.json", network.config())
    card = {
        "recipe": asdict(recipe),
        "steps_taken": int(curve[-1]["step"]),
        "loss_on_new_rows": held_out,
        "induction": induction_shown(network, recipe.seed),
        "curve": curve,
    }
    write_json(directory / CARD, card)
    for path in [directory / CHECKPOINT, *directory.glob(f"*-{STATE}")]:
        path.unlink(missing_ok=True)
    return card


@torch.no_grad()
def induction_shown(network: Gpt2, seed: int) -> dict[str, Any]:
    """How often the network completes [A B ... A] by B, on rows as the published batches have them."""
    last = len(network.wte.weight) - 1
    length = min(FILLERS + 4, network.context)
    rng = torch.Generator().manual_seed(seed * 10_000_019 - 1)
    tokens = torch.randint(FIRST_TOKEN, last, (INDUCTION_ROWS, length), generator=rng)
    tokens[:, 0], tokens[:, -1] = last, tokens[:, 1]
    device = network.wte.weight.device
    best = torch.cat([network(rows.to(device))[:, -1].argmax(-1).cpu() for rows in tokens.split(250)])
    share = float((best == tokens[:, 2]).float().mean())
    low, high = share_interval(share * INDUCTION_ROWS, INDUCTION_ROWS)
    return {"top1": share, "low": low, "high": high, "rows": INDUCTION_ROWS, "shown": share >= SHOWS_INDUCTION}
