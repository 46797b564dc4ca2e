"""Cases run somewhere else, a few at a time; here, in processes of this machine.

An engine is one function: work, cases, how many at a time, and out come pairs of (case, result or `Failure`) in the
order in which they finish. Cases are taken one by one as workers become free, so the caller can stop supplying them,
and a case may follow from an earlier result: None in place of a case says that there is none before another one has
finished.
`local` is below, `ray_engine` is the other one; `engine_named` finds them. `in_process` runs cases one after the other
in this process, with all its threads, where no engine is asked for.

Each worker is a fresh process with one thread, so results do not depend on how many there are. They are forks of one
process that is executed, not forked, and has made the imports that take seconds; it ends with its parent. A worker that
dies takes one case with it; the case is tried once more, in a new worker, and then counts as a failure. Workers do not
hear Ctrl-C: the parent does, and ends them. A worker whose parent was killed is killed by the kernel (on Linux;
elsewhere it ends with its case).
"""

import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Generic, Protocol, TypeVar

from vesalius.errors import BadInput, Failed, choices, raised_where
from vesalius.private import secrets_of
from vesalius.progress import REPLICA
from vesalius.sandbox.kernel import die_with_parent

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
USUAL_JOBS = 2
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
START_METHOD = "spawn" if sys.platform == "win32" else "forkserver"
#: Imported before workers are forked, where this process has imported torch as well. None of them starts a thread.
PRELOADED: tuple[str, ...] = ("torch", "vesalius.intervene")


@dataclass(frozen=True)
class Failure:
    """Why a case has no result: its input was `refused`, its work `failed` or `broke`, its worker was `killed`.

    A failure that names its own kind, such as `rate_limited`, keeps it.
    """

    kind: str
    reason: str


class Engine(Protocol):
    """What runs cases: pairs come as they finish. `work` is a function of some module, found there by name."""

    def __call__(
        self, work: Callable[[Case], Result], cases: Iterable[Case], *, jobs: int = 2
    ) -> Generator[tuple[Case, Result | Failure]]: ...


#: Where each engine is; imported when it is asked for.
ENGINES = {"local": "vesalius.runs.engine:map_cases", "ray": "vesalius.runs.ray_engine:map_cases"}


def engine_named(name: str) -> Engine:
    """The engine of that name, if what it needs is installed."""
    if name not in ENGINES:
        raise BadInput(f"engine {name!r} does not exist; use {choices(ENGINES)}")
    place, _, function = ENGINES[name].partition(":")
    module = import_module(place)
    getattr(module, "require_installed", lambda: None)()
    return getattr(module, function)


def chosen_engine(name: str | None, jobs: int | None) -> tuple[Engine, int]:
    """The engine that the options of a call name, and how many cases it runs at a time: none asked for is this process;
    jobs alone are local processes.
    """
    if jobs is not None:
        require_jobs(jobs)
    if name is None and jobs is None:
        return in_process, 1
    return engine_named(name or "local"), jobs or USUAL_JOBS


def in_process(
    work: Callable[[Case], Result], cases: Iterable[Case], *, jobs: int = 1
) -> Generator[tuple[Case, Result | Failure]]:
    """No engine: one case after the other, here."""
    for case in cases:
        if case is not None:
            yield case, outcome(work, case)


def gpus_of(case: object) -> int:
    """How many GPUs the model of a case is on; 0 for cases that do not say."""
    return int(getattr(case, "gpus", 0))


class Queue(Generic[Case]):
    """Cases waiting for a worker, those that are to be tried again last."""

    def __init__(self, cases: Iterable[Case]) -> None:
        self._fresh = iter(cases)
        self._again: deque[tuple[Case, int]] = deque()

    def next(self) -> tuple[Case, int] | None:
        """The next case and the number of this try, or None for now."""
        case = next(self._fresh, None)
        if case is not None:
            return case, 1
        return self._again.popleft() if self._again else None

    def again(self, case: Case, tries: int) -> bool:
        """Put a case whose worker died back, if it was not tried often enough."""
        if tries < TRIES:
            self._again.append((case, tries + 1))
        return tries < TRIES


def map_cases(
    work: Callable[[Case], Result], cases: Iterable[Case], *, jobs: int = 2
) -> Generator[tuple[Case, Result | Failure]]:
    """The local engine: `jobs` processes of this machine."""
    require_jobs(jobs)
    queue = Queue(cases)
    workers: list[_Worker[Case, Result]] = []
    try:
        while _deal(queue, workers, work, jobs):
            for worker in _ready(workers):
                case, tries = worker.take()
                answer = worker.answer()
                if isinstance(answer, Failure) and answer.kind == "killed":
                    workers.remove(worker)
                    if queue.again(case, tries):
                        continue
                yield case, answer
    finally:
        for worker in workers:
            worker.end()


