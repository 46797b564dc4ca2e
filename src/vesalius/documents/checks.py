"""The checks of a discovered circuit: is it faithful, stable and specific, and are its heads known ones?

`vesalius.discovery` makes them; these are the results, each with its interval and its control. A check that could not
be made is None, and `missing` says why.
"""

from pydantic import Field

from vesalius.documents.base import Record
from vesalius.documents.frozen import FrozenDict, FrozenMap
from vesalius.documents.guarantee import Guarantee
from vesalius.documents.views import Row, Viewable


class Curve(Record):
    """Faithfulness by circuit size, and its areas with 95 % bootstrap intervals over the prompts.

    `shares` are the sizes as parts of all candidates; `full` and `ablated` the mean scores of the model and of nothing;
    `forwards` the work in forward passes of all `n` prompts.
    """

    sizes: tuple[int, ...]
    shares: tuple[float, ...]
    faithfulness: tuple[float, ...]
    cmd: float
    cmd_low: float
    cmd_high: float
    cpr: float
    cpr_low: float
    cpr_high: float
    full: float
    ablated: float
    unit: str
    n: int
    forwards: float


class Stability(Record):
    """Mean Jaccard index over pairs of resamples; `low` and `high` hold the middle 95 % of the pairs.

    `top` is the size of the circuits (their mean size where it was left open), `inclusion` the share of resamples whose
    circuit holds each item, `chance` the mean index of random circuits of `top` among `items`.
    """

    value: float
    low: float
    high: float
    top: int
    items: int
    resamples: int
    chance: float
    inclusion: tuple[float, ...]


class Drop(Record):
    """What cutting the heads costs, as a share of `clean` with a 95 % interval; `random` is the same for random heads.

    None where the model does not perform the behaviour.
    """

    clean: float
    drop: float | None
    low: float | None
    high: float | None
    random: float | None
    n: int


class Specificity(Record):
    """Costs of cutting a circuit's heads: for its own behaviour, for the others by name, and for text (None: no
    corpus). `ratio` is the own drop over `others_mean`.
    """

    heads: tuple[str, ...]
    own: Drop
    others: FrozenMap[str, Drop]
    text: Drop | None
    others_mean: float | None
    ratio: float | None


class Overlap(Record):
    """Of `chosen` heads out of `candidates`, `both` are among the `known` ones.

    `share` is the part of the chosen that is known, `expected` the same for heads drawn at random, `p` the chance that
    a random draw holds as many or more (hypergeometric).
    """

    both: tuple[str, ...]
    chosen: int
    known: int
    candidates: int
    share: float
    expected: float
    p: float


class DetectedHeads(Overlap):
    """Overlap with the heads that their attention pattern alone identifies; `flagged` lists those by role."""

    flagged: FrozenMap[str, tuple[str, ...]] = Field(default_factory=FrozenDict)


class KnownHeads(Overlap):
    """Overlap with published heads; `roles` is what the publication calls those in both."""

    roles: FrozenMap[str, str | None] = Field(default_factory=FrozenDict)
    source: str


class Checks(Viewable, Record):
    """All checks of one discovery.

    `size` components (or heads) count as the circuit where a check needs one. `n` of the `asked` held-out prompts were
    there. `heads_only`: the method searched no MLPs, and the curves keep them. `rows` is the work in forward passes of
    one prompt.
    """

    size: int
    n: int
    asked: int
    heads_only: bool = False
    faithfulness: Curve | None = None
    faithfulness_random: Curve | None = None
    edge_faithfulness: Curve | None = None
    stability: Stability | None = None
    guarantee: Guarantee | None = None
    specificity: Specificity | None = None
    detectors: DetectedHeads | None = None
    known_heads: KnownHeads | None = None
    missing: FrozenMap[str, str] = Field(default_factory=FrozenDict)
    rows: float = 0.0
    seconds: float

    @property
    def metrics(self) -> dict[str, float]:
        """One figure per check, where there is one."""
        figures = {
            "cmd": self.faithfulness and self.faithfulness.cmd,
            "cpr": self.faithfulness and self.faithfulness.cpr,
            "edge_cmd": self.edge_faithfulness and self.edge_faithfulness.cmd,
            "edge_cpr": self.edge_faithfulness and self.edge_faithfulness.cpr,
            "jaccard": self.stability and self.stability.value,
            "guaranteed_answers": self.guarantee and self.guarantee.answers and self.guarantee.answers.low,
            "guaranteed_kept": self.guarantee and self.guarantee.kept and self.guarantee.kept.low,
            "specificity": self.specificity and self.specificity.ratio,
            "detectors": self.detectors and self.detectors.share,
            "known_heads": self.known_heads and self.known_heads.share,
        }
        return {name: value for name, value in figures.items() if value is not None}

    def _summary(self) -> str:
        figures = [
            f"{row['check']} {row['value']:.3g}"
            + ("" if row["control"] is None else f" (control {row['control']:.3g})")
            for row in self._rows()
            if row["value"] is not None
        ]
        missing = f"; not measured: {', '.join(self.missing)}" if self.missing else ""
        return f"checks on {self.n} held-out prompts: {', '.join(figures) or 'none'}{missing}"

    def _rows(self) -> list[Row]:
        """One row per figure: value, interval, and what a control gives."""
        rows: list[Row] = []
        for prefix, curve, control in (
            ("", self.faithfulness, self.faithfulness_random),
            ("edge_", self.edge_faithfulness, None),
        ):
            if curve is not None:
                rows.append(_row(f"{prefix}cmd", curve.cmd, curve.cmd_low, curve.cmd_high, control and control.cmd))
                rows.append(_row(f"{prefix}cpr", curve.cpr, curve.cpr_low, curve.cpr_high, control and control.cpr))
        if (stable := self.stability) is not None:
            rows.append(_row("jaccard", stable.value, stable.low, stable.high, stable.chance))
        if self.specificity is not None:
            rows.append(_row("specificity", self.specificity.ratio, None, None, 1.0))
        for name, overlap in (("detectors", self.detectors), ("known_heads", self.known_heads)):
            if overlap is not None:
                rows.append(_row(name, overlap.share, None, None, overlap.expected))
        return rows


def _row(check: str, value: float | None, low: float | None, high: float | None, control: float | None) -> Row:
    return {"check": check, "value": value, "low": low, "high": high, "control": control}
