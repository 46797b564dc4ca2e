"""Interventions. Every method below is in scope as a function of its name: ablate("L0_MLP", inputs, how="mean").

Inputs are lists of token lists without BOS, [["a", "b"], ["b"]]; components are names, "L1H2" or "L0_MLP". Positions
count tokens from 0. Outputs are the decoded outputs of the task; numbers less than 0.05 apart count as the same.
"""

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius_session.subject import Inputs, Subject, same

HOW = ("zero", "mean", "resample")
SHOWN = 3
#: Moves of which_variable: rounds over at most this many inputs.
MOVE_ROUNDS, MOST_MOVED, MOVES_SEED = 8, 128, 11


class Validation:
    """Functions that replace what a component does and say what becomes of the outputs."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject

    def ablate(self, component: str, inputs: list[list[Any]], how: str = "mean") -> dict[str, Any]:
        """Replace a component everywhere by zero, by its mean over these inputs, or ("resample") by its values on the
        next input of the list. Returns {"clean": outputs, "patched": outputs, "share_changed": share of outputs}.
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
        return {"clean": clean, "patched": ablated, "share_changed": round(changed, 4)}

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

        Returns {"clean": outputs of base, "source": outputs of source, "patched": outputs, "changed_at": positions,
        "effect": how far the outputs went from clean (0) to source (1), where the two differ}.
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
            "clean": clean,
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
        base. Returns {"clean": outputs of each base, "patched": outputs of each}; with expected instead {"accuracy",
        "accuracy_where_changed": over outputs that change or should, "outputs", "outputs_changed", "wrong": examples}.
        """
        subject = self._subject
        part = subject.component(component)
        first, second = subject.inputs(bases, name="bases"), subject.inputs(sources, name="sources")
        if len(first.lengths) != len(second.lengths):
            raise BadInput(f"{len(first.lengths)} bases and {len(second.lengths)} sources; give one source per base")
        clean = subject.outputs(first)
        interchanged = subject.outputs_with(part, *_moved(subject, part, first, second), first)
        if expected is None:
            return {"clean": clean, "patched": interchanged}
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

    def which_variable(
        self, component: str, candidates: dict[str, Callable[[list[Any], int], Any]], inputs: list[list[Any]]
    ) -> list[dict[str, Any]]:
        """Which of several variables a component carries: its value is moved between positions of inputs, once, and
        every candidate, a function of (tokens, position), is scored on the same moves. Returns, best first,
        [{"variable", "separation": unchanged_when_equal + changed_when_different - 1, "unchanged_when_equal": 1 if the
        component depends on nothing else, "changed_when_different", "n_equal", "n_different"}].
        """
        if not isinstance(candidates, dict) or not candidates:
            raise BadInput(
                'candidates must be an object of names and functions, {"token": lambda tokens, i: tokens[i]}'
            )
        subject = self._subject
        part, checked = subject.component(component), subject.inputs(inputs[:MOST_MOVED], name="inputs")
        values, moves = subject.values(part, checked), _moves(checked)
        changed = _changed_by(subject, part, checked, values, moves)
        rows, scored = checked.given, []
        for name, variable in candidates.items():
            held = [[variable(list(tokens), place) for place in range(len(tokens))] for tokens in rows]
            equal = [held[one.base][one.at] == held[one.source][one.source_at] for one in moves]
            kept = [not moved for moved, same_value in zip(changed, equal, strict=True) if same_value]
            moved = [moved for moved, same_value in zip(changed, equal, strict=True) if not same_value]
            scored.append(_score(name, kept, moved))
        return sorted(scored, key=lambda one: -2.0 if one["separation"] is None else one["separation"], reverse=True)


class _Move(NamedTuple):
    """One value moved: from a position of a source input to a position of a base input."""

    base: int
    at: int
    source: int
    source_at: int


def _moves(inputs: Inputs) -> list[_Move]:
    """Random moves between all inputs, half of them to the same position where the source has it."""
    chance, n = random.Random(MOVES_SEED), len(inputs.lengths)
    moves = []
    for turn in range(MOVE_ROUNDS):
        for base, length in enumerate(inputs.lengths):
            at, source = chance.randrange(length), chance.randrange(n)
            elsewhere = chance.randrange(inputs.lengths[source])
            stays = turn % 2 == 0 and at < inputs.lengths[source]
            moves.append(_Move(base, at, source, at if stays else elsewhere))
    return moves


def _changed_by(subject: Subject, part: Component, inputs: Inputs, values: Tensor, moves: list[_Move]) -> list[bool]:
    """Whether any output of the base changes, for every move; one run per round over all inputs."""
    clean, changed = subject.outputs(inputs), []
    for start in range(0, len(moves), len(inputs.lengths)):
        turn = moves[start : start + len(inputs.lengths)]
        moved, where = values.clone(), torch.zeros_like(inputs.real)
        for one in turn:
            moved[one.base, one.at + 1] = values[one.source, one.source_at + 1]
            where[one.base, one.at + 1] = True
        after = subject.outputs_with(part, moved, where, inputs)
        changed += [any(not same(b, a) for b, a in zip(clean[one.base], after[one.base], strict=True)) for one in turn]
    return changed


def _score(name: str, kept: list[bool], moved: list[bool]) -> dict[str, Any]:
    unchanged = round(sum(kept) / len(kept), 3) if kept else None
    changed = round(sum(moved) / len(moved), 3) if moved else None
    return {
        "variable": name,
        "separation": None if unchanged is None or changed is None else round(unchanged + changed - 1, 3),
        "unchanged_when_equal": unchanged,
        "n_equal": len(kept),
        "changed_when_different": changed,
        "n_different": len(moved),
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
