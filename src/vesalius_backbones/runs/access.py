"""How the cases of a run reach language models: within one spending cap, each case's calls in a file of its own.

The file is locked by one process at a time: a worker that outlived its run cannot write beside its successor.
Everything here is sent between processes.
"""

import fcntl
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from vesalius.errors import Failed
from vesalius.runs.ledger import Totals
from vesalius_backbones import (
    MAX_TOKENS,
    TIMEOUT,
    Backbone,
    CapReached,
    Records,
    Redactor,
    SpendingCap,
    open_backbone,
)
from vesalius_backbones.failures import Excess, beyond, overbilled

# One spending cap for all processes of a run: a counter file that is read and written under a lock.
#
# Each record of calls has an account in it, with what is spent and what is held for the call being made. A call is made
# only if the most it can cost still fits beside everything in all accounts, so the cap holds however many processes
# there are. The records of calls are the truth: an account is set from its record whenever the record is opened, so
# that what a killed process held is counted once, and the whole file is made again when a run is resumed. What is never
# taken back is that a call was billed beyond its bound: a process may have been killed before it could record the bill.

#: By name: what is spent and held; and, after a call that was billed beyond its bound, that bound and the bill.
Accounts = dict[str, list[float]]
#: Numbers in an account that has a bound and a bill.
_WITH_EXCESS = 4
_ACCOUNTS: TypeAdapter[Accounts] = TypeAdapter(Accounts)


class SpendingFile:
    """The counter file at `path`, shared by processes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def accounts(self) -> Iterator[Accounts]:
        """Every account; changes made to it are saved. Other processes wait until then."""
        with locked(self.path.with_suffix(".lock")):
            try:
                accounts = _ACCOUNTS.validate_json(self.path.read_bytes()) if self.path.exists() else {}
            except ValueError:
                raise Failed(f"{self.path}: damaged; delete it, the same command makes it again") from None
            yield accounts
            partial = self.path.with_suffix(f".partial-{os.getpid()}")
            partial.write_text(json.dumps(accounts))
            os.replace(partial, self.path)

    def begin(self, booked: Mapping[str, tuple[float, Excess | None]]) -> None:
        """Start from what the records say, as `booked` gives it, and not from what the file said; but keep the bills
        beyond their bounds that it knows.
        """
        try:
            with self.accounts() as accounts:
                known = {name: account for name, account in accounts.items() if len(account) == _WITH_EXCESS}
        except Failed:  # damaged
            known = {}
        self.path.unlink(missing_ok=True)
        with self.accounts() as accounts:
            accounts.update({name: [0.0, 0.0, *account[2:]] for name, account in known.items()})
            for name, (spent, excess) in booked.items():
                accounts[name] = _booked_again(accounts, name, spent, excess)


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

    def restore(self, record: str, spent: float, excess: Excess | None = None) -> None:
        """Take over what the record of this account says was spent, and whether a call was billed beyond its bound."""
        with self._file.accounts() as accounts:
            accounts[self._account] = _booked_again(accounts, self._account, spent, excess)

    def hold(self, max_cost: float) -> None:
        """Set aside the most a call can cost, or refuse the call."""
        with self._file.accounts() as accounts:
            excess = next((account[2:] for account in accounts.values() if len(account) == _WITH_EXCESS), None)
            if excess is not None:
                raise CapReached(overbilled(self.limit, _total(accounts, held=False), *excess))
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
            if beyond(max_cost, cost):
                account[2:] = [max_cost, cost]


def _booked_again(accounts: Accounts, name: str, spent: float, excess: Excess | None) -> list[float]:
    """An account with nothing held; that it was billed beyond a bound stays."""
    return [spent, 0.0, *(accounts.get(name, [])[2:] or excess or ())]


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
    return math.fsum(amount for account in accounts.values() for amount in account[: 2 if held else 1])


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


def totals(calls: Path) -> Totals:
    """What the calls in a file used; nothing where there is no file."""
    return Records(calls, Redactor([]), writable=False).totals if calls.is_file() else Totals()


def booked(calls: Path) -> tuple[float, Excess | None]:
    """What a cap is told of the calls in a file: dollars spent at most, and a bill beyond its bound."""
    if not calls.is_file():
        return 0.0, None
    records = Records(calls, Redactor([]), writable=False)
    return records.spent, records.excess


class _Door:
    """How many want the network shut. A hook can never be removed, and each one is called for every audited event of
    the process, `id` among them: so there is one, from the first time on that it is needed.
    """

    def __init__(self) -> None:
        self.shut, self.watched = 0, False

    def watch(self) -> None:
        """From now on, connections are refused while the door is shut."""
        if not self.watched:
            self.watched = True
            sys.addaudithook(self._refuse)

    def _refuse(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self.shut:
            return
        # Addresses of local sockets are texts; those of networks are tuples.
        reaching = event in ("socket.connect", "socket.sendto", "socket.bind") and not isinstance(arguments[1], str)
        if reaching or event == "socket.getaddrinfo":
            raise Failed(f"replay needs no network, and something asked for it ({event})")


_DOOR = _Door()


@contextmanager
def no_connections() -> Iterator[None]:
    """While in here, this process cannot reach a network."""
    _DOOR.watch()
    _DOOR.shut += 1
    try:
        yield
    finally:
        _DOOR.shut -= 1
