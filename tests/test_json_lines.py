"""Programs that speak JSON lines: what they say arrives, and whatever they do wrong is one line."""

import json
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.processes import PATIENCE, until, until_gone
from tests.sandbox.conftest import family
from vesalius.errors import BadInput, Failed
from vesalius.json_lines import arguments_of, command_of, short_name
from vesalius.sandbox.command import Grants
from vesalius.sandbox.line_program import LineProgram

#: Everything a program may do wrong, and what is said of it. `{line}` reads what it is sent.
FAULTS = {
    "no json": ("print('hello')", "wrote a line that is not JSON, 'hello'"),
    "deep json": ("print('[' * 100000)", "wrote a line that is not JSON"),
    "no object": ("print('[1]')", "wrote [1], which is not a JSON object"),
    "a crash": (
        "raise SystemExit('out of ideas')",
        "ended before it gave its answer (exit code 1); its last words: out",
    ),
    "a signal": ("import os; os.kill(os.getpid(), 9)", "(killed by signal 9)"),
    "no answer": ("pass", "ended before it gave its answer (exit code 0)"),
    "not text": ("import sys; sys.stdout.buffer.write(b'\\xff\\xfe\\n')", "wrote a line that is not UTF-8"),
    "an endless line": ("import sys\nwhile True: sys.stdout.write('x' * 100000)", "wrote a line of more than 8 MiB"),
    "silence": ("import time; time.sleep(600)", "is silent for 0.5 seconds"),
    "endless blank lines": ("while True: print()", "wrote more than 1 MiB to stdout"),
    "many last words": ("import sys; sys.exit('x\\n' * 10**6 + 'the end')", "its last words: the end"),
}


def python(tmp_path: Path, code: str) -> str:
    script = tmp_path / "program.py"
    script.write_text(code)
    return f"{sys.executable} {script}"


@pytest.mark.parametrize("fault", FAULTS)
def test_what_a_program_does_wrong_is_one_line(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = FAULTS[fault]
    timeout = 0.5 if fault == "silence" else PATIENCE
    if fault == "endless blank lines":
        monkeypatch.setattr("vesalius.sandbox.line_program.MOST_OUTPUT", 1 << 20)
    with LineProgram(python(tmp_path, code), timeout=timeout) as program:
        program.send({"task": 1})
        with pytest.raises(Failed) as caught:
            program.receive()
    message = str(caught.value)
    assert said in message
    assert "\n" not in message
    assert message.startswith("command '")


def test_lines_go_back_and_forth_whatever_their_length(tmp_path: Path) -> None:
    echo = "import sys, json\nfor line in sys.stdin:\n    print(json.dumps({'got': json.loads(line)}), flush=True)"
    with LineProgram(python(tmp_path, echo)) as program:
        for text in ("short", "é" * 3, "x" * 1_000_000):
            program.send({"text": text})
            assert program.receive() == {"got": {"text": text}}


def test_a_program_that_does_not_read_is_given_up(tmp_path: Path) -> None:
    with (
        LineProgram(python(tmp_path, "import time; time.sleep(600)"), timeout=0.5) as program,
        pytest.raises(Failed, match=r"does not read its stdin for 0\.5 seconds"),
    ):
        program.send({"text": "x" * 1_000_000})


def test_what_a_program_started_ends_with_it(tmp_path: Path) -> None:
    code = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("not json", flush=True)
"""
    with LineProgram(python(tmp_path, code)) as program:
        until(lambda: len(family(program._process.pid)) >= 4)
        members = family(program._process.pid)
        with pytest.raises(Failed, match="not JSON"):
            program.receive()
    for member in members:
        until_gone(member)


def test_what_a_program_used_is_written_down(tmp_path: Path) -> None:
    log = tmp_path / "programs" / "c01.jsonl"
    for code in ("print('{}')", "raise SystemExit(4)"):
        with LineProgram(python(tmp_path, code), log=log) as program, suppress(Failed):
            program.receive()
            program.receive()
    first, second = (json.loads(line) for line in log.read_text().splitlines())
    assert first["contained"]
    assert (first["stdout_bytes"], first["status"]) == (3, 0)
    assert second["ended"] == "ended before it gave its answer (exit code 4)"
    assert second["cpu_seconds"] > 0


def test_a_program_that_misses_a_file_is_told_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("x = 1")
    with LineProgram(python(tmp_path, "import helper")) as program, pytest.raises(Failed, match="`allow_read`"):
        program.receive()
    tmp_path.chmod(0o755)
    allowed = Grants(read=(str(tmp_path),))
    with LineProgram(python(tmp_path, "import helper\nprint('{\"a\": 1}')"), grants=allowed) as program:
        assert program.receive() == {"a": 1}


def test_a_crashed_program_whose_child_holds_its_stdout_is_not_waited_for(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); sys.exit(3)"
    )
    with LineProgram(python(tmp_path, code), timeout=PATIENCE) as program, pytest.raises(Failed, match="exit code 3"):
        program.receive()


def test_a_whole_conversation_has_a_limit(tmp_path: Path) -> None:
    chatter = "import time\nwhile True: print('{}', flush=True); time.sleep(0.05)"
    with (
        LineProgram(python(tmp_path, chatter), longest=0.5) as program,
        pytest.raises(Failed, match="seconds in all"),
    ):
        list(iter(program.receive, {"never": "said"}))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("", "is empty"),
        ("'", "No closing quotation"),
        ("./nothing-here", "there is no such program"),
        ("not_executable", "it may not be executed; chmod"),
    ],
)
def test_a_command_that_cannot_be_started_is_refused(
    command: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "not_executable").write_text("true")
    with pytest.raises(BadInput, match=said):
        arguments_of(command)


def test_a_file_that_is_no_program_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "no_first_line"
    script.write_text("\x00\x01")
    script.chmod(0o755)
    with pytest.raises(BadInput, match="cannot be started"):
        LineProgram(str(script))


def test_names() -> None:
    assert command_of("command:./a b") == "./a b"
    assert command_of("builtin") is None
    assert short_name("command:/bin/cat -n") == "command.cat"
    assert short_name("package.module:function") == "package.module.function"
