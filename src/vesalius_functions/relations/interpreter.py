"""The built-in interpreter of relation functions: which kind of input, which attribute, and where it is undefined.

1. Ask a few members of every kind; the relation whose table agrees best with the replies is the first guess.
2. Ask the members of that kind, guess again, and go on until the guess stays.
3. Among members that should have an answer and have none, look for the condition that best sets them apart.

It chooses among the relations and conditions of the fact tables, the same ones our own functions are made of; `without`
takes relations away, to see what it does with one it does not know. Members kept for tests are never asked.
"""

import math
import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from vesalius_functions.box import Answer, Box
from vesalius_functions.knowledge.geography import inventory
from vesalius_functions.knowledge.tables import UNDEFINED, Condition, Relation, Table, same

#: Members asked of every kind at first: the best known, and others at random.
FIRST_KNOWN, FIRST_OTHERS = 3, 5
#: They are asked again, other ones, until a few had an answer.
ROUNDS, FEWEST_ANSWERS = 4, 3
#: Members asked of the kind that was guessed.
MOST_MEMBERS = 320
#: A relation is named if it agrees with this share of the answers.
AGREES = 0.85
#: What an answer of `undefined` counts against a relation that has one: it may be an exception.
SILENCE = 0.3
#: An exception holds for members of which at least this share has no answer; no rate is nearer to 1 than the second.
MOSTLY, NEVER_SURE = 0.7, 0.995


@dataclass
class Notebook:
    """What the function replied; None for `undefined`."""

    box: Box
    replies: dict[str, str | None] = field(default_factory=dict)

    def ask(self, items: Iterable[str], most: int) -> None:
        """Ask up to `most` items not yet asked, as far as the budget goes."""
        new = [item for item in dict.fromkeys(items) if item not in self.replies]
        new = new[: most if self.box.left is None else min(most, self.box.left)]
        for item, reply in zip(new, self.box.ask(new) if new else [], strict=True):
            text = "" if reply.error or reply.value is None else str(reply.value)
            self.replies[item] = None if not text.strip() or same(text, UNDEFINED) else text

    def answers(self) -> int:
        """How many replies were not `undefined`."""
        return sum(reply is not None for reply in self.replies.values())

    def agreement(self, relation: Relation) -> float:
        """Answers that the relation predicts, less those it does not, less silence where it has an answer."""
        total = 0.0
        for item, reply in self.replies.items():
            expected = relation.value(item)
            if reply is None:
                total -= SILENCE * (expected != UNDEFINED)
            else:
                total += 1 if same(reply, expected) else -1
        return total

    def share(self, relation: Relation) -> float:
        """The share of the answers that the relation predicts."""
        answers = [(item, reply) for item, reply in self.replies.items() if reply is not None]
        return sum(same(reply, relation.value(item)) for item, reply in answers) / max(len(answers), 1)

    def answered(self, table: Table) -> float:
        """Answers for members of a table, less answers for other things and members without one."""
        total = 0.0
        for item, reply in self.replies.items():
            inside = table.member(item) is not None
            total += (1 if inside else -1) if reply is not None else -SILENCE * inside
        return total


def interpret(box: Box, *, seed: int = 0, without: Collection[str] = ()) -> Answer:
    """Name the relation and its exception, with at most about 600 queries or what the budget has left.

    `without` are names of relations (`country -> capital`) that the interpreter shall not know.
    """
    known = [relation for relation in inventory() if relation.name not in set(without)]
    tables = _tables(inventory())
    rng = random.Random(f"relations/probes/{seed}")
    notebook = Notebook(box)
    for _ in range(ROUNDS):
        for table in tables:
            members = _open(table)
            notebook.ask([*members[:FIRST_KNOWN], *rng.sample(members, FIRST_OTHERS)], FIRST_KNOWN + FIRST_OTHERS)
        if notebook.answers() >= FEWEST_ANSWERS:
            break
    swept: list[str] = []
    table, rule = _guess(notebook, known, tables)
    while table.kind not in swept and len(swept) < 3:
        swept.append(table.kind)
        members = _open(table)
        notebook.ask(rng.sample(members, len(members)), MOST_MEMBERS)
        table, rule = _guess(notebook, known, tables)
    return _answer(notebook, table, rule, _exception(notebook, table, rule))


def _tables(relations: Sequence[Relation]) -> list[Table]:
    return list({relation.table.kind: relation.table for relation in relations}.values())


def _open(table: Table) -> list[str]:
    """The members that may be asked."""
    return [member for member in table.rows if member not in table.kept]


def _guess(notebook: Notebook, known: Sequence[Relation], tables: Sequence[Table]) -> tuple[Table, Relation | None]:
    """The relation that agrees best, or only the kind of input if none agrees."""
    best = max(known, key=notebook.agreement)
    if notebook.share(best) >= AGREES:
        return best.table, best
    return max(tables, key=notebook.answered), None


def _exception(notebook: Notebook, table: Table, rule: Relation | None) -> Condition | None:
    """The condition that best tells the members without an answer from the others; the plainest of equals.

    It has to be more likely than chance by more than the number of conditions tried, and to hold mostly for members
    without an answer: some of the silence may be errors.
    """
    members = frozenset(item for item in notebook.replies if item in (rule.values if rule else table.rows))
    silent = frozenset(item for item in members if notebook.replies[item] is None)
    if not silent or silent == members:
        return None
    if len(silent) == 1:
        return Condition("member", next(iter(silent)))
    chance = _likelihood(len(silent), len(members)) + math.log(len(table.conditions))
    merits: dict[Condition, float] = {}
    for condition, covered in table.conditions.items():
        inside = members & covered
        if len(inside & silent) >= MOSTLY * len(inside) > 0:
            outside = members - covered
            likelihood = _likelihood(len(inside & silent), len(inside)) + _likelihood(
                len(outside & silent), len(outside)
            )
            merits[condition] = likelihood - chance
    best = max(merits, key=lambda condition: merits[condition], default=None)
    return best if best is not None and merits[best] > 0 else None


def _likelihood(silent: int, members: int) -> float:
    """The log-likelihood of so many silent members at their own rate, which is never quite 0 or 1."""
    rate = min(max(silent / members, 1 - NEVER_SURE), NEVER_SURE) if members else NEVER_SURE
    return silent * math.log(rate) + (members - silent) * math.log(1 - rate)


def _answer(notebook: Notebook, table: Table, rule: Relation | None, exception: Condition | None) -> Answer:
    what = f"{'an' if table.kind[0] in 'aeiou' else 'a'} {table.kind}"
    examples = [f"{item} -> {reply}" for item, reply in notebook.replies.items() if reply is not None][:5]
    shown = "; ".join(examples) or "nothing"
    if rule:
        description_text = f"The input is {what}, the output is {rule.phrases[1]}."
        share = notebook.share(rule)
        description_text += f" This holds for {share:.0%} of the answers seen." if share < 1 else ""
    else:
        description_text = f"The input is {what}; no known relation gives the outputs ({shown})."
    domain = f"The output is {UNDEFINED} if the input is not {what}"
    domain += f", and if {exception.phrase(table)}." if exception else "."
    return Answer(
        description=description_text,
        domain=domain,
        structure={
            "kind": table.kind,
            "rule": rule.name if rule else None,
            "exception": exception.data() if exception else None,
            "examples": examples,
        },
        interpreter="builtin",
        queries=notebook.box.asked,
    )
