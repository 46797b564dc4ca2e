"""Drawing numeric functions afresh.

Function number i of a seed is drawn from (seed, i) alone, so a shorter draw is the beginning of a longer one.

- `fixed`: of every 20 functions 3 are noised, 3 corrupted, 3 nets and 11 clean, and 3 are sums or products, in an order
  of their own for each 20 (the paper's 15 % each, exactly). Noise kinds are equally likely. Parameters that make a
  family another one (a scale of 0, a leak of 1, a first root, a base of 1) are drawn again.
- `published`: kinds, compositions and noise kinds with the odds measured in the published data (see `PUBLISHED_ODDS`);
  parameters as its generator draws them, degenerate ones included, with scales, biases and corrupted intervals as the
  paper words them (see `INTERVALS`); the functions then have the faults of its scripts.
"""

import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PureWindowsPath
from typing import Any, cast

import numpy as np
from numpy.random import Generator

from vesalius.errors import BadInput, choices
from vesalius_functions.box import Mode
from vesalius_functions.numeric import nets
from vesalius_functions.numeric.expressions import (
    FAMILIES,
    OPERANDS,
    Atom,
    Expression,
    Operation,
    Pair,
    domain,
    evaluate,
)
from vesalius_functions.numeric.function import NOISE, Corruption, Kind, NoiseKind, NumericFunction, Shape
from vesalius_functions.published import Loaded, Unusable, folder_of, name_in, read_json, read_records, usable

#: Of every 20 functions in mode `fixed`.
_KINDS: dict[Kind, int] = {"mlp": 3, "corrupted": 3, "noised": 3, "clean": 11}
BLOCK: tuple[Kind, ...] = tuple(kind for kind, count in _KINDS.items() for _ in range(count))
COMPOSED_OF_BLOCK = 3
#: Counted in the 1,000 published functions; two nested coin flips made the kinds of noise unequal.
PUBLISHED_ODDS = {"mlp": 0.150, "corrupted": 0.191, "noised": 0.176, "clean": 0.483}
PUBLISHED_COMPOSED = 0.15
NOISE_ODDS: dict[Mode, dict[NoiseKind, float]] = {
    "fixed": {"normal": 1 / 3, "uniform": 1 / 3, "poisson": 1 / 3},
    "published": {"normal": 0.342, "uniform": 0.435, "poisson": 0.223},
}
#: Where a corrupted function is corrupted, and how long a finite interval is. The paper says 5 to 20, and that some are
#: corrupted outside of their interval; the published data say otherwise, and the default follows the data.
INTERVALS: dict[Mode, tuple[dict[Shape, float], tuple[float, float]]] = {
    "fixed": ({"inside": 0.5, "larger": 0.25, "smaller": 0.25}, (5, 25)),
    "published": ({"inside": 0.25, "outside": 0.25, "larger": 0.25, "smaller": 0.25}, (5, 20)),
}
#: The paper's scales and biases are integers up to this; those of the default have one decimal, and biases end at 10.
PAPER_BOUND = 30
_LONGEST_SUITE = 100_000


def sample(count: int, *, seed: int, mode: Mode = "fixed") -> list[NumericFunction]:
    """Draw `count` functions; nets that are not yet known are trained, some 0.4 s each, by the published points 4 s."""
    if not 0 <= count <= _LONGEST_SUITE:
        raise BadInput(f"count {count}: draw between 0 and {_LONGEST_SUITE} functions")
    if seed < 0:
        raise BadInput(f"seed {seed}: give 0 or more")
    return sample_at(range(count), seed=seed, mode=mode)


def sample_at(places: Sequence[int], *, seed: int, mode: Mode = "fixed") -> list[NumericFunction]:
    """The functions at these places of a draw, without those before them."""
    drawn = [_draw(index, seed, mode) for index in places]
    approximated = [expression for expression, kind, _ in drawn if kind == "mlp"]
    known = iter(nets.trained(approximated, points=nets.PUBLISHED_POINTS if mode == "published" else nets.POINTS))
    return [
        _function(index, *parts, mode=mode, net=next(known) if parts[1] == "mlp" else None)
        for index, parts in zip(places, drawn, strict=True)
    ]


