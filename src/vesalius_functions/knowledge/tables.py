"""Tables of facts: things of one kind with their attributes, relations read off them, and conditions on them.

A `Relation` maps a member of a table to one attribute. A `Condition` says for which members something holds: an
attribute has a value, a number is above or below a bound, the name begins with a letter, or it is one member.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from vesalius.errors import BadInput

Fact = str | float
Test = Literal["is", "above", "below", "begins", "member"]
UNDEFINED = "undefined"
#: The first members of a table are the best known; they are asked first and never kept for tests.
WELL_KNOWN = 6
#: One in this many of the others is kept for tests.
KEPT = 4


@dataclass(frozen=True)
class Table:
    """Things of one kind.

    Args:
        kind: what a member is called, such as `country`.
        rows: each member's attributes; an attribute that a member lacks is not in its row. The best known come first.
        relations: the attributes that functions may ask for, each with a phrase such as "the capital of that country".
        phrases: how a condition on an attribute reads, with `{}` for the value: "the input country is in {}".
        aliases: other names of members.
        source: where the facts are from.
    """

    kind: str
    rows: Mapping[str, Mapping[str, Fact]]
    relations: Mapping[str, str]
    phrases: Mapping[str, str]
    source: str
    aliases: Mapping[str, str] = field(default_factory=dict)
    #: Bounds at which numeric attributes may be cut.
    bounds: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @cached_property
    def _members(self) -> dict[str, str]:
        own = {plain(member): member for member in self.rows}
        return {plain(alias): member for alias, member in self.aliases.items() if member in self.rows} | own

    def member(self, text: str) -> str | None:
        """The member a text names, whatever its case, accents or article."""
        return self._members.get(plain(text))

    @cached_property
    def kept(self) -> frozenset[str]:
        """Members that the built-in interpreter never asks, so that tests can."""
        rest = list(self.rows)[WELL_KNOWN:]
        return frozenset(member for member in rest if sha256(member.encode()).digest()[0] % KEPT == 0)

    @cached_property
    def conditions(self) -> dict["Condition", frozenset[str]]:
        """Every condition that holds for some members and not for all, with those; the plainest kinds come first."""
        candidates: list[Condition] = []
        for attribute in self.phrases:
            values = Counter(row[attribute] for row in self.rows.values() if attribute in row)
            if attribute in self.bounds:
                candidates += [Condition("below", at, attribute) for at in self.bounds[attribute]]
                candidates += [Condition("above", at, attribute) for at in self.bounds[attribute]]
            else:
                candidates += [Condition("is", value, attribute) for value in sorted(values, key=lambda x: -values[x])]
        candidates += [Condition("begins", letter) for letter in sorted({plain(member)[0] for member in self.rows})]
        candidates += [Condition("member", member) for member in self.rows]
        covered = {condition: frozenset(condition.members(self)) for condition in candidates}
        return {one: members for one, members in covered.items() if 0 < len(members) < len(self.rows)}


@dataclass(frozen=True)
class Condition:
    """Something that holds for some members of a table."""

    test: Test
    value: Fact
    attribute: str = ""

    def holds(self, table: Table, member: str) -> bool:
        """Whether it holds for a member."""
        if self.test == "begins":
            return plain(member).startswith(str(self.value))
        if self.test == "member":
            return member == self.value
        fact = table.rows[member].get(self.attribute)
        if self.test == "is":
            return fact == self.value
        if not isinstance(fact, int | float):
            return False
        return fact > float(self.value) if self.test == "above" else fact < float(self.value)

    def members(self, table: Table) -> list[str]:
        """The members it holds for."""
        return [member for member in table.rows if self.holds(table, member)]

    def phrase(self, table: Table) -> str:
        """The condition in words."""
        if self.test == "begins":
            return f"the input begins with {str(self.value).upper()}"
        if self.test == "member":
            return f"the input is {self.value}"
        if self.test == "is":
            return table.phrases[self.attribute].format(self.value)
        side = "more" if self.test == "above" else "less"
        return table.phrases[self.attribute].format(f"{side} than {self.value:,.0f}")

    def data(self) -> dict[str, Any]:
        """As JSON; `read` is the way back."""
        return {"test": self.test, "value": self.value, "attribute": self.attribute}

    @staticmethod
    def read(data: Any) -> "Condition | None":
        """The condition that JSON describes, or None if it describes none."""
        if not isinstance(data, dict) or data.get("test") not in ("is", "above", "below", "begins", "member"):
            return None
        value = data.get("value")
        return Condition(data["test"], value, str(data.get("attribute", ""))) if value is not None else None


@dataclass(frozen=True)
class Relation:
    """From a member of a table to one of its attributes."""

    table: Table
    attribute: str

    @property
    def name(self) -> str:
        """Such as `country -> capital`."""
        return f"{self.table.kind} -> {self.attribute}"

    @property
    def phrases(self) -> tuple[str, str]:
        """What goes in and what comes out, in words."""
        return _article(self.table.kind), self.table.relations[self.attribute]

    @cached_property
    def values(self) -> dict[str, str]:
        """Every member that has the attribute, with it as text."""
        return {
            member: as_text(row[self.attribute]) for member, row in self.table.rows.items() if self.attribute in row
        }

    def value(self, text: str, exception: Condition | None = None) -> str:
        """What the relation gives for an input: `undefined` outside its members and where the exception holds."""
        member = self.table.member(text)
        if member is None or member not in self.values or (exception and exception.holds(self.table, member)):
            return UNDEFINED
        return self.values[member]


def read_table(name: str, relations: Mapping[str, str], phrases: Mapping[str, str], **options: Any) -> Table:
    """A table of our own, `data/NAME.txt`: a line of attribute names, then a line per member; fields may be empty."""
    lines = (Path(__file__).parent / "data" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    (kind, *attributes), *rows = [[part.strip() for part in line.split(";")] for line in lines]
    numeric = set(options.get("bounds", ())) | {"number"}
    facts = {
        member: {
            attribute: float(value) if attribute in numeric else value
            for attribute, value in zip(attributes, values, strict=True)
            if value
        }
        for member, *values in rows
    }
    return Table(kind, facts, relations, phrases, "our own table", **options)


def inverse(table: Table, attribute: str, kind: str, carried: Mapping[str, str], back: str) -> Table:
    """The table of a table's attribute: from a capital back to its country. Values that two members share are left out.

    `carried` maps attributes of the first table, which the new one keeps for conditions, to their phrases; `back`
    words the way back.
    """
    values = Counter(row[attribute] for row in table.rows.values() if attribute in row)
    rows = {
        as_text(row[attribute]): {table.kind: member} | {key: row[key] for key in carried if key in row}
        for member, row in table.rows.items()
        if attribute in row and values[row[attribute]] == 1
    }
    bounds = {key: cuts for key, cuts in table.bounds.items() if key in carried}
    return Table(kind, rows, {table.kind: back}, carried, table.source, bounds=bounds)


@lru_cache(maxsize=100_000)
def plain(text: str) -> str:
    """A text for comparison: lower case, no accents, no article before it, no punctuation around it but a first dot."""
    bare = "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))
    words = re.sub(r"\s+", " ", bare.casefold()).strip(" ,;:!?\"'()").rstrip(".")
    return words.removeprefix("the ") or words


def as_text(fact: Fact) -> str:
    """A fact as a function says it; numbers without needless zeros."""
    return fact if isinstance(fact, str) else f"{fact:g}" if fact != int(fact) else str(int(fact))


def same(one: str, other: str) -> bool:
    """Whether two answers are the same up to case, accents, articles and punctuation at their ends."""
    return plain(one) == plain(other)


def by_name(relations: Iterable[Relation], name: str) -> Relation:
    """The relation of that name."""
    for relation in relations:
        if relation.name == name:
            return relation
    raise BadInput(f"relation {name!r} is in no fact table; see vesalius_functions.relations.inventory()")


def _article(kind: str) -> str:
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"
