"""A study in a run directory: each step is in the ledger as soon as it is done, and the same command does the rest.

The settings decide the circuit. Explainers, ratings and judges may differ from call to call: an explainer joins those
that explained the circuit before, ratings and judges are about all of them.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vesalius.documents.performance import Performance
from vesalius.errors import BadInput
from vesalius.files import sha256
from vesalius.runs.directory import EVENTS, EXPLANATIONS, RUN, Run
from vesalius.runs.ledger import Record
from vesalius.runs.settings import RunLimits
from vesalius.version import __version__
from vesalius_bench.study.documents import CircuitEvidence, Localisation

PERFORMED, LOCALISED, MEASURED, EXPLAINED = "performed", "localised", "measured", "explained"


@dataclass(frozen=True)
class StudySettings:
    """What decides the circuit of a study; `circuit` is the file or the names given, `circuit_mark` stands for its
    content.
    """

    study: str
    model: str
    behaviour: str | None
    circuit: str | None
    circuit_mark: str | None
    n: int
    top: int
    seed: int
    quick: bool
    dtype: str

    def as_data(self) -> dict[str, Any]:
        """The settings as run.json holds and compares them."""
        return {
            "benchmark": f"study {self.study}",
            "model": self.model,
            "behaviour": self.behaviour,
            "circuit": self.circuit_mark,
            **{name: getattr(self, name) for name in ("n", "top", "seed", "quick", "dtype")},
            "version": __version__,
        }


@dataclass(frozen=True)
class Performed:
    """That the model adds: on which sums, how well, and its weights' fingerprint."""

    behaviour: str
    recognised_as: str | None
    specimen: str
    fingerprint: str
    performance: Performance


@dataclass(frozen=True)
class ExplainedBy:
    """An explainer that is done; `options` are those that decide what a language model answers."""

    name: str
    scientist: str
    backbone: str | None
    protocol: str | None
    options: dict[str, Any]

    @property
    def folder(self) -> str:
        """Its directory's name in the run."""
        return folder_of(self.name)


class StudyRun:
    """A study so far, in an open run directory."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.performed: Performed | None = None
        self.localisation: Localisation | None = None
        self.evidence: CircuitEvidence | None = None
        self.explainers: dict[str, ExplainedBy] = {}
        for record in run.ledger.records:
            self._take(record)

    def note(self, event: str, **fields: Any) -> None:
        """Write a step down that is done."""
        self._take(self.run.ledger.append(event, **fields))

    def directory_of(self, explainer: str) -> Path:
        """Where the files of an explainer are."""
        return self.run.directory / EXPLANATIONS / folder_of(explainer)

    def is_explained(self, wanted: ExplainedBy) -> bool:
        """Whether an explainer is done; refused where it explained with other options."""
        done = self.explainers.get(wanted.name)
        if done is None:
            return False
        if done != wanted:
            raise BadInput(
                f"{self.run.directory}: {wanted.name} explained with {done.options or 'the usual options'}, not "
                f"{wanted.options or 'the usual ones'}; repeat its command or choose another `out`"
            )
        return True

    def _take(self, record: Record) -> None:
        if record["event"] == PERFORMED:
            fields = {name: record[name] for name in ("behaviour", "recognised_as", "specimen", "fingerprint")}
            self.performed = Performed(**fields, performance=Performance.model_validate(record["performance"]))
        elif record["event"] == LOCALISED:
            self.localisation = Localisation.model_validate(record["localisation"])
        elif record["event"] == MEASURED:
            self.evidence = CircuitEvidence.model_validate(record["evidence"])
        elif record["event"] == EXPLAINED:
            fields = {name: record[name] for name in ("name", "scientist", "backbone", "protocol", "options")}
            self.explainers[record["name"]] = ExplainedBy(**fields)


@contextmanager
def open_study(directory: Path, settings: StudySettings, limits: RunLimits) -> Iterator[StudyRun]:
    """A study in its directory; one that is refused before its first step leaves nothing behind."""
    with Run(directory, settings=settings.as_data(), limits=limits.as_data()) as run:
        try:
            yield StudyRun(run)
        except BaseException:
            if not run.ledger.records:
                for name in (RUN, EVENTS):
                    (directory / name).unlink(missing_ok=True)
            raise


def folder_of(name: str) -> str:
    """A name as that of a directory."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._") or "explainer"


def file_mark(path: Path) -> str | None:
    """What stands for the content of a file, or of the files at the top of a directory; None where there is none."""
    files = [path] if path.is_file() else sorted(path.glob("*.json"))
    return ",".join(sha256(file)[:16] for file in files) or None
