"""Which functions: drawn afresh by seed, or those of a published dataset folder.

The reported suite has 1,000 numeric and 1,000 string functions, 200 entities and 75 relations, all drawn under `SEED`.
Nothing was tuned on it. A shorter draw under a seed is the beginning of a longer one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from vesalius.errors import BadInput, choices
from vesalius.functions.answer import Mode
from vesalius.functions.box import Function
from vesalius.functions.categories import SUITE, Rooms, category
from vesalius.functions.unit_tests import UnitTest

SEED = 2309
MODES: tuple[Mode, ...] = ("fixed", "published")
MOST = 20_000


@dataclass(frozen=True)
class Suite:
    """A choice of functions. `count` None means all: as many as the reported suite has, or the whole dataset."""

    category: str
    seed: int = SEED
    count: int | None = None
    mode: Mode = "fixed"
    dataset: str | None = None

    def __post_init__(self) -> None:
        if self.category not in SUITE:
            raise BadInput(f"category {self.category!r} does not exist; choose one of {choices(SUITE)}")
        if self.mode not in MODES:
            raise BadInput(f"mode {self.mode!r} does not exist; choose one of {choices(MODES)}")
        if self.count is not None and not 1 <= self.count <= MOST:
            raise BadInput(f"count {self.count}: give between 1 and {MOST} functions")
        if self.seed < 0:
            raise BadInput(f"seed {self.seed}: give 0 or more")
        if self.dataset is not None and not Path(self.dataset).is_dir():
            raise BadInput(f"dataset {self.dataset}: no such directory")

    @property
    def rooms(self) -> Rooms:
        """The category's package."""
        return category(self.category)

    def functions(self) -> Sequence[Function]:
        """The functions; made once per process."""
        return _made(self)

    def unit_tests(self, function: Function) -> Sequence[UnitTest]:
        """The unit tests of one of its functions; none where the category has none."""
        make = getattr(self.rooms, "unit_tests", None)
        return [] if make is None else make(function, seed=self.seed)


@lru_cache(maxsize=2)
def _made(suite: Suite) -> Sequence[Function]:
    if suite.dataset is None:
        return suite.rooms.sample(suite.count or SUITE[suite.category], seed=suite.seed, mode=suite.mode)
    found = suite.rooms.load_published(Path(suite.dataset), mode=suite.mode)
    if not found:
        raise BadInput(f"dataset {suite.dataset}: holds no {suite.category} function that can be run")
    return found[: suite.count]
