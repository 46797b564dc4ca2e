"""What becomes of a behaviour's rows with a model, how well the model does, what it says instead, and the contrast.

Row by row, then split by split; `vesalius behaviours M -b B` prints it. Counterfactuals for rows without one are
proposed here too, and written into a new file.
"""

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from vesalius.behaviours.behaviour import Behaviour
from vesalius.behaviours.contrast import contrast_on
from vesalius.behaviours.encoding import Fate
from vesalius.behaviours.metrics import NONE, unit_of
from vesalius.behaviours.own import ALL_ROWS, RowBehaviour, from_rows, ids_note, metric_label
from vesalius.behaviours.performance import answers, preferred, score, summary
from vesalius.behaviours.prompts import SPLITS, Prompt, Prompts
from vesalius.behaviours.proposals import Proposal, Substitution, propose
from vesalius.behaviours.reading import shown_tokens
from vesalius.documents.metric import Metric
from vesalius.documents.performance import Performance
from vesalius.errors import BadInput, Failed
from vesalius.files import write_text
from vesalius.model.tokenizer import Tokenizer
from vesalius.model.transformer import Transformer
from vesalius.progress import Progress, silent
from vesalius.values import JsonObject

#: Wordings of what the model says instead that are listed.
LISTED = 10


@dataclass(frozen=True)
class _Figures:
    """Of each prompt: how far the right answer is preferred, whether it is said, the metric, and what is said instead
    (-1 where the right answer is said).
    """

    margins: Tensor
    is_top: Tensor
    scores: Tensor
    instead: Tensor

    @classmethod
    def joined(cls, parts: Sequence["_Figures"]) -> "_Figures":
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in cls.__dataclass_fields__))


def check_behaviour(
    behaviour: Behaviour,
    model: Transformer,
    tokenizer: Tokenizer,
    *,
    n: int,
    seed: int = 0,
    progress: Progress = silent,
) -> JsonObject:
    """Every row with its fate; accuracy (how often the right answer is preferred), `top1` (how often it is said) and
    metric of each split and of all, each `{value, low, high, n}`, None where nothing is left to measure; what is said
    instead; and the contrast. At most `n` prompts of each split are run.
    """
    sizes = {"n_ctx": model.config.n_ctx, "d_vocab": model.config.d_vocab}
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
        # What is asked of every prompt, of one run.
        parts = []
        for part, logits in answers(model, prompts, progress=progress):
            margins, is_top = preferred(part, logits)
            best, question = logits.argmax(2), part.question
            forced = question.forced if question.forced is not None else best[:, :1].new_full((len(part), 1), NONE)
            wrong = (best != forced) & (forced != NONE)  # where an answer of several tokens is left first
            at = torch.where(wrong.any(1), wrong.int().argmax(1), 0)
            said = best.gather(1, at[:, None])[:, 0].masked_fill(is_top.bool(), NONE)
            parts.append(_Figures(margins, is_top, score(part.readout(model), logits), said))
        measured[split], unit = _Figures.joined(parts), unit_of(prompts.metric)
        if not isinstance(behaviour, RowBehaviour):
            shown, always = tokens_read(prompts, tokenizer), {"kept": True, "reason": None, "suggestion": None}
            rows += [
                {"row": len(rows) + i, **always, "split": split, "prompt": text, "tokens": tokens}
                for i, (text, tokens) in enumerate(zip(prompts.texts, shown, strict=True), 1)
            ]
    total, performance = _summary(list(measured.values())), None
    if measured:
        progress("replacing everything", 0, 0)
        drawn = behaviour.sample(tokenizer, n, seed=seed, split=behaviour.measured_split, **sizes)
        every = _Figures.joined(list(measured.values()))
        known = {"contrast": contrast_on(model, drawn), "open_answer": behaviour.open_answer}
        performance = summary(every.margins, every.is_top).model_copy(update=known)
    return {
        "behaviour": behaviour.name,
        "n_rows": len(rows),
        "n_kept": sum(row["kept"] for row in rows),
        "rows": rows,
        "splits": {split: _summary([measured[split]] if split in measured else []) for split in names},
        "accuracy": total["accuracy"],
        "top1": total["top1"],
        "metric": total["metric"],
        "metric_name": metric_label(behaviour),
        "unit": unit,
        "performs": total["performs"],
        "contrast": _contrast(performance),
        "says_instead": _said(list(measured.values()), tokenizer),
        "doubts": [] if performance is None else list(performance.doubts),
        "note": _notes(behaviour, tokenizer) if isinstance(behaviour, RowBehaviour) else None,
    }