def suite_expressions(count: int, *, seed: int, kind: Kind, mode: Mode = "fixed") -> list[Expression]:
    """What the functions of one kind in a draw compute, without training nets for them."""
    return [expression for expression, drawn, _ in (_draw(i, seed, mode) for i in range(count)) if drawn == kind]


def places_of(count: int, *, seed: int, kind: Kind, mode: Mode = "fixed") -> list[int]:
    """The places of the functions of one kind in a draw."""
    return [place for place in range(count) if _draw(place, seed, mode)[1] == kind]


def _draw(index: int, seed: int, mode: Mode) -> tuple[Expression, Kind, Generator]:
    rng = np.random.default_rng([seed, index, 1 if mode == "fixed" else 2])
    kind, composed = _kind_in_block(index, seed) if mode == "fixed" else _kind_by_odds(rng)
    return draw_expression(rng, composed=composed, mode=mode), kind, rng


def _kind_in_block(index: int, seed: int) -> tuple[Kind, bool]:
    block, place = divmod(index, len(BLOCK))
    rng = np.random.default_rng([seed, block, 0])
    kinds, compositions = rng.permutation(len(BLOCK)), rng.permutation(len(BLOCK))
    return BLOCK[kinds[place]], bool(compositions[place] < COMPOSED_OF_BLOCK)


def _kind_by_odds(rng: Generator) -> tuple[Kind, bool]:
    kind = cast(Kind, str(rng.choice(list(PUBLISHED_ODDS), p=list(PUBLISHED_ODDS.values()))))
    return kind, bool(rng.random() < PUBLISHED_COMPOSED)


def draw_expression(rng: Generator, *, composed: bool, mode: Mode) -> Expression:
    """One expression: a family, or a sum or a product of two."""
    if not composed:
        return _atom(rng, str(rng.choice(FAMILIES)), mode)
    operation: Operation = "sum" if rng.random() < 0.5 else "product"
    first, second = (_atom(rng, str(name), mode) for name in rng.choice(OPERANDS, size=2))
    return Pair(operation, first, second)


def _function(
    index: int, expression: Expression, kind: Kind, rng: Generator, *, mode: Mode, net: nets.Net | None
) -> NumericFunction:
    odds = NOISE_ODDS[mode]
    noise = cast(NoiseKind, str(rng.choice(list(odds), p=list(odds.values()))))
    corruption = _corruption(rng, expression, mode)
    return NumericFunction(
        f"f{index:05d}",
        expression,
        kind,
        mode,
        noise_key=int(rng.integers(2**63)),
        noise=noise if kind == "noised" else None,
        corruption=corruption if kind == "corrupted" else None,
        net=net,
    )


def _corruption(rng: Generator, expression: Expression, mode: Mode) -> Corruption:
    low, high = domain(expression)
    threshold = round(float(rng.uniform(max(low, -100), 100)), 1)
    shapes, lengths = INTERVALS[mode]
    shape = cast(Shape, str(rng.choice(list(shapes), p=list(shapes.values()))))
    length = float(rng.uniform(*lengths))
    values = evaluate(expression, np.linspace(low, high, 100))
    finite = values[np.isfinite(values)]
    mean = float(finite.mean()) if len(finite) else 0.0
    return Corruption(shape, (threshold, threshold + length) if shape in ("inside", "outside") else (threshold,), mean)


def _atom(rng: Generator, name: str, mode: Mode) -> Atom:
    """Draw parameters; in mode `fixed` until they make the family what its name says."""
    while True:
        if mode == "published":
            return Atom(name, _PAPER_DRAWS[name](rng))
        params = _DRAWS[name](rng)
        if name == "root":
            params = (params[0], params[1], 2)
        if name not in _PROPER or _PROPER[name](params):
            return Atom(name, params)


