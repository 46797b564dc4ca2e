"""What becomes of a behaviour's rows with a model, and how well the model does: row by row, then split by split."""

from typing import Any

import torch
from torch import Tensor

from vesalius.behaviours.behaviour import Behaviour
from vesalius.behaviours.material import SPLITS
from vesalius.behaviours.metrics import unit_of
from vesalius.behaviours.own import RowBehaviour, ids_note, metric_label
from vesalius.behaviours.performance import answers, preferred, score, summary
from vesalius.behaviours.prompts import Prompts
from vesalius.model.tokenizer import Tokenizer
from vesalius.model.transformer import Transformer
from vesalius.progress import Progress, silent
from vesalius.statistics import interval_or_none

_Figures = tuple[Tensor, Tensor, Tensor]


def check_behaviour(
    behaviour: Behaviour,
    model: Transformer,
    tokenizer: Tokenizer,
    *,
    n: int,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Every row with its fate, and accuracy and metric of each split and of all: `{value, low, high, n}`, None where
    nothing is left to measure. At most `n` prompts of each split are run.
    """
    progress, sizes = progress or silent, {"n_ctx": model.config.n_ctx, "d_vocab": model.config.d_vocab}
    if isinstance(behaviour, RowBehaviour):
        fates = behaviour.check(tokenizer, **sizes)
        rows, names = [fate.as_data() for fate in fates], behaviour.splits()
    else:
        rows, names = [], SPLITS
    measured: dict[str, _Figures] = {}
    unit = ""
    for done, split in enumerate(names):
        progress(f"measuring the {split} rows", done, len(names))
        if isinstance(behaviour, RowBehaviour) and not any(row["kept"] and row["split"] == split for row in rows):
            continue
        prompts = behaviour.sample(tokenizer, n, seed=seed, split=split, **sizes)
        measured[split], unit = _figures(model, prompts, progress), unit_of(prompts.metric)
        if not isinstance(behaviour, RowBehaviour):
            rows += [
                {"row": len(rows) + i, "kept": True, "reason": None, "split": split, "prompt": text, "suggestion": None}
                for i, text in enumerate(prompts.texts, 1)
            ]
    total = _summary(list(measured.values()))
    return {
        "behaviour": behaviour.name,
        "n_rows": len(rows),
        "n_kept": sum(row["kept"] for row in rows),
        "rows": rows,
        "splits": {split: _summary([measured[split]] if split in measured else []) for split in names},
        "accuracy": total["accuracy"],
        "metric": total["metric"],
        "metric_name": metric_label(behaviour),
        "unit": unit,
        "performs": total["performs"],
        "note": _notes(behaviour, tokenizer) if isinstance(behaviour, RowBehaviour) else None,
    }


def _notes(behaviour: RowBehaviour, tokenizer: Tokenizer) -> str | None:
    return "; ".join(part for part in (behaviour.notes, ids_note(behaviour, tokenizer)) if part) or None


def _figures(model: Transformer, prompts: Prompts, progress: Progress) -> _Figures:
    """How far the answer of each prompt is preferred, whether it is the likeliest, and the metric: of one run."""
    parts = [
        (*preferred(part, logits), score(part.readout(model), logits))
        for part, logits in answers(model, prompts, progress=progress)
    ]
    margins, is_top, scores = (torch.cat(values) for values in zip(*parts, strict=True))
    return margins, is_top, scores


def _summary(parts: list[_Figures]) -> dict[str, Any]:
    """Accuracy and metric over the prompts of some splits."""
    if not parts:
        return {"n": 0, "accuracy": None, "metric": None, "performs": None}
    margins, is_top, scores = (torch.cat(figures) for figures in zip(*parts, strict=True))
    measured = summary(margins, is_top)
    low, high = interval_or_none(scores)
    return {
        "n": measured.n,
        "accuracy": {
            "value": measured.accuracy,
            "low": measured.accuracy_low,
            "high": measured.accuracy_high,
            "n": measured.n,
        },
        "metric": {"value": float(scores.mean()), "low": low, "high": high, "n": measured.n},
        "performs": measured.performs,
    }
