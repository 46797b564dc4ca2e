"""Cases run in processes of their own, a few at a time, on this machine.

`map_cases` is the whole interface: a function, cases, and out come pairs of (case, result or `Failure`) in the order in
which they finish. Another engine only has to give the same pairs.

Each worker is a fresh process with one thread, so results do not depend on how many there are. A worker that dies takes
one case with it; the case is tried once more, in a new worker, and then counts as a failure. Workers do not hear
Ctrl-C: the parent does, and ends them. A worker whose parent was killed ends with its case.
"""

import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Literal, TypeVar

from vesalius.errors import BadInput, Failed

Case = TypeVar("Case")
Result = TypeVar("Result")
#: What a case may end with; anything else ends its worker, which counts as well.
WORK_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    NameError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
TRIES = 2
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Failure:
    """Why a case has no result: its input was refused, its work could not be done or broke, its worker was killed."""

    kind: Literal["refused", "failed", "broke", "killed"]
    reason: str


def map_cases(
    work: Callable[[Case], Result], cases: Sequence[Case], *, jobs: int = 2
) -> Generator[tuple[Case, Result | Failure]]:
    """Run `work` on every case in `jobs` processes; pairs come as they finish. `work` is a function of some module."""
    if jobs < 1:
        raise BadInput(f"jobs={jobs} would do nothing; at least 1 process is needed")
    waiting = deque((case, 1) for case in cases)
    workers = [_Worker(work) for _ in range(min(jobs, len(waiting)))]
    try:
        while waiting or any(worker.busy for worker in workers):
            for worker in workers:
                if waiting and not worker.busy:
                    worker.give(*waiting.popleft())
            for worker in _ready(workers):
                case, tries = worker.take()
                answer = worker.answer()
                if isinstance(answer, Failure) and answer.kind == "killed":
                    workers[workers.index(worker)] = _Worker(work)
                    if tries < TRIES:
                        waiting.append((case, tries + 1))
                        continue
                yield case, answer
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """One process and the case it has."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        with _deaf_to_interrupts():
            self.process.start()
        theirs.close()
        self._held: tuple[Any, int] | None = None
        self._send(work)

    @property
    def busy(self) -> bool:
        return self._held is not None

    def give(self, case: Any, tries: int) -> None:
        self._held = case, tries
        self._send(case)

    def take(self) -> tuple[Any, int]:
        """The case that was given, which is the worker's no longer."""
        assert self._held is not None
        held, self._held = self._held, None
        return held

    def answer(self) -> Any:
        """What the worker says, or that it died."""
        try:
            return self.pipe.recv()
        except (EOFError, OSError):  # it ended before or in the middle of its answer
            self.process.join()
            code = self.process.exitcode or 0
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            return Failure("killed", f"its process ended with {how}, {TRIES} times")

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()

    def _send(self, what: Any) -> None:
        try:
            self.pipe.send(what)
        except ConnectionError:
            return  # dead already, which `answer` will say


def _ready(workers: Sequence[_Worker]) -> list[_Worker]:
    busy = {worker.pipe: worker for worker in workers if worker.busy}
    return [busy[pipe] for pipe in wait(list(busy)) if isinstance(pipe, Connection)]


def _serve(pipe: Connection) -> None:
    """A worker's life: take the work, then case after case until the parent hangs up."""
    for name in _THREADS:
        os.environ[name] = "1"
    try:
        work = pipe.recv()  # imports what the work needs, after the number of threads is set
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)
        while True:
            pipe.send(_attempt(work, pipe.recv()))
    except (EOFError, ConnectionError):
        return


def _attempt(work: Callable[[Any], Any], case: Any) -> Any:
    try:
        return work(case)
    except BadInput as error:
        return Failure("refused", str(error))
    except Failed as error:
        return Failure("failed", str(error))
    except WORK_ERRORS as error:
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        place = f"{os.path.basename(where.tb_frame.f_code.co_filename)}:{where.tb_lineno}" if where else "?"
        return Failure("broke", f"{type(error).__name__} at {place}: {error}")


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """A process started in here never sees Ctrl-C; one that comes in the meantime reaches this process afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
