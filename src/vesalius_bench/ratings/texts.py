"""Texts for blind rating: what raters see of them, in which order, and the references they may be shown.

1. A text is a component's note or a task description, with the run and the agent it is from.
2. Every rater has an order of their own: circuits are shuffled, in a circuit the components, and for one component the
   authors; the task descriptions come last. It follows from a secret and the rater's name, so it survives a restart,
   and texts that are added later do not move the others.
3. In the browser a text has a name that follows from the same secret, so that nobody who knows runs and agents can tell
   whose text it is. Names of agents inside a text are blotted out.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path

from vesalius.circuits.making import KEY_FOLDER
from vesalius.circuits.originals import WEIGHTS
from vesalius.circuits.specimens import benchmark_directory
from vesalius.components import Component
from vesalius.documents.explanation import Explanation
from vesalius.errors import BadInput
from vesalius.grading.keys import ReferenceTexts, known_roles, reference_texts
from vesalius.grading.ratings import MEASURES, Item, MeasureName
from vesalius_bench.ratings.documents import Rubric, RubricLevel
from vesalius_bench.ratings.reading import item_text

BLOT = "[author]"
#: Ten circuits with 17 components, as many as the published human study rated, which does not list its own. Four are
#: like tasks of its examples (frac_prevs, spam_message_detector, unique_token_extractor, multiply_by_length); the six
#: circuits of one component are our choice.
HUMAN_SUBSET = ("3", "20", "21", "67", "8", "29", "43", "62", "79", "106")
SUBSET_NAME = "human-subset"


@dataclass(frozen=True)
class CandidateText:
    """A text that is rated, and whose it is."""

    run: str
    agent: str
    item: Item
    text: str
    reference: str | None = field(default=None, compare=False)
    task: str | None = field(default=None, compare=False)

    @property
    def key(self) -> tuple[str, str, str]:
        """What the text is called in files: run, agent, item."""
        return self.run, self.agent, item_text(self.item)

    @property
    def digest(self) -> str:
        """Changes with the text."""
        return hashlib.sha256(self.text.encode("utf-8", "replace")).hexdigest()[:16]

    @property
    def blind_text(self) -> str:
        """The text without its agent's name."""
        provider, _, model = self.agent.rpartition(":")
        names = {name for name in (self.agent, model) if len(name) > 2 or provider}
        pattern = "|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in sorted(names, key=len, reverse=True) if name)
        return re.sub(pattern, BLOT, self.text, flags=re.IGNORECASE) if pattern else self.text


def candidate_texts(
    explanation: Explanation, *, run: str, agent: str, reference: bool, place: Path | None = None
) -> list[CandidateText]:
    """The notes and the task description of one explanation; `place` is the directory of a trained specimen."""
    truth = reference_of(explanation.specimen, place) if reference else None
    specimen = explanation.specimen
    texts = [
        CandidateText(
            run,
            agent,
            Item("description_quality", specimen, str(Component.parse(part.id)), explainer=agent),
            part.note.strip(),
            None if truth is None else truth.notes.get(part.id, ""),
            None if truth is None else truth.task,
        )
        for part in explanation.components
    ]
    whole = Item("task_accuracy", specimen, explainer=agent)
    task = None if truth is None else truth.task
    return [*texts, CandidateText(run, agent, whole, explanation.task_description.strip(), task, task)]


def reference_of(specimen: str, place: Path | None = None) -> ReferenceTexts:
    """The reference texts of a specimen; refused in one line where it has none."""
    if benchmark_directory(specimen) is not None:
        return reference_texts(specimen)
    if (roles := known_roles(specimen)) is not None:
        return ReferenceTexts(roles.task, dict(roles.roles))
    if place is not None and ((place / KEY_FOLDER).is_dir() or (place / WEIGHTS).is_file()):
        return reference_texts(specimen, place)
    raise BadInput(f"`reference`: {specimen!r} has no reference texts; rate it without them")


def in_order_of(rater: str, texts: Iterable[CandidateText], secret: str) -> list[tuple[str, CandidateText]]:
    """The texts in a rater's order, each with its name in the browser."""

    def place(text: CandidateText) -> tuple[str, bool, str, str]:
        item = text.item
        whole = MEASURES[item.measure].per_circuit
        circuit = mark(secret, "circuit", rater, item.specimen)
        return circuit, whole, mark(secret, "component", rater, item.specimen, item.component), name(text)

    def name(text: CandidateText) -> str:
        return mark(secret, "text", rater, *text.key)

    return [(name(text), text) for text in sorted(texts, key=place)]


def mark(secret: str, *words: str) -> str:
    """A name that cannot be traced back to the words without the secret."""
    message = b"".join(len(word).to_bytes(8, "big") + word.encode("utf-8", "replace") for word in words)
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()[:20]


def chosen_specimens(ids: Iterable[str]) -> set[str]:
    """Specimens by id, by name, or all of `human-subset`; benchmark circuits by their ids."""
    chosen: set[str] = set()
    for name in (str(one).strip() for one in ids):
        chosen |= set(HUMAN_SUBSET) if name == SUBSET_NAME else {same_specimen(name)}
    return chosen


def same_specimen(name: str) -> str:
    """A specimen's one name: the id where it is a benchmark circuit."""
    directory = benchmark_directory(name)
    return name if directory is None else directory.name


# The rubrics for people: the levels that judges are told, with the key that gives each.

QUESTIONS: dict[MeasureName, str] = {
    "description_quality": "Does the candidate text describe what this component does in this task?",
    "task_accuracy": "Does the candidate text describe what the whole model computes?",
}
ADVICE = (
    "Wording, length and confidence earn and cost nothing. Where you hesitate between two scores, give the lower one."
)
_LEVEL = re.compile(r"^- (\d), ([^:]+): (.+?)(?=^- |\Z)", re.MULTILINE | re.DOTALL)


@cache
def rubric(measure: MeasureName) -> Rubric:
    """What raters are asked about one kind of text, the lowest level first."""
    file = resources.files("vesalius_bench.judges") / "templates" / f"{measure}.md"
    best = MEASURES[measure].best
    levels = [
        RubricLevel(
            score=int(score), name=name, text=_sentence(text), key="3" if int(score) == best else "12"[int(score)]
        )
        for score, name, text in _LEVEL.findall(file.read_text(encoding="utf-8"))
    ]
    levels.sort(key=lambda level: level.score)
    return Rubric(measure=measure, question=QUESTIONS[measure], levels=tuple(levels), advice=ADVICE)


def _sentence(text: str) -> str:
    words = " ".join(text.split())
    return words[0].upper() + words[1:]
