"""What becomes of a behaviour's rows with a model, and how well the model does: row by row, then split by split."""

from typing import Any

import torch

from vesalius.behaviours.behaviour import Behaviour
from vesalius.behaviours.material import SPLITS
from vesalius.behaviours.own import RowBehaviour, metric_label
from vesalius.behaviours.performance import performance
from vesalius.behaviours.prompts import Prompts
from vesalius.errors import BadInput
from vesalius.intervene import Recordings
from vesalius.model.tokenizer import Tokenizer
from vesalius.model.transformer import Transformer
from vesalius.progress import Progress, silent
from vesalius.statistics import interval_or_none, share_interval


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
    splits: dict[str, Any] = {}
    samples: list[Prompts] = []
    for done, split in enumerate(names):
        progress(f"measuring the {split} rows", done, len(names))
        try:
            samples.append(behaviour.sample(tokenizer, n, seed=seed, split=split, **sizes))
        except BadInput:
            if not rows:
                raise
            splits[split] = {"n": 0, "accuracy": None, "metric": None}
            continue
        splits[split] = _measured(model, samples[-1:])
        if not isinstance(behaviour, RowBehaviour):
            rows += [
                {"row": len(rows) + i, "kept": True, "reason": None, "split": split, "prompt": text, "suggestion": None}
                for i, text in enumerate(samples[-1].texts, 1)
            ]
    total = _measured(model, samples) if samples else {"n": 0, "accuracy": None, "metric": None}
    readout_unit = samples[0].readout(model).unit if samples else ""
    return {
        "behaviour": behaviour.name,
        "n_rows": len(rows),
        "n_kept": sum(row["kept"] for row in rows),
        "rows": rows,
        "splits": splits,
        "accuracy": total["accuracy"],
        "metric": total["metric"],
        "metric_name": metric_label(behaviour),
        "unit": readout_unit,
        "performs": total.get("performs"),
        "note": behaviour.notes if isinstance(behaviour, RowBehaviour) else None,
    }


def _measured(model: Transformer, samples: list[Prompts]) -> dict[str, Any]:
    """Accuracy and metric over the prompts of some splits."""
    scores = torch.cat(
        [Recordings(model, prompts.batch, prompts.readout(model)).scores().cpu().double() for prompts in samples]
    )
    parts = [performance(model, prompts) for prompts in samples]
    n = len(scores)
    right = sum(round(part.accuracy * part.n) for part in parts)
    low, high = interval_or_none(scores)
    accuracy = _share(right, n)
    return {
        "n": n,
        "accuracy": accuracy,
        "metric": {"value": float(scores.mean()), "low": low, "high": high, "n": n},
        "performs": parts[0].performs if len(parts) == 1 else accuracy["low"] > 0.5,
    }


def _share(right: int, n: int) -> dict[str, Any]:
    low, high = share_interval(right, n)
    return {"value": right / n, "low": low, "high": high, "n": n}
