"""An algorithm: a short Python program whose functions are the variables.

    def difference(A, B):              # a variable; its parameters are inputs of the behaviour, or other variables
        return A - B

    def answer(difference, C):         # what the model should say: an answer, or a list of answers that are all right
        return difference + C

`VARIABLES = [...]` names those that are to be placed in the model (usually every function, and every input that one
reads). A function `choices` lists the answers that the model's own is taken from (usually its whole vocabulary). Names
that begin with an underscore are helpers.

Interchanging a variable means: run the program on the base, but give the variable the value that it has on the source.
A variable without a value there (the function raised, or returned None) has no prediction. Programs that ship with the
package run here; all others run in the sandbox.
"""

import ast
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from vesalius.errors import BadInput, Failed, choices, quoted
from vesalius.files import why_not_text
from vesalius.sandbox.sandbox import Sandbox

ANSWER, CHOICES, VARIABLES = "answer", "choices", "VARIABLES"
#: The program that a behaviour has unless another is named.
USUAL = {
    "addition:signs=-+": "arithmetic",
    "ioi": "ioi",
    "greater-than": "greater-than",
    "capitals": "capitals",
    "induction": "induction",
    "docstring": "docstring",
}
#: Seconds for all runs of a user's program together.
PROGRAM_SECONDS = 120.0
#: What runs a program on a pair of inputs. `_ORDER` lists its functions with their parameters.
_HARNESS = """

def _plain(value):
    return sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value

def _values(inputs, fixed):
    values = {**inputs, **fixed}
    for name, parameters in _ORDER:
        if name not in fixed:
            values[name] = _plain(globals()[name](*[values[parameter] for parameter in parameters]))
    return values

def _pair(job):
    base, source = _values(job["base"], {}), _values(job["source"], {})
    after = {}
    for name in job["variables"]:
        try:
            after[name] = None if source[name] is None else _values(job["base"], {name: source[name]})["answer"]
        except Exception:
            after[name] = None
    same = [name for name in job["variables"] if base[name] == source[name]]
    options = None
    if _CHOICES is not None:
        options = [_plain(globals()["choices"](*[job[side][name] for name in _CHOICES])) for side in ("base", "source")]
    return {"base": base["answer"], "source": source["answer"], "after": after, "same": same, "choices": options}
"""


@dataclass(frozen=True)
class Predicted:
    """What an algorithm says of one pair: the answers on the base and the source, the answer on the base `after` each
    variable has the source's value (None: no prediction), which variables have the `same` value in both, and the
    answers to choose from on the base and on the source (None: any).
    """

    base: Any
    source: Any
    after: Mapping[str, Any]
    same: tuple[str, ...]
    choices: tuple[list[Any], list[Any]] | None


@dataclass(frozen=True)
class Algorithm:
    """A parsed program. `functions` maps each function to its parameters, in an order in which they can be computed."""

    name: str
    source: str
    functions: Mapping[str, tuple[str, ...]]
    variables: tuple[str, ...]
    choose_by: tuple[str, ...] | None
    shipped: bool

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs that it reads."""
        read = [name for parameters in self.functions.values() for name in parameters if name not in self.functions]
        return tuple(dict.fromkeys([*read, *(self.choose_by or ())]))

    @property
    def with_inputs(self) -> "Algorithm":
        """The same with every input that a function reads among the variables."""
        read = dict.fromkeys(name for names in self.functions.values() for name in names if name not in self.functions)
        return replace(self, variables=tuple(dict.fromkeys([*self.variables, *read])))

    def require_inputs(self, known: Iterable[str], behaviour: str) -> None:
        """Refuse a program that reads what the behaviour's prompts do not have."""
        known = list(known)
        if unknown := [name for name in self.inputs if name not in known]:
            raise BadInput(
                f"algorithm {self.name}: {unknown[0]!r} is neither one of its functions nor an input of {behaviour}; "
                f"inputs are {choices(known)}"
            )

    @contextmanager
    def runner(self, *, unsafe: bool = False) -> Iterator["Runner"]:
        """What runs it on pairs of inputs."""
        if self.shipped:
            yield Runner(self, None)
            return
        with Sandbox(unsafe=unsafe) as sandbox:
            yield Runner(self, sandbox)


