"""The options of the behaviour `addition`, and how they are spelled.

`addition:signs=-+,high=99,shots=0` spells out options; `Behaviour.addition(signs="-+", high=99, shots=0)` is the same.

| option      | meaning                                                                           | default          |
|-------------|-----------------------------------------------------------------------------------|------------------|
| `operands`  | how many numbers, 2 to 8                                                          | 3, or by `signs` |
| `signs`     | `+` or `-` before each number but the first; one sign serves all                  | `+`              |
| `low, high` | smallest and largest operand                                                      | 0, 9             |
| `answers`   | smallest and largest answer, `10..19`                                             | see `addition`   |
| `shots`     | solved sums before the prompt, the same ones for all prompts of a split           | 4                |
| `template`  | `tight` (`A+B=`), `spaced` (`A + B =`), or a text as `{a} and {b} make {answer}`   | tight or spaced |
| `change`    | the operand that the counterfactual changes: `a`, `b`, ..., `all`, or each in turn | `balanced`      |
| `read`      | `number`, `units` or `digits`: see `addition`                                     | number or units  |
| `keep`      | `right`: experiments use only prompts that the model answers correctly            | `all`            |
"""

import re
from dataclasses import dataclass, fields
from string import Formatter, ascii_lowercase
from typing import Any

from vesalius.errors import BadInput, choices

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


def parse_options(spelling: str) -> dict[str, Any]:
    """The options that `addition:signs=-+,high=99` gives, by name. A comma ends a value where an option follows."""
    head, _, rest = spelling.partition(":")
    known = [one.name for one in fields(Options)]
    given: dict[str, Any] = {}
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


def _value(name: str, text: str) -> Any:
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


def refused(name: str, value: Any, fix: str) -> BadInput:
    return BadInput(f"behaviour {NAME}: {name}={value} cannot be used; {fix}")


def _require_whole(name: str, value: Any) -> None:
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
