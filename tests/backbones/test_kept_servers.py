"""Which servers of local models stay: with servers that only remember whether they were closed."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from vesalius_backbones import local
from vesalius_backbones.providers import PROVIDERS, Access


class StubServer:
    def __init__(self, model: Path, options: local.LocalOptions) -> None:
        self.url, self.runs, self.users = f"http://{model.stem}/{options.context}", True, 0

    def close(self) -> None:
        self.runs = False


@pytest.fixture(autouse=True)
def stubs(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(access: Access) -> SimpleNamespace:
        return SimpleNamespace(url=access.base_url, close=lambda: None)

    monkeypatch.setattr(local, "_KEPT", {})
    monkeypatch.setattr(local, "LocalServer", StubServer)
    monkeypatch.setitem(PROVIDERS, "compatible", replace(PROVIDERS["compatible"], package=None, open=connect))


def connected(folder: Path, model: str) -> local.LocalConnection:
    name, _, options = model.partition("?")
    path = folder / f"{name}.gguf"
    path.touch()
    return local.LocalConnection(Access(f"{path}?{options}", None, None, 1.0, keep_server=True))


def running() -> list[str]:
    return [server.url.removeprefix("http://") for server in local._KEPT.values() if server.runs]


def test_two_models_in_use_have_a_server_each(tmp_path: Path) -> None:
    interpreter, function = connected(tmp_path, "a"), connected(tmp_path, "b")
    longer = connected(tmp_path, "b?context=512")
    assert running() == ["a/4096", "b/4096", "b/512"]
    for connection in (interpreter, function, longer):
        connection.close()
    assert running() == ["a/4096", "b/4096", "b/512"], "they stay for the next backbones"


def test_a_server_is_shared_and_ends_when_another_model_is_opened_after_its_last_user(tmp_path: Path) -> None:
    first, second = connected(tmp_path, "a"), connected(tmp_path, "a")
    assert running() == ["a/4096"]
    first.close()
    first.close()  # counts once
    connected(tmp_path, "b").close()
    assert running() == ["a/4096", "b/4096"], "the second connection still uses it"
    second.close()
    connected(tmp_path, "c")
    assert running() == ["c/4096"]


def test_a_server_that_died_is_replaced(tmp_path: Path) -> None:
    before = connected(tmp_path, "a")
    dead = next(iter(local._KEPT.values()))
    dead.close()
    after = connected(tmp_path, "a")
    before.close()
    assert [(server is dead, server.users) for server in local._KEPT.values()] == [(False, 1)]
    after.close()
