"""What the codes of variables stand for, and the names of the tables over them.

Tables hold codes; names speak of values. The codes of tokens, positions, counts, shares and copies stand for values.
Those of a table stand for the values of its own name where it has one, for labels otherwise: classes are never ordered
or added up.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vesalius.rasp.draft import UNDEFINED
from vesalius.rasp.naming.operation import Label, Operation, compiled, evaluate
from vesalius.rasp.naming.table import name_table

#: Larger tables are shown, not named: the search for a name would take longer than the explanation.
MOST_ENTRIES = 3000

Codes = tuple[int, ...]


class Same(dict[int, Any]):
    """Codes that are their own values."""

    def __missing__(self, code: int) -> int:
        return code


class Labels(dict[int, Any]):
    """Codes that are only labels, but for those that are listed."""

    def __missing__(self, code: int) -> Label:
        return Label(code)


class Scaled(dict[int, Any]):
    """Codes that are values times a scale."""

    def __init__(self, scale: int) -> None:
        super().__init__()
        self.scale = scale

    def __missing__(self, code: int) -> float:
        return code / self.scale


@dataclass(frozen=True)
class Standing:
    """The operation of every table that has a name (for a head: of the positions it looks up), and what the codes of
    each variable stand for. Variables are named in order, arguments before tables.
    """

    operations: dict[str, Operation] = field(default_factory=dict)
    values: dict[str, Mapping[int, Any]] = field(default_factory=dict)

    def name(
        self,
        name: str,
        reads: Sequence[str],
        codes: Mapping[Codes, int],
        *,
        occurring: Collection[Codes] = (),
        outputs: Mapping[Hashable, Any] | None = None,
    ) -> None:
        """Name a table over the variables `reads`; its codes then stand for the values of the name, or for labels.

        `occurring` lists arguments that count as legal, `outputs` says what each class stands for where that is known.
        """
        self.values.setdefault(name, Labels())
        if any(read not in self.values for read in reads) or len(codes) > MOST_ENTRIES:
            return
        entries: dict[tuple[Any, ...], int] = {}
        for arguments, label in codes.items():
            if entries.setdefault(self._key(reads, arguments), label) != label:
                return  # two codes with the same value
        known = outputs if outputs is not None and set(entries.values()) <= set(outputs) else None
        legal = [self._key(reads, arguments) for arguments in occurring]
        operation = name_table(entries, values=known, legal=legal)
        if operation is None:
            return
        self.operations[name] = operation
        function = compiled(operation.formula, len(reads))
        values: dict[int, Any] = {}
        for key, label in entries.items():
            if None not in key:
                values[label] = evaluate(function, key)
            elif operation.undefined == "apart":
                values[label] = None
        self.values[name] = Labels(values)

    def name_route(self, name: str, reads: Sequence[str], positions: Mapping[Codes, int]) -> None:
        """Name the table of positions that a head looks up by the variables `reads`, where it has a name."""
        if any(read not in self.values for read in reads):
            return
        entries = {self._key(reads, codes): to for codes, to in positions.items() if UNDEFINED not in codes}
        operation = name_table(entries, values={to: to for to in entries.values()})
        if operation is not None and operation.exact == "values":
            self.operations[name] = operation

    def _key(self, reads: Sequence[str], codes: Codes) -> tuple[Any, ...]:
        return tuple(
            None if code == UNDEFINED else self.values[read][code] for read, code in zip(reads, codes, strict=True)
        )