def tokens_read(prompts: Prompts, tokenizer: Tokenizer) -> list[str]:
    """The tokens of each prompt as the model reads them, and what is read after them."""
    question, tokens = prompts.question, prompts.tokens.tolist()
    sides = [[[token for token in row if token != NONE] for row in side.tolist()]
             for side in (question.answers, question.wrongs)]  # fmt: skip
    read = zip(tokens, question.position.tolist(), *sides, strict=True)
    return [shown_tokens(tokenizer, row[: last + 1], 0, right, wrong) for row, last, right, wrong in read]


def _contrast(performance: Performance | None) -> JsonObject | None:
    return None if performance is None or performance.contrast is None else performance.contrast.as_data()


def _notes(behaviour: RowBehaviour, tokenizer: Tokenizer) -> str | None:
    return "; ".join(part for part in (behaviour.notes, ids_note(behaviour, tokenizer)) if part) or None


def _said(parts: Sequence[_Figures], tokenizer: Tokenizer) -> list[JsonObject]:
    """What is said instead of the right answer, most frequent first."""
    counts = Counter(token for part in parts for token in part.instead.tolist() if token != NONE)
    return [{"text": tokenizer.piece(token), "n": many} for token, many in counts.most_common(LISTED)]


def _summary(parts: Sequence[_Figures]) -> JsonObject:
    """Accuracy, top-1 and metric over the prompts of some splits."""
    if not parts:
        return {"n": 0, "accuracy": None, "top1": None, "metric": None, "performs": None}
    every = _Figures.joined(parts)
    measured = summary(every.margins, every.is_top)
    return {
        "n": measured.n,
        "accuracy": {
            "value": measured.accuracy,
            "low": measured.accuracy_low,
            "high": measured.accuracy_high,
            "n": measured.n,
        },
        "top1": _plain(Metric.of_share(int(every.is_top.sum()), measured.n)),
        "metric": _plain(Metric.of_mean(every.scores)),
        "performs": measured.performs,
    }


def _plain(metric: Metric) -> JsonObject:
    return {"value": metric.value, "low": metric.low, "high": metric.high, "n": metric.n}


# Counterfactuals that are proposed, and the file they are written into.


def require_new_file(path: str | Path) -> Path:
    """The file that proposals are written into, which must not exist yet."""
    place = Path(path).expanduser()
    if place.suffix != ".jsonl":
        raise BadInput(f"propose {str(path)!r}: rows are written as JSON lines; give a name that ends with .jsonl")
    if os.path.lexists(place):
        raise BadInput(f"{place}: is there already; give a new file, or move it away")
    if not place.parent.is_dir():
        raise BadInput(f"{place.parent}: is not a directory; make it first")
    return place


