"""An explanation of a natural model that runs: attention programs in the place of heads, and the ladder.

Every rung takes more away from the model: its other heads, then the patterns of the heads that are left, then what they
read, then MLPs. A share is 0 where everything has its counterfactual value, 1 for the whole model. What an explanation
claims is the rung `programs`: its heads look where the programs say. What they read, and what MLPs do, are the model's
own weights and listed as not explained.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ValidationInfo, field_validator

from vesalius.documents.base import Answered, FrozenDict, Record, ResultDocument
from vesalius.documents.metric import Metric
from vesalius.documents.request import Request
from vesalius.documents.view import Answer, Code, Facts, Section, Sheet, Text, View, subject_of
from vesalius.documents.whole import KEEP, TOO_MUCH, bars, not_as_asked, template_bars, too_few
from vesalius.errors import choices, quoted

LADDER_FILE = "ladder.json"
Word = Literal["program", "position only", "depends on context"]
PROGRAM, POSITION_ONLY, DEPENDS = "program", "position only", "depends on context"
#: By how much a program's overlap must exceed that of what reads no tokens, and from where on position is enough.
MARGIN, LEAST_BY_POSITION = 0.05, 0.7
#: A program whose overlap is less than this share of that of what reads no tokens looks elsewhere than its head.
ELSEWHERE_BELOW = 0.5
#: Where the counterfactual moves this much of a head's attention, its program must react, by this change overlap.
LEAST_MOVED, LEAST_CHANGE = 0.1, 0.2
#: An MLP is a table where its entries keep this share of what its own output has beyond the mean of the table, and that
#: mean costs this share of the behaviour.
LOOKS_UP, LEAST_NEEDED = 0.8, 0.02
WHOLE, CIRCUIT, FROZEN, PROGRAMS, VARIABLE_VALUES, TOKEN_VALUES, NAMED_MLPS, LOOKUPS = STEPS = (
    "whole model",
    "circuit",
    "frozen patterns",
    "programs",
    "variable values",
    "token values",
    "named MLPs",
    "lookups",
)
SHUFFLED, RANDOM, ALL_BOS, COUNTERFACTUAL, MISPLACED, POSITION_MEAN, SHUFFLED_LOOKUPS, MEAN_LOOKUPS = CONTROLS = (
    "shuffled programs",
    "random programs",
    "all BOS",
    "counterfactual patterns",
    "misplaced patterns",
    "position means",
    "shuffled lookups",
    "mean lookups",
)
#: Controls that programs must exceed for the ladder to say something. Position means need no tokens and are shown.
DECISIVE = (SHUFFLED, RANDOM, ALL_BOS, COUNTERFACTUAL, MISPLACED)
#: The rung that a control is compared with, where it is not that of the programs.
CONTROLLED = {SHUFFLED_LOOKUPS: LOOKUPS, MEAN_LOOKUPS: LOOKUPS}
#: The share of what a set keeps with its own patterns from which the counterfactual's count as keeping as much.
AS_MUCH = 0.9
_MEANINGS = {
    WHOLE: "nothing replaced",
    CIRCUIT: "the heads of the set and all MLPs; every other head has its counterfactual value",
    FROZEN: "and these heads attend as in the intact run",
    PROGRAMS: "and these heads attend as their programs say",
    VARIABLE_VALUES: "programs, and heads read at roles what another prompt with the same words at its roles has there",
    TOKEN_VALUES: "programs, and heads read each token as if it stood alone",
    NAMED_MLPS: "programs, and of the MLPs only those of the set",
    LOOKUPS: "programs, and MLPs that are tables write what these have for the words at roles",
    SHUFFLED: "each head has the program of another that looks elsewhere",
    RANDOM: "each head has as many rules at random",
    ALL_BOS: "every head looks at the first token",
    COUNTERFACTUAL: "heads attend as on the counterfactual prompt",
    MISPLACED: "from roles heads look where they do on another prompt, in which roles stand elsewhere",
    POSITION_MEAN: "heads attend as on average at this position",
    SHUFFLED_LOOKUPS: "these MLPs write what their tables have for the words of another prompt",
    MEAN_LOOKUPS: "these MLPs write the mean of their tables",
}


_GRADED = ("head", "word", "program", "on", "overlap", "position mean", "BOS", "counterfactual", "change", "moved")


class Grade(Record):
    """How far a program agrees with its head on prompts that it was not fitted to: overlaps (1 - total variation) of
    the program, the mean pattern of each position, all BOS, and on a behaviour's `own` prompts the head's pattern on
    the counterfactual, with the overlap of the `change` between the two and how much of the attention is `moved`.
    """

    on: str
    own: bool
    n: int
    overlap: float
    position_mean: float
    bos: float
    counterfactual: float | None = None
    change: float | None = None
    moved: float | None = None


class AttentionProgram(Record):
    """Where a head looks, as a rule over tokens and positions, the same in `words`, and what such a rule is worth:
    `program` where it beats what reads no tokens and reacts as the head does, else `position only` or `depends on
    context`.
    """

    ABSENT_IF_DEFAULT = ("words",)

    head: str
    program: str
    words: str = ""
    word: Word
    decided_on: str
    grades: tuple[Grade, ...]

    @field_validator("grades")
    @classmethod
    def _decides(cls, grades: tuple[Grade, ...], info: ValidationInfo) -> tuple[Grade, ...]:
        on = info.data.get("decided_on")
        if on is not None and all(grade.on != on for grade in grades):
            raise ValueError(f"no grade is of {quoted(on, 40)}, on which it was decided")
        return grades

    @property
    def decisive(self) -> Grade:
        """The figures that gave the word."""
        return next(grade for grade in self.grades if grade.on == self.decided_on)

    @property
    def elsewhere(self) -> str | None:
        """The figures by which it looks elsewhere than its head does, if it does so."""
        grade = self.decisive
        rival = max(grade.position_mean, grade.bos)
        if grade.overlap >= ELSEWHERE_BELOW * rival:
            return None
        return f"overlap {_two(grade.overlap)}, without tokens {_two(rival)}"

    def line(self, carried: str = "") -> str:
        """The program as a line of the explanation, with what its head carries where that was shown."""
        note = "looks elsewhere" if self.elsewhere else "" if self.word == PROGRAM else self.word
        text = f"{self.head} looks at {self.words or self.program}{f'; it {carried}' if carried else ''}"
        return f"{text}   # {note}" if note else text


class Lookup(Record):
    """An MLP as a table from words to what it writes, alone in the intact model on prompts that did not choose it: `by`
    is the role whose word it is looked up by where the answer is read; at roles it is looked up by the word there.
    `kept` is the share of what its own output has beyond the mean of the table, `shuffled` that with the words of
    other prompts, `needed` what the mean costs of the behaviour. `examples` are words whose entry raises an answer
    most, with that answer.
    """

    mlp: str
    by: str
    kept: Metric
    shuffled: Metric
    needed: Metric
    examples: tuple[tuple[str, str], ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the table stands for the MLP on these prompts too, beyond the words of other prompts."""
        kept, other = self.kept, self.shuffled
        apart = (kept.low or 0.0) > (1.0 if other.high is None else other.high)
        return LOOKS_UP <= (kept.value or 0.0) <= TOO_MUCH and apart and (self.needed.low or 0.0) > 0

    def line(self) -> str:
        """The table as a line of the explanation."""
        shown = ", ".join(f"{word!r} -> {token!r}" for word, token in self.examples)
        note = "" if self.holds else "   # does not hold on held-out prompts"
        end = f"{self.by} at the end{f' ({shown})' if shown else ''}"
        return f"{self.mlp} is a table of the word at a role, and of {end}{note}"


