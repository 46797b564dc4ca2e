"""How good an answer about a numeric function is.

Published metric: 256 points -127.5, -126.5, ..., 127.5; the function answers live, noise and all; points where its
answer is NaN or infinite are left out; `nmse` is sum |f - g|^2 / sum |f|^2 and `success` is nmse < 0.1, and any other
point without a number from g is a failure. It divides by the second moment, so constants succeed on functions far from
zero, and its points are known, so a table of them is perfect.

Better ones: points drawn at random over -128..128 and more of them close to where something happens (boundaries,
jumps, kinks, peaks); the reference is the expected value, without noise, and the measure is relative to the variance
(`r2`, not below 0). `understood` also asks for a rule: code of at most `LONGEST_RULE` characters that is not a table.
Structure is graded where the answer has one (built-in interpreters): None where a figure does not apply.
"""

import math
from typing import Any

import numpy as np
from numpy import ndarray

from vesalius.functions.answer import Answer, Grade
from vesalius.functions.box import Function
from vesalius.functions.numeric.expressions import FAMILIES, OPERANDS, Atom, Pair, operands
from vesalius.functions.numeric.function import NumericFunction
from vesalius.functions.numeric.oracle import numeric
from vesalius.functions.numeric.submitted import length, run_code
from vesalius.sandbox import Sandbox

GRID = np.arange(256) - 127.5
EDGE = 128.0
THRESHOLD = 0.1
#: Characters of code without comments and spacing. The longest rule of the families, a product of a relu and a quintic
#: in a corrupted interval with all digits, has about 600; a table of 256 values at least 1,000.
LONGEST_RULE = 900
HELD_OUT = 256
NEAR_FEATURE = 8
#: Calls that interpreters do not reach: the noise of grading is never the noise of a query.
_GRADING_CALLS = 1 << 40
#: Relative to the spread of the function: two ways to write the same function differ by less.
_SAME = 1e-6
_NEAR_JUMPS = 0.03
#: Relative to its size: a function with less spread is a constant, and an answer as close to it is right.
_CONSTANT = 0.01
#: Families that are one and the same function under two names.
_SYNONYMS = {"cos": "sin"}


def grade(function: Function, answer: Answer, *, sandbox: Sandbox, seed: int = 0) -> Grade:
    """Score an answer: figures by name, the grid to draw, and the first fault of the code where there was one."""
    known = numeric(function)
    held_out = held_out_points(known, seed=seed)
    outputs = run_code(answer.code, [*GRID.tolist(), *held_out.tolist()], sandbox=sandbox)
    live = known.values(GRID, first_call=_GRADING_CALLS + seed * len(GRID))
    nmse, fault = _published(live, outputs.values[: len(GRID)], outputs.faults[: len(GRID)])
    mean = known.mean(held_out)
    guess = outputs.values[len(GRID) :]
    r2, held_out_nmse = _held_out(mean, guess)
    uncorrupted = np.ones(len(held_out), bool) if known.corruption is None else ~known.corruption.covers(held_out)
    same = _same(mean[uncorrupted], guess[uncorrupted])
    size = length(answer.code)
    understood = r2 > 1 - THRESHOLD and not answer.table and size is not None and size <= LONGEST_RULE
    metrics: dict[str, float | None] = {
        "success": float(nmse is not None and nmse < THRESHOLD),
        "nmse": nmse,
        "held_out_success": float(held_out_nmse is not None and held_out_nmse < THRESHOLD),
        "held_out_nmse": held_out_nmse,
        "r2": r2,
        "understood": float(understood),
        "table": float(answer.table),
        "code_length": None if size is None else float(size),
        **structure_metrics(known, answer, same=same and not answer.table),
    }
    picture = {"x": GRID.tolist(), "truth": _drawable(live), "answer": _drawable(outputs.values[: len(GRID)])}
    return Grade(metrics=metrics, picture=picture, fault=fault)


def _published(live: ndarray, guess: ndarray, faults: list[str | None]) -> tuple[float | None, str | None]:
    """The published error, None if it cannot be computed, and the first fault at a point that counts."""
    kept = np.isfinite(np.abs(live))
    fault = next((fault for fault, counts in zip(faults, kept, strict=True) if counts and fault), None)
    if fault is None and not np.isfinite(guess[kept]).all():
        first = int(np.flatnonzero(kept & ~np.isfinite(guess))[0])
        fault = f"f({GRID[first]:g}): it returned {guess[first].real if guess[first].imag == 0 else guess[first]}"
    if fault is not None:
        return None, fault
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        error, size = ((np.abs(values[kept]) ** 2).sum() for values in (live - guess, live))
        nmse = float(error / size)
    if size == 0:
        return None, "the function is zero or undefined at all points: the published error divides by zero"
    return (nmse, None) if math.isfinite(nmse) else (None, "its error is not finite")


