"""What a program gets, what it returns, and that nothing of it remains."""

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import vesalius
from tests.processes import alive, until, until_gone
from tests.sandbox.conftest import LAYERS, SMALL, family, opened
from vesalius.errors import BadInput, Failed
from vesalius.sandbox import Limits, Sandbox, filesystem


def test_a_program_finds_the_prepared_names_and_its_values(sandbox: Sandbox) -> None:
    code = "import torch\nresult = [double(x), argument, model(torch.tensor([1.0, 10.0])).item()]"
    outcome = sandbox.execute(code, {"x": 21})
    assert outcome.ok, outcome.error
    assert outcome.result == [42, [1, 2], 32.0]


def test_the_name_of_the_user_is_known_without_a_password_file(sandbox: Sandbox) -> None:
    """Some versions of torch look it up when an optimiser is created."""
    outcome = sandbox.execute("import torch\nimport getpass\nresult = getpass.getuser()", limits=Limits())
    assert outcome.ok, outcome.error
    assert outcome.result == "nobody"


def test_torch_works_in_the_sandbox(sandbox: Sandbox) -> None:
    code = """
import torch
x = torch.randn(200, 300, requires_grad=True)
y = (x @ torch.randn(300, 400)).softmax(-1)
y.sum().backward()
values, vectors = torch.linalg.eigh(torch.eye(50))
torch.optim.Adam([x]).step()
result = [x.grad.shape, values.sum(), torch.nn.functional.conv1d(torch.ones(1, 1, 5), torch.ones(1, 1, 2))]
"""
    outcome = sandbox.execute(code, limits=Limits())
    assert outcome.ok, outcome.error
    assert outcome.result == [[200, 300], 50.0, [[[2.0, 2.0, 2.0, 2.0]]]]


def test_modules_can_be_imported(sandbox: Sandbox) -> None:
    outcome = sandbox.execute("import sqlite3, decimal, colorsys\nresult = colorsys.rgb_to_hsv(1, 0, 0)")
    assert outcome.result == [0.0, 1.0, 1.0], outcome.error


def test_a_program_that_fails_keeps_what_it_had_found(sandbox: Sandbox) -> None:
    outcome = sandbox.execute("result = {'a': 1}\nresult['b'] = 2\nresult['c'] = 1 / 0")
    assert outcome.result == {"a": 1, "b": 2}
    assert "ZeroDivisionError" in (outcome.error or "")
    assert not outcome.ok
    large = sandbox.execute(f"result = 'x' * {2 * SMALL.result_bytes}\n1 / 0", limits=SMALL)
    assert "ZeroDivisionError" in (large.error or ""), "the error gets through whatever the result is"


def test_nothing_is_kept_between_calls(sandbox: Sandbox) -> None:
    change = "import math, torch\nkept = 1\nmath.pi = 3\nmodel.weight.data.zero_()\ntorch.manual_seed(99)\nresult = 1"
    random = "import torch, random\nresult = [torch.rand(3), random.random()]"
    before = sandbox.execute(random).result
    assert sandbox.execute(change).ok
    look = "import math\nresult = ['kept' in globals(), math.pi, model.weight.sum()]"
    assert sandbox.execute(look).result == [False, math.pi, 5.0]
    assert sandbox.execute(random).result == before


def test_no_earlier_program_is_in_memory(sandbox: Sandbox) -> None:
    """The warm process never reads a program, so a search of the heap finds only the searcher."""
    secret = "pass" + "word-1"
    assert sandbox.execute(f"hidden = '{secret}' * 2\nresult = hidden", {"value": secret}).result == secret * 2
    search = """
import gc
found = [x for x in gc.get_objects() if isinstance(x, dict) and any(part in map(str, x.values()) for part in parts)]
result = len([x for x in found if x is not globals() and 'parts' not in x])
"""
    assert sandbox.execute(search, {"parts": [secret, secret * 2]}).result == 0