class Rung(Record):
    """One step of the ladder, or a control of it: the share kept on held-out prompts and on other templates, the share
    of right answers, the logits of the right and the wrong answer. `change` is the paired difference to `below`, the
    rung it is compared with; a `fault` says that clearly more is kept than there.
    """

    ABSENT_IF_DEFAULT = ("elsewhere", "below", "change", "change_elsewhere", "fault")

    step: str
    kept: Metric
    elsewhere: Metric | None = None
    top1: Metric
    right: float | None
    wrong: float | None
    below: str | None = None
    change: Metric | None = None
    change_elsewhere: Metric | None = None
    fault: str | None = None

    @field_validator("step")
    @classmethod
    def _is_a_step(cls, step: str) -> str:
        if step not in _MEANINGS:
            raise ValueError(f"{quoted(step, 40)} is no step of a ladder; steps are {choices(_MEANINGS)}")
        return step

    @property
    def meaning(self) -> str:
        """What is replaced."""
        return _MEANINGS[self.step]


class Running(Record):
    """The explanation as a program, and what it keeps. `heads` look as their programs say; of the `mlps` of the set
    `lookups` are tables, and the others run by the model's own weights. `controls` are compared with the rung
    `programs` (those of tables with `lookups`): their `change` is what that keeps beyond them. `given` programs were
    not fitted here. `n_fit` prompts fitted programs and tables; `rows` is the cost in passes.
    """

    ABSENT_IF_DEFAULT = ("given", "lookups")

    heads: tuple[AttentionProgram, ...]
    mlps: tuple[str, ...]
    lookups: tuple[Lookup, ...] = ()
    rungs: tuple[Rung, ...]
    controls: tuple[Rung, ...] = ()
    given: tuple[str, ...] = ()
    n_fit: int
    rows: float = 0.0

    @field_validator("rungs")
    @classmethod
    def _claims_something(cls, rungs: tuple[Rung, ...]) -> tuple[Rung, ...]:
        if len(rungs) < 2 and not any(one.step == PROGRAMS for one in rungs):
            raise ValueError(f"a ladder has the rung {PROGRAMS!r}, or at least two")
        return rungs

    def rung(self, step: str) -> Rung | None:
        """A rung or a control by name."""
        return next((one for one in (*self.rungs, *self.controls) if one.step == step), None)

    def steps(self) -> list[dict[str, Any]]:
        """The rungs in brief: the step, and what it keeps here and on other templates."""
        brief = ({"step": one.step, "kept": one.kept, "elsewhere": one.elsewhere} for one in self.rungs)
        return [{name: part for name, part in one.items() if part is not None} for one in brief]

    @property
    def claimed(self) -> Rung:
        """The last rung that the explanation claims: its score."""
        return self.rung(PROGRAMS) or self.rungs[1]

    @property
    def beaten_by(self) -> list[str]:
        """The controls that the programs do not clearly exceed on held-out prompts."""
        return [one.step for one in self.controls if one.step in DECISIVE and not _above_zero(one.change)]

    @property
    def beaten_elsewhere(self) -> list[str]:
        """The same on other templates; none where there are none."""
        measured = [one for one in self.controls if one.step in DECISIVE and one.elsewhere is not None]
        return [one.step for one in measured if not _above_zero(one.change_elsewhere)]

    @property
    def faults(self) -> list[str]:
        """What the ladder itself shows to be wrong."""
        return [one.fault for one in self.rungs if one.fault]

    def score(self) -> str:
        """What the words keep, in one clause with its figures."""
        count, claimed = len(self.heads), self.claimed
        if self.rung(PROGRAMS) is None:
            return "no head is in the set, so no attention program runs"
        who = f"programs in the place of the attention of {count} head{'s' * (count > 1)}"
        text = f"{who} keep {claimed.kept.text(bars=bars(KEEP))}"
        frozen = self.rung(FROZEN)
        beside = [f"own patterns {_two(frozen.kept.value)}"] if frozen and frozen.kept.value is not None else []
        beside += [
            f"{one.step} {_two(one.kept.value)}"
            for one in self.controls
            if one.step in (SHUFFLED, COUNTERFACTUAL, MISPLACED, POSITION_MEAN) and one.kept.value is not None
        ]
        text += f" ({', '.join(beside)})" if beside else ""
        return text if claimed.elsewhere is None else f"{text}, {claimed.elsewhere.text()} on other templates"

    def doubt(self, keep: float) -> str | None:
        """Why the words do not reproduce the behaviour, where they do not."""
        if self.rung(PROGRAMS) is None:
            return "no attention program stands for it"
        if self.beaten_by:
            return self._no_better()
        if said := self.looks_elsewhere():
            return said
        fault = self.claimed.fault
        if fault:
            return fault
        kept, there = self.claimed.kept, self.claimed.elsewhere
        if kept.value is None or kept.value < keep:
            return f"that is less than {keep:g}"
        if kept.value > TOO_MUCH:
            return "far more than the model itself keeps, so something which hinders is left out"
        if open_still := too_few(kept) or not_as_asked(kept, keep):
            return open_still
        if self.beaten_elsewhere:
            return f"on other templates no more than {self.beaten_elsewhere[0]}"
        least, most = template_bars(keep)
        if there is not None and there.value is not None and not least <= there.value <= most:
            return f"they keep {there.text(bars=(least, most))} on other templates"
        return None

    def looks_elsewhere(self) -> str | None:
        """Which programs look elsewhere than their heads do: the behaviour may not show it, where another head does the
        same, or only tells a later one where to look.
        """
        found = [(one.head, said) for one in self.heads if (said := one.elsewhere)]
        if not found:
            return None
        (head, said), more = found[0], len(found) - 1
        others = f", and so do{'es' * (more == 1)} {more} more" if more else ""
        return f"{head} looks elsewhere than its program says ({said}){others}"

    def _no_better(self) -> str:
        """Why programs that a control equals are not confirmed. Where heads that attend as on the counterfactual keep
        what their own patterns do, no program could be: attention is not what differs.
        """
        rivals = [one for one in self.controls if one.step in self.beaten_by]
        text = f"no more than with {', '.join(f'{one.step} ({_two(one.kept.value or 0.0)})' for one in rivals)}"
        own, other = self.rung(FROZEN), next((one for one in rivals if one.step == COUNTERFACTUAL), None)
        matters = own is not None and (own.kept.low or 0.0) > 0
        if own and other and matters and (other.kept.value or 0.0) >= AS_MUCH * (own.kept.value or 0.0):
            return f"{text}: what differs between the prompts is not where these heads look{self._matters()}"
        return f"{text}, so it is not shown that these heads look where the programs say"

    def _matters(self) -> str:
        """That it matters where the heads look, and that the programs find it, if that is shown."""
        moved = self.rung(MISPLACED)
        if moved is None or MISPLACED in self.beaten_by:
            return ""
        return f"; that it matters where, {MISPLACED} show ({_two(moved.kept.value or 0.0)})"

    def counted(self) -> str:
        """How many heads have which word."""
        words = Counter(one.word for one in self.heads)
        return ", ".join(f"{words[word]} {word}" for word in (PROGRAM, POSITION_ONLY, DEPENDS) if words[word])

    def not_explained(self) -> str:
        """What runs by the model's own weights, or by a program that does not hold."""
        parts = ["what heads read and write", self._of_mlps()]
        without = [one.head for one in self.heads if one.word == DEPENDS]
        if without:
            parts.append(f"why heads attend where they do: {', '.join(without[:5])}{_more(without)}")
        return "; ".join(parts)

    def _of_mlps(self) -> str:
        """The MLPs that run by the model's own weights, and what is kept with those of the set alone."""
        tables = [one.mlp for one in self.lookups if one.holds]
        who = "all MLPs" if not tables else f"all MLPs but {', '.join(tables)}"
        alone = self.rung(NAMED_MLPS)
        if alone is None or not self.mlps:
            return who
        named = f"{', '.join(self.mlps[:5])}{_more(list(self.mlps))}"
        return f"{who} (with those of the set alone, {named}: {alone.kept.text()})"

    def tables(self) -> str:
        """What is kept where MLPs are tables, in one clause with its controls."""
        rung = self.rung(LOOKUPS)
        assert rung is not None
        beside = [
            f"{one.step} {_two(one.kept.value)}"
            for one in self.controls
            if one.step in CONTROLLED and one.kept.value is not None
        ]
        count, held = len(self.lookups), sum(one.holds for one in self.lookups)
        who = f"{count} MLP{'s' * (count > 1)} as table{'s' * (count > 1)}"
        return f"{rung.kept.text()} with {who} ({', '.join(beside)}); {held} of {count} hold alone on held-out prompts"

    def depending(self) -> str:
        """How many heads depend on context, so that no program says where they look; empty where none does."""
        count = sum(one.word == DEPENDS for one in self.heads)
        return f"; {count} head{'s' * (count > 1)} depend{'s' * (count == 1)} on context" if count else ""

    def listing(self, carried: Mapping[str, str] = FrozenDict()) -> str:
        """The program that runs, as lines; `carried` is what components were shown to carry."""
        lines = [one.line(carried.get(one.head, "")) for one in self.heads]
        lines += ["every head of these reads and writes by the model's own weights   # not explained"] * bool(lines)
        lines += [one.line() for one in self.lookups]
        known = {one.mlp for one in self.lookups}
        lines += [carried[one] for one in self.mlps if one in carried and one not in known]
        who = "every other MLP" if self.lookups else "every MLP"
        lines.append(f"{who} computes by the model's own weights   # not explained")
        lines.append("every other head has its value on the counterfactual prompt")
        return "\n".join(lines)

    def sections(self, carried: Mapping[str, str] = FrozenDict()) -> list[Section]:
        """The program, the ladder with its controls, and how each program was graded; `carried` is what
        components were shown to carry.
        """
        facts = [("in words", self.score()), ("not explained", self.not_explained())]
        facts += [("fault of the ladder", fault) for fault in self.faults]
        if self.heads:
            facts.insert(1, ("heads", self.counted()))
        if self.rung(LOOKUPS) is not None:
            facts.insert(2, ("lookups", self.tables()))
        columns = ("step", "kept", "low", "high", "other templates", "change", "right answers", "right", "wrong")
        listing = self.listing(carried)
        return [
            Facts(facts),
            Code(listing, title="The explanation as a program", terminal=6),
            Sheet(columns, [_row(one) for one in self.rungs], title="The ladder", terminal=0, signed=("change",)),
            Sheet(
                columns,
                [_row(one) for one in self.controls],
                title="Controls: other patterns in the place of the programs, other entries in that of tables",
                terminal=0,
                signed=("change",),
            ),
            Text(
                [f"{one.step}: {one.meaning}." for one in (*self.rungs, *self.controls)]
                + ["Change: the paired difference to the rung before; of a control, how much more is kept than by it."],
                bullets=True,
                quiet=True,
                pages_only=True,
            ),
            Sheet(
                _GRADED,
                [
                    (
                        one.head,
                        one.word,
                        one.program,
                        grade.on,
                        grade.overlap,
                        grade.position_mean,
                        grade.bos,
                        grade.counterfactual,
                        grade.change,
                        grade.moved,
                    )
                    for one in self.heads
                    for grade in one.grades
                ],
                title="Attention programs beside what needs no program",
                folded=True,
                terminal=0,
            ),
            *[self._sheet_of_tables()] * bool(self.lookups),
        ]

    def _sheet_of_tables(self) -> Section:
        """How each table was graded."""
        rows = [
            (one.mlp, one.by, one.kept.value, one.kept.low, one.kept.high, one.shuffled.value, one.needed.value)
            for one in self.lookups
        ]
        columns = ("MLP", "looked up by", "kept", "low", "high", "shuffled", "needed")
        return Sheet(columns, rows, title="MLPs as tables, each alone", folded=True, terminal=0)


