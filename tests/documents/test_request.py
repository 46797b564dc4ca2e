"""What was asked, and the command that asks it again."""

import json
import shlex
import subprocess
import sys
from inspect import signature
from pathlib import Path
from typing import Any, cast

import pytest
import typer

from vesalius import api
from vesalius.api.runs import keywords_for
from vesalius.cli import app
from vesalius.documents import Request
from vesalius.documents.kinds import stored_kinds
from vesalius.documents.request import Command

GOLDEN = Path(__file__).parent / "golden"


def test_the_command_line_names_everything_that_was_asked() -> None:
    asked = Request(
        command="discover",
        specimen="my models/gpt 2",
        behaviour="ioi",
        method="rl",
        options={"n": 16, "budget": None, "paper": True, "force": False, "rivals_by": 8},
        seed=3,
    )
    assert shlex.split(asked.command_line()) == [
        *("vesalius", "discover", "my models/gpt 2", "--behaviour", "ioi", "--method", "rl"),
        *("--n", "16", "--paper", "--rivals-by", "8", "--seed", "3"),
    ]


def test_lists_are_joined_by_commas_except_for_judges() -> None:
    asked = Request(command="bench circuits", method="builtin", options={"ids": ["3", "4"], "judge": ["a:b", "c:d"]})
    assert asked.command_line() == "vesalius bench circuits --scientist builtin --ids 3,4 --judge a:b --judge c:d"


def test_programs_are_given_one_by_one_and_repeat_by_the_verbs_own_keywords() -> None:
    asked = Request(command="ladder", specimen="run", options={"n": 4, "programs": {"L1H0": "1 back", "L1H1": "BOS"}})
    assert shlex.split(asked.command_line()) == [
        *("vesalius", "ladder", "run", "--n", "4", "--program", "L1H0=1 back", "--program", "L1H1=BOS")
    ]


@pytest.mark.parametrize("file", sorted(GOLDEN.rglob("*.json")), ids=lambda file: file.name)
def test_the_request_of_every_recorded_result_can_be_repeated(file: Path) -> None:
    """`ves.rerun` calls the verb of the request with the request's own keywords."""
    recorded = json.loads(file.read_text()).get("request")
    verbs = {kind.COMMAND: kind.VERB for kind in stored_kinds() if kind.COMMAND and kind.VERB}
    if recorded is None or recorded["command"] not in verbs:
        pytest.skip("no verb of Python repeats it")
    asked = Request.model_validate(recorded)
    call = getattr(api, str(verbs[asked.command]))
    signature(call).bind("subject", **keywords_for(call, asked))


OF_WINGS = """
import sys
from vesalius.documents import Request
survey = Request(command="survey", options={"models": ["a b", "c"], "behaviour": ["x", "y"], "discover": "eap"})
print(survey.command_line())
print(Request(command="bench functions", method="table", options={"ids": ["1", "2"]}).command_line())
print(Request(command="study af1", method="hyve", options={"judge": ["a:b", "c:d"]}).command_line())
assert "torch" not in sys.modules
"""


@pytest.mark.slow
def test_commands_of_the_packages_beside_the_core_are_written_as_their_records_say() -> None:
    done = subprocess.run([sys.executable, "-c", OF_WINGS], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "vesalius survey 'a b' c --behaviour x --behaviour y --discover eap",
        "vesalius bench functions --interpreter table --ids 1,2",
        "vesalius study af1 --scientist hyve --judge a:b --judge c:d",
    ]


@pytest.mark.parametrize("command", ["discover", "neurons", "explain", "bench circuits", "bench discovery"])
def test_the_method_is_an_option_of_its_command(command: str) -> None:
    words = shlex.split(Request(command=cast(Command, command), method="relp").command_line())
    flag = words[words.index("relp") - 1]
    found = typer.main.get_command(app)
    for word in command.split():
        found = cast(Any, found).get_command(None, word)
    assert flag in [name for parameter in found.params for name in parameter.opts]


def test_a_request_says_which_versions_made_the_result() -> None:
    import platform

    import torch

    import vesalius

    versions = Request(command="sweep").versions
    assert versions["vesalius"] == vesalius.__version__
    assert versions["python"] == platform.python_version()
    assert versions["torch"].split("+")[0] == torch.__version__.split("+")[0]


@pytest.mark.slow
def test_documents_are_read_without_torch() -> None:
    code = "import sys, vesalius.documents; sys.exit(any(name in sys.modules for name in ('torch', 'scipy', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
