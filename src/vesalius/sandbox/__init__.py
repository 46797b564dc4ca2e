"""Where programs run that nobody has read: a warm process, forked per call, behind walls the kernel keeps.

`Sandbox` starts one process that prepares names (a model, its tokenizer, helpers) and then forks for every program.
The fork gives up the network, every file but the interpreter and a toolbox, every privilege, every second process,
and is bounded in time, memory and output. What a program did is gone with its process.

`limits.py` says what a call may use and what comes back; `isolation.py` which walls there are and how many are
enough; `lockdown.py` puts them up (`view.py`, `landlock.py`, `seccomp.py` are the walls, `scratch.py` the one place to
write); `zygote.py` is the warm process, `program.py` what runs in a fork; `calls.py` and `sandbox.py` are the caller's
side.
"""

from vesalius.sandbox.isolation import Isolation
from vesalius.sandbox.limits import Answer, Limits, Outcome
from vesalius.sandbox.sandbox import Sandbox

__all__ = ["Answer", "Isolation", "Limits", "Outcome", "Sandbox"]
