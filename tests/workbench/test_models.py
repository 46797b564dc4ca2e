"""What the server keeps in memory, and from where it loads."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")
from vesalius.errors import BadInput
from vesalius.workbench import models as module
from vesalius.workbench.models import Models


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """What was loaded: name and options."""
    seen: list[tuple[Any, Any]] = []

    def load(name: Any, **options: Any) -> Any:
        seen.append((name, {key: value for key, value in options.items() if value is not None and key != "progress"}))
        return SimpleNamespace(name=name)

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
