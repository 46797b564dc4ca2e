"""What a worker does with a case: explain it, grade it, or have it judged, within one spending cap.

Everything here is sent between processes, so cases are small frozen data and functions are looked up by name. Heavy
modules are imported when a case needs them. Each case writes its calls to its own file, locked by one process at a
time: a worker that outlived its run cannot write beside its successor.
"""

import fcntl
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vesalius.backbones import (
    MAX_TOKENS,
    TIMEOUT,
    Backbone,
    CapReached,
    Records,
    Redactor,
    SpendingCap,
    Totals,
    open_backbone,
)
from vesalius.errors import Failed
from vesalius.explanations.scientists import Explained, Task, explain_task

if TYPE_CHECKING:
    from vesalius.grading.circuits import CircuitGrade


# One spending cap for all processes of a run: a counter file that is read and written under a lock.
#
# Each record of calls has an account in it, with what is spent and what is held for the call being made. A call is made
# only if the most it can cost still fits beside everything in all accounts, so the cap holds however many processes
# there are. The records of calls are the truth: an account is set from its record whenever the record is opened, so
# that what a killed process held is counted once, and the whole file is made again when a run is resumed.

Accounts = dict[str, list[float]]  # name: [spent, held]


class SpendingFile:
    """The counter file at `path`, shared by processes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def accounts(self) -> Iterator[Accounts]:
        """Every account; changes made to it are saved. Other processes wait until then."""
        with locked(self.path.with_suffix(".lock")):
            try:
                accounts: Accounts = json.loads(self.path.read_text()) if self.path.exists() else {}
            except ValueError:
                raise Failed(f"{self.path}: damaged; delete it, the same command makes it again") from None
            yield accounts
            partial = self.path.with_suffix(f".partial-{os.getpid()}")
            partial.write_text(json.dumps(accounts))
            os.replace(partial, self.path)

    def begin(self, spent: Mapping[str, float]) -> None:
        """Start from what the records say, not from what the file said."""
        self.path.unlink(missing_ok=True)
        with self.accounts() as accounts:
            accounts.update({name: [amount, 0.0] for name, amount in spent.items()})


class SharedCap(SpendingCap):
    """One account of the file, as the spending cap of a backbone."""

    def __init__(self, limit: float, file: SpendingFile, account: str) -> None:
        super().__init__(limit)
        self._file, self._account = file, account

    @property
    def spent(self) -> float:
        """Dollars spent so far, by all processes of the run."""
        with self._file.accounts() as accounts:
            return _total(accounts, held=False)

    @property
    def left(self) -> float:
        """Dollars that the next call may still cost."""
        with self._file.accounts() as accounts:
            return self.limit - _total(accounts, held=True)

    def restore(self, record: str, spent: float) -> None:
        """Take over what the record of this account says was spent."""
        with self._file.accounts() as accounts:
            accounts[self._account] = [spent, 0.0]

    def hold(self, max_cost: float) -> None:
        """Set aside the most a call can cost, or refuse the call."""
        with self._file.accounts() as accounts:
            spent, taken = _total(accounts, held=False), _total(accounts, held=True)
            if taken + max_cost > self.limit:
                held = (
                    f", ${taken - spent:.4f} is held for calls of other jobs that are under way,"
                    if taken > spent
                    else ""
                )
                fewer = " or give fewer `jobs`," if taken > spent else ""
                raise CapReached(
                    f"cap ${self.limit:.2f}: ${spent:.4f} is spent{held} and the next call could cost up to"
                    f" ${max_cost:.4f}; raise `max_cost`{fewer} and give the same command again to continue"
                )
            accounts.setdefault(self._account, [0.0, 0.0])[1] += max_cost

    def settle(self, max_cost: float, cost: float) -> None:
        """Replace a held amount by what the call cost."""
        with self._file.accounts() as accounts:
            account = accounts.setdefault(self._account, [0.0, max_cost])
            account[0] += cost
            account[1] = max(0.0, account[1] - max_cost)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file's lock, waiting while another process has it."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise Failed(f"{path}: cannot be opened ({error.strerror}); choose another place") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _total(accounts: Accounts, *, held: bool) -> float:
    return math.fsum(amount for account in accounts.values() for amount in account[: 1 + held])


@dataclass(frozen=True)
class ModelAccess:
    """How a case reaches one language model: its name, the file its calls are recorded in, and the cap it shares.

    With `replay` calls come from the file alone and no connection can be made.
    """

    model: str
    calls: Path
    prices: str | None = None
    cap: float | None = None
    cap_file: Path | None = None
    replay: bool = False
    timeout: float = TIMEOUT
    base_url: str | None = None
    max_tokens: int = MAX_TOKENS

    @contextmanager
    def open(self) -> Iterator[Backbone]:
        """The model, while no other process has this record."""
        with ExitStack() as stack:
            if self.replay:
                stack.enter_context(no_connections())
                yield stack.enter_context(self._opened(replay=self.calls))
                return
            self.calls.parent.mkdir(exist_ok=True)
            stack.enter_context(locked(self.calls))
            options = {"base_url": self.base_url, "timeout": self.timeout, "cap": self._shared_cap()}
            yield stack.enter_context(self._opened(record=self.calls, keep_server=True, **options))

    def _opened(self, **options: object) -> Backbone:
        return open_backbone(self.model, prices=self.prices, max_tokens=self.max_tokens, **options)

    def _shared_cap(self) -> SharedCap | None:
        if self.cap is None:
            return None
        assert self.cap_file is not None
        return SharedCap(self.cap, SpendingFile(self.cap_file), self.calls.name)


@dataclass(frozen=True)
class ToExplain:
    """A case of the first step."""

    task: Task
    access: ModelAccess | None = None

    @property
    def id(self) -> str:
        return self.task.id


@dataclass(frozen=True)
class ToGrade:
    """A case of the second step: an explanation, and the one its shuffled null borrows a program from."""

    id: str
    directory: Path
    explanation: Path
    donor: Path | None
    annotation: Path | None = None


@dataclass(frozen=True)
class ToJudge:
    """A case of the third step: an explanation, the way to it, and the models that judge them."""

    id: str
    directory: Path
    explanation: Path
    trace: Path | None
    judges: tuple[ModelAccess, ...]
    annotation: Path | None = None


def explain_case(case: ToExplain) -> Explained:
    """Explain one circuit."""
    if case.access is None:
        return explain_task(case.task)
    with case.access.open() as backbone:
        return explain_task(case.task, backbone.within(case.id))


def grade_case(case: ToGrade) -> "tuple[CircuitGrade, float]":
    """Grade one explanation and its nulls; also how many seconds that took."""
    from vesalius.grading.circuits import grade_circuit
    from vesalius.runs.directory import read_explanation

    started = time.monotonic()
    donor = None if case.donor is None else read_explanation(case.donor)
    explanation = read_explanation(case.explanation)
    graded = grade_circuit(explanation, donor=donor, directory=case.directory, annotation=case.annotation)
    return graded, time.monotonic() - started


def judge_case(case: ToJudge) -> dict[str, Any]:
    """Have one explanation judged; JSON data of a `JudgedCircuit`. A cap that was reached is raised, not kept."""
    from vesalius.grading.judges import Judge, PluginJudge, judge_explanation, judge_plugin
    from vesalius.runs.directory import read_explanation, read_trace

    trace = None if case.trace is None else read_trace(case.trace)
    with ExitStack() as stack:
        judges = [
            Judge(stack.enter_context(access.open())) if plugin is None else PluginJudge(plugin)
            for access in case.judges
            for plugin in [judge_plugin(access.model)]
        ]
        explanation = read_explanation(case.explanation)
        given = judge_explanation(
            explanation, trace, judges=judges, directory=case.directory, annotation=case.annotation
        )
        judged = given.model_dump(mode="json")
    capped = next((error for error in judging_errors(judged) if error["kind"] == CapReached.kind), None)
    if capped:
        raise CapReached(capped["error"])
    return judged


def judging_errors(judged: object) -> Iterator[dict[str, Any]]:
    """Every opinion in a judged circuit that is an error instead of a score."""
    if isinstance(judged, dict):
        if judged.get("error") and "kind" in judged:
            yield judged
        judged = list(judged.values())
    for part in judged if isinstance(judged, list) else ():
        yield from judging_errors(part)


def totals(calls: Path) -> Totals:
    """What the calls in a file used; nothing where there is no file."""
    return Records(calls, Redactor([]), writable=False).totals if calls.is_file() else Totals()


@contextmanager
def no_connections() -> Iterator[None]:
    """While in here, this process cannot reach a network."""
    shut = True

    def refuse(event: str, arguments: tuple[object, ...]) -> None:
        # Addresses of local sockets are texts; those of networks are tuples.
        reaching = event in ("socket.connect", "socket.sendto", "socket.bind") and not isinstance(arguments[1], str)
        if shut and (reaching or event == "socket.getaddrinfo"):
            raise Failed(f"replay needs no network, and something asked for it ({event})")

    sys.addaudithook(refuse)  # a hook cannot be removed, so it is switched off
    try:
        yield
    finally:
        shut = False
