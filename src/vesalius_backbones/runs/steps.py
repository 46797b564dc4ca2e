"""Steps of a run that asks language models: its limits, how a case reaches a model, and one cap for all of them.

When the spending cap is reached the run stops; with a higher cap the same command continues.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypedDict, Unpack

from vesalius.options import TIMEOUT, Spend
from vesalius.runs.directory import CALLS, SPENDING, Run
from vesalius.runs.engine import Engine
from vesalius.runs.ledger import LedgerState
from vesalius.runs.steps import ScoredSteps
from vesalius.sandbox.command import NOTHING, Grants
from vesalius_backbones import CapReached, SpendingCap, open_backbone
from vesalius_backbones.runs.access import ModelAccess, SpendingFile, booked


@dataclass(frozen=True)
class RunLimits:
    """What may change when a run is resumed: the results do not depend on it."""

    max_cost: float | None = None
    sandbox_unsafe: bool = False
    #: Seconds to wait for an answer of a language model.
    timeout: float = TIMEOUT
    #: Where the scientist's language model is served, if not at its provider.
    base_url: str | None = None
    #: What foreign programs are given.
    grants: Grants = NOTHING

    def __post_init__(self) -> None:
        if self.max_cost is not None:
            SpendingCap(self.max_cost)  # refuses a cap that buys nothing

    @classmethod
    def of(cls, spend: Spend, *, base_url: str | None = None) -> "RunLimits":
        """The limits that options state."""
        return cls(spend.max_cost, spend.unsafe_sandbox, spend.timeout, base_url, Grants(**spend.granted))

    def as_data(self) -> dict[str, Any]:
        """The limits as run.json holds them."""
        limits = {"max_cost": self.max_cost, "sandbox_unsafe": self.sandbox_unsafe, "timeout": self.timeout}
        return limits if self.base_url is None else {**limits, "base_url": self.base_url}

    def check_models(self, models: Iterable[str], prices: str | None) -> None:
        """Refuse an unknown provider, a missing key or package, or a price that the cap needs, before work begins; the
        first model is the one at `base_url`, if there is one.
        """
        for number, model in enumerate(models):
            address = None if number else self.base_url
            open_backbone(model, base_url=address, prices=prices, cap=self.max_cost, timeout=self.timeout).close()


class AskingOptions(TypedDict, total=False):
    """How a benchmark is run, whatever its cases are; `replayed` is an earlier run whose records answer all calls."""

    limits: RunLimits | None
    engine: Engine | None
    replayed: Path | None


class AskingSteps(ScoredSteps):
    """The part of a benchmark that knows how its cases ask language models."""

    ENDING: ClassVar[frozenset[str]] = frozenset({CapReached.kind})

    def __init__(
        self, run: Run, state: LedgerState, *, prices: str | None = None, **options: Unpack[AskingOptions]
    ) -> None:
        super().__init__(run, state, engine=options.get("engine"))
        self.limits, self._prices = options.get("limits") or RunLimits(), prices
        self._replayed = options.get("replayed")

    def _reach(self, model: str, case: str, role: str = "") -> ModelAccess:
        """How a case reaches a model, and where its calls are recorded."""
        access = ModelAccess(
            model,
            self.run.calls_path(case, role),
            prices=self._prices,
            cap=self.limits.max_cost,
            cap_file=self.run.directory / SPENDING,
            timeout=self.limits.timeout,
        )
        if self._replayed is None:
            return access
        calls = (self._replayed / CALLS / access.calls.name).resolve()
        return replace(access, calls=calls, cap=None, cap_file=None, replay=True)

    def _open_cap(self) -> None:
        """Start the cap's counter from what the records say, where there is a cap."""
        if self.limits.max_cost is not None:
            calls = sorted((self.run.directory / CALLS).glob("*.jsonl"))
            SpendingFile(self.run.directory / SPENDING).begin({path.name: booked(path) for path in calls})
