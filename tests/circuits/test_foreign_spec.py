"""The key of somebody else's specimen: data are read, code runs in the sandbox only."""

import json
import os
from pathlib import Path

import pytest

from vesalius.errors import BadInput, Failed
from vesalius.rasp import load_spec
from vesalius.rasp.document import to_document
from vesalius.sandbox import Sandbox
from vesalius_truth import making as foreign_spec
from vesalius_truth.grading.discovery import true_circuit
from vesalius_truth.grading.keys import reference_texts, true_tags
from vesalius_truth.making import (
    KEY_FILE,
    KEY_FOLDER,
    PROGRAM_FILE,
    key_program,
    program_of_spec,
)

HONEST = (Path(__file__).parents[2] / "examples" / "frac_prevs.py").read_text()
#: Leaves a file and an environment variable behind where it is not contained.
HOSTILE = """
import os
try:
    open({canary!r}, "w").write(os.environ.get("VESALIUS_TEST_KEY", "no key"))
except OSError:
    pass
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "specimen" / KEY_FOLDER).mkdir(parents=True)
    return tmp_path / "specimen"


def written(directory: Path, text: str) -> Path:
    path = directory / KEY_FOLDER / KEY_FILE
    path.write_text(text)
    return path


def contained() -> None:
    try:
        with Sandbox():
            pass
    except Failed as refusal:
        pytest.skip(str(refusal))


@pytest.mark.slow
def test_the_program_of_a_spec_is_the_one_that_runs_here(directory: Path) -> None:
    contained()
    path = written(directory, HONEST)
    assert to_document(program_of_spec(path)) == {**to_document(load_spec(path)), "name": load_spec(path).name}
    assert to_document(key_program(directory)) == to_document(load_spec(path))


def test_a_hostile_spec_reaches_nothing(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contained()
    canary = tmp_path / "canary"
    monkeypatch.setenv("VESALIUS_TEST_KEY", "sk-secret")
    written(directory, HOSTILE.format(canary=str(canary)) + HONEST)
    assert true_tags("other", directory)
    assert true_circuit("other", directory)
    assert reference_texts("other", directory).notes
    assert not canary.exists()
    assert os.environ["VESALIUS_TEST_KEY"] == "sk-secret"


def test_data_are_read_and_nothing_is_run(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(directory, HONEST)
    document = to_document(load_spec(path))
    (directory / KEY_FOLDER / PROGRAM_FILE).write_text(json.dumps(document))
    path.write_text("raise RuntimeError")
    monkeypatch.setattr(foreign_spec, "program_of_spec", None)
    assert to_document(key_program(directory)) == document


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x = 1", "does not define program"),
        ("raise ValueError('bad')", "running the file failed"),
        ("while True: pass", "CPU time"),
        ("import os\nos._exit(0)", "before it could report"),
        ('import os\nos.write(4, b\'{"value": "forged"}\\n\')\nos._exit(0)', "not readable as JSON"),
        ("def program(:", "running the file failed"),
    ],
)
def test_what_is_wrong_with_a_spec_is_one_line(
    directory: Path, text: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    contained()
    if reason == "CPU time":  # for the others a fork on a busy machine could take as much
        monkeypatch.setattr(foreign_spec, "LIMITS", foreign_spec.LIMITS.__class__(cpu_seconds=1))
    path = written(directory, text)
    with pytest.raises(BadInput, match=reason) as refusal:
        program_of_spec(path)
    assert str(path) in str(refusal.value)


def test_where_nothing_is_contained_it_is_not_run(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Sandbox:
        raise Failed("the sandbox cannot contain code on this machine")

    monkeypatch.setattr(foreign_spec, "_sandbox", refuse)
    with pytest.raises(Failed, match="is not run, because the sandbox cannot contain"):
        program_of_spec(written(directory, HONEST + "\n# another"))
