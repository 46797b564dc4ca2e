"""Published scripts: each input is a run of its own behind the walls."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from vesalius.errors import BadInput
from vesalius_functions import Box
from vesalius_functions.scripts import SCRIPT, ScriptFunction, ScriptRunner, printed_output

pytestmark = pytest.mark.slow

#: The frame of the published scripts in our words: pairs after a fixed text.
FRAME = """
import sys
{head}
def function(x):
{body}
if __name__ == "__main__":
    print("Pairs: " + "".join("(%s, %s) " % (arg, str(function({read}(arg)))) for arg in sys.argv[1:]))
"""
MISCHIEF = """
    if x == "raise": raise ValueError("no")
    if x == "huge": return "a" * 10_000_000
    if x == "loop":
        while True: pass
    if x == "exit": sys.exit(3)
    if x == "die":
        import os; os._exit(1)
    if x == "shell":
        import os; return os.system("echo hello")
    return x[::-1]
"""
NUMBERS = """
    if x == 0: return None
    if x < 0: return x ** 0.5
    if x == 7: return float("inf")
    return x / 2 + np.random.normal()
"""


def write(folder: Path, body: str, *, read: str, head: str = "") -> Path:
    folder.mkdir()
    (folder / SCRIPT).write_text(FRAME.format(head=head, body=body, read=read))
    return folder / SCRIPT


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptRunner]:
    dataset = tmp_path_factory.mktemp("dataset")
    dataset.chmod(0o755)
    write(dataset / "f00000", MISCHIEF, read="str")
    write(dataset / "f00001", NUMBERS, read="float", head="import numpy as np")
    with ScriptRunner(dataset) as runner:
        yield runner


def test_a_bad_input_costs_its_own_reply(runner: ScriptRunner) -> None:
    script = runner.dataset / "f00000" / SCRIPT
    bad = ["raise", "huge", "loop", "exit", "die"]
    box = Box(ScriptFunction("f00000", "strings", "reverse", script, runner))
    good, *failed, also_good = box.ask(["abc", *bad, "x, (y) '$(rm -rf /)';"])
    assert (good.value, also_good.value) == ("cba", ";')/ fr- mr($' )y( ,x")
    assert [reply.value for reply in failed] == [None] * len(bad)
    raised, huge, looped, exited, died = [reply.error or "" for reply in failed]
    assert raised == "ValueError: no"
    assert "10000" in huge
    assert "2.0 s" in looped or "2 s" in looped
    assert exited.startswith("SystemExit")
    assert "exit status 1" in died


def test_a_script_has_no_shell(runner: ScriptRunner) -> None:
    (reply,) = runner.replies(runner.dataset / "f00000" / SCRIPT, ["shell"], category="strings")
    assert reply.error or reply.value != "0"


def test_numbers_of_every_kind_and_seeded_draws(runner: ScriptRunner) -> None:
    script = runner.dataset / "f00001" / SCRIPT
    function = ScriptFunction("f00001", "numeric", "linear", script, runner, truth={"family": "linear"})
    none, imaginary, infinite, one, two = function.replies([0, -4.0, 7, 2, 2])
    assert (none.value, none.error) == (None, "undefined here")
    assert imaginary.value == pytest.approx(2j)
    assert infinite.value == float("inf")
    assert one.value != two.value
    assert [reply.value for reply in function.replies([2, 2], first_call=3)] == [one.value, two.value]
    (reply,) = function.replies(["abc"])
    assert "could not convert" in (reply.error or "")
    assert function.truth()["family"] == "linear"


def test_missing_folders_and_files_are_refused(runner: ScriptRunner, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such directory"):
        ScriptRunner(tmp_path / "nowhere")
    with pytest.raises(BadInput, match=r"f9/function_code.py: .* not whole"):
        ScriptFunction("f9", "strings", "x", tmp_path / "f9" / SCRIPT, runner)


@pytest.mark.parametrize(
    ("argument", "printed", "output"),
    [
        ("abc", "Pairs: (abc, cba) \n", "cba"),
        ("a, b", "Pairs: (a, b, b ,a) \n", "b ,a"),
        ("", "Pairs: (, ) \n", ""),
        ("x", "Pairs: (x, )) \n", ")"),
        ("x", "Pairs: (x,  ) \n", " "),
        ("x", "Pairs: \n", None),
        ("x", "", None),
    ],
)
def test_pairs_are_read_back(argument: str, printed: str, output: str | None) -> None:
    assert printed_output(argument, printed) == output
