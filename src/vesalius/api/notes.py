"""Notes that several calls give."""

from vesalius.documents.performance import Performance
from vesalius.documents.views import title_of
from vesalius.errors import note


def note_unperformed(name: str, behaviour: str | None, performance: Performance | None, *, force: bool) -> None:
    """Say that a model was studied for something it does not do, because `force` was given."""
    if performance is not None and force and not performance.performs:
        title = title_of(behaviour or "")
        note(f"{name} does not perform {title} ({performance.describe()}); what is found may be noise")
