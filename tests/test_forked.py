"""A forked process is the real one: its streams, folder, environment, exit code and end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked import forked, vesalius
from tests.processes import PATIENCE, alive, until_gone

SAYS = "import os, sys; print(os.getcwd(), os.environ['COLOUR'], sys.argv[1:], sys.stdin.read()); sys.exit(7)"
WAITS = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"


def test_it_says_what_the_real_process_says(tmp_path: Path) -> None:
    options = {"input": "heard", "cwd": tmp_path, "env": {**os.environ, "COLOUR": "blue"}}
    real, fork = (
        subprocess.run([*words, "-c", SAYS, "a b", "c"], capture_output=True, text=True, **options)
        for words in ([sys.executable], forked())
    )
    assert (fork.returncode, fork.stdout, fork.stderr) == (real.returncode, real.stdout, real.stderr)
    assert fork.returncode == 7
    assert fork.stdout == f"{tmp_path} blue ['a b', 'c'] heard\n"


@pytest.mark.parametrize("arguments", [["--version"], ["nothing"], ["show", "no such specimen"]])
def test_the_command_leaves_the_same_behind(arguments: list[str]) -> None:
    real, fork = (
        subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
        for words in ([sys.executable, "-m", "vesalius", *arguments], vesalius(*arguments))
    )
    assert (fork.returncode, fork.stdout, fork.stderr) == (real.returncode, real.stdout, real.stderr)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_one_that_kills_itself_was_killed(number: signal.Signals) -> None:
    code = f"import os; os.kill(os.getpid(), {number.value})"
    assert subprocess.run(forked("-c", code), check=False).returncode == -number


def test_an_error_is_printed_and_fails() -> None:
    fork = subprocess.run(forked("-c", "raise ValueError('broken')"), capture_output=True, text=True)
    assert fork.returncode == 1
    assert fork.stderr.endswith("ValueError: broken\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_ends_with_a_signal_and_nothing_stays(number: signal.Signals) -> None:
    with subprocess.Popen(forked("-c", WAITS), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert alive(child)
        process.send_signal(number)
        assert process.wait(PATIENCE) == -number
    until_gone(child)
