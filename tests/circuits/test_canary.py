"""The answer key stays shut: nothing that an explainer, a prompt or a sandbox is handed contains any of it."""

import ast
import dataclasses
import gc
import json
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import vesalius
import vesalius_truth.key as key
from vesalius.api import load, show, specimens
from vesalius.circuits.specimens import benchmark_directory, write_specimen
from vesalius.model.specimen import Specimen
from vesalius.rasp import Program, Role
from vesalius.rasp.language import Expression
from vesalius_truth.key import AnswerKey, ComponentAnswer, Task
from vesalius_truth.key.make import _card, setting_for
from vesalius_truth.training.gate import measure

ROOT = Path(vesalius.__file__).parent
EVERY = [one.id for one in key.all_tasks()]
SEALED = (Task, Program, AnswerKey, ComponentAnswer, Expression)
CANARY = "canary-7f3a9c51-sings-when-the-key-is-open"


def secrets(id: str) -> set[str]:
    """Every text of a task's answer that is not also its name, a token or an output."""
    one, answer = key.task(id), key.answer(id)
    public = {one.name} | {str(value) for value in (*one.vocab, *([] if one.numerical else one.program().outputs))}
    parts = answer.components
    variables = {name for part in parts for name in part.variables if len(name) > 3}
    lines = {line for line in answer.program.splitlines() if len(line) > 3}
    notes = {part.note for part in parts}
    return ({answer.description, answer.program} | notes | lines | variables | {str(role) for role in Role}) - public


def strings(value: object) -> Iterator[str]:
    """Every string in a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from (name, *strings(part))
    elif isinstance(value, list):
        for part in value:
            yield from strings(part)


def reachable(root: object) -> Iterator[object]:
    """Everything an object holds: attributes, items, closure cells, bound arguments; not the modules it was born in."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        value = waiting.pop()
        if id(value) in seen or isinstance(value, types.ModuleType | type | torch.Tensor):
            continue
        seen.add(id(value))
        yield value
        if isinstance(value, types.FunctionType):
            cells = [cell.cell_contents for cell in value.__closure__ or ()]
            waiting += [*cells, value.__defaults__, value.__kwdefaults__, value.__dict__, value.__doc__]
        elif isinstance(value, types.MethodType):
            waiting += [value.__self__, value.__func__]
        else:
            # What the interpreter itself would follow: finds slots, dictionaries, partials and containers alike.
            waiting += [part for part in gc.get_referents(value) if not isinstance(part, types.CodeType)]


def leaks(text: str, id: str) -> list[str]:
    """Secrets that stand in the text as whole words, apart from the task's name (`zero` is not in `zero_ablated`)."""
    rest = text.replace(key.task(id).name, "")
    return sorted(secret for secret in secrets(id) if re.search(rf"(?<!\w){re.escape(secret)}(?!\w)", rest))


def test_the_search_finds_what_is_hidden() -> None:
    """The walk and the word list are worth something only if they find a planted answer."""
    one = key.task("3")

    @dataclasses.dataclass(frozen=True)
    class Box:
        inside: object

    hidden = [Box({"x": [one]}), lambda: one, types.MethodType(lambda self: None, one), Box(lambda x=one: x)]
    assert all(any(part is one for part in reachable(box)) for box in hidden)
    assert {"is_x", "share_of_x", "INDICATOR", one.description} <= secrets("3")
    assert leaks(json.dumps({"note": one.notes["L0_MLP"]}), "3")


@pytest.mark.parametrize("id", EVERY)
def test_shipped_files_hold_no_answer(id: str) -> None:
    folder = benchmark_directory(id)
    assert folder is not None
    assert sorted(path.name for path in folder.iterdir()) == ["model.json", "model.safetensors", "specimen.json"]
    for path in folder.iterdir():
        if path.suffix == ".json":
            text = "\n".join(strings(json.loads(path.read_text(encoding="utf-8"))))
        else:
            header = int.from_bytes(path.read_bytes()[:8], "little")
            text = path.read_bytes()[8 : 8 + header].decode()
        assert leaks(text, id) == []