class Ladder(Answered, ResultDocument, kind="ladder"):
    """The program of an explanation run again in the model's place, on other prompts or with other programs. `before`
    is what it kept in the explanation.
    """

    FILE = LADDER_FILE
    RANK = 76
    COMMAND = VERB = "ladder"
    REMEDY = "run `vesalius ladder` again"

    request: Request
    specimen: str
    behaviour: str
    before: Metric
    running: Running
    seconds: float

    def answered(self) -> Answer:
        """Whether the programs reproduce the behaviour."""
        doubt = self.running.doubt(KEEP)
        if doubt is None:
            return Answer(self.running.score(), "yes")
        nothing = bool(self.running.beaten_by) or self.running.rung(PROGRAMS) is None
        return Answer(f"{self.running.score()}: {doubt}", "no" if nothing else "partly")

    def listed_as(self) -> str:
        """What it is a result of, as lists of results name it."""
        return f"{subject_of(self.specimen, self.behaviour)}, run in its place"

    def view(self) -> View:
        """The answer, what was kept before, the program and the ladder."""
        asked = self.request.command_line() if self.request.specimen else None
        return View(
            f"{subject_of(self.specimen, self.behaviour)}: the explanation run again",
            self.answered(),
            [Facts([("in the explanation", self.before.text())]), *self.running.sections()],
            command=asked,
        )


