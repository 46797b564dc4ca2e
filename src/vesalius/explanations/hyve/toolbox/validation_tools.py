"""Interventions. Every method below is in scope as a function of its name: ablate("L0_MLP", inputs, how="mean").

Inputs are lists of token lists without BOS, [["a", "b"], ["b"]]; components are names, "L1H2" or "L0_MLP". Positions
count tokens from 0. Outputs are the decoded outputs of the task; numbers less than 0.05 apart count as the same.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.explanations.hyve.subject import Inputs, Subject, same

HOW = ("zero", "mean", "resample")
SHOWN = 3


class Validation:
    """Functions that replace what a component does and say what becomes of the outputs."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject

    def ablate(self, component: str, inputs: list[list[Any]], how: str = "mean") -> dict[str, Any]:
        """Replace a component everywhere by zero, by its mean over these inputs, or ("resample") by its values on the
        next input of the list. Returns the outputs before and after, and the share that changed.
        """
        if how not in HOW:
            raise BadInput(f"how={how!r} is not known; give one of {', '.join(HOW)}")
        subject = self._subject
        part, checked = subject.component(component), subject.inputs(inputs)
        if how == "resample" and len(checked.lengths) < 2:
            raise BadInput("resample takes values from the next input of the list; give at least two inputs")
        values = subject.values(part, checked)
        where = checked.real
        if how == "zero":
            values, where = torch.zeros_like(values), torch.ones_like(where)
        elif how == "mean":
            values = values[where].mean(0).expand_as(values)
        else:
            values, where = values.roll(-1, 0), where & where.roll(-1, 0)
        clean = subject.outputs(checked)
        ablated = subject.outputs_with(part, values, where, checked)
        pairs = [
            (b, a) for before, after in zip(clean, ablated, strict=True) for b, a in zip(before, after, strict=True)
        ]
        changed = sum(not same(b, a) for b, a in pairs) / len(pairs)
        return {"clean": clean, "ablated": ablated, "share_changed": round(changed, 4)}

    def patch(
        self,
        component: str,
        base: list[Any],
        source: list[Any],
        at: list[int] | None = None,
        source_at: list[int] | None = None,
    ) -> dict[str, Any]:
        """Run one input `base` while the component takes, at the positions `at` (all, if left out), its values from one
        input `source` at the positions `source_at` (the same ones, if left out).

        "effect" says how far the outputs went from those of base (0) to those of source (1), where the two differ.
        """
        subject = self._subject
        part = subject.component(component)
        for name, given in (("base", base), ("source", source)):
            if not isinstance(given, list | tuple) or any(isinstance(token, list | tuple) for token in given):
                raise BadInput(
                    f"{name} must be ONE token list; for many pairs use interchange(component, bases, sources)"
                )
        checked = subject.inputs([base, source], name="base and source")
        places = list(range(min(checked.lengths))) if at is None else _places(at, checked.lengths[0], "at")
        reads = places if source_at is None else _places(source_at, checked.lengths[1], "source_at")
        if len(places) != len(reads):
            raise BadInput(f"at has {len(places)} positions and source_at {len(reads)}; give as many of each")
        if max(reads) >= checked.lengths[1]:
            raise BadInput(
                f"source has {checked.lengths[1]} tokens, so it has no position {max(reads)}; give source_at"
            )
        values = subject.values(part, checked)
        values[0, [place + 1 for place in places]] = values[1, [place + 1 for place in reads]]
        where = torch.zeros_like(checked.real)
        where[0, [place + 1 for place in places]] = True
        clean, of_source = subject.outputs(checked)
        patched = subject.outputs_with(part, values, where, checked)[0]
        return {
            "base": clean,
            "source": of_source,
            "patched": patched,
            "changed_at": [place for place, value in enumerate(patched) if not same(clean[place], value)],
            "effect": _effect(clean, of_source, patched),
        }

    def interchange(
        self,
        component: str,
        bases: list[list[Any]],
        sources: list[list[Any]],
        expected: Callable[[list[Any], list[Any]], list[Any]] | None = None,
    ) -> dict[str, Any]:
        """Run each of `bases` while the component takes its values from the input of `sources` at the same place in the
        list, position by position. expected(base, source) says what your hypothesis predicts, one output per token of
        base; "accuracy_where_changed" counts outputs that change or should.
        """
        subject = self._subject
        part = subject.component(component)
        first, second = subject.inputs(bases, name="bases"), subject.inputs(sources, name="sources")
        if len(first.lengths) != len(second.lengths):
            raise BadInput(f"{len(first.lengths)} bases and {len(second.lengths)} sources; give one source per base")
        clean = subject.outputs(first)
        interchanged = subject.outputs_with(part, *_moved(subject, part, first, second), first)
        if expected is None:
            return {"clean": clean, "interchanged": interchanged}
        right = changed = right_changed = total = 0
        wrong = []
        for base, source, before, after in zip(first.given, second.given, clean, interchanged, strict=True):
            wanted = list(expected(base, source))
            if len(wanted) != len(base):
                raise BadInput(
                    f"expected({base}, {source}) gave {len(wanted)} outputs; give one per token: {len(base)}"
                )
            hits = [same(a, w) or same(w, a) for a, w in zip(after, wanted, strict=True)]
            moves = [not same(b, a) or not same(b, w) for b, a, w in zip(before, after, wanted, strict=True)]
            right, total, changed = right + sum(hits), total + len(hits), changed + sum(moves)
            right_changed += sum(hit and move for hit, move in zip(hits, moves, strict=True))
            if not all(hits) and len(wrong) < SHOWN:
                wrong.append({"base": base, "source": source, "expected": wanted, "found": after})
        return {
            "accuracy": round(right / total, 4),
            "accuracy_where_changed": round(right_changed / changed, 4) if changed else None,
            "outputs": total,
            "outputs_changed": changed,
            "wrong": wrong,
        }


def _places(given: Any, length: int, name: str) -> list[int]:
    places = [given] if isinstance(given, int) else given
    if not isinstance(places, list | tuple | range) or not places or not all(isinstance(one, int) for one in places):
        raise BadInput(f"{name} must be a list of positions such as [0, 2], not {given!r:.40}")
    if not all(0 <= one < length for one in places):
        raise BadInput(f"{name}={list(places)}: this input has positions 0 to {length - 1}; BOS has none")
    return list(places)


def _moved(subject: Subject, part: Component, first: Inputs, second: Inputs) -> tuple[Tensor, Tensor]:
    """The source's values in the base's frame, and where both have a token."""
    values = subject.values(part, first)
    source = subject.values(part, second)
    width = min(values.shape[1], source.shape[1])
    where = first.real.clone()
    where[:, width:] = False
    where[:, :width] &= second.real[:, :width]
    values[:, :width] = source[:, :width]
    return values, where


def _effect(clean: list[Any], of_source: list[Any], patched: list[Any]) -> float | None:
    shares = []
    for before, goal, after in zip(clean, of_source, patched, strict=False):
        if same(before, goal):
            continue
        if all(isinstance(value, float) for value in (before, goal, after)):
            shares.append((after - before) / (goal - before))
        else:
            shares.append(float(same(goal, after)))
    return round(sum(shares) / len(shares), 4) if shares else None
