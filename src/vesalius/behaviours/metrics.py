"""What is measured of an answer: the metrics, each as a readout, all "higher is better for the behaviour".

| metric                   | value                                                                | needs wrong |
|--------------------------|----------------------------------------------------------------------|-------------|
| `logit-difference`       | logit(answer) - logit(wrong); of sets, log P(answers) - log P(wrong) | yes         |
| `probability`            | P(answer), summed over several answers                               | no          |
| `probability-difference` | P(answers) - P(wrong answers)                                        | yes         |
| `log-probability`        | log P(answer), in nats                                               | no          |
| `loss`                   | minus the mean cross-entropy of the answer's tokens, in nats         | no          |
| `kl`                     | minus KL(clean run || this run) of the next token, in nats           | no          |

An answer of several tokens is scored by teacher forcing: its probability is the product over its tokens, each given the
prompt and the tokens before it. Logit and probability differences compare the tokens where answers part (`reading`).
In Python a metric may also be a function `metric(logits, answers, wrongs)` of the logits [row, vocabulary] after the
prompt and the token ids [row, answer], padded with -1; it returns one value per row.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.errors import BadInput, choices, require_signature
from vesalius.intervene import Batch, Readout, logit_difference
from vesalius.model.transformer import Transformer

#: Token id of an answer that does not exist.
NONE = -1
LOGIT_DIFFERENCE, PROBABILITY, PROBABILITY_DIFFERENCE, LOG_PROBABILITY, LOSS, KL = METRICS = (
    "logit-difference",
    "probability",
    "probability-difference",
    "log-probability",
    "loss",
    "kl",
)
UNITS = {
    LOGIT_DIFFERENCE: "logits",
    PROBABILITY: "probability",
    PROBABILITY_DIFFERENCE: "probability",
    LOG_PROBABILITY: "nats",
    LOSS: "nats",
    KL: "nats",
}
#: Metrics of a wrong answer as well, and those that read answers of several tokens.
NEEDS_WRONG = (LOGIT_DIFFERENCE, PROBABILITY_DIFFERENCE)
TEACHER_FORCED = (PROBABILITY, LOG_PROBABILITY, LOSS)
#: Metrics that are 0 where nothing is known, so that shares of the clean value mean something.
WITH_ZERO = (LOGIT_DIFFERENCE, PROBABILITY, PROBABILITY_DIFFERENCE)
CLEAN_ROWS = 32
BehaviourMetric = str | Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Question:
    """The position after which each prompt's answer is predicted, its right and wrong answers (padded with -1), and the
    tokens of answers of several tokens (None: all are single).
    """

    position: Int[Tensor, " prompt"]
    answers: Int[Tensor, "prompt answer"]
    wrongs: Int[Tensor, "prompt wrong"]
    forced: Int[Tensor, "prompt step"] | None = None

    @property
    def steps(self) -> Int[Tensor, "prompt step"]:
        """Where each token of an answer is predicted; the last place again for answers of fewer tokens."""
        if self.forced is None:
            return self.position[:, None]
        last = (self.forced != NONE).sum(1) - 1
        return self.position[:, None] + torch.minimum(torch.arange(self.forced.shape[1])[None], last[:, None])


class NoSlope(BadInput):
    """Slopes are asked of a metric that has none."""


def require_metric(metric: object) -> None:
    """Refuse a metric that does not exist, and a function that cannot be called as one."""
    if callable(metric):
        require_signature("metric", metric, "logits", "answers", "wrongs")
    elif metric is not None and metric not in METRICS:
        raise BadInput(f"metric {metric!r} does not exist; choose one of {choices(METRICS)}, or in Python a function")


def metric_name(metric: BehaviourMetric | None) -> str:
    """The name of a metric; of a function its own."""
    if metric is None:
        return LOGIT_DIFFERENCE
    return metric if isinstance(metric, str) else getattr(metric, "__name__", "metric")


def unit_of(metric: BehaviourMetric | None) -> str:
    """What a metric is counted in; a function is its own unit."""
    return UNITS.get(metric_name(metric), metric_name(metric))


def has_zero(metric: BehaviourMetric | None) -> bool:
    """Whether shares of the clean value mean something."""
    return metric is None or metric in WITH_ZERO


def metric_readout(
    metric: BehaviourMetric | None, question: Question, *, model: Transformer | None = None, batch: Batch | None = None
) -> Readout:
    """The readout of a metric; `kl` needs the model and the clean prompts."""
    require_metric(metric)
    if callable(metric):
        return _custom(metric, question)
    name = metric or LOGIT_DIFFERENCE
    if name in NEEDS_WRONG and bool((question.wrongs == NONE).all(1).any()):
        raise BadInput(f"metric {name}: some prompts have no wrong answer; give one, or `metric` {LOG_PROBABILITY}")
    if name == LOGIT_DIFFERENCE:
        return _log_odds(question)
    if name == KL:
        if model is None or batch is None:
            raise BadInput("metric kl compares with the clean run of a model; give the model")
        return _divergence(question, _clean_log_probabilities(model, batch, question.position))
    if name == PROBABILITY_DIFFERENCE:
        return _probability_difference(question)
    return _teacher_forced(name, question)


def compares_answers(metric: BehaviourMetric | None) -> bool:
    """Whether a metric is of a right and a wrong answer, so that effects have a sign for each."""
    return metric_name(metric) in NEEDS_WRONG if metric is None or isinstance(metric, str) else False


def margin(question: Question) -> Readout:
    """logit(answers) - logit(wrongs), or minus the largest other logit where nothing is wrong. Of an answer of several
    tokens the least lead of a token over all others, so that it is positive where greedy decoding gives the answer.
    """
    lacking = (question.wrongs == NONE).all(1)
    if not bool(lacking.any()) and question.forced is None:
        return _log_odds(question)
    answers, wrongs = question.answers, question.wrongs
    forced = answers[:, :1] if question.forced is None else question.forced

    def score(logits: Tensor, prompt: Tensor) -> Tensor:
        right, steps = answers.to(logits.device)[prompt], forced.to(logits.device)[prompt]
        first = _log_sum(logits[:, 0], right) - torch.where(
            lacking.to(logits.device)[prompt],
            _largest_other(logits[:, 0], right),
            _log_sum(logits[:, 0], wrongs.to(logits.device)[prompt]),
        )
        leads = [
            _log_sum(logits[:, i], step) - _largest_other(logits[:, i], step)
            for i, step in enumerate(steps.split(1, dim=1))
        ]
        least = torch.stack(leads, 1).where(steps != NONE, torch.inf).amin(1)
        return torch.where((steps != NONE).sum(1) > 1, least, first)

    return Readout(score, question.steps, unit=UNITS[LOGIT_DIFFERENCE])


def _log_odds(question: Question) -> Readout:
    answers, wrongs = question.answers, question.wrongs
    if answers.shape[1] == wrongs.shape[1] == 1:
        return logit_difference(question.position, answers[:, 0], wrongs[:, 0])
    ids = torch.cat([answers, wrongs], 1)
    absent = torch.zeros(ids.shape).masked_fill(ids == NONE, -torch.inf)
    split = answers.shape[1]

    def score(logits: Tensor, prompt: Tensor) -> Tensor:
        values = logits[:, 0] + absent.to(logits)[prompt]
        return values[:, :split].logsumexp(1) - values[:, split:].logsumexp(1)

    return Readout(score, question.position[:, None], ids.clamp(min=0), UNITS[LOGIT_DIFFERENCE])


def _probability_difference(question: Question) -> Readout:
    answers, wrongs = question.answers, question.wrongs

    def score(logits: Tensor, prompt: Tensor) -> Tensor:
        log_probs = _log_softmax(logits[:, 0])
        right, wrong = (_log_sum(log_probs, ids.to(logits.device)[prompt]) for ids in (answers, wrongs))
        return right.exp() - wrong.exp()

    return Readout(score, question.position[:, None], unit=UNITS[PROBABILITY_DIFFERENCE])


def _teacher_forced(name: str, question: Question) -> Readout:
    """Probability, log-probability or minus the loss of the answer, of all its tokens."""
    forced = question.answers[:, :1] if question.forced is None else question.forced
    alternatives = question.answers if question.answers.shape[1] > 1 else None

    def score(logits: Tensor, prompt: Tensor) -> Tensor:
        log_probs, ids = _log_softmax(logits), forced.to(logits.device)[prompt]
        each = log_probs.gather(2, ids.clamp(min=0)[:, :, None])[:, :, 0]
        real = ids != NONE
        total = (each * real).sum(1)
        if alternatives is not None:
            total = torch.where(
                real.sum(1) > 1, total, _log_sum(log_probs[:, 0], alternatives.to(logits.device)[prompt])
            )
        if name == LOSS:
            return total / real.sum(1)
        return total.exp() if name == PROBABILITY else total

    return Readout(score, question.steps, unit=UNITS[name])


def _divergence(question: Question, clean: Float[Tensor, "prompt vocab"]) -> Readout:
    def score(logits: Tensor, prompt: Tensor) -> Tensor:
        reference, here = clean.to(logits.device)[prompt], _log_softmax(logits[:, 0])
        return -(reference.exp() * (reference - here)).sum(-1)

    return Readout(score, question.position[:, None], unit=UNITS[KL])


def _custom(metric: Callable[[Tensor, Tensor, Tensor], Tensor], question: Question) -> Readout:
    answers, wrongs = question.answers, question.wrongs

    def score(logits: Tensor, prompt: Tensor) -> Tensor:
        value = metric(logits[:, 0], answers.to(logits.device)[prompt], wrongs.to(logits.device)[prompt])
        if not isinstance(value, Tensor) or value.shape != prompt.shape:
            shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise BadInput(
                f"metric {metric_name(metric)} returned {shape} for {len(prompt)} rows; return one number per row"
            )
        if value.is_complex():
            raise BadInput(f"metric {metric_name(metric)} returned complex numbers; return one real number per row")
        value = value if value.is_floating_point() else value.float()
        if logits.requires_grad and torch.is_grad_enabled() and not value.requires_grad:
            raise NoSlope(
                f"metric {metric_name(metric)} has no slope in the logits, which this follows; take the method sweep, "
                "or a metric that does not compare, round or detach"
            )
        if not value.is_meta and not bool(value.isfinite().all()):
            row = int((~value.isfinite()).nonzero()[0])
            raise BadInput(
                f"metric {metric_name(metric)} returned {float(value[row])} for prompt {int(prompt[row])} (from "
                "0); return a finite number for every row"
            )
        return value

    return Readout(score, question.position[:, None], unit=unit_of(metric))


@torch.no_grad()
def _clean_log_probabilities(
    model: Transformer, batch: Batch, position: Int[Tensor, " prompt"]
) -> Float[Tensor, "prompt vocab"]:
    parts = []
    for rows in torch.arange(len(batch)).split(CLEAN_ROWS):
        part = batch.take(rows).to(model.device)
        logits = model(part.tokens, mask=part.mask, at=position[rows][:, None].to(model.device))
        parts.append(_log_softmax(logits[:, 0]).cpu())
    return torch.cat(parts)


def _log_softmax(logits: Tensor) -> Tensor:
    """Sums over a whole vocabulary are made in float32 at least."""
    return (logits.float() if logits.element_size() < 4 else logits).log_softmax(-1)


def _largest_other(values: Float[Tensor, "row vocab"], ids: Int[Tensor, "row member"]) -> Float[Tensor, " row"]:
    """The largest value but for those of some ids; -1 is left out."""
    return values.scatter(1, ids.where(ids != NONE, ids[:, :1]).clamp(min=0), -torch.inf).amax(1)


def _log_sum(values: Float[Tensor, "row vocab"], ids: Int[Tensor, "row member"]) -> Float[Tensor, " row"]:
    """log of the summed exponentials of the values of some ids; -1 is left out."""
    chosen = values.gather(1, ids.clamp(min=0))
    return chosen.masked_fill(ids == NONE, -torch.inf).logsumexp(1)
