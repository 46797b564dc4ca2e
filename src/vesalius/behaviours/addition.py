"""Addition: "3+4+8=" -> 15; sums and differences of two to eight numbers, in one's own range and template.

What is read depends on the tokenizer. Where numbers are single tokens, the answer is one token (`number`). Where digits
are tokens, the prompt ends with all digits of the answer but the last, which is read (`units`); the counterfactual then
has the same leading digits. Both compare the answer with that of the counterfactual. `digits` scores all tokens of the
answer by teacher forcing (log-probability); it has no wrong answer.

Answers lie between 0 and 999, for sums of digits between 10 and 19: there the tens digit gives nothing away. A sum
belongs to train, validation or test by a digest of its operands, and so does its counterfactual.
"""

import hashlib
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from string import Formatter, ascii_lowercase
from typing import Any

from vesalius.behaviours.behaviour import MAKERS, Behaviour, Draw
from vesalius.behaviours.metrics import LOG_PROBABILITY, NONE, TEACHER_FORCED, BehaviourMetric, metric_name
from vesalius.behaviours.prompts import SPLITS, Filled, Material, Prompt, fill, split_index
from vesalius.errors import BadInput, choices
from vesalius.values import JsonObject

# The options of the behaviour `addition`, and how they are spelled.
#
# `addition:signs=-+,high=99,shots=0` spells out options; `Behaviour.addition(signs="-+", high=99, shots=0)` is the
# same.
#
# | option      | meaning                                                                           | default          |
# |-------------|-----------------------------------------------------------------------------------|------------------|
# | `operands`  | how many numbers, 2 to 8                                                          | 3, or by `signs` |
# | `signs`     | `+` or `-` before each number but the first; one sign serves all                  | `+`              |
# | `low, high` | smallest and largest operand                                                      | 0, 9             |
# | `answers`   | smallest and largest answer, `10..19`                                             | see `addition`   |
# | `shots`     | solved sums before the prompt, the same ones for all prompts of a split           | 4                |
# | `template`  | `tight` (`A+B=`), `spaced` (`A + B =`), or a text as `{a} and {b} make {answer}`   | tight or spaced |
# | `change`    | the operand that the counterfactual changes: `a`, `b`, ..., `all`, or each in turn | `balanced`      |
# | `read`      | `number`, `units` or `digits`: see `addition`                                     | number or units  |
# | `keep`      | `right`: experiments use only prompts that the model answers correctly            | `all`            |

NAME = "addition"
NUMBER, UNITS, DIGITS = READS = ("number", "units", "digits")
BALANCED, ALL = "balanced", "all"
TIGHT, SPACED = "tight", "spaced"
KEEPS = ("all", "right")
ANSWER = "answer"
MOST_OPERANDS, MOST_SHOTS, LARGEST = 8, 32, 10**6
Operands = tuple[int, ...]