@dataclass(frozen=True)
class Runner:
    """Runs an algorithm on pairs of inputs, in the sandbox if there is one."""

    algorithm: Algorithm
    sandbox: Sandbox | None

    def predicted(self, pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[Predicted]:
        """What the algorithm says of each pair of a base's and a source's inputs."""
        variables = self.algorithm.variables
        jobs = [{"base": dict(base), "source": dict(source), "variables": variables} for base, source in pairs]
        order = [(name, list(parameters)) for name, parameters in self.algorithm.functions.items()]
        by = self.algorithm.choose_by
        code = f"{self.algorithm.source}\n_ORDER = {order!r}\n_CHOICES = {None if by is None else list(by)!r}{_HARNESS}"
        if self.sandbox is None:
            scope: dict[str, Any] = {}
            exec(compile(code, self.algorithm.name, "exec"), scope)  # a program of this package
            answers = [json.loads(json.dumps(scope["_pair"](job))) for job in jobs]
        else:
            results = self.sandbox.call_many(code, "_pair", json.loads(json.dumps(jobs)), total_seconds=PROGRAM_SECONDS)
            if failed := next((result.error for result in results if not result.ok), None):
                raise Failed(f"algorithm {self.algorithm.name}: it failed on a prompt: {_last_line(failed)}")
            answers = [result.value for result in results]
        return [self._read(one) for one in answers]

    def _read(self, given: Any) -> Predicted:
        """What the harness says of a pair; a program can put another one in its place."""
        match given:
            case {
                "base": base,
                "source": source,
                "after": {} as after,
                "same": [*same],
                "choices": None | [[*_], [*_]] as options,
            } if after.keys() == set(self.algorithm.variables) and all(isinstance(one, str) for one in same):
                return Predicted(base, source, after, tuple(same), None if options is None else tuple(options))
        raise Failed(
            f"algorithm {self.algorithm.name}: {quoted(given, 60)} is not what it says of a pair; let `{CHOICES}` give "
            "a list, and its functions nothing but their values"
        )


def _last_line(error: str) -> str:
    return next((line.strip() for line in reversed(error.splitlines()) if line.strip()), error)


@cache
def shipped() -> tuple[str, ...]:
    """The names of the programs of this package."""
    directory = Path(str(files("vesalius.explanations.variables").joinpath("programs")))
    return tuple(sorted(file.stem.replace("_", "-") for file in directory.glob("[a-z]*.py")))


def usual_algorithm(behaviour: str) -> str | None:
    """The program that ships for a behaviour, whatever other options it has; a file that begins like one has none."""
    return next((USUAL[one] for one in USUAL if behaviour == one or behaviour.startswith((f"{one},", f"{one}:"))), None)


def find_algorithm(given: str | Path | None, *, behaviour: str) -> Algorithm:
    """A program of this package by name, a program file, or (None) the program of the behaviour."""
    if given is None:
        usual = usual_algorithm(behaviour)
        if usual is None:
            raise BadInput(
                f"behaviour {behaviour}: no algorithm ships with it; name a program file with --algorithm, or one of "
                f"{choices(shipped())}"
            )
        given = usual
    text = str(given)
    if text in shipped():
        file = files("vesalius.explanations.variables").joinpath("programs", f"{text.replace('-', '_')}.py")
        return parse_algorithm(file.read_text(encoding="utf-8"), name=text, shipped=True)
    path = Path(text).expanduser()
    if path.suffix != ".py" and not path.is_file():
        raise BadInput(
            f"algorithm {quoted(text)} does not exist; choose one of {choices(shipped())}, or give a .py file"
        )
    try:
        source = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise BadInput(f"algorithm {path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"algorithm {path}: not readable ({why_not_text(error)})") from None
    return parse_algorithm(source, name=str(path))


def parse_algorithm(source: str, *, name: str, shipped: bool = False) -> Algorithm:
    """Read functions, their parameters and the list of variables; nothing of the program is run."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise BadInput(f"algorithm {name}: not Python{f', line {line}' if line else ''}: {error}") from None
    parameters: dict[str, tuple[str, ...]] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            given = node.args
            if given.vararg or given.kwarg or given.kwonlyargs:
                raise BadInput(
                    f"algorithm {name}: function {node.name} takes its inputs by name; write them one by one"
                )
            parameters[node.name] = tuple(one.arg for one in (*given.posonlyargs, *given.args))
    choose_by = parameters.pop(CHOICES, None)
    if ANSWER not in parameters:
        raise BadInput(f"algorithm {name}: it has no function `{ANSWER}`; define what the model should say")
    functions = _ordered(parameters, name)
    algorithm = Algorithm(name, source, functions, (), choose_by, shipped)
    if choose_by is not None and (computed := [one for one in choose_by if one in functions]):
        raise BadInput(f"algorithm {name}: `{CHOICES}` reads {computed[0]!r}; it may read inputs only")
    read = [one for one in algorithm.inputs if any(one in names for names in functions.values())]
    known = [*read, *functions]
    variables = _listed_variables(tree, name)
    if variables is None:
        variables = tuple(known)
    if unknown := [one for one in variables if one not in known]:
        raise BadInput(f"algorithm {name}: {VARIABLES} names {unknown[0]!r}; it has {choices(known)}")
    return Algorithm(name, source, functions, variables, choose_by, shipped)


def _listed_variables(tree: ast.Module, name: str) -> tuple[str, ...] | None:
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(to, ast.Name) and to.id == VARIABLES for to in targets):
            try:
                listed = ast.literal_eval(node.value)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):  # what it says it may raise
                listed = None
            if not isinstance(listed, list | tuple) or not listed or not all(isinstance(one, str) for one in listed):
                raise BadInput(f'algorithm {name}: {VARIABLES} is a list of names, such as ["difference", "answer"]')
            return tuple(dict.fromkeys(listed))
    return None


def _ordered(parameters: Mapping[str, tuple[str, ...]], name: str) -> dict[str, tuple[str, ...]]:
    """The functions that the answer needs, and all others, each after those that it reads."""
    ordered: dict[str, tuple[str, ...]] = {}
    pending = dict(parameters)
    while pending:
        ready = [one for one, reads in pending.items() if not any(other in pending for other in reads)]
        if not ready:
            raise BadInput(f"algorithm {name}: {choices(sorted(pending))} read each other; break the circle")
        for one in ready:
            ordered[one] = pending.pop(one)
    return ordered
