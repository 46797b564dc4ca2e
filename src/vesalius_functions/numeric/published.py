"""The published dataset folder: its records become functions, with the faults of the scripts they describe.

    DIRECTORY/numeric/data.json             a list of records: family, parameters, noise, corruption, training error
    DIRECTORY/numeric/func_name_dict.json   which of a record's scripts is the function: clean, corrupted, noised or net

Nothing published is executed: functions are rebuilt from the records. Weights of nets were not published; nets trained
here stand in for them, and `published_mse` keeps the error of the original beside `net.mse`. A record that is not
understood is left out, and `left_out` of what is returned says why.
"""

import sys
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PureWindowsPath
from typing import Any, cast

from vesalius.errors import BadInput, choices
from vesalius_functions.answer import Mode
from vesalius_functions.numeric import nets
from vesalius_functions.numeric.expressions import FAMILIES, OPERANDS, Atom, Expression, Operation, Pair
from vesalius_functions.numeric.function import NOISE, Corruption, Kind, NoiseKind, NumericFunction, Shape
from vesalius_functions.published import Loaded, Unusable, folder_of, name_in, read_json, read_records, usable

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
            function = _function(record, scripts, mode)
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


def _function(record: Any, scripts: dict[str, Any], mode: Mode) -> NumericFunction:
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
        corruption=_corruption(record) if kind == "corrupted" else None,
        published_mse=_training_error(record) if kind == "mlp" else None,
    )


def _training_error(record: dict[str, Any]) -> float | None:
    """Only to compare with: a net without one is trained all the same."""
    with suppress(Unusable):
        return _finite(record.get("approx_mse_error"))
    return None


def _expression(record: dict[str, Any]) -> Expression:
    names = _field(record, "name", str).partition("(")[0].split(";")
    params = _field(record, "params", object)
    if len(names) == 1:
        return _atom(names[0], params, FAMILIES)
    if len(names) != 3 or names[2] not in _OPERATIONS:
        raise Unusable(f"name {record['name']!r:.60} is neither a family nor `family;family;operation`")
    if not isinstance(params, list) or len(params) != 2:
        raise Unusable("params of a composition must be a list of two")
    first, second = (_atom(name, part, OPERANDS) for name, part in zip(names[:2], params, strict=True))
    return Pair(_OPERATIONS[names[2]], first, second)


def _atom(name: str, params: Any, known: Sequence[str]) -> Atom:
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


def _noise(record: dict[str, Any]) -> NoiseKind:
    noise = _field(record, "noise_type", str)
    if noise not in NOISE:
        raise Unusable(f"noise_type {noise!r} does not exist; known are {choices(NOISE)}")
    return cast(NoiseKind, noise)


def _corruption(record: dict[str, Any]) -> Corruption:
    shape = _field(record, "corruption_type", str)
    if shape not in _SHAPES:
        raise Unusable(f"corruption_type {shape!r} does not exist; known are {choices(_SHAPES)}")
    params = _field(record, "corruption_params", dict)
    boundary = tuple(_finite(value) for value in _field(params, "boundary", list))
    if len(boundary) != (2 if shape == "interval_inside" else 1):
        raise Unusable(f"{shape} has a boundary of {len(boundary)} numbers")
    # The mean of the corrupted values is published under the name `std`.
    return Corruption(_SHAPES[shape], boundary, mean=_finite(_field(params, "std", object)))


def _field(record: dict[str, Any], name: str, kind: type) -> Any:
    if name not in record:
        raise Unusable(f"has no {name!r}")
    if not isinstance(record[name], kind):
        raise Unusable(f"{name!r} is a {type(record[name]).__name__}, not a {kind.__name__}")
    return record[name]


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Unusable(f"{value!r:.40} should be a number")
    if not -sys.float_info.max <= value <= sys.float_info.max:
        raise Unusable(f"{value!r:.40} is not a finite number")
    return value


def _with_nets(functions: list[NumericFunction]) -> list[NumericFunction]:
    approximated = [function for function in functions if function.kind == "mlp"]
    stand_ins = iter(nets.trained([function.expression for function in approximated]))
    return [replace(function, net=next(stand_ins)) if function.kind == "mlp" else function for function in functions]