def with_words(said: Answer, running: Running | None, keep: float, *, says: bool = False) -> Answer:
    """An answer with what the words keep, and how often the model then says the right answer where the answer says it
    of the circuit (`says`). A Yes stays one only where the words keep the share that was asked for.
    """
    if running is None or running.rung(PROGRAMS) is None:
        return said
    doubt = running.doubt(keep)
    count = len(running.heads)
    claimed = running.claimed
    who = f"{count} attention program{'s' * (count > 1)}{running.depending()}"
    text = f"{said.text}; in words ({who}) {claimed.kept.text(bars=bars(keep))}"
    if says and claimed.top1.value is not None:
        text += f", saying the right answer on {claimed.top1.value:.2f}"
    if doubt is None:
        return Answer(text, said.verdict, said.then)
    return Answer(f"{text}: {doubt}", "partly" if said.verdict == "yes" else said.verdict, said.then)


def _row(one: Rung) -> tuple[str | float | None, ...]:
    kept, there, change = one.kept, one.elsewhere, one.change
    return (
        one.step,
        kept.value,
        kept.low,
        kept.high,
        None if there is None else there.value,
        None if change is None else change.value,
        one.top1.value,
        one.right,
        one.wrong,
    )


def _above_zero(change: Metric | None) -> bool:
    return change is not None and change.low is not None and change.low > 0


def _two(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}"


def _more(names: list[str]) -> str:
    return f" and {len(names) - 5} more" if len(names) > 5 else ""