def _one_decimal(rng: Generator, low: float, high: float) -> float:
    return round(float(rng.uniform(low, high)), 1)


def _scale_and_bias(rng: Generator) -> tuple[float, float]:
    return _one_decimal(rng, -30, 30), _one_decimal(rng, -10, 10)


def _paper_scale_and_bias(rng: Generator) -> tuple[int, int]:
    scale, bias = rng.integers(-PAPER_BOUND, PAPER_BOUND, size=2, endpoint=True)
    return int(scale), int(bias)


def _paper_wave(rng: Generator) -> tuple[float, ...]:
    return (*_wave(rng)[:3], _paper_scale_and_bias(rng)[1])


def _coefficients(rng: Generator, count: int, bound: float) -> tuple[float, ...]:
    return tuple(_one_decimal(rng, -bound, bound) for _ in range(count))


def _wave(rng: Generator) -> tuple[float, ...]:
    amplitudes, periods = np.linspace(-10, 10, 100), np.linspace(0.1, 2 * np.pi, 100)
    amplitude, period, centre = rng.choice(amplitudes), rng.choice(periods), rng.choice(periods)
    return (*(round(float(value), 1) for value in (amplitude, period, centre)), _one_decimal(rng, -10, 10))


def _rational(rng: Generator) -> tuple[tuple[float, ...], tuple[float, ...]]:
    order = int(rng.integers(0, 5))
    return _coefficients(rng, order + 1, 10), _coefficients(rng, int(rng.integers(order + 1, 6)) + 1, 10)


Draw = Callable[[Generator], tuple[Any, ...]]


def _draws(scale_and_bias: Draw, wave: Draw) -> dict[str, Draw]:
    """How the parameters of each family are drawn, given its scale and bias, or its wave."""
    return {
        "linear": lambda rng: _coefficients(rng, 2, 10),
        "polynomial": lambda rng: _coefficients(rng, int(rng.integers(2, 6)) + 1, 5),
        "absolute": scale_and_bias,
        "root": lambda rng: (*scale_and_bias(rng), int(rng.integers(1, 3))),
        "logarithm": lambda rng: (*scale_and_bias(rng), max(1.1, _one_decimal(rng, 1, 10))),
        "step": lambda rng: (*scale_and_bias(rng), _one_decimal(rng, -100, 100)),
        "relu": lambda rng: (*scale_and_bias(rng), _one_decimal(rng, 0, 1)),
        "tanh": wave,
        "sin": wave,
        "cos": wave,
        "constant": lambda rng: (int(rng.integers(-100, 100)),),
        "reciprocal": lambda rng: (_one_decimal(rng, -10, 10) or 0.1,),
        "gaussian": lambda rng: (_one_decimal(rng, -50, 50), _one_decimal(rng, 1, 10)),
        "rational": _rational,
        "rectangle": lambda rng: (_one_decimal(rng, 1, 10),),
        "square_wave": lambda rng: (_one_decimal(rng, 1, 10), _one_decimal(rng, -5, 5)),
        "ceil": lambda rng: (),
        "floor": lambda rng: (),
    }


_DRAWS, _PAPER_DRAWS = _draws(_scale_and_bias, _wave), _draws(_paper_scale_and_bias, _paper_wave)
#: Whether parameters leave the family what its name says.
_PROPER: dict[str, Callable[[tuple[Any, ...]], bool]] = {
    "linear": lambda p: p[0] != 0,
    "polynomial": lambda p: p[0] != 0,
    "absolute": lambda p: p[0] != 0,
    "root": lambda p: p[0] != 0,
    "logarithm": lambda p: p[0] != 0,
    "step": lambda p: p[0] != 0,
    "relu": lambda p: p[0] != 0 and p[2] != 1,
    "tanh": lambda p: p[0] != 0,
    "sin": lambda p: p[0] != 0,
    "cos": lambda p: p[0] != 0,
    "constant": lambda p: p[0] != 0,
    "rational": lambda p: p[0][-1] != 0 and p[1][-1] != 0,
}


