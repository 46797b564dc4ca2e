"""Whether a model performs a behaviour: measured before a circuit is searched for.

A circuit for something the model does not do is noise, so every discovery and explanation starts with these numbers.
They are the same whatever the metric: how often the right answer is preferred to the wrong one, and by how many logits.
Where a row names no wrong answer, its rival is the likeliest other token; an answer of several tokens counts if greedy
decoding gives all of them.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vesalius.behaviours.behaviour import Behaviour, TooFewPrompts
from vesalius.behaviours.prompts import Prompts
from vesalius.documents.performance import Performance
from vesalius.errors import BadInput
from vesalius.intervene import Readout
from vesalius.model.tokenizer import Tokenizer
from vesalius.model.transformer import Transformer
from vesalius.progress import Progress
from vesalius.statistics import interval_or_none, share_interval, student_interval

#: Prompts that the check asks for; rows of one's own may be fewer.
PROMPTS = 64
#: Prompts drawn for one that the model answers correctly, until there are enough.
OVERSAMPLING = (1, 2, 4, 8, 16)
#: Level of the intervals by which fewer prompts are enough, and its two-sided normal quantile.
CLEAR_LEVEL, CLEAR_Z = 0.995, 2.807034
RULE = "performs if the 95 % intervals of accuracy and of the mean logit difference lie above 0.5 and above 0"


def undecided(measured: Performance) -> bool:
    """Whether there are too few prompts to tell: the means are as they should be, the intervals are too wide."""
    return not measured.performs and measured.n < PROMPTS and measured.accuracy > 0.5 and measured.logit_difference > 0


def measure(
    behaviour: Behaviour,
    model: Transformer,
    tokenizer: Tokenizer,
    *,
    n: int = PROMPTS,
    seed: int = 0,
    split: str | None = None,
    early: bool = False,
    progress: Progress | None = None,
) -> Performance:
    """Sample prompts of a behaviour, by default of the split it is measured on, and measure whether the model performs
    it; with `early` on fewer than `n` prompts where those leave no doubt that it does.
    """
    config, split = model.config, split or behaviour.measured_split
    prompts = behaviour.sample(tokenizer, n, seed=seed, split=split, n_ctx=config.n_ctx, d_vocab=config.d_vocab)
    return performance(model, prompts, early=early, progress=progress)


def draw_prompts(
    behaviour: Behaviour, model: Transformer, tokenizer: Tokenizer, n: int, *, seed: int, split: str
) -> Prompts:
    """`n` prompts of a behaviour for experiments on a model: only those it answers correctly where the behaviour asks
    for that. More are drawn until there are enough.
    """
    return draw_counted(behaviour, model, tokenizer, n, seed=seed, split=split)[0]


def draw_counted(
    behaviour: Behaviour, model: Transformer, tokenizer: Tokenizer, n: int, *, seed: int, split: str
) -> tuple[Prompts, int]:
    """The same, and how many prompts there are up to the last of them, wrongly answered ones included."""
    config, answered, drawn = model.config, 0, 0
    for size in [n] if not behaviour.only_right else [n * factor for factor in OVERSAMPLING]:
        try:
            prompts = behaviour.sample(
                tokenizer, size, seed=seed, split=split, n_ctx=config.n_ctx, d_vocab=config.d_vocab
            )
        except BadInput:
            if not drawn:
                raise
            break
        if not behaviour.only_right:
            return prompts, len(prompts)
        right = answered_right(model, prompts).nonzero()[:, 0]
        answered, drawn = len(right), len(prompts)
        if answered >= n:
            return prompts.take(right[:n]), int(right[n - 1]) + 1
    raise TooFewPrompts(
        f"behaviour {behaviour.name}: the model answers {answered} of {drawn} prompts of the {split} split correctly, "
        f"and {n} were requested; request fewer, or leave out keep=right",
        answered,
    )


@torch.no_grad()
def answered_right(model: Transformer, prompts: Prompts, *, rows: int = 32) -> Bool[Tensor, " prompt"]:
    """Whether the right answer is the likeliest token of all; each of its tokens, where it has several."""
    return torch.cat([preferred(part, logits)[1] for part, logits in answers(model, prompts, rows=rows)]).bool()


def performance(
    model: Transformer, prompts: Prompts, *, rows: int = 32, early: bool = False, progress: Progress | None = None
) -> Performance:
    """How well a model does on the given prompts, in batches of `rows`; with `early`, where there are `PROMPTS` or
    more, no further batch is run once it clearly performs.
    """
    parts: list[tuple[Tensor, Tensor]] = []
    for part, logits in answers(model, prompts, rows=rows, progress=progress):
        parts.append(preferred(part, logits))
        if early and len(prompts) >= PROMPTS and _is_clear(torch.cat([differences for differences, _ in parts])):
            break
    differences, is_top = (torch.cat(values) for values in zip(*parts, strict=True))
    return summary(differences, is_top)


def _is_clear(differences: Float[Tensor, " prompt"]) -> bool:
    """Whether `RULE` holds at a tenth of its error."""
    n, right = len(differences), int((differences > 0).sum())
    return share_interval(right, n, z=CLEAR_Z)[0] > 0.5 and bool(
        student_interval(differences[:, None].numpy(), level=CLEAR_LEVEL)[0][0] > 0
    )


def answers(
    model: Transformer, prompts: Prompts, *, rows: int = 32, progress: Progress | None = None
) -> Iterator[tuple[Prompts, Float[Tensor, "prompt step vocab"]]]:
    """Batches of prompts, and the logits from which each token of their answers is predicted."""
    for start in range(0, len(prompts), rows):
        if progress and len(prompts) > rows:
            progress("running prompts", start, len(prompts))
        part = prompts.take(slice(start, start + rows))
        batch, steps = part.batch.to(model.device), part.question.steps.to(model.device)
        with torch.no_grad():
            yield part, model(batch.tokens, mask=batch.mask, at=steps).cpu().double()


def preferred(
    prompts: Prompts, logits: Float[Tensor, "prompt step vocab"]
) -> tuple[Float[Tensor, " prompt"], Float[Tensor, " prompt"]]:
    """How far the right answer is preferred, and 1 where it is the most likely of all."""
    return score(prompts.margin(), logits), score(prompts.said(), logits)


def score(readout: Readout, logits: Float[Tensor, "prompt step vocab"]) -> Float[Tensor, " prompt"]:
    """A readout of the logits of `answers`, which hold every position that it reads."""
    steps = 1 if readout.at is None else readout.at.shape[1]
    read = logits[:, :steps]
    if readout.choose is not None:
        read = read.gather(2, readout.choose[:, None].expand(-1, steps, -1))
    return readout.score(read, torch.arange(len(logits)))


def summary(differences: Float[Tensor, " prompt"], is_top: Float[Tensor, " prompt"]) -> Performance:
    """What `preferred` gives, with intervals and the decision."""
    if not bool(differences.isfinite().all()):
        raise BadInput("the model's logits are not finite on these prompts; check its weights for NaN or overflow")
    n, right = len(differences), int((differences > 0).sum())
    accuracy_low, accuracy_high = share_interval(right, n)
    ld_low, ld_high = interval_or_none(differences)
    return Performance(
        accuracy=right / n,
        accuracy_low=accuracy_low,
        accuracy_high=accuracy_high,
        logit_difference=float(differences.mean()),
        ld_low=ld_low,
        ld_high=ld_high,
        top1=float(is_top.mean()),
        n=n,
        performs=accuracy_low > 0.5 and ld_low is not None and ld_low > 0,
        rule=RULE,
    )
