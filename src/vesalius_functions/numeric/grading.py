"""How good an answer about a numeric function is.

Published metric: 256 points -127.5, -126.5, ..., 127.5; the function answers live, noise and all; points where its
answer is NaN or infinite are left out; `nmse` is sum |f - g|^2 / sum |f|^2 and `success` is nmse < 0.1, and any other
point without a number from g is a failure. It divides by the second moment, so constants succeed on functions far from
zero, and its points are known, so a table of them is perfect.

Better ones: points drawn at random over -128..128 and more of them close to where something happens (boundaries,
jumps, kinks, peaks); the reference is the expected value, without noise, and the measure is relative to the variance
(`r2`, not below 0). `understood` also asks for code within `LONGEST_RULE` that is not marked as a table. That is no
proof of a rule: about a hundred values of a smooth function fit in, and lines between them predict it.
Structure is graded where the answer has it: None where a figure does not apply. Built-in interpreters name family,
noise and interval; of a language model the interval is read from its answer (`vesalius_functions.domains`). For
corrupted functions `inside_success` and `outside_success` are the error rule on the held-out points inside and outside
the corrupted part.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from vesalius.errors import BadInput
from vesalius.sandbox import Sandbox
from vesalius_functions.box import SUCCESS, Answer, Function, Grade
from vesalius_functions.domains import EDGE, Corrupted, from_structure, overlap, read_written
from vesalius_functions.numeric.expressions import FAMILIES, OPERANDS, Atom, Pair, evaluate, formula, number, operands
from vesalius_functions.numeric.function import NOISE, NumericFunction, formula_program, net_program
from vesalius_functions.submitted import Size, run_code, says_a_rule, size_of

# The answer of an interpreter that knows the function: its expected value. Its score is the ceiling.


def numeric(function: Function) -> NumericFunction:
    """The function, which must be a numeric one."""
    if not isinstance(function, NumericFunction):
        raise BadInput(f"function {function.id} is of category {function.category}, not numeric")
    return function


def oracle(function: Function) -> Answer:
    """The truth as an answer: the conditional mean as code, and the structure as the grader knows it."""
    known = numeric(function)
    truth = known.truth()
    if known.net is not None:
        code = net_program(known.net)
    else:
        text = formula(known.expression, quirks=known.quirks)
        if known.noise is not None and NOISE[known.noise][0]:
            text = f"({text}) + {number(NOISE[known.noise][0])}"
        corruption = known.corruption
        interval = None if corruption is None else (corruption.shape, corruption.boundary, corruption.mean)
        code = formula_program(text, interval=interval)
    structure = {
        key: truth[key] for key in ("family", "operands", "params", "noise", "interval", "outside") if key in truth
    }
    return Answer(
        description=f"{truth['kind']} {truth['family']}: {truth['formula']}",
        domain=None if truth["interval"] is None else _domain(truth),
        code=code,
        structure=structure,
        interpreter="oracle",
    )


def _domain(truth: Mapping[str, object]) -> str:
    where = "outside" if truth.get("outside") else "in"
    return f"noise about {truth['corrupted_mean']:g} {where} {truth['interval']}"


# Other names that a function has: whether some member of a family, or of a sum or product of two, is that function.

#: Relative to the size of the function: two ways to write the same function differ by less.
SAME = 1e-6
SCALE = 128.0
_SPANS: dict[str, tuple[Callable[[ndarray], ndarray], ...]] = {
    "constant": (np.ones_like,),
    "linear": (np.ones_like, lambda x: x),
    "polynomial": tuple(lambda x, power=power: (x / SCALE) ** power for power in range(6)),
    "absolute": (np.ones_like, np.abs),
    "step": (np.ones_like, lambda x: (x > 0) * 1.0),
    "relu": (np.ones_like, lambda x: np.minimum(x, 0), lambda x: np.maximum(x, 0)),
    "reciprocal": (lambda x: 1 / x,),
    "logarithm": (np.ones_like, np.log),
    "ceil": (np.ceil,),
    "floor": (np.floor,),
}
#: Not free in size where they stand alone or in a sum.
_FIXED = ("ceil", "floor", "rectangle", "square_wave", "gaussian")
Columns = list[Float[ndarray, " points"]]


def can_express(family: str, parts: Sequence[str], function: NumericFunction, points: ndarray) -> bool:
    """Whether a family, or the sum or product of two, has a member that is the function at the points."""
    composed = family in ("sum", "product")
    names = list(parts) if composed else [family]
    if len(names) != 1 + composed or not set(names) <= set(OPERANDS if composed else FAMILIES):
        return False
    with np.errstate(all="ignore"):
        y = function.clean(points)
        defined = np.isfinite(np.abs(y)) & (points != 0)
        x, y = points[defined], y[defined]
        if not len(x) or np.iscomplexobj(y):
            return False
        columns = [_columns(name, function, x) for name in names]
        if family == "product":
            products = [one * other for one in columns[0] for other in columns[1]]
            return any(_is_zero(y - one, y) for one in products) if _all_fixed(names) else _in_span(y, products, y)
        # Where a function has two members of a fixed family, the second time the name is said it is the second.
        fixed = [(which, name) for which, name in enumerate(names) if name in _FIXED]
        if not all(columns[which] for which in range(len(names))):
            return False
        rest = y - sum(columns[which][min(names[:which].count(name), len(columns[which]) - 1)] for which, name in fixed)
        free = [column for name, own in zip(names, columns, strict=True) if name not in _FIXED for column in own]
        return _in_span(rest, free, y) and (family != "relu" or _leaks(x, y))


def _all_fixed(names: Sequence[str]) -> bool:
    return all(name in _FIXED for name in names)


def _columns(name: str, function: NumericFunction, x: ndarray) -> Columns:
    """The terms of a family; of one that is not linear in its parameters, the function's own members."""
    if name in _SPANS:
        return [term(x) for term in _SPANS[name]]
    own = [atom for atom in operands(function.expression) if atom.family == name]
    members = [evaluate(atom, x, quirks=function.quirks) for atom in own]
    return members if name in _FIXED else [*members, np.ones_like(x)] if members else []


