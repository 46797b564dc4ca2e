"""What a worker does with a case of `bench natural`: have a model explained, and grade the explanation.

Explaining imports nothing that knows what was planted; grading does.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vesalius.api.alignments import align
from vesalius.api.loading import loaded
from vesalius.behaviours.registry import behaviour_of
from vesalius.documents.base import Record
from vesalius.documents.explanation import Explanation
from vesalius.documents.proposal import Proposal
from vesalius.errors import BadInput
from vesalius.explanations.scientists import BUILTIN, Explained, Scientist, Task, explain_task
from vesalius.explanations.variables.algorithms import usual_algorithm
from vesalius.model.specimen import Specimen
from vesalius.options import Load
from vesalius.sandbox.command import NOTHING, Grants
from vesalius_session.proposals.run import null_of, proposal_of

#: Bases that choose places of the built-in scientist's variables, and bases that grade them there.
ALIGNED, GRADED = 8, 16


@dataclass(frozen=True)
class NaturalCase:
    """One scientist on one model and behaviour. `place` is what the model is loaded by; `n` the prompts that grade;
    `claims` the most prompts that a claim of the built-in scientist draws, and `top` the most components.
    """

    id: str
    scientist: str
    model: str
    place: str
    behaviour: str
    n: int
    seed: int
    claims: int
    top: int | None = None
    device: str = "auto"
    unsafe: bool = False

    def specimen(self) -> Specimen:
        """The model, for the behaviour."""
        return loaded(self.place, Load(behaviour=self.behaviour, device=self.device))

    @property
    def said(self) -> dict[str, str]:
        """What its figures are headed by."""
        return {"case": self.id, "scientist": self.scientist, "model": self.model, "behaviour": self.behaviour}


class Proposed(Record):
    """What a scientist proposed, and what that cost in passes and CPU seconds."""

    proposal: Proposal
    forwards: float | None
    cpu_seconds: float


@dataclass(frozen=True)
class ToPropose:
    """A case of the first step. A null is drawn from the proposal of the built-in scientist (`names`)."""

    case: NaturalCase
    scientist: Scientist | None
    programs: Path | None = None
    executions: Path | None = None
    grants: Grants = NOTHING
    names: Proposed | None = None

    @property
    def id(self) -> str:
        """That of the case."""
        return self.case.id


@dataclass(frozen=True)
class ToRun:
    """A case of the second step."""

    case: NaturalCase
    proposed: Proposed

    @property
    def id(self) -> str:
        """That of the case."""
        return self.case.id


def propose(work: ToPropose) -> tuple[Proposed, Explanation | None]:
    """What a scientist says of a model, as data, and its explanation."""
    started, case = time.process_time(), work.case
    specimen = case.specimen()
    if work.scientist is None:
        assert work.names is not None
        drawn = null_of(work.names.proposal, specimen, seed=case.seed)
        return Proposed(proposal=drawn, forwards=0.0, cpu_seconds=round(time.process_time() - started, 2)), None
    explained: Explained = explain_task(
        Task(
            case.id,
            seed=case.seed,
            scientist=work.scientist,
            loaded=specimen,
            source=case.place,
            sandbox_unsafe=case.unsafe,
            executions=work.executions,
            programs=work.programs,
            grants=work.grants,
        )
    )
    explanation, alignment = explained.explanation, None
    forwards = float(explanation.rows) or None  # a session does not count passes
    if case.scientist == BUILTIN and has_algorithm(specimen):
        alignment = align(specimen, n=ALIGNED, held_out=GRADED, seed=case.seed, progress=False)
        forwards = (forwards or 0.0) + alignment.forwards
    proposal = proposal_of(explanation, alignment)
    if proposal.empty:
        raise BadInput(f"scientist {case.scientist}: its explanation says nothing that runs")
    return Proposed(
        proposal=proposal, forwards=forwards, cpu_seconds=round(time.process_time() - started, 2)
    ), explanation


def has_algorithm(specimen: Specimen) -> bool:
    """Whether an algorithm ships for the behaviour."""
    return usual_algorithm(behaviour_of(specimen).name) is not None


def run_it(work: ToRun) -> dict[str, Any]:
    """The figures of a proposal, as JSON data."""
    from vesalius_bench.natural.grading import graded

    case, proposed = work.case, work.proposed
    figures = graded(
        case.specimen(),
        proposed.proposal,
        case=case.said,
        n=case.n,
        seed=case.seed,
        spent=(proposed.forwards, proposed.cpu_seconds),
        unsafe=case.unsafe,
    )
    return figures.model_dump(mode="json")
