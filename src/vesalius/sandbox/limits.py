"""What one call may use, and what it returns."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from vesalius.errors import BadInput

#: Why a call did not run to its end, measured from outside. "output": it printed, or wrote to files, far too much.
StoppedBy = Literal["cpu", "wall", "output", "crash"]
#: The refusal that a program's error names. "processes": it asked for a second process or thread.
ReportedLimit = Literal["memory", "processes"]

#: A program that prints this many times `Limits.output_bytes` is stopped.
MAX_OUTPUT_FACTOR = 16


@dataclass(frozen=True)
class Limits:
    """What one call may use. It is always one process with one thread, without a network."""

    #: Whole seconds, the resolution of the kernel's limit.
    cpu_seconds: int = 20
    wall_seconds: float = 60.0
    #: Address space in addition to what the warm process, with its model, already has.
    memory_bytes: int = 1 << 30
    #: What is kept of stdout and stderr together; the rest is dropped, and far more than this stops the program.
    output_bytes: int = 64_000
    #: The largest result that is returned unchanged.
    result_bytes: int = 1_000_000
    file_bytes: int = 16 << 20
    #: All files of the private scratch directory together.
    scratch_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise BadInput(f"sandbox limit {field.name} is {value}; it must be above 0")
        if self.cpu_seconds != int(self.cpu_seconds):
            raise BadInput(f"sandbox limit cpu_seconds is {self.cpu_seconds}; give whole seconds")


@dataclass(frozen=True)
class Outcome:
    """What one program did. `result`, `error` and `reported_limit` come from the program; the other fields are measured
    outside.
    """

    #: JSON values; a large tensor or array becomes its shape and a summary, anything else its bounded repr.
    result: Any = None
    #: What it printed, stdout and stderr together, cut after `Limits.output_bytes`.
    stdout: str = ""
    #: The traceback, trimmed to the lines of the program, or why there is no result. None on success.
    error: str | None = None
    stopped_by: StoppedBy | None = None
    #: Which refusal its error names, in its own words; a program can say so without having met it.
    reported_limit: ReportedLimit | None = None
    #: Wall time from the fork to the end.
    seconds: float = 0.0
    #: CPU time of the program, and of the warm process for it.
    cpu_seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the program ended by itself and assigned `result`."""
        return self.error is None and self.stopped_by is None


@dataclass(frozen=True)
class CallResult:
    """What a function returned for one input: a value, or why there is none."""

    value: Any = None
    error: str | None = None
    stopped_by: StoppedBy | None = None
    reported_limit: ReportedLimit | None = None

    @property
    def ok(self) -> bool:
        """Whether there is a value."""
        return self.error is None
