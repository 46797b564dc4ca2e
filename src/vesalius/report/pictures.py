"""What a component looks like at work: where a head attends, what an MLP writes.

Everything is read from one forward pass over inputs drawn from the specimen's own distribution. A head is shown by
its attention, averaged over inputs of one length so that positions mean the same, and on single inputs. An MLP is
shown by what it writes along its strongest direction (the first principal component of its output): by token and
position where the vocabulary is listed, by input and position where it is text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.documents.view import Grid
from vesalius.model.hooks import Cache
from vesalius.model.specimen import FiniteVocabulary, Specimen

INPUTS = {"finite": 256, "text": 12}
#: An average over fewer inputs than this says little about positions.
ENOUGH = 4
EXAMPLES = 2
POSITIONS, TOKENS, TEXT_ROWS = 24, 16, 6


class ComponentPicture(NamedTuple):
    """The grids of one component, the most telling first, and the sentence above them."""

    caption: str
    grids: tuple[Grid, ...] = ()


@dataclass(frozen=True)
class _Run:
    """One forward pass: inputs, which positions are real, where the input starts (1 behind BOS), and the cache."""

    inputs: list[Any]
    tokens: Int[Tensor, "batch pos"]
    mask: Bool[Tensor, "batch pos"]
    first: int
    words: list[list[str]]
    cache: Cache


def draw_components(specimen: Specimen, components: Sequence[str], *, seed: int = 0) -> dict[str, ComponentPicture]:
    """A picture of each named component, from the model's own activations."""
    parts = {name: Component.parse(name).within(specimen.model.config) for name in components}
    run = _run(specimen, list(parts.values()), seed)
    return {name: _head(run, part) if part.is_head else _mlp(run, part, specimen) for name, part in parts.items()}


@torch.no_grad()
def _run(specimen: Specimen, parts: Sequence[Component], seed: int) -> _Run:
    finite = isinstance(specimen.vocabulary, FiniteVocabulary)
    inputs = specimen.sample(INPUTS["finite" if finite else "text"], seed)
    lengths = torch.tensor(specimen.vocabulary.lengths(inputs))
    tokens = specimen.tokenize(inputs)
    first = tokens.shape[1] - int(lengths.max())
    mask = torch.arange(tokens.shape[1])[None] < (lengths + first)[:, None]
    names = {
        f"blocks.{part.layer}.attn.hook_pattern" if part.is_head else f"blocks.{part.layer}.hook_mlp_out"
        for part in parts
    }
    device = specimen.model.device
    no_logits = torch.zeros(len(tokens), 1, dtype=torch.long, device=device)
    _, cache = specimen.model.run_with_cache(tokens.to(device), names=names, mask=mask.to(device), choose=no_logits)
    return _Run(inputs, tokens, mask, first, [_words(specimen, row, first) for row in tokens.tolist()], cache)


def _words(specimen: Specimen, row: Sequence[int], first: int) -> list[str]:
    """What stands at each position: BOS, then tokens as the specimen writes them."""
    vocabulary = specimen.vocabulary
    if isinstance(vocabulary, FiniteVocabulary):
        spoken = [str(vocabulary.tokens[code]) if code < vocabulary.bos else "" for code in row[first:]]
    else:
        spoken = [vocabulary.tokenizer.piece(code) for code in row[first:]]  # type: ignore[attr-defined]
    return ["BOS"] * first + spoken


def _head(run: _Run, part: Component) -> ComponentPicture:
    pattern = run.cache[f"blocks.{part.layer}.attn.hook_pattern"][:, part.head].float().cpu()
    if not pattern[run.mask].isfinite().all():
        return ComponentPicture("This head's attention holds values that are not finite; nothing is drawn.")
    lengths = run.mask.sum(1)
    # The greatest length that enough inputs share, else the greatest.
    counts = torch.bincount(lengths)
    shared = (counts >= ENOUGH).nonzero().flatten()
    length = int(shared[-1]) if len(shared) else int(lengths.max())
    chosen = (lengths == length).nonzero().flatten()
    shown = _shown_positions(length)
    grids = []
    if len(chosen) >= ENOUGH:
        mean = pattern[chosen].mean(0)[shown][:, shown]
        names = ["BOS" if i < run.first else str(i - run.first + 1) for i in shown]
        grids.append(_attention(mean, names, f"Mean over {len(chosen)} inputs, by position"))
    for row in chosen[:EXAMPLES].tolist():
        names = [run.words[row][i] for i in shown]
        grids.append(_attention(pattern[row][shown][:, shown], names, "One input"))
    kept = "" if len(shown) == length else f" Shown: the first and the last {len(shown) - 1} of {length} positions."
    caption = (
        f"Attention on inputs of {length - run.first} tokens. Each row is a position that looks, each column one "
        f"that is looked at; a row adds up to 1.{kept}"
    )
    return ComponentPicture(caption, tuple(grids))


