"""Programs that speak JSON lines, by name: `command:./mine.sh --fast`.

The command is split as a shell would split it, and no shell runs it. `vesalius.sandbox.line_program` starts it.
"""

import os
import shlex
import shutil
from pathlib import Path

from vesalius.errors import BadInput, quoted

#: What names a command where a name is expected: `command:./mine.sh`.
PREFIX = "command:"
#: Seconds of silence after which a program is given up, unless told otherwise, and seconds of one whole conversation.
TIMEOUT, LONGEST_CONVERSATION = 120.0, 3600.0


def command_of(name: str) -> str | None:
    """The command in `command:...`; None where a name is not of this form."""
    return name.removeprefix(PREFIX) if name.startswith(PREFIX) else None


def short_name(name: str) -> str:
    """A name for files: `command:'./mine.sh --fast'` is `command.mine.sh`."""
    command = command_of(name)
    if name.startswith("answers:"):
        return f"answers.{Path(name).name}"
    if command is None:
        return name.replace(":", ".")
    program, *arguments = arguments_of(command)
    scripts = [one for one in arguments if Path(one).is_file()]  # of `python mine.py` the script says more
    return f"command.{Path(scripts[0] if scripts else program).name}"


def arguments_of(command: str) -> list[str]:
    """The program and its arguments, the program by its whole path; refused where there is none that can be started."""
    try:
        arguments = shlex.split(command)
    except ValueError as error:
        raise BadInput(f"command {quoted(command, 80)}: {error}; quote it as for a shell") from None
    if not arguments:
        raise BadInput(f"command {quoted(command, 80)}: is empty; write {PREFIX}./mine.sh")
    found = shutil.which(os.path.expanduser(arguments[0]))
    if found is None:
        given = Path(arguments[0]).expanduser()
        problem, fix = "there is no such program", "give the path of one that can be run"
        if given.is_file():
            problem, fix = "it may not be executed", f"chmod +x {given}, or name its interpreter: 'python {given}'"
        raise BadInput(f"command {quoted(command, 80)}: {problem}; {fix}")
    return [os.path.abspath(found), *arguments[1:]]