# The published dataset folder: its records become functions, with the faults of the scripts they describe.
#
#     DIRECTORY/numeric/data.json             a list of records: family, parameters, noise, corruption, training error
#     DIRECTORY/numeric/func_name_dict.json   which script of a record is the function: clean, corrupted, noised or net
#
# Nothing published is executed: functions are rebuilt from the records. Weights of nets were not published; nets
# trained here stand in for them, and `published_mse` keeps the error of the original beside `net.mse`. A record that is
# not understood is left out, and `left_out` of what is returned says why.

SCRIPTS: dict[str, Kind] = {
    "function_code.py": "clean",
    "corrupted_function_code.py": "corrupted",
    "noised_function_code.py": "noised",
    "load_mlp.py": "mlp",
}
_OPERATIONS: dict[str, Operation] = {"sum_two": "sum", "multiply_two": "product"}
_SHAPES: dict[str, Shape] = {"interval_inside": "inside", "interval_larger": "larger", "interval_smaller": "smaller"}
#: How many parameters each family has; polynomials and rationals have as many as they like.
_PARAMETERS = {
    "linear": 2, "absolute": 2, "root": 3, "logarithm": 3, "step": 3, "relu": 3, "tanh": 4, "sin": 4, "cos": 4,
    "constant": 1, "reciprocal": 1, "gaussian": 2, "rectangle": 1, "square_wave": 2, "ceil": 0, "floor": 0,
}  # fmt: skip
#: Which parameter, a period or a degree, may not be 0.
_DIVIDES = {"tanh": 1, "sin": 1, "cos": 1, "square_wave": 0, "root": 2}


def load_published(directory: Path, *, mode: Mode = "published") -> Loaded[NumericFunction]:
    """The numeric functions of a published dataset folder, in the order of its records.

    `directory` is the dataset or its `numeric`. `mode="fixed"` computes what the records say, without the faults of the
    scripts.
    """
    folder = folder_of(directory, "numeric", holding=["data.json"])
    records = read_records(folder / "data.json")
    scripts = _scripts(folder / "func_name_dict.json")
    functions: dict[str, NumericFunction] = {}
    left_out: dict[str, str] = {}
    for number, record in enumerate(records):
        try:
            function = _published_function(record, scripts, mode)
            if function.id in functions:
                raise Unusable("an earlier record has the same `dir`")
        except Unusable as wrong:
            name = record.get("dir") if isinstance(record, dict) else None
            left_out[f"record {number} ({name!s:.60})"] = str(wrong)
        else:
            functions[function.id] = function
    return usable(_with_nets([*functions.values()]), left_out, folder / "data.json")


def _scripts(path: Path) -> dict[str, Any]:
    """Which script each function is; the names may be paths of another machine."""
    document = read_json(path)
    if not isinstance(document, dict):
        raise BadInput(
            f"{path}: must be an object from function names to script names, not a {type(document).__name__}"
        )
    return {PureWindowsPath(name).name: script for name, script in document.items()}


def _published_function(record: object, scripts: Mapping[str, object], mode: Mode) -> NumericFunction:
    if not isinstance(record, dict):
        raise Unusable(f"must be an object, not a {type(record).__name__}")
    name = name_in(_field(record, "dir", object))
    script = scripts.get(name)
    kind = SCRIPTS.get(PureWindowsPath(script).name) if isinstance(script, str) else None
    if kind is None:
        raise Unusable(f"func_name_dict.json names the script {script!r:.40} for it; known are {choices(SCRIPTS)}")
    return NumericFunction(
        name,
        _expression(record),
        kind,
        mode,
        noise_key=zlib.crc32(name.encode()) << 30,
        noise=_noise(record) if kind == "noised" else None,
        corruption=_published_corruption(record) if kind == "corrupted" else None,
        published_mse=_training_error(record) if kind == "mlp" else None,
    )


