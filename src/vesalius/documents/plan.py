"""What work will cost, before it is done: of one command, and of the cells of a survey."""

from vesalius.documents.base import Record
from vesalius.documents.view import Answer, Facts, Sheet, View, Viewable, duration, prompts


class Plan(Viewable, Record, kind="plan"):
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

    def view(self) -> View:
        """Passes, memory and time."""
        fits = self.fits is not False or self.free_bytes is None
        memory = f"about {self.peak_bytes / 2**20:,.0f} MB on {self.device}"
        free = "" if fits else f"; does not fit: {(self.free_bytes or 0) / 2**20:,.0f} MB are free"
        assumed = ", which is assumed: a tokenizer and --behaviour would tell" if self.tokens_assumed else ""
        passes = f"{self.forwards:.1f} passes of {prompts(self.n)}{self.further_passes()}"
        time = (
            f"about {duration(self.seconds)}, from {self.timed} that was timed; nothing else was run"
            if fits
            else "not estimated, since it does not fit; nothing was run"
        )
        return View(
            f"Plan of {self.command}",
            Answer(f"Plan of {self.command}: {passes}, {memory}{free}, about {self.seconds:.1f} s"),
            [
                Sheet(("figure", "value"), list(self.as_data().items()), pages_only=True),
                Facts(
                    [
                        ("passes", f"{passes}, of {self.tokens} tokens{assumed}"),
                        ("memory", f"{memory}{free}"),
                        ("time", time),
                    ]
                ),
            ],
        )


class CellPlan(Record):
    """What one cell of a survey takes at most; None where that cannot be said, with the reason as `error`."""

    model: str
    behaviour: str
    forwards: float | None
    peak_bytes: int | None
    seconds: float | None
    error: str | None


class SurveyPlan(Viewable, Record):
    """What a survey takes at most: its cells, the passes and seconds of all, and the largest peak of memory."""

    cells: tuple[CellPlan, ...]
    forwards: float
    peak_bytes: int
    seconds: float

    def view(self) -> View:
        """Every cell, then all of them."""
        unknown = sum(cell.error is not None for cell in self.cells)
        rest = f"; {unknown} of them cannot be planned" if unknown else ""
        rows = [tuple(cell.as_data().values()) for cell in self.cells]
        columns = tuple(CellPlan.model_fields)
        many = "s" * (len(self.cells) != 1)
        return View(
            "Plan of a survey",
            Answer(
                f"Plan of a survey of {len(self.cells)} cell{many}, at most about {self.seconds:.1f} s one after the "
                f"other and {self.peak_bytes / 2**20:,.0f} MB{rest}; nothing was run but one timed chunk of each"
            ),
            [Sheet(columns, rows)],
        )
