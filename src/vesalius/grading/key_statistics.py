"""What the answer key of the 84 circuits consists of, counted: circuits, components and tags."""

from collections import Counter
from dataclasses import dataclass, field

from vesalius.circuits.key import all_tasks, answer
from vesalius.components import Component


@dataclass(frozen=True)
class TagStatistics:
    """The components of one tag: how many, on which kinds of component, and from which RASP expressions."""

    count: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    expressions: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class KeyStatistics:
    """Components per circuit, in the order of ids, and the components of each tag."""

    sizes: tuple[int, ...]
    heads: int
    tags: dict[str, TagStatistics]

    @property
    def components(self) -> int:
        """The components of all circuits."""
        return sum(self.sizes)


def key_statistics() -> KeyStatistics:
    """Count what the key has."""
    sizes, heads = [], 0
    counts: Counter[str] = Counter()
    kinds: dict[str, Counter[str]] = {}
    expressions: dict[str, Counter[str]] = {}
    for task in all_tasks():
        tags = {part.id: str(part.tag) for part in answer(task.id).components}
        place = {variable: str(component) for component, variables in task.components for variable in variables}
        sizes.append(len(tags))
        for component, tag in tags.items():
            is_head = Component.parse(component).is_head
            heads += is_head
            counts[tag] += 1
            kinds.setdefault(tag, Counter())["ATTN" if is_head else "MLP"] += 1
        for placed in task.program().components:
            tag = tags[place[placed.variables[0]]]
            expressions.setdefault(tag, Counter()).update(type(node).__name__ for node in placed.expressions)
    by_tag = {tag: TagStatistics(count, kinds[tag], expressions[tag]) for tag, count in counts.most_common()}
    return KeyStatistics(tuple(sizes), heads, by_tag)