def require_jobs(jobs: int) -> None:
    """Refuse to run nothing at a time."""
    if jobs < 1:
        raise BadInput(f"jobs={jobs} would do nothing; at least 1 process is needed")


def _deal(
    queue: Queue[Case], workers: "list[_Worker[Case, Result]]", work: Callable[[Case], Result], jobs: int
) -> bool:
    """Give every free worker a case, starting up to `jobs` workers; whether any worker has one now."""
    while True:
        free = next((worker for worker in workers if not worker.busy), None)
        if free is None and len(workers) >= jobs:
            return True
        given = queue.next()
        if given is None:
            return any(worker.busy for worker in workers)
        if free is None:
            taken = {worker.number for worker in workers}
            free = _Worker(work, next(number for number in range(jobs) if number not in taken))
            workers.append(free)
        free.give(*given)


class _Worker(Generic[Case, Result]):
    """One process and the case it has; `number` is its place among those that work at the same time."""

    def __init__(self, work: Callable[[Case], Result], number: int = 0) -> None:
        self.number = number
        context = multiprocessing.get_context(START_METHOD)
        if START_METHOD == "forkserver":
            context.set_forkserver_preload(list(PRELOADED if "torch" in sys.modules else ()))
        self.pipe, theirs = context.Pipe()
        environment = {**os.environ, REPLICA: str(number)}
        self.process = context.Process(target=_serve, args=(theirs, environment), daemon=True)
        with _one_thread(), _deaf_to_interrupts():
            self.process.start()
        theirs.close()
        self._held: tuple[Case, int] | None = None
        self._send(work)

    @property
    def busy(self) -> bool:
        return self._held is not None

    def give(self, case: Case, tries: int) -> None:
        self._held = case, tries
        self._send(case)

    def take(self) -> tuple[Case, int]:
        """The case that the worker holds; it is taken back."""
        assert self._held is not None
        held, self._held = self._held, None
        return held

    def answer(self) -> Result | Failure:
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

    def _send(self, what: object) -> None:
        try:
            self.pipe.send(what)
        except ConnectionError:
            return  # dead already, which `answer` will say


def _ready(workers: "Sequence[_Worker[Case, Result]]") -> "list[_Worker[Case, Result]]":
    busy = {worker.pipe: worker for worker in workers if worker.busy}
    return [busy[pipe] for pipe in wait(list(busy)) if isinstance(pipe, Connection)]


def _serve(pipe: Connection, environment: dict[str, str]) -> None:
    """A worker's life: take the work, then case after case until the parent hangs up.

    The environment is the parent's of now: what forks this process may be older.
    """
    held = getattr(forkserver._forkserver, "_forkserver_alive_fd", None)
    if held is not None:  # the process that forked this one would live as long as this is open anywhere
        os.close(held)
    if sys.platform == "linux":
        die_with_parent()
        parent = multiprocessing.parent_process()
        if parent is None or not parent.is_alive():  # it was killed before the kernel knew
            return
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # the older process may have been started elsewhere
    os.environ.clear()
    os.environ.update(environment | dict.fromkeys(THREADS, "1"))
    try:
        work = pipe.recv()  # imports what the work needs, after the number of threads is set
        while True:
            pipe.send(attempt(work, pipe.recv()))
    except (EOFError, ConnectionError):
        return


def attempt(work: Callable[[Case], Result], case: Case) -> Result | Failure:
    """The result of a case, or what kept it from having one; torch works with one thread."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    return outcome(work, case)


def outcome(work: Callable[[Case], Result], case: Case) -> Result | Failure:
    """The result of a case, or what kept it from having one."""
    try:
        return work(case)
    except BadInput as error:
        return Failure("refused", str(error))
    except Failed as error:
        return Failure(getattr(error, "kind", "failed"), str(error))
    except WORK_ERRORS as error:
        return Failure("broke", raised_where(error))


@contextmanager
def no_secrets() -> Iterator[dict[str, str]]:
    """A process executed in here has no secret in its environment, which stays readable under `/proc`; gives what was
    hidden. Workers are told the environment through their pipe.
    """
    hidden = secrets_of(os.environ)
    for name in hidden:
        del os.environ[name]
    try:
        yield hidden
    finally:
        os.environ.update(hidden)


@contextmanager
def _one_thread() -> Iterator[None]:
    """A process started in here has one thread in every library."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """A process started in here never sees Ctrl-C; one that comes in the meantime reaches this process afterwards."""
    with no_secrets():
        resource_tracker.ensure_running()  # which unblocks the signal when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        if START_METHOD == "forkserver":
            with no_secrets():
                forkserver.ensure_running()
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
