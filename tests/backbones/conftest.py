"""Fixtures for the backbones: no keys from outside, no real waiting."""

import os
import socket
from dataclasses import dataclass, field
from typing import Any, NoReturn

import pytest


@dataclass
class FakeClock:
    """A clock that jumps forward instead of sleeping."""

    time: float = 0.0
    waits: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.time += seconds


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key, address or proxy from the environment of the test run."""
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_BASE_URL", "_API_BASE", "_PROXY", "_proxy")):
            monkeypatch.delenv(name)


@pytest.fixture
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a connection is an error."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
