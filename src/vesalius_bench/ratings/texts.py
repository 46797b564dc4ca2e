"""Texts for blind rating: what raters see of them, in which order, and the references they may be shown.

1. A text is a component's note or a task description, with the run and the agent it is from. Where an agent left a
   trace, a component has two more: the first hypothesis beside the observation it was made from, and the plan that its
   explanation rests on beside the hypothesis it tests, with what came of it. These are the four measures of the
   published study.
2. Every rater has an order of their own: circuits are shuffled, in a circuit the components, and for one component the
   authors. Of one component all plans come first, then all notes, then all first hypotheses, so that the reference
   text, which stands beside the latter two, is not seen when a plan is rated; the task descriptions come last. The
   order follows from a secret and the rater's name, so it survives a restart, and texts that are added later do not
   move the others.
3. In the browser a text has a name that follows from the same secret, so that nobody who knows runs and agents can tell
   whose text it is. Names and signatures inside a text are taken out (`blinding`).
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path

from vesalius.circuits.originals import WEIGHTS
from vesalius.circuits.specimens import KEY_FOLDER, benchmark_directory
from vesalius.components import Component
from vesalius.documents.explanation import Explanation
from vesalius.documents.trace import Attempt, ComponentTrace, Trace
from vesalius.documents.view import cut_text
from vesalius.errors import BadInput
from vesalius_bench.judges.circuit import plan_of
from vesalius_bench.ratings.documents import Rubric, RubricLevel
from vesalius_bench.ratings.reading import item_text
from vesalius_truth.grading.keys import ReferenceTexts, known_roles, reference_texts
from vesalius_truth.grading.ratings import MEASURES, Item, MeasureName

# What raters must not see of a text: the names of agents and scientists, and the sentences by which ours sign theirs.
#
# Two things tell an author. A name is masked. A formula that only one of our scientists writes is taken out: the
# marks of what was established and of what a model said, how a claim was decided, and figures of experiments that
# nobody else quotes. What is left of such a text is what it says of the component; where nothing is left, nothing was
# said of it.
#
# How somebody writes cannot be hidden. Raters who know an agent's style may still recognise it.

MASK = "[author]"
#: What our scientists are called wherever they speak of themselves.
SCIENTISTS = ("HyVE", "built-in scientist", "builtin scientist", "vesalius")

_SENTENCES = (
    r"Established:",
    r"In the model's words:",
    r"At a fixed position, ",
    r"(?:No exchange of its inputs shows; i|I)n the program (?=it )",
    r"; in the program it reads [^\n]*?(?=\.(?:\s|$))",
    r"What (?:it|\w+|the output) reads is not decided: [^\n]*?\.(?=\s|$)",
    r"Outputs change when it is replaced, but what reads it was not found\.",
    r"\(explained by the built-in scientist\)",
    r"\(Tentative: no (?:hypothesis was supported|experiment supported it)\.\)",
    r"\(claim (?:supported|refuted|undecided|untested)\)",
    r"Exchanged between \d+ pairs of inputs that show a difference, it acts as the program says in [\d.]+% of the "
    r"changed outputs(?: \(with a shuffled source [\d.]+%\))?\.",
    r"By the rule of the claim that is (?:supported|refuted|undecided|untested) \([^\n]*?\)\.(?=\s|$)",
    r"No exchange changed an output, so this is undecided\.",
    r"This could not be run, so it is untested\.",
    r"(?:It is not inert: )?[Rr]eplacing it changed [^\n]*? of the outputs[.;]"
    r"(?: no replacement does anything, so nothing can say what it computes\.)?",
    r"\w+ is inert:",
    r"No hypothesis about \w+ was good enough to be judged: the best predicted [-\d.]+ of its effect in the search\.",
    r"The program gives all outputs of the model for [\d.]+% of fresh inputs\.",
    r"The program is not right: it gives all outputs of the model for only [\d.]+% of fresh inputs\.",
    r"No program was found: no hypothesis about any component was supported\.",
    r"By experiment alone it is an? \w+; [^\n]*?\.(?=\s|$)",
    r"The rule of the convention: [^\n]*?\.(?=\s|$)",
    # From the beginning of the sentence, which is the rule itself.
    r"(?:(?<=[.)] )|(?m:^))[A-Z](?:(?!\. )[^\n])*: by that convention it would be an? \w+, which its own claims "
    r"contradict\.",
    r"(?:Refuted(?: where the program fails)?|What makes the program fail): [^\n]*?\.(?=\s|$)",
    r"Nothing was established: no claim about what a component computes was supported\.",
    r"The program could not be written so that it runs \([^\n]*?\), so its claims are untested\.",
    r"Of the \d+ combinations of its arguments \d+ were never seen; the program leaves them open\.",
    r"The vocabulary of \d+ tokens was sampled, not enumerated: tokens not drawn are not covered\.",
)
_SIGNED = re.compile(r"[ \t]*(?:" + "|".join(_SENTENCES) + r")[ \t]*")


def unsigned(text: str) -> str:
    """A text without the formulas by which our scientists sign theirs."""
    return "\n".join(" ".join(line.split(" ")).strip() for line in _SIGNED.sub(" ", text).split("\n")).strip()


def blind(text: str, *agents: str) -> str:
    """A text as a rater may see it: unsigned, the names of agents and scientists masked."""
    names = set(SCIENTISTS)
    for agent in agents:
        provider, _, model = agent.rpartition(":")
        names |= {name for name in (agent, model) if len(name) > 2 or (provider and name)}
    listed = "|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in sorted(names, key=len, reverse=True))
    return re.sub(listed, MASK, unsigned(text), flags=re.IGNORECASE)


#: Characters of one program's result or an agent's reasons, and of an error, that the outcome of a plan quotes.
LONGEST_RESULT, LONGEST_ERROR = 600, 200
#: Ten circuits with 17 components, as many as the published human study rated, which does not list its own. Four are
#: like tasks of its examples (frac_prevs, spam_message_detector, unique_token_extractor, multiply_by_length); the six
#: circuits of one component are our choice.
HUMAN_SUBSET = ("3", "20", "21", "67", "8", "29", "43", "62", "79", "106")
SUBSET_NAME = "human-subset"
#: Texts of one component in the order in which they are rated.
ORDER: tuple[MeasureName, ...] = ("plan_soundness", "description_quality", "grounding", "task_accuracy")


@dataclass(frozen=True)
class CandidateText:
    """A text that is rated, and whose it is.

    `given` is what it is held against within the trace: the observation behind a hypothesis, the hypothesis behind a
    plan; `outcome` is what came of the plan, and `tag` the tag that the agent gave the component. `reference`,
    `reference_tag`, `task` and the right tag of every component (`parts`) are there where references are shown.
    """

    run: str
    agent: str
    item: Item
    text: str
    given: str | None = None
    outcome: str | None = None
    tag: str | None = None
    reference: str | None = field(default=None, compare=False)
    reference_tag: str | None = field(default=None, compare=False)
    task: str | None = field(default=None, compare=False)
    parts: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    @property
    def key(self) -> tuple[str, str, str]:
        """What the text is called in files: run, agent, item."""
        return self.run, self.agent, item_text(self.item)

    @property
    def digest(self) -> str:
        """Changes with the text and with what it is held against."""
        whole = self.text if self.given is None else f"{self.given}\0{self.text}"
        return hashlib.sha256(whole.encode("utf-8", "replace")).hexdigest()[:16]

    def blind(self, text: str) -> str:
        """One of its texts as a rater sees it."""
        return blind(text, self.agent)


def candidate_texts(
    explanation: Explanation,
    trace: Trace | None = None,
    *,
    run: str,
    agent: str,
    reference: bool,
    place: Path | None = None,
) -> list[CandidateText]:
    """The notes and the task description of one explanation, and with its `trace` the hypotheses and plans; `place` is
    the directory of a trained specimen.
    """
    truth = reference_of(explanation.specimen, place) if reference else None
    specimen = explanation.specimen
    task = None if truth is None else truth.task
    parts = () if truth is None else tuple(truth.tags.items())
    texts: list[CandidateText] = []
    for part in explanation.components:
        component = str(Component.parse(part.id))
        note = None if truth is None else truth.notes.get(part.id, "")
        tag = None if truth is None else truth.tags.get(part.id)
        item = Item("description_quality", specimen, component, explainer=agent)
        texts.append(
            CandidateText(
                run, agent, item, part.note.strip(), None, None, part.tag and str(part.tag), note, tag, task, parts
            )
        )
    for traced in trace.components if trace is not None else ():
        component = str(Component.parse(traced.component))
        note = None if truth is None else truth.notes.get(traced.component, "")
        for measure, iteration, text, given, outcome in _of_trace(traced):
            item = Item(measure, specimen, component, iteration, agent)
            shown = note if measure == "grounding" else None
            texts.append(CandidateText(run, agent, item, text, given, outcome, None, shown, None, task, parts))
    whole = Item("task_accuracy", specimen, explainer=agent)
    return [*texts, CandidateText(run, agent, whole, explanation.task_description.strip(), reference=task, task=task)]


def _of_trace(traced: ComponentTrace) -> Iterator[tuple[MeasureName, int, str, str, str | None]]:
    """The first hypothesis with its observation, and the plan that the explanation rests on with its hypothesis: the
    one that was supported, else the last. What was settled without an observation of the agent has neither.
    """
    stated = [attempt for attempt in traced.attempts if attempt.hypothesis.strip()]
    if stated and (unsigned(traced.observation) or not traced.observation.strip()):
        first = stated[0]
        yield "grounding", first.iteration, first.hypothesis.strip(), traced.observation.strip(), None
    planned = [attempt for attempt in stated if plan_of(attempt)]
    if planned:
        chosen = next((one for one in planned if one.verdict == "supported"), planned[-1])
        yield "plan_soundness", chosen.iteration, plan_of(chosen), chosen.hypothesis.strip(), outcome_of(chosen)


def outcome_of(attempt: Attempt) -> str:
    """What came of a plan: what its programs gave or its claims were found to be, and what was concluded."""
    ran = [
        f"Program {number} gave {cut_text(one.result, LONGEST_RESULT)}"
        if one.succeeded
        else f"Program {number} failed: {cut_text(_last_line(one.error), LONGEST_ERROR)}"
        for number, one in enumerate(attempt.executions, 1)
    ]
    claims = [
        f"Claim {number} ({claim.get('kind')}) was {claim.get('verdict') or 'not checked'}."
        for number, claim in enumerate(attempt.claims, 1)
    ]
    nothing = [] if ran or claims else ["Nothing was run."]
    said = {"supported": "supported", "refuted": "refuted", "untested": "left undecided"}[attempt.verdict]
    why = cut_text(attempt.reasoning.strip(), LONGEST_RESULT)
    return "\n".join([*ran, *claims, *nothing, f"The hypothesis was {said}{f': {why}' if why else '.'}"])


def _last_line(error: str) -> str:
    return (error.strip().splitlines() or ["no reason is known"])[-1]


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

    def place(text: CandidateText) -> tuple[str, bool, str, int, str]:
        item = text.item
        whole = MEASURES[item.measure].per_circuit
        circuit = mark(secret, "circuit", rater, item.specimen)
        component = mark(secret, "component", rater, item.specimen, item.component)
        return circuit, whole, component, ORDER.index(item.measure), name(text)

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
    "description_quality": "Does this describe what the component does in this task?",
    "task_accuracy": "Does this describe what the whole model computes?",
    "plan_soundness": "Would this plan, carried out as written, support or refute the hypothesis?",
    "grounding": "Does the hypothesis follow from the observation?",
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