@pytest.mark.parametrize("id", EVERY)
def test_a_loaded_specimen_holds_no_answer(id: str) -> None:
    specimen = load(id)
    held = list(reachable(specimen))
    assert any(value is specimen.model for value in held)
    assert any(value == specimen.vocabulary for value in held if type(value) is type(specimen.vocabulary))
    assert not [value for value in held if isinstance(value, SEALED)]
    sentences = {key.task(id).description, key.answer(id).program, *key.task(id).notes.values()}
    assert not [value for value in held if isinstance(value, str) and any(s in value for s in sentences)]


LOADING = """
import sys
import vesalius
import vesalius.api as api
specimen = api.load(sys.argv[1])
api.specimens()
api.sweep(specimen, n=4)
specimen.predict(specimen.sample(4))
print([name for name in sys.modules if name.startswith("vesalius.rasp")])
api.explain(specimen, progress=False)
print([name for name in sys.modules if name.startswith("vesalius_truth")])
"""


@pytest.mark.slow
def test_loading_sweeping_and_explaining_a_specimen_leaves_the_door_shut() -> None:
    loaded = subprocess.run([sys.executable, "-c", LOADING, "3"], capture_output=True, text=True, check=False)
    assert loaded.returncode == 0, loaded.stderr
    assert loaded.stdout.splitlines() == ["[]", "[]"]


@pytest.fixture
def marked_task(monkeypatch: pytest.MonkeyPatch) -> Task:
    """Task 3 with a word in its description, its notes and its variables' names that occurs nowhere else."""
    one = key.task("3")
    for secret in (one.description, *one.notes.values()):
        assert CANARY not in secret
    marked = dataclasses.replace(
        one, description=CANARY, notes={name: f"{CANARY} {note}" for name, note in one.notes.items()}
    )
    marked.program().description = CANARY
    monkeypatch.setattr(key, "TASKS", tuple(marked if other is one else other for other in key.TASKS))
    assert CANARY in key.answer("3").model_dump_json()
    return marked


def holds_canary(specimen: Specimen, shown: str) -> list[str]:
    places = {
        "list": json.dumps(specimens()),
        "describe": json.dumps(specimen.describe()),
        "show": shown,
        "repr": repr(specimen),
        "object": "\n".join(value for value in reachable(specimen) if isinstance(value, str)),
    }
    return [place for place, text in places.items() if CANARY in text]


def test_a_canary_in_the_key_is_seen_nowhere_else(marked_task: Task, tmp_path: Path) -> None:
    """Also not in a specimen directory that is written afresh while the canary sits in the key."""
    setting, model = setting_for(marked_task), load("3").model
    record = {"seed": 0, "learning_rate": 0.0, "steps": 1}
    write_specimen(tmp_path, model, _card(marked_task, setting, measure(model, setting, n=8, seed=1), record))
    for name in ("3", str(tmp_path)):
        shown = show(name).model_dump_json()
        assert json.loads(shown)["name"] == "frac_prevs"
        assert holds_canary(load(name), shown) == []
    for path in tmp_path.iterdir():
        assert CANARY.encode() not in path.read_bytes()


@pytest.mark.slow
def test_nobody_but_grading_names_the_door() -> None:
    """Imports are held by the floors; this also catches a module reached by its name in a string."""
    # The sandbox names the door to keep it shut.
    truth = ROOT.parent / "vesalius_truth"
    allowed = (truth / "key", truth / "grading", ROOT / "sandbox" / "filesystem.py")
    every = ROOT.parent.glob("vesalius*/**/*.py")  # the core and its wings
    outside = [path for path in every if not any(path.is_relative_to(room) for room in allowed)]
    assert {"vesalius", "vesalius_agents"} < {path.relative_to(ROOT.parent).parts[0] for path in outside}
    assert len(outside) > 50
    offenders = []
    for path in outside:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                named = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                named = [alias.name for alias in node.names]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                named = [node.value]
            else:
                continue
            offenders += [f"{path}:{node.lineno}" for name in named if "vesalius_truth.key" in name]
    assert offenders == []
