"""Functions that map a thing to a fact about it, some of them with an exception where they say `undefined`.

A suite of 75 has 25 relations, each once as it is and twice with an exception, side by side, so that any first part of
it is mixed alike.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vesalius.errors import BadInput
from vesalius_functions.answer import Mode
from vesalius_functions.box import Category, Reply
from vesalius_functions.knowledge.inventory import inventory
from vesalius_functions.knowledge.mapping import Mapper, ModelMapper, TableMapper
from vesalius_functions.knowledge.models import Model
from vesalius_functions.knowledge.tables import Condition, Relation
from vesalius_functions.unit_tests import UnitTest

#: An exception covers at least this many members that are asked and that are kept for tests, and at most this share.
FEWEST_ASKED, FEWEST_KEPT, LARGEST_SHARE = 3, 2, 0.4
#: How often an exception is of each kind, where the table offers it.
KINDS = {"is": 5, "above": 1, "below": 1, "begins": 2, "member": 1}

Pair = tuple[str, str]


@dataclass(frozen=True)
class RelationFunction:
    """A text to a text. `relation` and `exception` are its truth where a fact table covers it; `phrases` always are."""

    id: str
    mapper: Mapper
    #: What goes in, what comes out, and where it is undefined, in words.
    phrases: tuple[str, str, str | None]
    relation: Relation | None = None
    exception: Condition | None = None
    mode: Mode = "fixed"
    triplets: tuple[UnitTest, ...] = ()
    hints: tuple[str, ...] = ()
    category: Category = "relations"

    @property
    def family(self) -> str:
        """`relation` or `exception`."""
        return "exception" if self.phrases[2] else "relation"

    def truth(self) -> dict[str, Any]:
        """The rule, its exception, and who answers."""
        what, result, exception = self.phrases
        return {
            "rule": self.relation.name if self.relation else None,
            "input": what,
            "output": result,
            "exception": self.exception.data() if self.exception else None,
            "exception_text": exception,
            "backbone": self.mapper.name,
            "mode": self.mode,
        }

    def answered_by(self, backbone: Model) -> "RelationFunction":
        """The same function with this language model behind it."""
        return replace(self, mapper=ModelMapper(backbone, *self.phrases, mode=self.mode))

    def replies(self, inputs: Sequence[Any], *, first_call: int = 0) -> list[Reply]:
        """One text per input. `first_call` does not matter: nothing here is random."""
        return self.mapper.map(inputs)


def sample(count: int, *, seed: int, mode: Mode = "fixed", backbone: Model | None = None) -> list[RelationFunction]:
    """Functions from our fact tables; after the last relation they start again in another order, with new exceptions.

    Args:
        count: how many; the first of a longer draw are the same.
        seed: chooses relations and exceptions.
        mode: `published` keeps blanks around a language model's replies; fact tables answer alike in both.
        backbone: a language model that answers in place of the tables.
    """
    if count < 0:
        raise BadInput(f"count {count}: give 0 or more functions")
    rng = random.Random(f"relations/{seed}")
    drawn = _draws(rng)
    return [_function(f"f{i:05d}", *next(drawn), mode=mode, backbone=backbone) for i in range(count)]


def exceptions(relation: Relation) -> list[Condition]:
    """The conditions that may corrupt a relation: neither a hair nor half of it, and with members kept for tests."""
    values, kept = set(relation.values), relation.table.kept
    drawn_conditions = []
    for condition, covered in relation.table.conditions.items():
        members = covered & values
        if condition.test == "member":
            fits = len(members) == 1 and not members & kept
        else:
            fits = len(members - kept) >= FEWEST_ASKED and len(members & kept) >= FEWEST_KEPT
        if fits and len(members) <= LARGEST_SHARE * len(values):
            drawn_conditions.append(condition)
    return drawn_conditions


def _draws(rng: random.Random) -> Iterator[tuple[Relation, Condition | None]]:
    while True:
        order = list(inventory())
        rng.shuffle(order)
        for relation in order:
            yield relation, None
            for exception in _two(exceptions(relation), rng):
                yield relation, exception


def _two(offered: Sequence[Condition], rng: random.Random) -> list[Condition]:
    """Two different exceptions, the kind of each drawn first."""
    chosen: list[Condition] = []
    while len(chosen) < 2:
        kinds = sorted({condition.test for condition in offered if condition not in chosen})
        kind = rng.choices(kinds, [KINDS[kind] for kind in kinds])[0]
        chosen.append(rng.choice([one for one in offered if one.test == kind and one not in chosen]))
    return chosen


def _function(
    name: str, relation: Relation, exception: Condition | None, *, mode: Mode, backbone: Model | None
) -> RelationFunction:
    what, result = relation.phrases
    exception_text = exception.phrase(relation.table) if exception else None
    mapper = ModelMapper(backbone, what, result, exception_text, mode) if backbone else TableMapper(relation, exception)
    return RelationFunction(name, mapper, (what, result, exception_text), relation, exception, mode)
