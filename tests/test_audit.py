"""The audit of what is installed: what was changed, is missing or is another version is one line; the lock fits."""

import base64
import hashlib
import re
from importlib import metadata
from pathlib import Path

import pytest
from scripts import audit


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package of one file."""
    about = tmp_path / "thing-1.0.dist-info"
    about.mkdir()
    (tmp_path / "thing.py").write_text("x = 1\n")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: Thing\nVersion: 1.0\n")
    (about / "RECORD").write_text(f"thing.py,{recorded(tmp_path)},6\nthing-1.0.dist-info/RECORD,,\n")
    monkeypatch.setattr(audit, "installed", lambda: {"thing": metadata.Distribution.at(about)})
    monkeypatch.setattr(audit, "pins", lambda: {"thing": "1.0"})
    return tmp_path


def recorded(place: Path) -> str:
    found = hashlib.sha256((place / "thing.py").read_bytes()).digest()
    return "sha256=" + base64.urlsafe_b64encode(found).rstrip(b"=").decode()


def test_what_is_as_it_was_installed_has_no_fault(package: Path) -> None:
    assert audit.audit() == []
    assert audit.audit(["Thing"]) == []


def test_what_was_changed_is_named(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (package / "thing.py").write_text("x = 2\n")
    assert audit.audit() == ["thing: thing.py was changed"]
    (package / "thing.py").unlink()
    monkeypatch.setattr(audit, "pins", lambda: {"thing": "1.1"})
    assert audit.audit() == ["thing 1.0: 1.1 is pinned", "thing: thing.py is missing"]
    assert audit.audit(["none"]) == ["none: is not installed"]
    (package / "thing-1.0.dist-info" / "RECORD").unlink()
    assert "thing: has no RECORD" in audit.audit()


def test_a_build_of_the_pinned_version_is_that_version() -> None:
    assert audit.wrong_version("torch", "2.13.0+cpu", {"torch": "2.13.0"}) is None
    assert audit.wrong_version("torch", "2.13.1", {"torch": "2.13.0"}) == "torch 2.13.1: 2.13.0 is pinned"


def test_the_network_facing_packages_are_pinned_and_hashed() -> None:
    locked = dict(re.findall(r"^([\w-]+)==(\S+)", audit.LOCK.read_text(), re.MULTILINE))
    pinned = audit.pins()
    assert {"fastapi", "starlette", "uvicorn", "mcp", "cryptography"} <= set(pinned) & set(locked)
    assert {name: version for name, version in locked.items() if pinned.get(name, version) != version} == {}
    entries = audit.LOCK.read_text().split("\n\n")[0].split("==")[1:]
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries)


def test_both_forms_of_an_index_are_read() -> None:
    digest = "a" * 64
    assert audit.listed(f'<a href="../../packages/x/thing-1.0.tar.gz#sha256={digest}">t</a>') == {
        "thing-1.0.tar.gz": digest
    }
    assert audit.listed(f'{{"files": [{{"filename": "t-1.whl", "hashes": {{"sha256": "{digest}"}}}}]}}') == {
        "t-1.whl": digest
    }
