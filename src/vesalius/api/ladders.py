"""The program of a finished explanation run again in the model's place: on other prompts, or with other programs."""

import time
from collections.abc import Mapping
from pathlib import Path

from vesalius.api.door import directory_for, verb, written
from vesalius.api.explanations import explained_specimen, read_explanation
from vesalius.behaviours.trial import NothingUnseen
from vesalius.components import Component
from vesalius.documents.explanation import Explanation
from vesalius.documents.request import Request
from vesalius.documents.running import LADDER_FILE, Ladder
from vesalius.errors import BadInput, quoted
from vesalius.explanations.natural import PROMPTS
from vesalius.explanations.natural.selection import StudyLimits
from vesalius.explanations.running import fitted_prompts, parse_program, run_again
from vesalius.model.specimen import Specimen
from vesalius.options import Out, require_drawable
from vesalius.progress import Progress, silent

#: The fewest prompts with an interval.
LEAST = 4


@verb
def ladder(
    explanation: Explanation | str | Path,
    programs: Mapping[str, str] | None = None,
    *,
    n: int = 32,
    seed: int = 1,
    specimen: Specimen | str | int | Path | None = None,
    out: Out = None,
    progress: Progress = silent,
) -> Ladder:
    """Run the program of an explanation in the model's place, on `n` prompts of another `seed` and `n` of other
    templates, and measure every rung of its ladder and every control again.

    No prompt is one that the programs were fitted to: where a behaviour has few, fewer than `n` are left, and every
    figure has its `n`.

    `explanation` is one of a natural model, its file or its directory. `programs` take the place of those of some
    heads, `{"L18H6": "1 back 0.9 + BOS 0.1"}`: a false one is seen by what is kept. `specimen` replaces the model that
    the explanation names, which is read as it was then.
    """
    started = time.perf_counter()
    require_drawable(n, seed)
    if n < LEAST:
        raise BadInput(f"{n} prompts are too few for intervals; request at least {LEAST}")
    given, place = read_explanation(explanation)
    running = given.running
    if running is None or given.behaviour is None:
        raise BadInput(
            f"the explanation of {given.specimen!r} has no program that runs; run `vesalius explain` of a natural "
            "model without --no-ladder"
        )
    _require_programs(programs or {}, {one.head for one in running.heads})
    model = explained_specimen(given, specimen, progress=progress)
    usual = PROMPTS if given.request is None else given.request.options.get("n", PROMPTS)
    fitted = fitted_prompts(model, StudyLimits.of(None, int(str(usual))).n, seed=given.seed)
    try:
        again = run_again(model, running, programs=programs, fitted=fitted, n=n, seed=seed, progress=progress)
    except NothingUnseen:
        raise BadInput(
            f"every prompt of {given.behaviour} that seed {seed} draws fitted the programs or chose the set; take "
            "another --seed, or give the behaviour more rows"
        ) from None
    document = Ladder(
        request=Request(
            command="ladder",
            specimen=place,
            options={"n": n, **({"programs": dict(programs)} if programs else {})},
            seed=seed,
        ),
        specimen=given.specimen,
        behaviour=given.behaviour,
        before=running.claimed.kept,
        running=again,
        seconds=round(time.perf_counter() - started, 2),
    )
    directory = directory_for(out, "ladder", given.specimen, given.behaviour, f"n{n}", f"seed{seed}") if out else None
    return written(document, directory, LADDER_FILE)


def _require_programs(programs: Mapping[str, str], heads: set[str]) -> None:
    """Refuse what is no program, and heads that have none to replace."""
    if not isinstance(programs, Mapping):
        raise BadInput(f"programs {quoted(str(programs), 60)}: give heads with their programs, {{'L18H6': '1 back'}}")
    for name, text in programs.items():
        if not isinstance(text, str):
            raise BadInput(f"program {quoted(str(text), 60)} of head {name} is no text; write it, such as '1 back'")
        parse_program(text)
        if str(Component.parse(name)) not in heads:
            raise BadInput(f"head {name} has no program in this explanation; choose one of {', '.join(sorted(heads))}")
