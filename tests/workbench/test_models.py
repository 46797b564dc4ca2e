"""What the server keeps in memory, and from where it loads."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")
from vesalius.errors import BadInput
from vesalius_workbench import models as module
from vesalius_workbench.models import Models
from vesalius_workbench.store import located


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """What was loaded: name and options."""
    seen: list[tuple[Any, Any]] = []

    def load(name: Any, **options: Any) -> Any:
        seen.append((name, {key: value for key, value in options.items() if value is not None and key != "progress"}))
        return SimpleNamespace(name=name, vocabulary=SimpleNamespace(lengths=lambda given: [len(given[0])]))

    monkeypatch.setattr(module.api, "load", load)
    return seen


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Models:
    """A directory that is open, and another one from which the server was started; both hold the same names."""
    for place in ("open", "started"):
        (tmp_path / place / "org" / "model").mkdir(parents=True)
        (tmp_path / place / "rows.jsonl").touch()
        (tmp_path / place / "plain").mkdir()
    (tmp_path / "started" / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "started")
    return Models(tmp_path / "open", {"named/at-start"})


def test_names_stand_for_what_lies_below_the_open_directory(opened: Models, loads: list[Any]) -> None:
    opened.specimen("org/model", "rows.jsonl", {"tokenizer": "plain"})
    opened.specimen("plain", "ioi")
    opened.specimen("frac_prevs", None)
    opened.specimen("named/at-start", None)
    top = opened.directory
    assert loads == [
        (str(top / "org" / "model"), {"behaviour": str(top / "rows.jsonl"), "tokenizer": str(top / "plain")}),
        (str(top / "plain"), {"behaviour": "ioi"}),
        ("frac_prevs", {}),
        ("named/at-start", {}),
    ]


@pytest.mark.parametrize(
    ("specimen", "behaviour"),
    [("elsewhere", None), ("org/none", None), ("../started/plain", None), ("a/\0", None), ("3", "elsewhere")],
)
def test_what_lies_elsewhere_is_not_loaded(
    specimen: str, behaviour: str | None, opened: Models, loads: list[Any]
) -> None:
    with pytest.raises(BadInput, match="is not below the directory that is open"):
        opened.specimen(specimen, behaviour)
    assert loads == []


def ask(models: Models, specimen: str = "3", **fields: Any) -> Any:
    drawn = {"kind": "zero", "n": 4, "seed": 0, "split": "test"}
    return models.what_if({"specimen": specimen, "components": ["L0H0"], **drawn, **fields})


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clean run of a question stands for its answer."""
    monkeypatch.setattr(module, "prepare", lambda specimen, edit, draw: SimpleNamespace(specimen=specimen, edit=edit))
    monkeypatch.setattr(module, "answer", lambda ready, *asked: ready)


def test_every_prompt_has_a_clean_run_of_its_own(opened: Models, loads: list[Any], runs: None) -> None:
    prompts: list[Any] = [None, "None", ["a"], "['a']", [1], ["1"]]
    answers = [ask(opened, prompt=prompt) for prompt in prompts]
    assert [answer.edit.prompt for answer in answers] == prompts
    assert ask(opened, prompt=["1"]) is answers[-1]


def test_a_model_that_is_let_go_leaves_no_clean_run(opened: Models, loads: list[Any], runs: None) -> None:
    first = ask(opened)
    for name in ("4", "5"):
        ask(opened, name)
    assert {run.specimen.name for run in opened._runs.values()} == {"4", "5"}
    assert ask(opened) is not first
    assert len(loads) == 4


def test_long_prompts_are_for_the_command_line(opened: Models, loads: list[Any], runs: None) -> None:
    ask(opened, prompt="x" * module.MOST_TOKENS)
    for fields in ({"prompt": "x" * 257}, {"prompt": "x", "source": "x" * 257}):
        with pytest.raises(BadInput, match="has 257 tokens; at most 256 here"):
            ask(opened, **fields)


def test_files_where_the_server_was_started_are_read_beside_those_of_the_open_directory(tmp_path: Path) -> None:
    """After `discover --behaviour past.jsonl` the results name a file beside the directory of results."""
    runs, file, outside = (
        tmp_path / "work" / "vesalius-runs",
        tmp_path / "work" / "past.jsonl",
        tmp_path / "secret.jsonl",
    )
    runs.mkdir(parents=True)
    file.touch()
    outside.touch()
    for name in ("past.jsonl", str(file)):
        assert located(runs, name, "behaviour", tmp_path / "work") == str(file)
        with pytest.raises(BadInput, match="is not below the directory that is open"):
            located(runs, name, "behaviour")
    for name in ("../secret.jsonl", "../../secret.jsonl", str(outside), "none.jsonl", "past.jsonl\0"):
        with pytest.raises(BadInput, match="is not below the directory that is open"):
            located(runs, name, "behaviour", tmp_path / "work")
