"""Explanations made from the answer key, which tests may open, and from nothing."""

from vesalius.documents.explanation import ComponentExplanation, Executable, Explanation
from vesalius.rasp.document import to_document
from vesalius_truth.key import answer, task


def explained(specimen: str, *, executable: Executable | None, tags: dict[str, str] | None = None) -> Explanation:
    """An explanation of a benchmark circuit with the true tags, or others, and this program."""
    tags = {part.id: part.tag for part in answer(specimen).components} if tags is None else tags
    parts = [
        ComponentExplanation(id=id, tag=tag, tag_by_experiment=tag, note="", verdict="supported")  # type: ignore[arg-type]
        for id, tag in tags.items()
    ]
    return Explanation(
        specimen=specimen,
        scientist="key",
        components=tuple(parts),
        information_flow="",
        task_description="",
        executable=executable,
        seconds=1.5,
        seed=0,
    )


def true_executable(specimen: str) -> Executable:
    """The program of the key, and what each component carries."""
    known = task(specimen)
    return Executable(
        program=to_document(known.program()),
        carriers={str(component): variables for component, variables in known.components},
    )


def truth(specimen: str) -> Explanation:
    """The right explanation."""
    return explained(specimen, executable=true_executable(specimen))
