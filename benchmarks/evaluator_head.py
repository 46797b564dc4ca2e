"""Does a trained evaluator beat an untuned one on functions that it has not seen? The smallest recipe that can tell.

    vesalius functions evaluator-data --out DATA
    python -m benchmarks.evaluator_head DATA

Description, input and output are points in a space of word vectors (`wordllama`). Untuned: the example whose text lies
nearest to the description. Trained: a softmax over the three examples of a linear score of the products of these
points, by L-BFGS with weight decay that the validation split chooses. The test split is read once, at the end.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius_functions.agents.evaluator import SPLITS
from vesalius_functions.evaluators.data import share_right
from vesalius_functions.knowledge.scoring import LONGEST_TEXT, space

SPACE = "wordllama"
DECAYS = (1e-3, 1e-2, 1e-1, 1.0)


def points(texts: list[str]) -> Float[Tensor, "text dimension"]:
    """Texts as points of length one."""
    rows = space(SPACE).vectors([" ".join(text.split())[:LONGEST_TEXT] for text in texts])
    return torch.from_numpy(rows).double()


def features(rows: list[dict[str, Any]]) -> Float[Tensor, "test choice feature"]:
    """Nearness first, then the products of description, input and output."""
    said = points([row["description"] for row in rows])[:, None]
    given = _of_examples(rows, "input")
    output = _of_examples(rows, "output")
    together = torch.nn.functional.normalize(given + output, dim=-1)
    pairs = ((said, together), (said, given), (said, output), (given, output))
    near = [(a * b).sum(-1, keepdim=True) for a, b in pairs]
    return torch.cat([*near, said * given, said * output, given * output], -1)


def _of_examples(rows: list[dict[str, Any]], part: str) -> Float[Tensor, "test choice dimension"]:
    texts = ["" if one[part] is None else str(one[part]) for row in rows for one in row["examples"]]
    return points(texts).reshape(len(rows), 3, -1)


def trained(
    x: Float[Tensor, "test choice feature"], right: Int[Tensor, " test"], decay: float
) -> Float[Tensor, " feature"]:
    """The weights that make the right examples likeliest."""
    weights = torch.zeros(x.shape[-1], dtype=x.dtype, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = torch.nn.functional.cross_entropy(x @ weights, right) + decay * (weights**2).mean()
        value.backward()
        return value

    optimizer.step(loss)
    return weights.detach()


def accuracy(
    scores: Float[Tensor, "test choice"], right: Int[Tensor, " test"], groups: list[Sequence[str]]
) -> dict[str, float | int | None]:
    """The share right, with an interval over groups of functions."""
    metric = share_right((scores.argmax(-1) == right).tolist(), groups)
    number = len(set(map(tuple, groups)))
    return {"value": metric.value, "low": metric.low, "high": metric.high, "tests": metric.n, "groups": number}


def measured(data: Path) -> dict[str, Any]:
    """Untuned and trained, by category and on all of them together."""
    splits = {name: [json.loads(line) for line in (data / f"{name}.jsonl").open()] for name in SPLITS}
    x = {name: features(rows) for name, rows in splits.items()}
    spread = x["train"].std((0, 1)).clamp_min(1e-9)
    scaled = {name: values / spread for name, values in x.items()}
    right = {name: torch.tensor([row["answer"] - 1 for row in rows]) for name, rows in splits.items()}
    fits = {decay: trained(scaled["train"], right["train"], decay) for decay in DECAYS}
    held = {
        decay: float(((scaled["validation"] @ fit).argmax(-1) == right["validation"]).double().mean())
        for decay, fit in fits.items()
    }
    best = max(held, key=lambda decay: held[decay])
    results: dict[str, Any] = {"decay": best, "validation": held}
    for category in ("all", *sorted({row["category"] for row in splits["test"]})):
        places = [i for i, row in enumerate(splits["test"]) if category in ("all", row["category"])]
        groups = [splits["test"][i]["group"] for i in places]
        results[category] = {
            "untuned": accuracy(x["test"][places, :, 0], right["test"][places], groups),
            "trained": accuracy(scaled["test"][places] @ fits[best], right["test"][places], groups),
        }
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="directory of `vesalius functions evaluator-data`")
    print(json.dumps(measured(parser.parse_args().data), indent=2))