def test_scratch_is_private_and_removed() -> None:
    for sandbox in opened(LAYERS["all layers"], limits=SMALL):
        write = "import tempfile\nopen('x', 'w').write('1')\ntempfile.TemporaryFile()\nresult = open('x').read()"
        assert sandbox.execute(write).result == "1"
        assert sandbox.execute("import os\nresult = [os.getcwd(), os.listdir('.')]").result == ["/scratch", []]
        full = sandbox.execute("open('x', 'wb').write(b'x' * (3 << 20))")
        assert "File too large" in str(full.error)
        full = sandbox.execute("for i in range(9): open(str(i), 'wb').write(b'x' * (1 << 20))")
        assert "No space left" in str(full.error)


def test_user_and_process_of_a_program() -> None:
    for sandbox in opened(LAYERS["all layers"]):
        code = "import os\nresult = [os.getpid(), os.getuid(), os.getgid(), os.getgroups()]"
        pid, user, group, groups = sandbox.execute(code).result
        assert (pid, user, group) == (1, 65534, 65534)
        assert set(groups) <= {65534}
        roots = sandbox.execute("import os\nresult = sorted(os.listdir('/'))").result
        # Of these only the path to the interpreter and the package may exist, and nothing else below it.
        needed = {Path(path).resolve().parts[1] for path in (sys.prefix, sys.base_prefix, vesalius.__file__)}
        assert not set(roots) & ({"home", "proc", "sys", "var", "run", "tmp", "boot", "mnt"} - needed)


def test_the_traceback_is_the_programs_own(sandbox: Sandbox) -> None:
    code = "import json\ndef read(text):\n    return json.loads(text)\n\nprint('so far')\nresult = read('{')\n"
    outcome = sandbox.execute(code)
    assert outcome.stdout == "so far\n"
    assert outcome.error == (
        "  line 6, in <module>: result = read('{')\n"
        "  line 3, in read: return json.loads(text)\n"
        "JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
    )
    assert outcome.stopped_by is None


def test_a_syntax_error_names_its_line(sandbox: Sandbox) -> None:
    assert sandbox.execute("x = 1\ny = = 2").error == "  line 2, in <module>: y = = 2\nSyntaxError: invalid syntax"


def test_a_missing_result_is_an_error(sandbox: Sandbox) -> None:
    outcome = sandbox.execute("x = 1", {"result": 7})
    assert (outcome.result, outcome.ok) == (None, False)
    assert "did not assign `result`" in str(outcome.error)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("None", None),
        ("(1, 2.5, 'x', True)", [1, 2.5, "x", True]),
        ("{'a': {1}, 2: []}", {"a": [1], "2": []}),
        ("__import__('torch').arange(4).view(2, 2)", [[0, 1], [2, 3]]),
        ("__import__('numpy').float32(0.5)", 0.5),
        ("__import__('torch').tensor(True)", True),
        ("2 ** 2000", "an integer of 2001 bits"),
        ("{1j: 2}", {"1j": 2}),
        ("range(3)", "range(0, 3)"),
    ],
)
def test_results_are_json(code: str, expected: object, sandbox: Sandbox) -> None:
    outcome = sandbox.execute(f"result = {code}")
    assert outcome.result == expected
    json.dumps(outcome.result)


def test_a_result_over_the_limit_says_so(sandbox: Sandbox) -> None:
    outcome = sandbox.execute("result = ['x' * 1_000] * 100")
    assert outcome.result is None
    assert f"the limit is {SMALL.result_bytes}" in str(outcome.error)


def test_a_large_tensor_is_summarised(sandbox: Sandbox) -> None:
    summary = sandbox.execute("import torch\nresult = torch.arange(10 ** 6).view(1000, 1000)").result
    assert summary["shape"] == [1000, 1000]
    assert summary["dtype"] == "torch.int64"
    assert summary["first"] == "[0, 1, 2, 3, 4, 5, 6, 7]"


