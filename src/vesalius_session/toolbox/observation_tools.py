"""Looking, without touching. Every method below is in scope as a function of its name: attention("L1H2", inputs).

Inputs are lists of token lists without BOS, [["a", "b"], ["b"]]; components are names, "L1H2" or "L0_MLP". Positions
count tokens from 0. Results are cut to the length of each input, so there is no BOS or padding to skip.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from torch import Tensor, cat, stack

from vesalius.errors import BadInput
from vesalius_session.subject import Subject

MOST_GROUPS = 12
BY = ("token", "position", "previous_token", "output")


class Observation:
    """Functions that describe a component and change nothing."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject

    def predict(self, inputs: list[list[Any]]) -> list[list[Any]]:
        """The model's decoded outputs, one per token of each input. Returns [[output, ...], ...]."""
        subject = self._subject
        return subject.outputs(subject.inputs(inputs))

    def writes(self, component: str, inputs: list[list[Any]]) -> list[Tensor]:
        """What a component adds to the residual stream: for each input a tensor [tokens, d_model]."""
        subject = self._subject
        part, checked = subject.component(component), subject.inputs(inputs)
        return checked.cut(subject.model.run_with_cache(checked.tokens)[1].component(part))

    def attention(self, head: str, inputs: list[list[Any]]) -> list[dict[str, Tensor]]:
        """A head's attention: for each input {"to_tokens": [query, key], "to_bos": [query]}."""
        subject = self._subject
        part, checked = subject.component(head, head=True), subject.inputs(inputs)
        name = f"blocks.{part.layer}.attn.hook_pattern"
        pattern = subject.cached(checked, name)[name][:, part.head]
        return [{"to_tokens": rows[:, 1 : len(rows) + 1], "to_bos": rows[:, 0]} for rows in checked.cut(pattern)]

    def attention_profile(self, head: str, inputs: list[list[Any]]) -> dict[str, Any]:
        """Where a head looks on average: BOS, its own position, the one before, by key token; and how far its weights
        over the visible tokens are from equal (0 equal, 1 all on one). Returns {"to_bos", "to_itself", "to_previous",
        "unevenness", "by_key_token": {token: share}}.
        """
        totals: dict[str, list[float]] = defaultdict(list)
        by_token: dict[str, list[float]] = defaultdict(list)
        causal = self._subject.model.config.causal
        for tokens, patterns in zip(inputs, self.attention(head, inputs), strict=True):
            for query, weights in enumerate(patterns["to_tokens"]):
                visible = weights[: query + 1] if causal else weights
                totals["to_bos"].append(float(patterns["to_bos"][query]))
                totals["to_itself"].append(float(weights[query]))
                if query:
                    totals["to_previous"].append(float(weights[query - 1]))
                mass = float(visible.sum())
                if len(visible) > 1 and mass > 1e-6:
                    uneven = float((visible / mass - 1 / len(visible)).abs().sum()) / (2 - 2 / len(visible))
                    totals["unevenness"].append(uneven)
                for key, weight in enumerate(visible):
                    by_token[str(tokens[key])].append(float(weight))
        named = {name: _mean(values) for name, values in totals.items()}
        return {**named, "by_key_token": {token: _mean(by_token[token]) for token in sorted(by_token)}}

    def compare_writes(
        self, component: str, inputs: list[list[Any]], by: str | Callable[[list[Any], int], Any] = "token"
    ) -> dict[str, Any]:
        """Group a component's writes by "token", "position", "previous_token", "output" or by(tokens, position), and
        say how much of their variance the groups explain. Returns {"share_of_variance", "groups": {label: {"n", "norm",
        "width": mean distance to the group's mean, "nearest": the nearest group, "distance": to its mean}}}.
        """
        if not callable(by) and by not in BY:
            raise BadInput(f"by={by!r} is not known; give one of {', '.join(BY)} or a function of (tokens, position)")
        outputs = self.predict(inputs) if by == "output" else [[]] * len(inputs)
        groups: dict[str, list[Tensor]] = defaultdict(list)
        for tokens, output, rows in zip(inputs, outputs, self.writes(component, inputs), strict=True):
            for place, row in enumerate(rows):
                groups[_label(by, list(tokens), place, output)].append(row)
        if len(groups) > MOST_GROUPS:
            raise BadInput(f"{len(groups)} groups are too many to compare; group by something with <= {MOST_GROUPS}")
        means = {label: stack(groups[label]).mean(0) for label in sorted(groups)}
        spread = {label: float((stack(groups[label]) - means[label]).norm(dim=1).mean()) for label in means}
        described: dict[str, dict[str, Any]] = {}
        for label, mean in means.items():
            others = {other: float((mean - means[other]).norm()) for other in means if other != label}
            nearest = min(others, key=lambda other: others[other], default=None)
            described[label] = {"n": len(groups[label]), "norm": float(mean.norm()), "width": spread[label]}
            described[label] |= {"nearest": nearest, "distance": None if nearest is None else others[nearest]}
        return {"share_of_variance": share_of_variance(list(groups.values())), "groups": described}


def share_of_variance(groups: list[list[Tensor]]) -> float | None:
    """How much of the variance of all rows the means of their groups explain; None where nothing varies."""
    rows = [stack(group) for group in groups]
    whole = cat(rows)
    total = float((whole - whole.mean(0)).square().sum())
    within = sum(float((group - group.mean(0)).square().sum()) for group in rows)
    return round(1 - within / total, 4) if total > 1e-9 else None


def _label(by: Any, tokens: list[Any], place: int, output: list[Any]) -> str:
    if callable(by):
        return str(by(tokens, place))
    if by == "token":
        return str(tokens[place])
    if by == "position":
        return str(place)
    if by == "output":
        return str(output[place])
    return str(tokens[place - 1]) if place else "(first)"


def _mean(values: list[float]) -> float:
    return round(sum(values) / len(values), 4)