def _training_error(record: Mapping[str, object]) -> float | None:
    """Only to compare with: a net without one is trained all the same."""
    with suppress(Unusable):
        return _finite(record.get("approx_mse_error"))
    return None


def _expression(record: Mapping[str, object]) -> Expression:
    names = _field(record, "name", str).partition("(")[0].split(";")
    params = _field(record, "params", object)
    if len(names) == 1:
        return _published_atom(names[0], params, FAMILIES)
    if len(names) != 3 or names[2] not in _OPERATIONS:
        raise Unusable(f"name {record['name']!r:.60} is neither a family nor `family;family;operation`")
    if not isinstance(params, list) or len(params) != 2:
        raise Unusable("params of a composition must be a list of two")
    first, second = (_published_atom(name, part, OPERANDS) for name, part in zip(names[:2], params, strict=True))
    return Pair(_OPERATIONS[names[2]], first, second)


def _published_atom(name: str, params: Any, known: Sequence[str]) -> Atom:
    if name not in known:
        raise Unusable(f"family {name!r} does not exist here; known are {choices(known, limit=20)}")
    parameter_list = [] if params is None else params if isinstance(params, list) else [params]
    if name == "rational":
        if len(parameter_list) != 2 or not all(isinstance(part, list) and part for part in parameter_list):
            raise Unusable("params of a rational must be two lists of numbers")
        return Atom(name, tuple(tuple(_finite(value) for value in part) for part in parameter_list))
    if name == "polynomial":
        if not parameter_list:
            raise Unusable("params of a polynomial must be a list of numbers")
    elif len(parameter_list) != _PARAMETERS[name]:
        raise Unusable(f"{name} has {_PARAMETERS[name]} parameters, not {len(parameter_list)}")
    if name in _DIVIDES and parameter_list[_DIVIDES[name]] == 0:
        raise Unusable(f"parameter {_DIVIDES[name] + 1} of {name} is 0, and the function divides by it")
    return Atom(name, tuple(_finite(value) for value in parameter_list))


def _noise(record: Mapping[str, object]) -> NoiseKind:
    noise = _field(record, "noise_type", str)
    if noise not in NOISE:
        raise Unusable(f"noise_type {noise!r} does not exist; known are {choices(NOISE)}")
    return cast(NoiseKind, noise)


def _published_corruption(record: Mapping[str, object]) -> Corruption:
    shape = _field(record, "corruption_type", str)
    if shape not in _SHAPES:
        raise Unusable(f"corruption_type {shape!r} does not exist; known are {choices(_SHAPES)}")
    params = _field(record, "corruption_params", dict)
    boundary = tuple(_finite(value) for value in _field(params, "boundary", list))
    if len(boundary) != (2 if shape == "interval_inside" else 1):
        raise Unusable(f"{shape} has a boundary of {len(boundary)} numbers")
    # The mean of the corrupted values is published under the name `std`.
    return Corruption(_SHAPES[shape], boundary, mean=_finite(_field(params, "std", object)))


def _field(record: Mapping[str, object], name: str, kind: type) -> Any:
    if name not in record:
        raise Unusable(f"has no {name!r}")
    if not isinstance(record[name], kind):
        raise Unusable(f"{name!r} is a {type(record[name]).__name__}, not a {kind.__name__}")
    return record[name]


def _finite(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Unusable(f"{value!r:.40} should be a number")
    if not -sys.float_info.max <= value <= sys.float_info.max:
        raise Unusable(f"{value!r:.40} is not a finite number")
    return value


def _with_nets(functions: list[NumericFunction]) -> list[NumericFunction]:
    approximated = [function for function in functions if function.kind == "mlp"]
    stand_ins = iter(nets.trained([function.expression for function in approximated]))
    return [replace(function, net=next(stand_ins)) if function.kind == "mlp" else function for function in functions]