def test_output_is_cut_with_a_note(sandbox: Sandbox) -> None:
    outcome = sandbox.execute("for i in range(500): print('0123456789')\nresult = 1")
    assert outcome.result == 1
    output, note = outcome.stdout[: SMALL.output_bytes], outcome.stdout[SMALL.output_bytes :]
    assert output == ("0123456789\n" * 500)[: SMALL.output_bytes]
    assert note == f"\n... ({5500 - SMALL.output_bytes} more bytes of output were dropped)"


def test_times_are_measured_outside(sandbox: Sandbox) -> None:
    outcome = sandbox.execute(
        "import time\nt = time.process_time()\nwhile time.process_time() < t + 0.3: pass\ntime.time = None\nresult = 1"
    )
    assert outcome.seconds >= outcome.cpu_seconds * 0.9 >= 0.25


def test_a_bad_input_affects_only_its_own_call(sandbox: Sandbox) -> None:
    code = """
import os, time
def f(x):
    if x == 2: raise ValueError("two")
    if x == 3: os._exit(0)
    if x == 4:
        while True: pass
    if x == 5:
        while True:
            try: time.sleep(10)
            except BaseException: pass
    if x == 6: return bytearray(10 ** 10)
    print("noise")
    return x * x
"""
    results = sandbox.call_many(code, "f", [0, 1, 2, 3, 4, 5, 6, 7, "s"], per_call_seconds=2, total_seconds=120)
    assert [result.value for result in results] == [0, 1, None, None, None, None, None, 49, None]
    assert [result.stopped_by for result in results] == [None, None, None, "crash", "wall", "wall", None, None, None]
    assert [result.reported_limit for result in results] == [*[None] * 6, "memory", None, None]
    assert results[2].error == '  line 4, in f: if x == 2: raise ValueError("two")\nValueError: two'
    assert "TypeError" in str(results[8].error)


def test_a_thousand_calls_take_one_process(sandbox: Sandbox) -> None:
    results = sandbox.call_many("import os\ndef f(x): return [x + 1, os.getpid()]", "f", list(range(1000)))
    assert [result.value[0] for result in results] == list(range(1, 1001))
    assert len({result.value[1] for result in results}) == 1


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x = 1", "did not define a function 'f'"),
        ("def f(", "SyntaxError"),
        ("import os\nos._exit(1)", "exit status 1"),
    ],
)
def test_a_function_that_cannot_be_defined_fails_every_input(code: str, message: str, sandbox: Sandbox) -> None:
    results = sandbox.call_many(code, "f", [1, 2, 3])
    assert len(results) == 3
    assert all(message in str(result.error) and not result.ok for result in results)


def test_the_total_time_bounds_all_inputs(sandbox: Sandbox) -> None:
    code = "import time\ndef f(x): time.sleep(0.2); return x"
    results = sandbox.call_many(code, "f", list(range(100)), total_seconds=1)
    assert len(results) == 100
    assert not results[99].ok
    assert results[99].stopped_by == "wall"


def test_the_toolbox_can_be_read_and_nothing_else(sandbox: Sandbox, toolbox: Path) -> None:
    assert sandbox.list_directory() == ["helper.py", "notes/"]
    assert sandbox.list_directory("notes") == ["read_me.txt"]
    assert sandbox.read_file("notes/read_me.txt") == "how to look inside\n"
    assert sandbox.read_file(str(toolbox / "helper.py")).startswith("def double")
    code = f"import sys\nsys.path.append({str(toolbox)!r})\nimport helper\nresult = helper.double(4)"
    assert sandbox.execute(code).result == 8


@pytest.mark.parametrize("path", ["..", "notes/../../x", "/etc/passwd", "way_out", "missing", "notes", "a\0b", "/"])
def test_paths_out_of_the_toolbox_are_refused(path: str, sandbox: Sandbox) -> None:
    with pytest.raises(BadInput) as refusal:
        sandbox.read_file(path)
    assert "\n" not in str(refusal.value)
    if path != "notes":
        with pytest.raises(BadInput):
            sandbox.list_directory(path)