def _in_span(y: ndarray, columns: Columns, size: ndarray) -> bool:
    """Whether y is a combination of the columns, but for rounding relative to the size."""
    if not columns:
        return _is_zero(y, size)
    # Values of high powers span many orders of magnitude: each point counts relative to its own.
    weights = 1 / _rounding(size)
    terms = np.stack(columns, axis=1) * weights[:, None]
    norms = np.linalg.norm(terms, axis=0)
    if not np.isfinite(norms).all():
        return False
    terms = terms / np.where(norms > 0, norms, 1.0)
    coefficients, *_ = np.linalg.lstsq(terms, y * weights, rcond=1e-14)
    return bool((np.abs(terms @ coefficients - y * weights) <= 1).all())


def _is_zero(y: ndarray, size: ndarray) -> bool:
    return bool((np.abs(y) <= _rounding(size)).all())


def _rounding(size: ndarray) -> Float[ndarray, " points"]:
    return SAME * (np.abs(size) + np.sqrt(np.mean(size**2))) + 1e-300


def _leaks(x: ndarray, y: ndarray) -> bool:
    """Whether a kink is a leaky one: below zero it falls no faster than above, and in the same direction."""
    bias, below, above = np.linalg.lstsq(np.stack([term(x) for term in _SPANS["relu"]], axis=1), y, rcond=None)[0]
    slack = SAME * (abs(below) + abs(above) + abs(bias) / SCALE)
    return bool(min(0.0, above) - slack <= below <= max(0.0, above) + slack)


