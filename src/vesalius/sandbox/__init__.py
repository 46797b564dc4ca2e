"""Runs untrusted programs: a warm process, forked per call, isolated by the kernel.

`Sandbox` starts one process that prepares names (a model, its tokenizer, helpers) and then forks for every program.
The fork gives up the network, all files except the interpreter and a toolbox, all privileges and the right to start
processes, and is bounded in time, memory and output. Nothing that a program did outlives its process.

`lockdown.py`: what a call may use and return, which layers of isolation there are, how many are enough, and how they
are activated (`filesystem.py`, `kernel.py`). `warm_server.py` runs in the warm process, `program.py` in a fork. The
caller's side are `warm_process.py`, `calls.py` and `sandbox.py`, which also keeps what programs gave, so that a run
can be repeated without running them again.
"""

from vesalius.sandbox.lockdown import CallResult, Limits, Outcome
from vesalius.sandbox.sandbox import Executions, RecordedSandbox, Sandbox

__all__ = ["CallResult", "Executions", "Limits", "Outcome", "RecordedSandbox", "Sandbox"]
