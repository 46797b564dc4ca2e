"""Cases on a Ray cluster: the one that RAY_ADDRESS names, else one that is started on this machine.

The same pairs as the local engine gives, for the same ledger: only this process writes it. Workers on other machines
need the run directory and the specimens at the same paths, because they write their records of calls there. A Ray
worker has threads, so nothing is ever forked in it: the sandbox executes its own process. Each try is one Ray task that
Ray itself does not repeat; a worker that dies takes one case with it, which is tried once more and then counts as a
failure.
"""

import logging
import os
from collections.abc import Callable, Generator, Iterable
from typing import Any

from vesalius.errors import BadInput
from vesalius.runs.engine import THREADS, TRIES, Case, Failure, Queue, Result, attempt, require_jobs

ADDRESS = "RAY_ADDRESS"


def map_cases(
    work: Callable[[Case], Result], cases: Iterable[Case], *, jobs: int = 2
) -> Generator[tuple[Case, Result | Failure]]:
    """The Ray engine: at most `jobs` cases at a time, anywhere on the cluster."""
    require_jobs(jobs)
    ray = _ray()
    ours = not ray.is_initialized()
    if ours:
        _connect(ray, jobs)
    remote = ray.remote(num_cpus=1, max_retries=0)(attempt)
    queue, running = Queue(cases), {}
    try:
        while True:
            while len(running) < jobs and (given := queue.next()) is not None:
                running[remote.remote(work, given[0])] = given
            if not running:
                return
            for done in ray.wait(list(running), num_returns=1)[0]:
                case, tries = running.pop(done)
                answer = _answer(ray, done)
                if isinstance(answer, Failure) and answer.kind == "killed" and queue.again(case, tries):
                    continue
                yield case, answer
    finally:
        for task in running:
            ray.cancel(task, force=True)
        if ours:
            ray.shutdown()


def require_installed() -> None:
    """Refuse in one line where Ray is not installed."""
    _ray()


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise BadInput('engine ray: ray is not installed; run: pip install "vesalius[ray]"') from None
    return ray


def _connect(ray: Any, jobs: int) -> None:
    one_thread = {"env_vars": dict.fromkeys(THREADS, "1")}
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False, "runtime_env": one_thread}
    if not os.environ.get(ADDRESS):
        options |= {"num_cpus": jobs, "include_dashboard": False}
    try:
        ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInput(f"engine ray: no cluster at {os.environ.get(ADDRESS) or 'this machine'} ({why})") from None


def _answer(ray: Any, task: Any) -> Any:
    """What a task says, or that its worker died."""
    try:
        return ray.get(task)
    except ray.exceptions.RayTaskError as error:
        return Failure("broke", str(error.cause or error).splitlines()[0])
    except ray.exceptions.RayError as error:
        return Failure("killed", f"its Ray worker ended ({type(error).__name__}), {TRIES} times")