def propose_counterfactuals(
    behaviour: Behaviour,
    model: Transformer,
    tokenizer: Tokenizer,
    path: Path,
    *,
    words: Sequence[str] = (),
    progress: Progress = silent,
) -> JsonObject:
    """Propose counterfactuals for the rows that have none and write all rows into a new file; says what each proposal
    does, and what the contrast of the new file is.
    """
    if not isinstance(behaviour, RowBehaviour):
        raise BadInput(f"behaviour {behaviour.name} has counterfactuals of its own; propose them for rows of your own")
    sizes = {"n_ctx": model.config.n_ctx, "d_vocab": model.config.d_vocab}
    fates = behaviour.check(tokenizer, **sizes)
    asked = [fate for fate in fates if fate.prompt is not None and fate.row.counterfactual is None]
    if not any(fate.kept for fate in fates):
        raise BadInput(
            f"behaviour {behaviour.label}: none of the rows can be used with this model, so that there is nothing to "
            "propose for; leave out `propose` to see why"
        )
    if not asked:
        raise BadInput(f"behaviour {behaviour.label}: no usable row lacks a counterfactual; nothing is to be proposed")
    rows = [fate.prompt for fate in asked if fate.prompt is not None]
    prompts = Prompts.from_rows(rows, pad=tokenizer.bos or 0, **sizes).with_metric(behaviour.used_metric)
    found = propose(model, tokenizer, prompts, listed=words, progress=progress)
    new = {
        fate.row.number: text
        for fate, prompt, one, tokens in zip(asked, rows, found.rows, found.counterfactuals, strict=True)
        if one is not None and one.range > 0 and tokens is not None and (text := _as_text(tokenizer, prompt, tokens))
    }
    if not new:
        raise Failed(
            f"behaviour {behaviour.label}: no word was found that turns the answer of a row; list words of your own "
            "with `words`, or write counterfactuals by hand"
        )
    written = [replace(fate.row, counterfactual=new.get(fate.row.number, fate.row.counterfactual)) for fate in fates]
    whole = [row for row in written if row.defect is None]
    write_text(path, "".join(json.dumps(row.as_data(), ensure_ascii=False) + "\n" for row in whole))
    # The contrast of the rows that now have a counterfactual.
    given = [row for row in whole if row.counterfactual is not None]
    proposed = from_rows(given, name=behaviour.name, metric=behaviour.metric)
    config = model.config
    drawn = proposed.sample(tokenizer, len(given), seed=0, split=ALL_ROWS, n_ctx=config.n_ctx, d_vocab=config.d_vocab)
    return {
        "file": str(path),
        "n_proposed": len(new),
        "n_asked": len(asked),
        "shared": [_shared(one) for one in found.shared],
        "rows": [
            _proposed(fate, one, change, new.get(fate.row.number))
            for fate, one, change in zip(asked, found.rows, found.changes, strict=True)
        ],
        "contrast": contrast_on(model, drawn).as_data(),
    }


def _as_text(tokenizer: Tokenizer, prompt: Prompt, tokens: tuple[int, ...]) -> str | None:
    """A counterfactual as a text that is read back as the same tokens, without what the answers of the prompt begin
    with; None where there is none.
    """
    end = len(prompt.own)
    own, after = tokens[:end], tokens[end:]
    if after != prompt.tokens[end:]:
        return None
    text = tokenizer.decode(list(own[int(own[0] == tokenizer.bos) :]))
    try:
        return text if tuple(tokenizer.encode(text)) == own else None
    except BadInput:  # a vocabulary of whole words does not read every text of its own tokens
        return None


def _shared(one: Proposal) -> JsonObject:
    return {
        "old": one.old,
        "new": one.new,
        "range_on_rows_that_chose": _plain(one.chosen_on),
        "range_on_other_rows": None if one.others is None else _plain(one.others),
        "broken": one.broken,
    }


def _proposed(fate: Fate, one: Substitution | None, change: str | None, text: str | None) -> JsonObject:
    """What is proposed for a row, and what it does: how far the score falls, how much likelier the wrong answer gets,
    and how much less likely the prompt, in nats.
    """
    effect = {"range": None, "wrong_rise": None, "broken": None}
    if one is not None:
        effect = {"range": one.range, "wrong_rise": one.wrong_rise, "broken": one.broken}
    return {"row": fate.row.number, "counterfactual": text, "change": change, **effect}