@dataclass(frozen=True)
class Options:
    """What is asked; see the table above. None stands for what follows from the others or from the tokenizer."""

    operands: int | None = None
    signs: str = "+"
    low: int = 0
    high: int = 9
    answers: tuple[int, int] | None = None
    shots: int = 4
    template: str | None = None
    change: str = BALANCED
    read: str | None = None
    keep: str = "all"

    def __post_init__(self) -> None:
        for name in ("low", "high", "shots"):
            _require_whole(name, getattr(self, name))
        if not isinstance(self.signs, str) or not self.signs or set(self.signs) - set("+-"):
            raise refused("signs", self.signs, "write + or - for each number but the first, such as -+")
        if self.operands is not None:
            _require_whole("operands", self.operands)
            if not 2 <= self.operands <= MOST_OPERANDS:
                raise refused("operands", self.operands, f"choose 2 to {MOST_OPERANDS}")
            if len(self.signs) not in (1, self.operands - 1):
                needed = f"{self.operands - 1} of them, or one for all"
                raise refused("signs", self.signs, f"{self.operands} operands have {needed}")
        elif len(self.signs) >= MOST_OPERANDS:
            raise refused("signs", self.signs, f"at most {MOST_OPERANDS - 1} signs can be read")
        if not 0 <= self.low < self.high <= LARGEST:
            raise refused("low, high", f"{self.low}, {self.high}", f"0 <= low < high <= {LARGEST:,} is needed")
        if not 0 <= self.shots <= MOST_SHOTS:
            raise refused("shots", self.shots, f"choose 0 to {MOST_SHOTS}")
        if self.change not in (BALANCED, ALL, *self.letters):
            raise refused("change", self.change, f"choose {choices((BALANCED, ALL, *self.letters))}")
        if self.read is not None and self.read not in READS:
            raise refused("read", self.read, f"choose {choices(READS)}")
        if self.keep not in KEEPS:
            raise refused("keep", self.keep, f"choose {choices(KEEPS)}")
        least, most = self.range
        if not 0 <= least < most:
            raise refused("answers", f"{least}..{most}", "write two numbers from 0 on, such as 10..19")
        if most < self._least_sum() or least > self._largest_sum():
            reach = f"{self._least_sum()} to {self._largest_sum()}"
            raise refused("answers", f"{least}..{most}", f"operands from {self.low} to {self.high} reach {reach}")
        _check_template(self.template, self.letters)

    @property
    def every_sign(self) -> str:
        """The sign before each number but the first."""
        count = (3 if len(self.signs) == 1 else len(self.signs) + 1) if self.operands is None else self.operands
        return self.signs if len(self.signs) == count - 1 else self.signs * (count - 1)

    @property
    def letters(self) -> str:
        """The operands as a template names them: abc."""
        return ascii_lowercase[: len(self.every_sign) + 1]

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest answer."""
        if self.answers is not None:
            return self.answers
        return (10, 19) if self.high <= 9 and set(self.every_sign) == {"+"} else (0, 999)

    def total(self, operands: Operands) -> int:
        """The answer."""
        signed = zip(f"+{self.every_sign}", operands, strict=True)
        return sum(operand if sign == "+" else -operand for sign, operand in signed)

    def templates(self) -> list[str]:
        """The templates that may be used, the first that the tokenizer can read."""
        if self.template not in (None, TIGHT, SPACED):
            return [self.template if f"{{{ANSWER}}}" in self.template else f"{self.template}{{{ANSWER}}}"]
        first, *others = (f"{{{letter}}}" for letter in self.letters)
        tight = first + "".join(f"{sign}{one}" for sign, one in zip(self.every_sign, others, strict=True))
        spaced = first + "".join(f" {sign} {one}" for sign, one in zip(self.every_sign, others, strict=True))
        made = {TIGHT: f"{tight}={{{ANSWER}}}", SPACED: f"{spaced} = {{{ANSWER}}}"}
        return list(made.values()) if self.template is None else [made[self.template]]

    @property
    def spelling(self) -> str:
        """The behaviour's name: what `parse_options` reads as these options."""
        given = [
            f"{one.name}={f'{value[0]}..{value[1]}' if one.name == 'answers' else value}"
            for one in fields(self)
            if (value := getattr(self, one.name)) != one.default
        ]
        return f"{NAME}:{','.join(given)}" if given else NAME

    def _least_sum(self) -> int:
        return self.total(tuple(self.low if sign == "+" else self.high for sign in f"+{self.every_sign}"))

    def _largest_sum(self) -> int:
        return self.total(tuple(self.high if sign == "+" else self.low for sign in f"+{self.every_sign}"))


def parse_options(spelling: str) -> JsonObject:
    """The options that `addition:signs=-+,high=99` gives, by name. A comma ends a value where an option follows."""
    head, _, rest = spelling.partition(":")
    known = [one.name for one in fields(Options)]
    given: dict[str, object] = {}
    if head != NAME or not rest:
        raise BadInput(f"behaviour {spelling!r}: write {NAME}:OPTION=VALUE,..., such as {NAME}:high=99,shots=0")
    for part in re.split(r",(?=[a-z]+=)", rest):
        name, equals, value = part.partition("=")
        if not equals or name not in known:
            raise BadInput(
                f"behaviour {spelling!r}: {part!r} is no option; there are {choices(known)}, as OPTION=VALUE"
            )
        if name in given:
            raise BadInput(f"behaviour {spelling!r}: {name} is given twice")
        given[name] = _value(name, value)
    return given


