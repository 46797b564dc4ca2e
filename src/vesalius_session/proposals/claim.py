"""The claim that an explanation, given as data, runs in the model's place: it is about the whole behaviour.

Its experiment needs no laboratory: `run` carries it out. It is no kind that is described for one component.
"""

from typing import Any, Literal

from vesalius.documents.answers import CARRIED
from vesalius.documents.base import FrozenDict
from vesalius.documents.claims import ClaimRecord, Evidence, Verdict
from vesalius.documents.metric import Metric
from vesalius.documents.proposal import RUNS, Proposal, RunProposal
from vesalius.documents.whole import KEEP
from vesalius.errors import BadInput
from vesalius.explanations.claims.base import Claim, Outcome, all_of
from vesalius.explanations.laboratory import Lab
from vesalius_session.proposals.run import LEAST_EXCESS

#: The rule of evidence that no verdict reads.
REPORTED = "reported; "
OF_VARIABLES = "at least 0.5, and more than the controls"


class Runs(Claim, frozen=True):
    """The explanation, run in the model's place, keeps the behaviour."""

    kind: Literal["runs"] = RUNS
    proposal: Proposal

    @property
    def text(self) -> str:
        """What is put in the place of what."""
        said = self.proposal
        counts = [
            (len(said.programs), "attention program"),
            (len(said.variables), "variable"),
            (len(said.stand_ins), "group of stand-ins"),
        ]
        named = [f"{n} {what}{'s' * (n > 1)}" for n, what in counts if n]
        return f"Run in the model's place, the explanation holds: {', '.join(named) or 'its MLPs'}."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """It is run by a session."""
        raise BadInput(f"a claim of the kind {RUNS} is about the whole behaviour; put it to a session")

    def record(self, run: RunProposal, *, seed: int) -> ClaimRecord:
        """The claim with what came out: supported where every part of it holds."""
        evidence = [*_of_programs(run, seed), *_of_variables(run, seed), *_of_stand_ins(run, seed)]
        verdicts: list[Verdict] = [_verdict(one) for one in evidence if not one.rule.startswith(REPORTED)]
        verdict: Verdict = all_of(*verdicts) if verdicts else "untested"
        return ClaimRecord(kind=RUNS, text=self.text, verdict=verdict, evidence=tuple(evidence))


def _verdict(evidence: Evidence) -> Verdict:
    return "undecided" if evidence.passed is None else "supported" if evidence.passed else "refuted"


def _of_programs(run: RunProposal, seed: int) -> list[Evidence]:
    running = run.running
    if running is None:
        return []
    doubt = running.doubt(KEEP)
    return [
        Evidence(
            experiment="programs in the model's place",
            measure="share kept",
            **_ends(running.claimed.kept),
            controls=FrozenDict({one.step: one.kept.value for one in running.controls}),
            rule=f"at least {KEEP:g}, and more than the controls",
            seed=seed,
            passed=True if doubt is None else False if running.beaten_by else None,
            outcome=doubt,
        )
    ]


def _of_variables(run: RunProposal, seed: int) -> list[Evidence]:
    passed = {"carries": True, "in part": None, "no": False}
    figures = [
        Evidence(
            experiment=f"{one.variable} exchanged at {one.at.place}",
            measure="share as predicted",
            **_ends(one.at.accuracy),
            controls=FrozenDict({name: metric.value for name, metric in one.at.controls.items()}),
            rule=f"{REPORTED}inputs and answers stand there by construction" if one.given else OF_VARIABLES,
            seed=seed,
            passed=None if one.given else passed[one.at.verdict],
        )
        for one in run.variables
    ]
    if run.agreement is None:
        return figures
    answers = Evidence(
        experiment="the algorithm's answers",
        measure="share that the model gives",
        **_ends(run.agreement),
        rule="at least 0.5" if run.found else f"{REPORTED}no variable is placed between the embedding and the output",
        seed=seed,
        passed=None if run.agreement.low is None or not run.found else run.agreement.low >= CARRIED,
    )
    return [answers, *figures]


def _of_stand_ins(run: RunProposal, seed: int) -> list[Evidence]:
    return [
        Evidence(
            experiment=f"{' and '.join(one.components)} replaced together",
            measure="excess over the sum of each, as a share",
            **_ends(one.excess),
            rule=f"above chance, and at least {LEAST_EXCESS:g}",
            seed=seed,
            passed=one.holds,
        )
        for one in run.stand_ins
    ]


def _ends(metric: Metric) -> dict[str, Any]:
    return {"value": metric.value, "low": metric.low, "high": metric.high, "n": metric.n}