def test_a_dead_warm_process_is_replaced() -> None:
    for sandbox in opened(LAYERS["no namespaces"]):
        warm = sandbox.process_id
        os.killpg(warm, signal.SIGKILL)
        until_gone(warm)
        assert sandbox.execute("result = 2").result == 2
        assert sandbox.restarts == 1


def test_closing_the_sandbox_ends_every_process() -> None:
    for layers in LAYERS.values():
        for sandbox in opened(layers):
            members = family(sandbox.process_id)
            sandbox.close()
            assert not [pid for pid in members if alive(pid)]
            with pytest.raises(BadInput, match="not open"):
                sandbox.execute("result = 1")


CALLER = """
from vesalius.sandbox import Sandbox
with Sandbox(layers={layers!r}) as sandbox:
    print(sandbox.process_id, flush=True)
    sandbox.execute("import time; time.sleep(1000)")
"""


@pytest.mark.parametrize("layers", LAYERS.values(), ids=list(LAYERS))
def test_nothing_outlives_a_killed_caller(layers: tuple[str, ...]) -> None:
    for sandbox in opened(layers):
        sandbox.close()
    caller = subprocess.Popen([sys.executable, "-c", CALLER.format(layers=layers)], stdout=subprocess.PIPE)
    assert caller.stdout is not None
    with caller.stdout as lines:
        warm = int(lines.readline())
        until(lambda: len(family(warm)) >= (4 if "namespaces" in layers else 2))
        members = family(warm)
        caller.kill()
        caller.wait()
    until_gone(*members)


@pytest.mark.parametrize(
    ("function", "argument", "message"),
    [
        ("broken", "x", "RuntimeError: no specimen 'x'"),
        ("threaded", 1000, "1 threads running"),
        ("careless", None, "vesalius_truth"),
        ("generating", None, "vesalius_functions"),
        ("absent", None, "has no attribute 'absent'"),
    ],
)
def test_a_preload_that_fails_says_why_in_one_line(function: str, argument: object, message: str) -> None:
    preload = f"tests.sandbox.preload:{function}"
    with pytest.raises(Failed) as failure, Sandbox(preload, argument, unsafe=True):
        pass
    assert message in str(failure.value)
    assert preload in str(failure.value)
    assert "\n" not in str(failure.value)


def test_a_preload_has_a_time_limit() -> None:
    with (
        pytest.raises(Failed, match="start_seconds"),
        Sandbox("tests.sandbox.preload:slow", 100, unsafe=True, start_seconds=0.5),
    ):
        pass


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sandbox("module"), "module:function"),
        (lambda: Sandbox(toolbox=Path("/nowhere")), "not a directory"),
        (lambda: Sandbox(layers=["walls"]), "does not exist"),
        (lambda: Limits(cpu_seconds=0), "above 0"),
        (lambda: Limits(cpu_seconds=1.5), "whole seconds"),  # type: ignore[arg-type]
        (lambda: Limits(wall_seconds=math.nan), "above 0"),
    ],
)
def test_bad_arguments_are_refused(make, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make()


def test_values_must_be_json(sandbox: Sandbox) -> None:
    with pytest.raises(BadInput, match="must be JSON"):
        sandbox.execute("result = 1", {"x": object()})


def test_the_reply_of_an_interrupted_call_is_not_used_for_the_next(contained: Sandbox) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    def execute() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        contained.execute("import time\ntime.sleep(5)\nresult = 'old'")

    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            execute()
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert contained.execute("result = 'new'").result == "new"


@pytest.fixture
def contained() -> Iterator[Sandbox]:
    yield from opened(LAYERS["no namespaces"])


def test_the_preload_is_what_the_names_need(sandbox: Sandbox) -> None:
    loaded = sandbox.execute("import sys\nresult = [m for m in sys.modules if m.startswith('vesalius.')]").result
    assert "vesalius.model.transformer" in loaded
    assert not [name for name in loaded if name.startswith(filesystem.SEALED_MODULES)]
