"""Two results compared (below), and a run done again from its records: no network, no key, and the same scorecard,
or a list of what differs.

Every case is explained, graded and judged again in a temporary directory; language models are their recorded calls,
and code that was executed is what it gave then, unless it is to be executed again.
Everything in the scorecard is compared except how long things took and how it was asked for.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from math import isclose
from pathlib import Path
from typing import Any

from vesalius.documents.base import Document
from vesalius.documents.difference import Compared, Difference, compared_figures, metric_pairs
from vesalius.documents.kinds import kind_of_file, stored_kinds
from vesalius.documents.request import Request
from vesalius.documents.scorecard import Scorecard
from vesalius.errors import BadInput, quoted
from vesalius.plugins import names_a_module
from vesalius.runs.directory import EXECUTIONS, RUN, Run, is_run, read_run, read_scorecard
from vesalius.runs.engine import Engine
from vesalius.runs.kinds import kind_of_directory, kind_of_run
from vesalius.runs.ledger import REMEDY
from vesalius.runs.steps import StepProgress
from vesalius.values import JsonObject

#: What is not compared.
NOT_COMPARED = ("seconds", "request")
MOST = 20


@dataclass(frozen=True)
class Replayed:
    """What replay found: the new scorecard, and where it differs from the stored one; of a run that is a record of
    calls, how many were made again.
    """

    scorecard: Scorecard | None
    differences: tuple[str, ...]
    calls: int | None = None

    @property
    def equal(self) -> bool:
        """Whether the scorecard, or every result of a call, was reproduced."""
        return not self.differences

    @property
    def sentence(self) -> str:
        """What came out, in words."""
        if self.calls is not None:
            same = f"{self.calls} calls give the same results again"
            return same if self.equal else "the calls do not give the same results"
        return f"the scorecard is {'' if self.equal else 'not '}reproduced{' from the records' if self.equal else ''}"


def replay(
    directory: Path,
    *,
    jobs: int = 2,
    execute: bool = False,
    trusted: bool = False,
    sandbox_unsafe: bool = False,
    engine: Engine | None = None,
    progress: Callable[[StepProgress], None] | None = None,
) -> Replayed:
    """Do a finished run again from its records and compare the scorecards; with `execute` code is run again. The run
    may be a stranger's: whether functions that it names run (`trusted`), and code without a sandbox, is not for it to
    say.
    """
    asked = read_run(directory)
    kind = kind_of_run(asked)
    if (repeated := kind.replay(directory)) is not None:
        return repeated
    if not trusted:
        _require_no_code(directory, asked["settings"])
    stored = read_scorecard(directory)
    try:
        settings = kind.settings_of(directory, asked)
    except BadInput as error:
        raise error if str(error).startswith(str(directory)) else BadInput(f"{directory}: {error}") from None
    except (AttributeError, LookupError, TypeError) as error:
        raise BadInput(f"{directory / RUN}: the settings cannot be read ({error}); {REMEDY}") from None
    with (
        tempfile.TemporaryDirectory(prefix="vesalius-replay-") as place,
        Run(Path(place), settings=settings.as_data()) as run,
    ):
        if not execute and (directory / EXECUTIONS).is_dir():
            shutil.copytree(directory / EXECUTIONS, Path(place) / EXECUTIONS)
        benchmark = kind.steps(run, settings, directory, engine=engine, sandbox_unsafe=sandbox_unsafe)
        for event in benchmark.work(jobs=jobs):
            if progress is not None:
                progress(event)
        card = benchmark.scorecard()
    return Replayed(card, tuple(differences(stored.as_data(), card.as_data()))[:MOST])


def _require_no_code(directory: Path, settings: Mapping[str, object]) -> None:
    """Refuse a run whose settings name a function of a module."""
    for role in ("scientist", "interpreter"):
        if names_a_module(name := settings.get(role)):
            raise BadInput(
                f"{directory}: is of the {role} {quoted(name, 100)}, code that runs with your rights; "
                f"if you trust it, give --trusted (`trusted=True`)"
            )


def differences(stored: object, replayed: object, where: str = "") -> Iterator[str]:
    """Every place at which two scorecards differ, times left out."""
    if isinstance(stored, dict) and isinstance(replayed, dict):
        for name in dict.fromkeys([*stored, *replayed]):
            if name not in NOT_COMPARED:
                yield from differences(stored.get(name), replayed.get(name), f"{where}.{name}" if where else str(name))
    elif isinstance(stored, list) and isinstance(replayed, list) and len(stored) == len(replayed):
        for index, (one, other) in enumerate(zip(stored, replayed, strict=True)):
            yield from differences(one, other, f"{where}[{index}]")
    elif not _same(stored, replayed):
        yield f"{where}: {stored!r:.80} is stored, {replayed!r:.80} came out"


def _same(stored: object, replayed: object) -> bool:
    """Whether two values are equal; figures may be rounded by another library or machine."""
    if isinstance(stored, float) and isinstance(replayed, float):
        return isclose(stored, replayed, rel_tol=1e-6, abs_tol=1e-9)
    return stored == replayed


# Two results of one kind compared, or two runs of a benchmark. What differs is for the kind to say (`compared`).
#
# Nothing is computed again: what is compared is what the two results say. Where both have intervals, two figures are
# *apart* if these do not overlap, which is a careful rule: figures on the same prompts can differ by less.

#: What a request says about the moment, not about the question.
LEFT_OUT = ("versions", "schema_version", "schema")
ACCEPTED = "a directory that `vesalius explain`, `discover`, `sweep` or `bench` made, or its JSON file"
DocumentOrRun = Document | Path


def difference(a: DocumentOrRun | str, b: DocumentOrRun | str) -> Difference:
    """What differs between two results of the same kind; each is a document or a path."""
    first, second = _opened(a, b)
    if isinstance(first, Path) and isinstance(second, Path):
        return _of_benchmarks(first, second)
    names = _label(a, first), _label(b, second)
    if isinstance(first, Path) or isinstance(second, Path) or type(first) is not type(second):
        raise BadInput(f"{names[0]} is {_kind(first)} and {names[1]} is {_kind(second)}; give two of the same kind")
    own = getattr(first, "compared", None)
    compared: Compared = compared_figures(first, second) if own is None else own(second)
    requests = [getattr(one, "request", None) for one in (first, second)]
    notes = (*_notes(*requests), *compared.notes)
    about = {"kind": first.KIND, "a": names[0], "b": names[1], "asked": _asked(*requests)}
    return Difference.model_validate({**about, **vars(compared), "notes": notes})


# Opening.


def _opened(a: DocumentOrRun | str, b: DocumentOrRun | str) -> tuple[DocumentOrRun, DocumentOrRun]:
    """Both results. Of directories with several files the kind that both have and that says most."""
    paths = [Path(one) if isinstance(one, str | Path) else None for one in (a, b)]
    kinds = [None if path is None or not path.is_dir() or is_run(path) else _kinds(path) for path in paths]
    shared = [kind for kind in stored_kinds() if all(kind in one for one in kinds if one is not None)]
    results: list[DocumentOrRun] = []
    for one, path, there in zip((a, b), paths, kinds, strict=True):
        if path is None:
            assert isinstance(one, Document)
            results.append(one)
        elif there is None:
            results.append(_file(path))
        else:
            kind = (shared or there)[0]
            results.append(kind.read(path / str(kind.FILE)))
    return results[0], results[1]


def _kinds(directory: Path) -> list[type[Document]]:
    kinds = [kind for kind in stored_kinds() if (directory / str(kind.FILE)).is_file()]
    if not kinds:
        raise BadInput(f"{directory}: holds nothing that can be compared; give {ACCEPTED}")
    return kinds


def _file(path: Path) -> DocumentOrRun:
    """The result in a JSON file; a file that belongs to a result stands for it, a run of a benchmark stays a path."""
    if is_run(path):
        return path
    if not path.is_file():
        raise BadInput(f"{path}: there is no such result; give {ACCEPTED}")
    whole = next((kind for kind in stored_kinds() if path.name in kind.BESIDE), None)
    if whole is not None and path.with_name(str(whole.FILE)).is_file():
        return whole.read(path.with_name(str(whole.FILE)))
    kind = kind_of_file(path)
    if kind is None:
        raise BadInput(f"{path}: is no explanation, discovery, sweep or other result; give {ACCEPTED}")
    return kind.read(path)


def _kind(result: DocumentOrRun) -> str:
    name = "run of a benchmark" if isinstance(result, Path) else result.kind_name()
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _label(given: DocumentOrRun | str, result: DocumentOrRun) -> str:
    if isinstance(given, str | Path):
        return str(given)
    return getattr(result, "directory", None) or getattr(result, "specimen", None) or _kind(result)


# Comparing.


def _of_benchmarks(a: Path, b: Path) -> Difference:
    runs = [read_run(one)["settings"] for one in (a, b)]
    if runs[0].get("benchmark") != runs[1].get("benchmark"):
        kinds = [f"{one} is a run of `bench {run.get('benchmark')}`" for one, run in zip((a, b), runs, strict=True)]
        raise BadInput(f"{' and '.join(kinds)}; give two of the same benchmark")
    cards = [read_scorecard(one) for one in (a, b)]
    asked = {name: (runs[0].get(name), runs[1].get(name)) for name in dict.fromkeys(chain(*runs))}
    compared = kind_of_directory(a).compared(a, b)
    return Difference.model_validate(
        {
            **vars(compared),
            "kind": "benchmark",
            "a": str(a),
            "b": str(b),
            "asked": {name: pair for name, pair in asked.items() if pair[0] != pair[1]},
            "metrics": {**metric_pairs(*(card.metrics for card in cards)), **compared.metrics},
        }
    )


def _asked(a: Request | None, b: Request | None) -> dict[str, tuple[Any, Any]]:
    """What the two requests do not share, options by name."""
    sides = [_flat_request(one) for one in (a, b)]
    return {
        name: (sides[0].get(name), sides[1].get(name))
        for name in dict.fromkeys(chain(*sides))
        if sides[0].get(name) != sides[1].get(name)
    }


def _flat_request(request: Request | None) -> JsonObject:
    if request is None:
        return {}
    data = request.as_data()
    options = data.pop("options", None) or {}
    return {name: value for name, value in {**data, **options}.items() if name not in LEFT_OUT and value is not None}


def _notes(a: Request | None, b: Request | None) -> tuple[str, ...]:
    names = [None if one is None else (one.specimen, one.behaviour) for one in (a, b)]
    notes: list[str] = []
    if names[0] and names[1] and names[0][0] != names[1][0]:
        notes.append(
            "Two models: a component's name means the same in both only if one was made from the other (by"
            " fine-tuning, say)."
        )
    if names[0] and names[1] and names[0][1] != names[1][1]:
        notes.append("Two behaviours: claims are about other prompts and other answers.")
    return tuple(notes)
