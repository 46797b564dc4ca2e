"""Words for all heads of a model, and what is left of its perplexity where programs attend in the place of heads.

    OMP_NUM_THREADS=2 python -m benchmarks.attention_words --model smollm2-135m --out FILE

Programs are fitted and graded as in `vesalius atlas`. Then 10 and 25 % of the heads get a pattern that is not their
own, on paragraphs of this project's documentation that hold plain English only: those with the best programs on what
was fitted, and five times heads at random. Beside programs stand the mean pattern of each position, all BOS, programs
of other heads of the same set (the mean of five draws), and the head's output replaced by its mean. A last row gives
every head what its word says: a program, or the mean pattern of a position. Figures are perplexity over that of the
model, with intervals over paragraphs. The rows of other models in FILE stay.
"""

import argparse
import math
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import vesalius as ves
from benchmarks.ladder import brief
from vesalius.components import Component
from vesalius.discovery.head_tests import bos_of
from vesalius.documents.metric import Metric
from vesalius.documents.running import POSITION_ONLY, PROGRAM
from vesalius.explanations.atlas.text import passages
from vesalius.explanations.running.battery import TEXT, samples
from vesalius.explanations.running.fitting import PositionMeans, attention_words
from vesalius.explanations.running.programs import parse_program
from vesalius.explanations.running.rules import Tokens
from vesalius.files import read_json, write_json
from vesalius.intervene import Batch
from vesalius.model.hooks import Hook
from vesalius.model.specimen import Specimen, TextVocabulary

SHARES, DRAWS, LENGTH, AT_ONCE = (0.1, 0.25), 5, 64, 8
DOCS = Path(__file__).parent.parent / "docs"
#: What is no plain English: tables, links, formulas.
MARKS = "|[]<>{}=*#"


def paragraphs(specimen: Specimen, n: int) -> Batch:
    """The first `LENGTH` tokens of plain paragraphs of the documentation, the same for every model that has as many."""
    assert isinstance(specimen.vocabulary, TextVocabulary)
    found = []
    for file in sorted(DOCS.glob("*/*.md")):
        for block in file.read_text(encoding="utf-8").split("\n\n"):
            text = " ".join(block.split())
            if text[:1].isupper() and text[-1:] == "." and not set(MARKS) & set(text):
                found.append(text.replace("`", ""))
    random.Random("paragraphs").shuffle(found)
    rows = (specimen.vocabulary.tokenizer.encode(text)[:LENGTH] for text in found)
    long = [row for row in rows if len(row) == LENGTH]
    if len(long) < n:
        raise SystemExit(f"there are {len(long)} paragraphs of {LENGTH} tokens; ask for fewer than {n}")
    return Batch(torch.tensor(long[:n]))


class Replacing:
    """A model whose heads attend by given patterns, or write their mean."""

    def __init__(self, specimen: Specimen, batch: Batch) -> None:
        self.model, self.tokens, self.first = specimen.model, batch.tokens, len(bos_of(specimen))
        self.clean = self.losses({})

    @torch.no_grad()
    def losses(
        self, patterns: Mapping[Component, Tensor], means: Mapping[Component, Tensor] | None = None
    ) -> list[float]:
        """The mean loss of each paragraph; `patterns` are of all paragraphs, `means` outputs of heads."""
        found: list[float] = []
        for rows in torch.arange(len(self.tokens)).split(AT_ONCE):
            tokens = self.tokens[rows].to(self.model.device)
            hooks = [*self._hooks(patterns, rows, "hook_pattern"), *self._hooks(means or {}, None, "hook_z")]
            logits = self.model.run_with_hooks(tokens, fwd_hooks=hooks)[:, :-1].float()
            loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none")
            found += loss[:, max(0, self.first - 1) :].double().mean(1).tolist()
        return found

    def _hooks(self, given: Mapping[Component, Tensor], rows: Tensor | None, name: str) -> Iterator[Hook]:
        for layer in sorted({head.layer for head in given}):
            mine = {head.head: values for head, values in given.items() if head.layer == layer}

            def put(value: Tensor, _: object, mine: dict[int | None, Tensor] = mine) -> Tensor:
                value = value.clone()
                for head, new in mine.items():
                    new = (new if rows is None else new[rows]).to(value)
                    if rows is None:
                        value[:, :, head] = new
                    else:
                        value[:, head] = new
                return value

            yield f"blocks.{layer}.attn.{name}", put

    def ratio(self, *several: list[float]) -> dict[str, Any]:
        """Perplexity over that of the model: the mean of several runs, with an interval over paragraphs."""
        more = torch.tensor(several).mean(0) - torch.tensor(self.clean)
        metric = Metric.of_mean(more)
        return {
            name: None if (value := getattr(metric, name)) is None else round(math.exp(value), 4)
            for name in ("value", "low", "high")
        } | {"n": metric.n}