def _shown_positions(length: int) -> list[int]:
    return list(range(length)) if length <= POSITIONS else [0, *range(length - POSITIONS + 1, length)]


def _attention(pattern: Float[Tensor, "query key"], names: Sequence[str], title: str) -> Grid:
    strongest = int(pattern.argmax())
    query, key = divmod(strongest, pattern.shape[1])
    summary = (
        f"{title}. Strongest: {names[query]} looks at {names[key]} with weight {float(pattern[query, key]):.2f}. "
        f"Weight on the first position: {float(pattern[:, 0].mean()):.2f} on average."
    )
    return Grid(pattern.tolist(), list(names), list(names), summary, title=title)


def _mlp(run: _Run, part: Component, specimen: Specimen) -> ComponentPicture:
    written = run.cache.component(part).float().cpu()
    real = run.mask.clone()
    real[:, : run.first] = False
    if not written[real].isfinite().all():
        return ComponentPicture("This MLP's output holds values that are not finite; nothing is drawn.")
    score, share = _strongest_direction(written, real)
    if not share:
        return ComponentPicture(
            "This MLP writes the same at every position of every input drawn; there is nothing to show."
        )
    grid = (
        _by_token(run, score, real, specimen.vocabulary)
        if isinstance(specimen.vocabulary, FiniteVocabulary)
        else _by_input(run, score, real)
    )
    return ComponentPicture(
        f"What the MLP writes along its strongest direction, which holds {100 * share:.0f} % of the variance of its "
        f"output over {len(run.inputs)} inputs. Sign and scale mean nothing by themselves; equal shades mean equal "
        "output in this direction. Blank cells never came up.",
        (grid,),
    )


def _strongest_direction(
    written: Float[Tensor, "batch pos d_model"], real: Bool[Tensor, "batch pos"]
) -> tuple[Float[Tensor, "batch pos"], float]:
    """Scores on the first principal component over real positions, and its share of the variance."""
    centre = written[real].mean(0)
    centred = (written[real] - centre).double()
    spread, directions = torch.linalg.eigh(centred.T @ centred)
    total = float(spread.clamp(min=0).sum())
    if total <= 1e-12 * max(1.0, float(written[real].double().square().sum())):
        return written.new_zeros(real.shape), 0.0
    direction = directions[:, -1].float()
    score = (written - centre) @ direction
    # A principal direction has no sign of its own: the rarer, stronger side is drawn dark.
    if score[real].max() < -score[real].min():
        score = -score
    return score, float(spread[-1]) / total


def _by_token(
    run: _Run, score: Float[Tensor, "batch pos"], real: Bool[Tensor, "batch pos"], vocabulary: FiniteVocabulary
) -> Grid:
    kept = vocabulary.tokens[:TOKENS]
    shown = _shown_positions(run.mask.shape[1] - run.first)
    cells = []
    for code in range(len(kept)):
        here = real & (run.tokens == code)
        sums, counts = (score * here).sum(0), here.sum(0)
        cells.append(
            [float(sums[i + run.first] / counts[i + run.first]) if counts[i + run.first] else None for i in shown]
        )
    title = "Token by position, mean over inputs"
    if len(kept) < len(vocabulary.tokens):
        title += f" (the first {len(kept)} of {len(vocabulary.tokens)} tokens)"
    return _grid(cells, rows=kept, columns=[i + 1 for i in shown], title=title)


def _by_input(run: _Run, score: Float[Tensor, "batch pos"], real: Bool[Tensor, "batch pos"]) -> Grid:
    width = run.mask.shape[1] - run.first
    shown = _shown_positions(width)
    rows = range(min(TEXT_ROWS, len(run.inputs)))
    cells = [[float(score[b, i + run.first]) if real[b, i + run.first] else None for i in shown] for b in rows]
    return _grid(cells, rows=[f"#{b + 1}" for b in rows], columns=[i + 1 for i in shown], title="Input by position")


def _grid(
    cells: Sequence[Sequence[float | None]], *, rows: Sequence[object], columns: Sequence[object], title: str
) -> Grid:
    known = [(value, i) for i, row in enumerate(cells) for value in row if value is not None]
    top, bottom = max(known), min(known)
    summary = f"{title}. Highest for {rows[top[1]]} ({top[0]:.2f}), lowest for {rows[bottom[1]]} ({bottom[0]:.2f})."
    return Grid(cells, list(map(str, rows)), list(map(str, columns)), summary, bottom[0], top[0], title=title)
