"""Notes that several calls give."""

from vesalius.documents.performance import Performance
from vesalius.errors import note


def note_unperformed(name: str, behaviour: str | None, performance: Performance | None) -> None:
    """Say that a model was studied for something it does not do, because `force` was given."""
    if performance is not None and not performance.performs:
        note(f"{name} does not perform {behaviour} ({performance.describe()}); what is found may be noise")