def mean_outputs(specimen: Specimen, heads: Sequence[Component]) -> dict[Component, Tensor]:
    """The mean output of heads on the passages that programs were fitted to."""
    text = passages(specimen)
    assert text is not None
    tokens = text.batch.tokens[::2].to(specimen.model.device)
    _, cache = specimen.model.run_with_cache(tokens, names=lambda name: name.endswith("hook_z"))
    return {head: cache[f"blocks.{head.layer}.attn.hook_z"][:, text.first :, head.head].mean((0, 1)) for head in heads}


def measure(model: str, n: int, device: str) -> dict[str, Any]:
    """The words of a model, and the table of perplexity."""
    cpu, wall, specimen = time.process_time(), time.perf_counter(), ves.load(model, device=device)
    words, _ = attention_words(specimen)
    heads = list(words)
    print(Counter(one.word for one in words.values()), f"{time.process_time() - cpu:.0f} CPU-s", flush=True)
    fitted_cpu = time.process_time() - cpu
    fit = samples(specimen, heads, None, grading=False, cost=lambda _: None)
    by_fit = {
        head: sum(
            float(
                (
                    torch.minimum(parse_program(one.program).pattern(part.tokens), part.patterns[head]).sum(-1) * weight
                ).sum()
            )
            for part in fit
            for weight in [part.weights(head)]
        )
        for head, one in words.items()
    }
    batch = paragraphs(specimen, n)
    tokens, replacing = Tokens.of(specimen, batch, len(bos_of(specimen))), Replacing(specimen, batch)
    means, outputs = PositionMeans(fit), mean_outputs(specimen, heads)
    programs = {head: parse_program(one.program).pattern(tokens) for head, one in words.items()}
    position = {head: means.of(TEXT, head, LENGTH).expand(n, -1, -1) for head in heads}
    bos = torch.zeros(n, LENGTH, LENGTH)
    bos[:, :, 0] = 1.0
    best, rng = sorted(heads, key=lambda head: -by_fit[head]), random.Random("attention words")
    rows = []

    def row(order: str, share: float, sets: Sequence[Sequence[Component]]) -> None:
        shuffled = []
        for draw in range(DRAWS):
            some = list(sets[draw % len(sets)])
            others = rng.sample(some, len(some))
            shuffled.append(replacing.losses({head: programs[one] for head, one in zip(some, others, strict=True)}))
        runs = {
            "programs": [replacing.losses({head: programs[head] for head in some}) for some in sets],
            "position mean": [replacing.losses({head: position[head] for head in some}) for some in sets],
            "mean output": [replacing.losses({}, {head: outputs[head] for head in some}) for some in sets],
            "all BOS": [replacing.losses(dict.fromkeys(some, bos)) for some in sets],
            "shuffled programs": shuffled,
        }
        found = {name: replacing.ratio(*several) for name, several in runs.items()}
        rows.append({"heads": order, "share": share, "n_heads": len(sets[0])} | found)
        print(order, share, {name: one["value"] for name, one in found.items()}, flush=True)

    for share in SHARES:
        k = round(share * len(heads))
        row("best programs", share, [best[:k]])
        row("random", share, [rng.sample(heads, k) for _ in range(DRAWS)])
    named = {head: one.word for head, one in words.items() if one.word in (PROGRAM, POSITION_ONLY)}
    by_word = {head: programs[head] if word == PROGRAM else position[head] for head, word in named.items()}
    return {
        "model": Path(model).name,
        "heads": len(heads),
        "words": dict(Counter(one.word for one in words.values())),
        "perplexity": round(math.exp(sum(replacing.clean) / len(replacing.clean)), 2),
        "paragraphs": n,
        "rows": rows,
        "by_word": {"n_heads": len(named), "ratio": replacing.ratio(replacing.losses(by_word))} if named else None,
        "programs": [brief(one) for one in words.values()],
        "fit_cpu_seconds": round(fitted_cpu, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "seconds": round(time.perf_counter() - wall, 1),
        "device": str(specimen.model.device),
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--n", type=int, default=64)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    row = measure(given.model, given.n, given.device)
    rows = read_json(given.out)["rows"] if given.out.is_file() else []
    others = [one for one in rows if one["model"] != row["model"]]
    write_json(given.out, {"benchmark": "attention words", "rows": [*others, row]})


if __name__ == "__main__":
    main()