def held_out_points(function: NumericFunction, *, seed: int) -> ndarray:
    """Random points over the range, and more of them within 1 and within 0.05 of every feature."""
    rng = np.random.default_rng([seed, function.noise_key % 2**32])
    points = [rng.uniform(-EDGE, EDGE, HELD_OUT)]
    for feature in _features(function):
        points.append(feature + rng.uniform(-1, 1, NEAR_FEATURE // 2))
        points.append(feature + rng.uniform(-0.05, 0.05, NEAR_FEATURE // 2))
    found = np.concatenate(points)
    return found[np.abs(found) <= EDGE]


def _features(function: NumericFunction) -> list[float]:
    """Where something happens: ends of corruption, jumps, kinks, peaks, transitions."""
    features = [0.0] if function.net is None else []
    if function.corruption is not None:
        features += function.corruption.boundary
    for atom in operands(function.expression):
        if atom.family == "rectangle":
            features += [-atom.params[0] / 2, atom.params[0] / 2]
        elif atom.family == "gaussian":
            features.append(atom.params[0])
        elif atom.family == "tanh":
            features.append(atom.params[2])
        elif atom.family == "square_wave":
            features.append(atom.params[1])
    return features


def _held_out(mean: ndarray, guess: ndarray) -> tuple[float, float | None]:
    """R2 (0 at worst), and the error relative to the second moment (None if it cannot be computed)."""
    kept = np.isfinite(np.abs(mean))
    mean, guess = mean[kept], guess[kept]
    if not len(mean) or not np.isfinite(guess).all():
        return 0.0, None
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        error = float((np.abs(mean - guess) ** 2).sum())
        moment = float((np.abs(mean) ** 2).sum())
        variance = float((np.abs(mean - mean.mean()) ** 2).sum())
    if not math.isfinite(error):
        return 0.0, None
    if variance <= _CONSTANT**2 * moment:  # a constant is right or wrong
        return float(error <= _CONSTANT**2 * moment), error / moment if moment else float(error > 0)
    return max(0.0, 1 - error / variance), error / moment


def _same(mean: ndarray, guess: ndarray) -> bool:
    """Whether two functions agree but for rounding; close to a jump a few points in a hundred may not."""
    kept = np.isfinite(np.abs(mean))
    mean, guess = mean[kept], guess[kept]
    if not len(mean):
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        typical = math.sqrt(float((np.abs(mean) ** 2).mean()))
        agree = np.abs(mean - guess) <= _SAME * (np.abs(mean) + typical)
    return bool(agree.mean() >= 1 - _NEAR_JUMPS)


def structure_metrics(function: NumericFunction, answer: Answer, *, same: bool) -> dict[str, float | None]:
    """Family, operands, noise and interval against the truth; all None for an answer without structure."""
    names = ("family_named", "operands_named", "noise_named", "interval_found", "false_alarm", "interval_iou")
    if not answer.structure:
        return dict.fromkeys(names)
    said = answer.structure
    interval = said.get("interval")
    truth = None if function.corruption is None else function.corruption.interval
    named = _family_named(function, said, same=same)
    return {
        "family_named": named,
        "operands_named": named if isinstance(function.expression, Pair) else None,
        "noise_named": float((said.get("noise") or None) == function.noise),
        "interval_found": None if truth is None else float(interval is not None),
        "false_alarm": float(interval is not None) if truth is None else None,
        "interval_iou": None if truth is None else 0.0 if interval is None else _overlap(truth, interval),
    }


def _family_named(function: NumericFunction, said: dict[str, Any], *, same: bool) -> float:
    """Whether the name is right; the same function by another name of the families is."""
    family, parts = said.get("family"), said.get("operands") or []
    if family not in (*FAMILIES, "sum", "product") or not set(parts) <= set(OPERANDS):
        return 0.0
    if same:
        return 1.0
    return float(_canonical(family, parts) == _true_name(function))


def _true_name(function: NumericFunction) -> tuple[str, tuple[str, ...]]:
    expression = function.expression
    if isinstance(expression, Pair):
        return _canonical(expression.operation, [atom.family for atom in operands(expression)])
    return _canonical("linear" if _is_first_root(expression) else expression.family, [])


def _is_first_root(atom: Atom) -> bool:
    return atom.family == "root" and atom.params[2] == 1


def _canonical(family: str, parts: list[str]) -> tuple[str, tuple[str, ...]]:
    return _SYNONYMS.get(family, family), tuple(sorted(parts))


def _overlap(truth: tuple[float | None, float | None], said: Any) -> float:
    """Intersection over union within the range."""
    if not isinstance(said, (list, tuple)) or len(said) != 2:
        return 0.0
    first, second = _clipped(truth), _clipped((said[0], said[1]))
    shared = max(0.0, min(first[1], second[1]) - max(first[0], second[0]))
    union = (first[1] - first[0]) + (second[1] - second[0]) - shared
    return shared / union if union > 0 else 0.0


def _clipped(interval: tuple[Any, Any]) -> tuple[float, float]:
    low, high = interval
    low = -EDGE if not isinstance(low, (int, float)) else max(float(low), -EDGE)
    high = EDGE if not isinstance(high, (int, float)) else min(float(high), EDGE)
    return low, max(low, high)


def _drawable(values: ndarray) -> list[float | None]:
    return [float(value) if math.isfinite(value) else None for value in np.real(values).tolist()]
