"""The acceptance gate: does a trained transformer implement its program in the right components, and only there?

Measured on fresh inputs with the intervention engine, which is not the code that trained it:

    accuracy      share of positions answered as the program answers
    iia           per component: the same after an interchange of that component alone
    iia_changed   the same, counted only where the interchange changes the program's answer
    moved         per component: the same as `iia_changed` with the source read at other positions
    strict        per component outside the circuit: accuracy when it alone takes a source's values
    strict_all    accuracy when all of them do
    mean_ablated  accuracy when all of them are replaced by their mean, zero_ablated by zero
    repetitive    accuracy on constant inputs, nearly constant ones, and ones with any count of one token
    rare_counts   the lowest accuracy on those whose most frequent token has one count
"""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool, Float
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from vesalius.intervene import Batch, Plan, Readout, Recordings, Values, activations, means, run, zeros
from vesalius.model import Component, Transformer
from vesalius.rasp.inputs import NUMERICAL_TOLERANCE, repetitive_inputs
from vesalius_truth.training.setting import Pairs, Setting, Slot, differ, draw_pairs, few_threads, model_tokens, targets

#: The minimum of every metric.
THRESHOLDS: Mapping[str, float] = {
    "accuracy": 0.99,
    "iia_worst": 0.99,
    "iia_changed_worst": 0.98,
    "moved_worst": 0.95,
    "strict_worst": 0.99,
    "strict_all": 0.99,
    "mean_ablated": 0.98,
    "zero_ablated": 0.98,
}

#: The minimum on repetitive inputs, which random ones almost never show.
REPETITIVE_THRESHOLDS: Mapping[str, float] = {"repetitive": 0.98, "rare_counts": 0.95}
#: Counts with fewer positions than this say nothing by themselves.
FEWEST_POSITIONS = 50


def headroom(metrics: Mapping[str, float]) -> float:
    """How far the metrics are above their thresholds: 1 when all are perfect, 0 when the worst just passes."""
    return min(1 - (1 - metrics[name]) / (1 - threshold) for name, threshold in THRESHOLDS.items())


