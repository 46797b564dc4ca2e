"""Notes that several calls give."""

from vesalius.documents.performance import Performance
from vesalius.documents.trace import Trace
from vesalius.documents.view import title_of
from vesalius.errors import note


def note_unperformed(name: str, behaviour: str | None, performance: Performance | None, *, force: bool) -> None:
    """Say that a model was studied for something it does not do, or with a contrast that cannot show it, because
    `force` was given.
    """
    if performance is None or not force:
        return
    if not performance.performs:
        title = title_of(behaviour or "")
        note(f"{name} does not perform {title} ({performance.describe()}); what is found may be noise")
    if performance.contrast is not None and not performance.contrast.usable:
        note(f"{performance.contrast.doubt}; what is found may be noise")


def note_problems(trace: Trace | None) -> None:
    """Say how many of a language model's answers could not be used, and the first of them."""
    problems = [] if trace is None else list(trace.problems)
    if trace is not None and problems:
        many = f"{len(problems)} times, first" if len(problems) > 1 else "once"
        note(f"{trace.backbone} gave nothing usable {many} in {problems[0]}; the trace has every problem")
