"""The program of a finished explanation improved by search, and what that takes."""

import time
from pathlib import Path

from vesalius.api.door import directory_for, verb, written
from vesalius.api.explanations import explained_specimen, read_explanation
from vesalius.api.plans import plan
from vesalius.documents.explanation import Explanation
from vesalius.documents.printed import CellPlan, SurveyPlan
from vesalius.documents.proposal import Proposal
from vesalius.documents.request import Request
from vesalius.documents.whole import KEEP
from vesalius.errors import BadInput
from vesalius.explanations.scientists import LADDER, LADDER_PER_PROMPT
from vesalius.model.specimen import Specimen
from vesalius.options import Out, require_drawable
from vesalius.progress import Progress, silent
from vesalius_session.documents import IMPROVEMENT_FILE, Improvement
from vesalius_session.proposals.run import proposal_of, run_proposal
from vesalius_session.proposals.search import ExplanationSearcher

#: Passes of one prompt that a search may take.
PASSES = 20_000
Given = Explanation | str | Path


@verb
def improve(
    explanation: Given,
    *,
    until: float = KEEP,
    passes: int = PASSES,
    n: int = 32,
    seed: int = 1,
    specimen: Specimen | str | int | Path | None = None,
    out: Out = None,
    progress: Progress = silent,
) -> Improvement:
    """Improve the program of an explanation where its ladder loses most: another rule for a head, one more head,
    another place of a variable. It ends where the words keep `until`, where nothing is left to try, or at `passes`.

    Every change is chosen on some prompts and accepted only where it is confirmed on others; before and after are
    measured on `n` prompts that had no part in it. `explanation` is one of a natural model, its file or its directory;
    `specimen` replaces the model that it names.
    """
    started = time.perf_counter()
    given, place, proposal = _checked(explanation, until=until, passes=passes, n=n, seed=seed)
    model = explained_specimen(given, specimen, progress=progress)
    before = run_proposal(model, proposal, n=n, seed=seed, progress=progress)
    work = ExplanationSearcher(model, proposal, until, passes, seed=seed, progress=progress)
    stopped = work.search()
    document = Improvement(
        request=Request(
            command="improve",
            specimen=place,
            options={"until": until, "passes": passes, "n": n},
            seed=seed,
        ),
        specimen=given.specimen,
        behaviour=given.behaviour or "",
        until=until,
        most=passes,
        stopped=stopped,
        changes=tuple(work.changes),
        before=before,
        after=run_proposal(model, work.result, n=n, seed=seed, progress=progress),
        passes=round(work.passes, 1),
        seconds=round(time.perf_counter() - started, 2),
    )
    words = ("improve", given.specimen, given.behaviour, f"n{n}", f"seed{seed}")
    return written(document, directory_for(out, *words) if out else None, IMPROVEMENT_FILE)


@verb
def improve_plan(
    explanation: Given,
    *,
    until: float = KEEP,
    passes: int = PASSES,
    n: int = 32,
    seed: int = 1,
    specimen: Specimen | str | int | Path | None = None,
    progress: Progress = silent,
) -> SurveyPlan:
    """The passes, memory and time that `improve` takes at most; one chunk is run to time it."""
    given, _, _ = _checked(explanation, until=until, passes=passes, n=n, seed=seed)
    model = explained_specimen(given, specimen, progress=progress)
    explained = plan("explain", model, progress=False)
    forwards = passes + 2 * (LADDER + LADDER_PER_PROMPT * n)
    seconds = forwards * explained.seconds / max(1e-9, explained.n * explained.forwards)
    cell = CellPlan(
        model=given.specimen,
        behaviour=given.behaviour or "",
        forwards=forwards,
        peak_bytes=explained.peak_bytes,
        seconds=round(seconds, 2),
        error=None,
    )
    return SurveyPlan(
        of="an improvement", cells=(cell,), forwards=forwards, peak_bytes=explained.peak_bytes, seconds=seconds
    )


def _checked(
    explanation: Given, *, until: float, passes: int, n: int, seed: int
) -> tuple[Explanation, str | None, Proposal]:
    """The explanation, where it is, and what it says as data; refused before the model is read."""
    require_drawable(n, seed)
    if not 0 < until <= 1:
        raise BadInput(f"until={until}: is a share of the behaviour; give one above 0, up to 1")
    if passes < 1 or n < 4:
        raise BadInput(f"passes={passes}, n={n}: a search needs passes, and at least 4 prompts to be measured on")
    given, place = read_explanation(explanation)
    proposal = proposal_of(given)
    if given.behaviour is None or not proposal.programs:
        raise BadInput(
            f"the explanation of {given.specimen!r} has no program that runs; run `vesalius explain` of a natural "
            "model without --no-ladder"
        )
    return given, place, proposal