class Gate(BaseModel):
    """The metrics of one model on `n` pairs of fresh inputs.

    `inert` names components whose interchange at the same position has no effect; they do not count in the worst
    metrics. `crossed` is the accuracy with outputs moved to other positions, where a model that adds the position to an
    output fails; it is empty in gates measured before all components were moved. Where nothing changed the answer,
    `iia_changed` is None. `repetitive` and `rare_counts` are None in gates measured before there were such inputs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    n: int
    seed: int
    accuracy: float
    iia: dict[str, float]
    iia_changed: dict[str, float | None]
    crossed: dict[str, float]
    crossed_changed: dict[str, float | None]
    strict: dict[str, float]
    strict_all: float
    mean_ablated: float
    zero_ablated: float
    inert: tuple[str, ...]
    repetitive: float | None = None
    rare_counts: float | None = None

    @property
    def iia_worst(self) -> float:
        """The lowest interchange accuracy of any component that counts."""
        return min((v for name, v in self.iia.items() if name not in self.inert), default=1.0)

    @property
    def iia_changed_worst(self) -> float:
        """The same over positions whose answer changes."""
        active = [v for name, v in self.iia_changed.items() if name not in self.inert]
        return min((v for v in active if v is not None), default=1.0)

    @property
    def moved_worst(self) -> float:
        """The lowest share of changed answers that are the program's after one component's output was moved."""
        return min((v for v in self.crossed_changed.values() if v is not None), default=1.0)

    @property
    def strict_worst(self) -> float:
        """The lowest accuracy with one component outside the circuit patched."""
        return min(self.strict.values(), default=1.0)

    @property
    def metrics(self) -> dict[str, float]:
        """The numbers that are compared with `THRESHOLDS`."""
        return {name: getattr(self, name) for name in THRESHOLDS}

    @property
    def passed(self) -> bool:
        """Whether every metric reaches its threshold."""
        return not self.shortfalls

    @property
    def shortfalls(self) -> list[str]:
        """The metrics below their thresholds, as text."""
        bars = {**THRESHOLDS, **REPETITIVE_THRESHOLDS}
        figures = {**self.metrics, "repetitive": self.repetitive, "rare_counts": self.rare_counts}
        return [
            f"{name} {value:.4f} < {bars[name]}"
            for name, value in figures.items()
            if value is not None and value < bars[name]
        ]


def measure(model: Transformer, setting: Setting, *, n: int = 1024, seed: int = 1_000_003) -> Gate:
    """Measure the gate of a model on `n` fresh pairs; runs where the model is."""
    with torch.no_grad(), few_threads(n * model.config.n_ctx * model.config.d_mlp):
        return _measure(model, setting, n, seed)


def _measure(model: Transformer, setting: Setting, n: int, seed: int) -> Gate:
    pairs = draw_pairs(setting.draw, n, seed=seed, device=model.device)
    answers = targets(setting.program, pairs, setting.slots)
    runs = _InterventionRuns(model, setting, pairs)
    base = answers[:, 0]
    aligned = [(i, slot) for i, slot in enumerate(setting.slots) if not slot.crossed]
    crossed = [(i, slot) for i, slot in enumerate(setting.slots) if slot.crossed]
    outputs = {i: runs.interchange(slot) for i, slot in aligned + crossed}
    share = {i: runs.share(output, answers[:, 1 + i]) for i, output in outputs.items()}
    changed = {
        i: runs.share(output, answers[:, 1 + i], where=differ(setting.program, answers[:, 1 + i], base))
        for i, output in outputs.items()
    }
    others = setting.others
    singles = {str(c): runs.share(runs.patched([c], runs.source), base) for c in others}
    together = [runs.patched(others, values) for values in (runs.source, runs.means, runs.zeros)] if others else []
    strict_all, mean_ablated, zero_ablated = [_share(runs.share(x, base)) for x in together] or [1.0, 1.0, 1.0]
    repetitive, rare_counts = _on_repetitive(model, setting, pairs, n, seed)
    return Gate(
        n=n,
        seed=seed,
        accuracy=_share(runs.share(runs.clean(), base)),
        iia={str(slot.component): _share(share[i]) for i, slot in aligned},
        iia_changed={str(slot.component): changed[i] for i, slot in aligned},
        crossed={str(slot.component): _share(share[i]) for i, slot in crossed},
        crossed_changed={str(slot.component): changed[i] for i, slot in crossed},
        strict={name: _share(value) for name, value in singles.items()},
        strict_all=strict_all,
        mean_ablated=mean_ablated,
        zero_ablated=zero_ablated,
        inert=tuple(str(slot.component) for slot in setting.slots if slot.inert),
        repetitive=repetitive,
        rare_counts=rare_counts,
    )


def _on_repetitive(model: Transformer, setting: Setting, pairs: Pairs, n: int, seed: int) -> tuple[float, float]:
    """Accuracy on repetitive inputs of the lengths that were drawn: over all, and for the worst count of a token."""
    program = setting.program
    shortest = int(pairs.base_lengths.min())
    codes, lengths = repetitive_inputs(
        len(program.vocab), program.max_len, n, seed=seed, min_length=shortest, device=model.device
    )
    logits = model(model_tokens(program, codes))[:, 1:]
    outputs = logits[..., 0] if program.numerical else logits.argmax(-1).float()
    wrong = differ(program, outputs, program.run(codes, lengths).output.float())
    real = codes >= 0
    counts = torch.stack([(codes == token).sum(1) for token in range(len(program.vocab))]).amax(0)
    by_count = [real & (counts == count)[:, None] for count in counts.unique()]
    shares = [1 - float(wrong[part].float().mean()) for part in by_count if int(part.sum()) >= FEWEST_POSITIONS]
    overall = 1 - float(wrong[real].float().mean())
    return overall, min(shares, default=overall)


class _InterventionRuns:
    """Runs of one model on one set of pairs, with components replaced by values from those pairs."""

    def __init__(self, model: Transformer, setting: Setting, pairs: Pairs) -> None:
        self.program, self.config, self.pairs = setting.program, model.config, pairs
        base, source = (Batch(model_tokens(setting.program, codes)) for codes in (pairs.base, pairs.source))
        self.recordings = Recordings(model, base, Readout(self._answers))
        self.source, self.means, self.zeros = activations(model, source), means(model, base), zeros(model)
        positions = torch.arange(base.tokens.shape[1], device=base.tokens.device)
        self.in_source: Bool[Tensor, "pair pos"] = positions <= pairs.source_lengths[:, None]

    def _answers(self, logits: Float[Tensor, "row pos out"], prompt: Tensor) -> Float[Tensor, "row token"]:
        return logits[:, 1:, 0] if self.program.numerical else logits[:, 1:].argmax(-1).float()

    def clean(self) -> Tensor:
        """The model's answers without intervention."""
        return self.recordings.scores()

    def patched(self, components: Sequence[Component], values: Values) -> Tensor:
        """The answers with some components replaced: by constants everywhere, or where the source has a real token."""
        n = len(self.pairs)
        constant = len(values) == 1
        choices = torch.zeros(n, dtype=torch.long) if constant else torch.arange(n)
        plan = Plan.grid(self.config, [components], choices=choices, positions=None if constant else self.in_source)
        return run(self.recordings, plan, values)

    def interchange(self, slot: Slot) -> Tensor:
        """The answers after one kind of interchange."""
        return self.patched([slot.component], self._crossed() if slot.crossed else self.source)

    def _crossed(self) -> Values:
        positions = torch.arange(self.in_source.shape[1], device=self.in_source.device)
        crossed = torch.nn.functional.pad(self.pairs.crossed, (1, 0), value=-1)
        reads = torch.where(crossed >= 0, crossed + 1, positions)
        row = torch.arange(len(reads), device=reads.device)[:, None]
        source = self.source
        return Values(
            tuple(z[row, reads] for z in source.z), tuple(m[row, reads] for m in source.mlp), source.embed[row, reads]
        )

    def share(self, outputs: Tensor, answers: Tensor, *, where: Tensor | None = None) -> float | None:
        """Share of real positions (of those in `where`) answered correctly; None if there are none."""
        counted = self.pairs.real if where is None else self.pairs.real & where
        correct = (outputs - answers).abs() < NUMERICAL_TOLERANCE if self.program.numerical else outputs == answers
        total = int(counted.sum())
        return float((correct & counted).sum() / total) if total else None


def _share(value: float | None) -> float:
    return 1.0 if value is None else value
