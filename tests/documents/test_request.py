"""What was asked, and the command that asks it again."""

import shlex
import subprocess
import sys

from vesalius.documents import Request


def test_the_command_line_names_everything_that_was_asked() -> None:
    asked = Request(
        command="discover",
        specimen="my models/gpt 2",
        behaviour="ioi",
        method="rl",
        options={"n": 16, "budget": None, "paper": True, "force": False, "max_tokens": 8},
        seed=3,
    )
    assert shlex.split(asked.command_line()) == [
        *("vesalius", "discover", "my models/gpt 2", "--behaviour", "ioi", "--method", "rl"),
        *("--n", "16", "--paper", "--max-tokens", "8", "--seed", "3"),
    ]


def test_lists_are_joined_by_commas_except_for_judges() -> None:
    asked = Request(command="bench circuits", method="builtin", options={"ids": ["3", "4"], "judge": ["a:b", "c:d"]})
    assert asked.command_line() == "vesalius bench circuits --scientist builtin --ids 3,4 --judge a:b --judge c:d"


def test_a_request_says_which_versions_made_the_result() -> None:
    import platform

    import torch

    import vesalius

    versions = Request(command="sweep").versions
    assert versions["vesalius"] == vesalius.__version__
    assert versions["python"] == platform.python_version()
    assert versions["torch"].split("+")[0] == torch.__version__.split("+")[0]


def test_documents_are_read_without_torch() -> None:
    code = "import sys, vesalius.documents; sys.exit(any(name in sys.modules for name in ('torch', 'scipy', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