def _value(name: str, text: str) -> object:
    """The value of an option as it is written on a command line."""
    if name in ("operands", "low", "high", "shots"):
        if not re.fullmatch(r"-?\d{1,9}", text):
            raise refused(name, text, "write a whole number")
        return int(text)
    if name == "answers":
        if not (match := re.fullmatch(r"(-?\d{1,9})\.\.(-?\d{1,9})", text)):
            raise refused(name, text, "write two numbers, such as 10..19")
        return int(match[1]), int(match[2])
    return text


def refused(name: str, value: object, fix: str) -> BadInput:
    return BadInput(f"behaviour {NAME}: {name}={value} cannot be used; {fix}")


def _require_whole(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise refused(name, repr(value), "give a whole number")


def _check_template(template: str | None, letters: str) -> None:
    if template in (None, TIGHT, SPACED):
        return
    example = f"{TIGHT}, {SPACED} or a text such as '{{a}} plus {{b}} is {{answer}}'"
    if not isinstance(template, str):
        raise refused("template", repr(template), f"give {example}")
    try:
        named = [field for _, field, _, _ in Formatter().parse(template) if field is not None]
    except ValueError as error:
        raise refused("template", repr(template), f"{error}; write {example}") from None
    numbers = [field for field in named if field != ANSWER]
    if sorted(numbers) != list(letters):
        wanted = ", ".join(f"{{{letter}}}" for letter in letters)
        raise refused("template", repr(template), f"it needs {wanted} once each: {example}")
    if ANSWER in named and (named.count(ANSWER) > 1 or not template.endswith(f"{{{ANSWER}}}")):
        raise refused("template", repr(template), "{answer} stands once, at its end")


#: How often operands are drawn for one prompt before another draw begins.
TRIES = 200
#: Sums on which it is tried what the tokenizer does with numbers.
PROBES = 24
#: The share of answers that must be readable; prompts with others are left out.
LEAST_SUITED = 0.25


@dataclass(frozen=True)
class Addition(Behaviour):
    """The behaviour with its options."""

    options: Options = field(default_factory=Options)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.options.read == DIGITS and self.metric is not None and self.metric not in TEACHER_FORCED:
            raise BadInput(
                f"behaviour {NAME}: read=digits scores answers of several tokens, metric {metric_name(self.metric)} "
                f"single ones; choose {choices(TEACHER_FORCED)}, or leave out read=digits"
            )


def addition(*, metric: BehaviourMetric | None = None, **given: Any) -> Addition:
    """The behaviour with some options, by name."""
    known = [one.name for one in fields(Options)]
    if unknown := [name for name in given if name not in known]:
        raise BadInput(f"behaviour {NAME}: option {unknown[0]!r} does not exist; there are {choices(known)}")
    options = Options(**{name: value for name, value in given.items() if value is not None})
    metric = LOG_PROBABILITY if metric is None and options.read == DIGITS else metric
    return Addition(
        options.spelling,
        _description(options),
        partial(_prepare, options=options),
        None if options == Options() else NAME,
        metric=metric,
        only_right=options.keep == "right",
        options=options,
    )


MAKERS[NAME] = addition


def parse_addition(spelling: str) -> Addition:
    """The behaviour that `addition:signs=-+,high=99` stands for."""
    return addition(**parse_options(spelling))


def _description(options: Options) -> str:
    example = _example(options)
    least, most = options.range
    template = options.templates()[0]
    text = fill(template, {**_named(options, example), ANSWER: ""}).text
    kind = "Add numbers" if "-" not in options.every_sign else "Add and subtract numbers"
    shots = f"{options.shots} solved ones first" if options.shots else "nothing before it"
    hint = f" Other sums by options, such as {NAME}:signs=-+,high=99,shots=0." if options == Options() else ""
    return (
        f"{kind} from {options.low} to {options.high}: '{text}' + {options.total(example)}; answers {least} to {most}, "
        f"{shots}.{hint}"
    )


def _example(options: Options) -> Operands:
    rng = random.Random(f"{NAME}/example")
    example = _drawn(rng, options)
    if example is None:
        least, most = options.range
        raise refused("answers", f"{least}..{most}", "operands in this range hardly ever give one; widen it")
    return example


def _named(options: Options, operands: Operands) -> dict[str, str]:
    return {letter: str(operand) for letter, operand in zip(options.letters, operands, strict=True)}


def _drawn(rng: random.Random, options: Options) -> Operands | None:
    """Operands whose answer lies in the range."""
    least, most = options.range
    for _ in range(TRIES):
        operands = tuple(rng.randint(options.low, options.high) for _ in options.letters)
        if least <= options.total(operands) <= most:
            return operands
    return None


def _in_split(operands: Operands, split: str) -> bool:
    digest = hashlib.sha256(",".join(map(str, operands)).encode()).digest()
    return digest[0] % len(SPLITS) == split_index(split)


@dataclass(frozen=True)
class _Form:
    """How prompts are written for one tokenizer: `before` the operands' answer, what the answer begins with, and what
    is read of it.
    """

    before: str
    lead: str
    read: str

    def written(self, options: Options, operands: Operands, given: str) -> Filled:
        """A prompt that ends with the leading digits `given`."""
        text = fill(self.before, _named(options, operands))
        return Filled(text.text + (f"{self.lead}{given}" if given else ""), text.ends)

    def parts(self, answer: int) -> tuple[str, str]:
        """The digits that the prompt gives, and the answer as it continues the prompt."""
        digits = str(answer)
        if self.read != UNITS or len(digits) == 1:
            return "", f"{self.lead}{digits}"
        return digits[:-1], digits[-1]


def _form(material: Material, options: Options) -> _Form:
    """The template and readout that suit most answers with this tokenizer, the first of them where several do."""
    rng = random.Random(f"{NAME}/probes")
    probes = [operands for _ in range(PROBES) if (operands := _drawn(rng, options)) is not None]
    forms = []
    for read in (NUMBER, UNITS) if options.read is None else (options.read,):
        for template in options.templates():
            before = template.removesuffix(f"{{{ANSWER}}}")
            # A space before the answer belongs to it where the tokenizer joins the two.
            forms += [_Form(before.rstrip(" "), " ", read)] if before.endswith(" ") else []
            forms.append(_Form(before, "", read))
    suited = [sum(_readable(material, options, form, operands) for operands in probes) for form in forms]
    if max(suited) < LEAST_SUITED * len(probes):
        what = "its tokens do not follow those of" if options.read == DIGITS else "it is not one token after"
        fix = "choose another template" if options.read == DIGITS else "try read=digits or another template"
        raise BadInput(
            f"behaviour {material.behaviour}: with this tokenizer of {material.tokenizer.size} tokens the answer "
            f"cannot be read: {what} the prompt; {fix}"
        )
    return forms[suited.index(max(suited))]


def _readable(material: Material, options: Options, form: _Form, operands: Operands) -> bool:
    """Whether the operands and the answer of a prompt have tokens of their own."""
    given, answer = form.parts(options.total(operands))
    text = form.written(options, operands, given)
    try:
        tokens = material.tokenizer.encode(text.text)
        longer = material.tokenizer.encode(text.text + answer)
        ends = [material.tokenizer.encode(text.text[: text.ends[letter]]) for letter in options.letters]
    except BadInput:  # not in the vocabulary
        return False
    added = len(longer) - len(tokens)
    continues = longer[: len(tokens)] == tokens and all(end == tokens[: len(end)] for end in ends)
    separate = len({len(end) for end in ends}) == len(ends)
    if form.read == DIGITS:  # a space that is a token of its own belongs to the prompt
        return continues and separate and 0 < added <= len(answer.strip())
    return continues and separate and added == 1


def _prepare(material: Material, *, options: Options) -> Draw:
    form = _form(material, options)
    shots = _shots(material, options, form)

    def draw(rng: random.Random, index: int) -> Prompt | None:
        operands = _drawn(rng, options)
        if operands is None or operands in shots or not _in_split(operands, material.split):
            return None
        other = _changed(rng, options, operands, index, split=material.split, units=form.read == UNITS)
        if other is None or not all(_readable(material, options, form, one) for one in (operands, other)):
            return None
        answer, wrong = options.total(operands), options.total(other)
        given, correct = form.parts(answer)
        prefix = "".join(f"{shot}\n" for shot in shots.values())
        clean, counterfactual = (
            Filled(prefix + text.text, {letter: len(prefix) + end for letter, end in text.ends.items()})
            for text in (form.written(options, one, given) for one in (operands, other))
        )
        roles = {f"operand {letter.upper()}": letter for letter in options.letters}
        if form.read != DIGITS:
            return material.prompt(clean, counterfactual, correct=correct, wrong=form.parts(wrong)[1], roles=roles)
        return _forced(material, clean, counterfactual, correct, roles)

    return draw


@dataclass(frozen=True)
class Sums:
    """Sums of one split as texts, for those who choose the operands themselves. Answers are single tokens."""

    material: Material
    options: Options
    form: _Form
    shots: Mapping[Operands, str]

    @classmethod
    def of(cls, material: Material, options: Options) -> "Sums":
        """The sums that the behaviour's prompts consist of; refuses answers that are read in parts."""
        form = _form(material, options)
        if form.read != NUMBER:
            raise refused("read", form.read, "here the answer has to be one token, as with read=number")
        return cls(material, options, form, _shots(material, options, form))

    def draw(self, rng: random.Random) -> Operands | None:
        """Operands of this split whose answer can be read."""
        operands = _drawn(rng, self.options)
        return operands if operands is not None and self.allows(operands) else None

    def allows(self, operands: Operands) -> bool:
        """Whether a sum belongs to the split, and its operands and answer have tokens of their own."""
        least, most = self.options.range
        inside = least <= self.options.total(operands) <= most and operands not in self.shots
        return inside and _in_split(operands, self.material.split) and self._readable(operands)

    def _readable(self, operands: Operands) -> bool:
        return _readable(self.material, self.options, self.form, operands)

    def text(self, operands: Operands) -> Filled:
        """The prompt, and where each operand ends."""
        prefix = "".join(f"{shot}\n" for shot in self.shots.values())
        text = self.form.written(self.options, operands, "")
        return Filled(prefix + text.text, {letter: len(prefix) + end for letter, end in text.ends.items()})

    def spelled(self, answer: object) -> str:
        """An answer as it continues the prompt."""
        return f"{self.form.lead}{answer}"


def _shots(material: Material, options: Options, form: _Form) -> Mapping[Operands, str]:
    """Solved sums of the split, each with its text."""
    rng, shots = random.Random(f"{NAME}/shots/{material.split}"), {}
    for _ in range(TRIES * max(1, options.shots)):
        if len(shots) == options.shots:
            break
        operands = _drawn(rng, options)
        if operands is not None and _in_split(operands, material.split):
            written = replace(form, read=NUMBER)
            shots[operands] = written.written(options, operands, str(options.total(operands))).text
    return shots


def _changed(
    rng: random.Random, options: Options, operands: Operands, index: int, *, split: str, units: bool
) -> Operands | None:
    """The counterfactual's operands: another answer, of the same leading digits where only the last one is read."""
    letters = options.letters
    which = letters[index % len(letters)] if options.change == BALANCED else options.change
    places = range(len(letters)) if which == ALL else [letters.index(which)]
    answer, (least, most) = options.total(operands), options.range
    for _ in range(TRIES):
        other = list(operands)
        for place in places:
            other[place] = rng.randint(options.low, options.high)
        total = options.total(tuple(other))
        differs = all(other[place] != operands[place] for place in places) and total != answer
        fits = least <= total <= most and (not units or total // 10 == answer // 10)
        if differs and fits and _in_split(tuple(other), split):
            return tuple(other)
    return None


def _forced(
    material: Material, clean: Filled, counterfactual: Filled, correct: str, roles: Mapping[str, str]
) -> Prompt | None:
    """A prompt whose answer is scored token by token."""
    aligned = material.aligned(clean, counterfactual, roles)
    if aligned is None:
        return None
    tokens, other, places = aligned
    longer = material.tokenizer.encode(clean.text + correct)
    answer = longer[len(tokens) :]
    if longer[: len(tokens)] != tokens or not answer:
        return None
    forced = tuple(answer) if len(answer) > 1 else ()
    return Prompt(tuple(tokens), tuple(other), answer[0], NONE, places, clean.text, forced=forced)


ADDITION = addition()
