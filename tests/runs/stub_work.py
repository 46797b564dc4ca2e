"""Work for the engine's tests: workers import it by name, so it is a module, and a light one."""

import os
import signal
import sys
import time
from pathlib import Path

from tests.processes import PATIENCE
from vesalius.errors import BadInput, Failed


def square(number: int) -> int:
    return number * number


def awkward(case: tuple[str, int]) -> int:
    """Ends in every way a case can end."""
    how, number = case
    if how == "refused":
        raise BadInput("colour 'x' does not exist")
    if how == "failed":
        raise Failed("out of paper")
    if how == "broke":
        return number // 0
    if how == "exits":
        sys.exit(3)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def killed_the_first_time(marker: Path) -> str:
    """Dies once; a second try goes well."""
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return marker.name


def settings_of_worker(case: int) -> tuple[str, int, int, bool]:
    """How many threads a worker may use, has and gives to torch, and whether it is deaf to Ctrl-C."""
    import torch

    blocked = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    threads = len(os.listdir("/proc/self/task")) if sys.platform == "linux" else 1
    return os.environ["OMP_NUM_THREADS"], threads, torch.get_num_threads(), blocked


def variable_of_worker(name: str) -> str | None:
    """A variable of a worker's environment."""
    return os.environ.get(name)


def linger(case: Path) -> None:
    """Says who it is and stays."""
    case.write_text(str(os.getpid()))
    time.sleep(2 * PATIENCE)


def buy(case: tuple[str, str]) -> int:
    """Spends a cent at a time from a shared purse of a dollar; how often it could."""
    from vesalius_backbones import CapReached
    from vesalius_backbones.runs.access import SharedCap, SpendingFile

    path, account = case
    budget, bought = SharedCap(1.000001, SpendingFile(Path(path)), account), 0
    while True:
        try:
            budget.hold(0.01)
        except CapReached:
            return bought
        budget.settle(0.01, 0.01)
        bought += 1