GRID = np.arange(256) - 127.5
#: The longest rules of the families, a product of a kink and a quintic in a corrupted interval, or a rational with all
#: digits, have 290 characters, 170 of them in literals, and 80 parts.
LONGEST_RULE = Size(characters=500, literals=170, longest=16, parts=130)
#: An interval that shares at least this much of what it and the true one cover is the one that was meant.
FOUND_IOU = 0.5
HELD_OUT = 256
NEAR_FEATURE = 8
#: Calls that interpreters do not reach: the noise of grading is never the noise of a query.
_GRADING_CALLS = 1 << 40
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
    same = _same(mean[uncorrupted], guess[uncorrupted]) and not answer.table
    size = size_of(answer.code)
    understood = r2 > 1 - SUCCESS and not answer.table and says_a_rule(answer.code, most=LONGEST_RULE)
    corrupted = None if known.corruption is None else ~uncorrupted
    metrics: dict[str, float | None] = {
        "success": float(nmse is not None and nmse < SUCCESS),
        "nmse": nmse,
        "held_out_success": float(held_out_nmse is not None and held_out_nmse < SUCCESS),
        "held_out_nmse": held_out_nmse,
        "r2": r2,
        "understood": float(understood),
        "table": float(answer.table),
        "code_length": None if size is None else float(size.characters),
        **structure_metrics(known, answer, points=held_out[uncorrupted] if same else held_out[:0]),
        "inside_success": None if corrupted is None else _part_success(mean[corrupted], guess[corrupted]),
        "outside_success": None if corrupted is None else _part_success(mean[uncorrupted], guess[uncorrupted]),
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
    sample = np.concatenate(points)
    return sample[np.abs(sample) <= EDGE]


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


def _part_success(mean: ndarray, guess: ndarray) -> float | None:
    """The error rule on a part of the points; None where the function has no value on it."""
    if not np.isfinite(np.abs(mean)).any():
        return None
    nmse = _held_out(mean, guess)[1]
    return float(nmse is not None and nmse < SUCCESS)


def _same(mean: ndarray, guess: ndarray) -> bool:
    """Whether two functions agree but for rounding; close to a jump a few points in a hundred may not."""
    kept = np.isfinite(np.abs(mean))
    mean, guess = mean[kept], guess[kept]
    if not len(mean):
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        typical = math.sqrt(float((np.abs(mean) ** 2).mean()))
        agree = np.abs(mean - guess) <= SAME * (np.abs(mean) + typical)
    return bool(agree.mean() >= 1 - _NEAR_JUMPS)


def structure_metrics(function: NumericFunction, answer: Answer, *, points: ndarray) -> dict[str, float | None]:
    """Family, noise and interval against the truth, each None where the answer was not asked for it.

    `points` are those where the answer's code was seen to be the function, none if it is not.
    """
    said = answer.structure
    return {
        "family_named": float(_is_named(function, said, points)) if "family" in said else None,
        "noise_named": float((said["noise"] or None) == function.noise) if "noise" in said else None,
        **_interval_metrics(function, answer),
    }


def _interval_metrics(function: NumericFunction, answer: Answer) -> dict[str, float | None]:
    """The corrupted part as the answer names it: in its structure, or in words where a language model was asked."""
    reading, corruption = from_structure(answer.structure), function.corruption
    in_words = answer.domain is not None or answer.rounds is not None
    if not reading.said and not in_words:
        return dict.fromkeys(("interval_found", "false_alarm", "interval_iou", "domain_read"))
    reading = reading if reading.said else read_written(answer.domain)
    iou = None
    if corruption is not None:
        truth = Corrupted(*corruption.interval, outside=corruption.shape == "outside")
        iou = 0.0 if reading.corrupted is None else overlap(truth, reading.corrupted)
    return {
        "interval_found": None if iou is None else float(iou >= FOUND_IOU),
        "false_alarm": float(reading.corrupted is not None) if corruption is None else None,
        "interval_iou": iou,
        "domain_read": None if answer.rounds is None else float(reading.said),
    }


def _is_named(function: NumericFunction, said: Mapping[str, object], points: ndarray) -> bool:
    """Whether the name is right: the function's own, or another that it has where the code is the function."""
    parts = said.get("operands")
    family, parts = str(said.get("family")), list(map(str, parts)) if isinstance(parts, list | tuple) else []
    if _canonical(family, parts) in _own_names(function):
        return True
    return len(points) > 0 and can_express(family, parts, function, points)


def _own_names(function: NumericFunction) -> list[tuple[str, tuple[str, ...]]]:
    """What the function was drawn as; a first root is also a line."""
    expression = function.expression
    if isinstance(expression, Pair):
        return [_canonical(expression.operation, [atom.family for atom in operands(expression)])]
    lines = ["linear"] if _is_first_root(expression) else []
    return [_canonical(name, []) for name in (expression.family, *lines)]


def _is_first_root(atom: Atom) -> bool:
    return atom.family == "root" and atom.params[2] == 1


def _canonical(family: str, parts: list[str]) -> tuple[str, tuple[str, ...]]:
    return _SYNONYMS.get(family, family), tuple(sorted(parts))


def _drawable(values: ndarray) -> list[float | None]:
    return [float(value) if math.isfinite(value) else None for value in np.real(values).tolist()]
