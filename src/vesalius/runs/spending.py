"""One spending cap for all processes of a run: a counter file that is read and written under a lock.

Each record of calls has an account in it, with what is spent and what is held for the call being made. A call is made
only if the most it can cost still fits beside everything in all accounts, so the cap holds however many processes there
are. The records of calls are the truth: an account is set from its record whenever the record is opened, so that what a
killed process held is counted once, and the whole file is made again when a run is resumed.
"""

import fcntl
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from vesalius.backbones import CapReached, SpendingCap
from vesalius.errors import Failed

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
