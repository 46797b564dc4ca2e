"""Cases on a Ray cluster: the one that RAY_ADDRESS names, else one that is started on this machine.

The same pairs as the local engine gives, for the same ledger: only this process writes it. Workers on other machines
need the run directory and the specimens at the same paths, because they write their records of calls there. A Ray
worker has threads, so nothing is ever forked in it: the sandbox executes its own process. Each try is one Ray task that
Ray itself does not repeat; a worker that dies takes one case with it, which is tried once more and then counts as a
failure. A case that says how many GPUs its model is on (`gpus`) is a task that asks for as many, so that replicas stand
on GPUs of their own, on whatever node has them.

A Ray that is started here has no key in the environment of any of its processes, which stays readable under `/proc` and
which whatever they start inherits; a task brings the keys along. A cluster that was there before has its own.
"""

import logging
import os
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Generic

from vesalius.errors import BadInput, Failed
from vesalius.runs.engine import (
    THREADS,
    TRIES,
    Case,
    Failure,
    Queue,
    Result,
    attempt,
    gpus_of,
    no_secrets,
    require_jobs,
)

ADDRESS = "RAY_ADDRESS"


@dataclass(frozen=True)
class WithSecrets(Generic[Case, Result]):
    """Work in a process that was started without the secrets of this one's environment."""

    work: Callable[[Case], Result]
    secrets: Mapping[str, str] = field(repr=False)

    def __call__(self, case: Case) -> Result:
        """The work on a case, with the secrets in the memory of the process."""
        os.environ.update(self.secrets)
        return self.work(case)


def map_cases(
    work: Callable[[Case], Result], cases: Iterable[Case], *, jobs: int = 2
) -> Generator[tuple[Case, Result | Failure]]:
    """The Ray engine: at most `jobs` cases at a time, anywhere on the cluster."""
    require_jobs(jobs)
    ray = _ray()
    ours = not ray.is_initialized()
    with_keys = WithSecrets(work, _connect(ray, jobs)) if ours else work
    remote = ray.remote(num_cpus=1, max_retries=0)(attempt)
    queue, running = Queue(cases), {}
    try:
        while True:
            while len(running) < jobs and (given := queue.next()) is not None:
                running[_submitted(ray, remote, with_keys, given[0])] = given
            if not running:
                return
            for done in ray.wait(list(running), num_returns=1)[0]:
                case, tries = running.pop(done)
                answer = _answer(ray, done)
                if isinstance(answer, Failure) and answer.kind == "killed" and queue.again(case, tries):
                    continue
                yield case, answer
    except (ConnectionError, ray.exceptions.RayError) as error:
        raise Failed(f"engine ray: the cluster was lost ({_first_line(error)}); the same command continues") from None
    finally:
        if ray.is_initialized():
            for task in running:
                ray.cancel(task, force=True)
        if ours:
            ray.shutdown()


def _submitted(ray: ModuleType, remote: Any, work: Callable[[Case], Result], case: Case) -> object:
    """The task of a case, on as many GPUs as its model is on."""
    gpus = gpus_of(case)
    if not gpus:
        return remote.remote(work, case)
    most = max((node.get("Resources", {}).get("GPU", 0) for node in ray.nodes() if node.get("Alive")), default=0)
    if most < gpus:
        raise BadInput(
            f"engine ray: the model is on {gpus} GPU{'s' if gpus > 1 else ''} and no node of the cluster has more than "
            f"{most:g}; start nodes with --num-gpus, or give another --device"
        )
    return remote.options(num_gpus=gpus).remote(work, case)


def require_installed() -> None:
    """Refuse in one line where Ray is not installed."""
    _ray()


def _ray() -> ModuleType:
    try:
        import ray
    except ImportError:
        raise BadInput('engine ray: ray is not installed; run: pip install "vesalius[ray]"') from None
    return ray


def _connect(ray: ModuleType, jobs: int) -> dict[str, str]:
    """Join the cluster that is named, or start one; the secrets that the processes of the latter do not have."""
    one_thread = {"env_vars": dict.fromkeys(THREADS, "1")}
    options: dict[str, object] = {"logging_level": logging.ERROR, "log_to_driver": False, "runtime_env": one_thread}
    try:
        if os.environ.get(ADDRESS):
            ray.init(**options)
            return {}
        with no_secrets() as hidden:
            # "local": not one that somebody else started on this machine, which Ray would join.
            ray.init("local", **options, num_cpus=jobs, include_dashboard=False)
            return hidden
    except Exception as error:  # Ray raises many kinds, bare ones among them, where a part of it does not start
        ray.shutdown()
        where = os.environ.get(ADDRESS)
        what = f"no cluster at {where}" if where else "Ray did not start on this machine"
        raise BadInput(f"engine ray: {what} ({_first_line(error)}); take --engine local, or see `ray status`") from None


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _answer(ray: ModuleType, task: object) -> Any:
    """What a task says, or that its worker died."""
    try:
        return ray.get(task)
    except ray.exceptions.RayTaskError as error:
        return Failure("broke", _first_line(error.cause or error))
    except ray.exceptions.RayError as error:
        return Failure("killed", f"its Ray worker ended ({type(error).__name__}), {TRIES} times")
