"""What work will cost, before it is done: of one command, and of the cells of a survey."""

from vesalius.documents.base import Keyed, Record
from vesalius.documents.views import Row, Viewable


class Plan(Viewable, Keyed, kind="plan"):
    """What a command will cost.

    `forwards` are passes of all `n` prompts (of `tokens` each), without the `checks_forwards` of a discovery's checks
    and what is taken at most by cutting the circuit (`select_forwards`) and by the search for rivals
    (`rivals_forwards`). `peak_bytes` is memory at the peak, of which `weight_bytes` are the weights; `fits` says
    whether what is not loaded yet fits into `free_bytes` (None where the system does not say). `seconds` are estimated
    from what was `timed`. `tokens_assumed`: the length of prompts is a guess.
    """

    command: str
    forwards: float
    peak_bytes: int
    weight_bytes: int
    seconds: float
    timed: str
    n: int
    tokens: int
    checks_forwards: float
    rivals_forwards: float = 0.0
    select_forwards: float = 0.0
    device: str
    free_bytes: int | None = None
    fits: bool | None = None
    tokens_assumed: bool = False

    def further_passes(self) -> str:
        """What comes on top of the passes of a discovery, in words."""
        passes = f" and {self.checks_forwards:.1f} for the checks" if self.checks_forwards else ""
        passes += f", at most {self.select_forwards:.1f} for the selection" if self.select_forwards else ""
        return passes + (f", at most {self.rivals_forwards:,.0f} for the rivals" if self.rivals_forwards else "")

    def _summary(self) -> str:
        fits = ""
        if self.fits is False and self.free_bytes is not None:
            fits = f" (does not fit: {self.free_bytes / 2**20:,.0f} MB are free)"
        return (
            f"Plan of {self.command}: {self.forwards:.1f} passes of {self.n} prompts{self.further_passes()}, about "
            f"{self.peak_bytes / 2**20:,.0f} MB on {self.device}{fits}, about {self.seconds:.1f} s"
        )

    def _rows(self) -> list[Row]:
        return [{"figure": name, "value": value} for name, value in self.as_data().items()]


class CellPlan(Record):
    """What one cell of a survey takes at most; None where that cannot be said, with the reason as `error`."""

    model: str
    behaviour: str
    forwards: float | None
    peak_bytes: int | None
    seconds: float | None
    error: str | None


class SurveyPlan(Viewable, Keyed):
    """What a survey takes at most: its cells, the passes and seconds of all, and the largest peak of memory."""

    cells: tuple[CellPlan, ...]
    forwards: float
    peak_bytes: int
    seconds: float

    def _summary(self) -> str:
        unknown = sum(cell.error is not None for cell in self.cells)
        rest = f"; {unknown} of them cannot be planned" if unknown else ""
        return (
            f"Plan of a survey of {len(self.cells)} cells: at most about {self.seconds:.1f} s one after the other and "
            f"{self.peak_bytes / 2**20:,.0f} MB{rest}"
        )

    def _rows(self) -> list[Row]:
        return [cell.as_data() for cell in self.cells]
