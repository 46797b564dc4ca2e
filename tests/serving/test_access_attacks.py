"""A second round of attacks on the access layer: requests and files that are ambiguous. None lets anybody in."""

import json
import os
from pathlib import Path

import anyio
import pytest

from tests.workbench.test_guard_attacks import HOST, JSON, ORIGIN, Asked
from vesalius.errors import BadInput
from vesalius_serving.clients import Bearer, Clients
from vesalius_serving.sessions import Sessions
from vesalius_workbench.guard import cookie_name

Pairs = list[tuple[str, str]]


def status_of(asked: Asked, pairs: Pairs, *, method: str = "POST", path: str = "/api/what-if") -> int:
    """The status of a request whose headers may stand twice."""
    heard: list[int] = []

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, object]) -> None:
        if message["type"] == "http.response.start":
            heard.append(int(str(message["status"])))

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "client": ("127.0.0.1", 1),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in pairs],
    }
    anyio.run(asked.guard, scope, receive, send)
    return heard[0]


#: What replaces headers of a request that is right; {secret} is the session's.
TWICE: dict[str, Pairs] = {
    "a second host": [("host", "evil.example")],
    "a second origin": [("origin", "http://evil.example")],
    "a second type": [("content-type", "text/plain")],
    "a second length": [("content-length", "5")],
}
OTHERWISE: dict[str, Pairs] = {
    "a cookie in quotes": [("cookie", '{name}="{secret}"')],
    "a cookie of another port": [("cookie", "vesalius-1=" + "{secret}")],
    "a cookie without its port": [("cookie", "vesalius={secret}")],
    "a cookie by another comma": [("cookie", "a=b, {name}={secret}")],
    "half a secret": [("cookie", "{name}={half}")],
    "a secret with more behind it": [("cookie", "{name}={secret}x")],
    "a secret with a null": [("cookie", "{name}={secret}\0")],
    "a secret in percents": [("cookie", "{name}=%{hex}")],
    "an empty first cookie": [("cookie", "{name}=; {name}={secret}")],
    "the secret as a bearer": [("authorization", "Bearer {secret}")],
    "the secret as a password": [("authorization", "Basic {secret}")],
    "the secret in a header of ours": [("x-vesalius-session", "{secret}")],
}


@pytest.mark.parametrize("name", TWICE)
@pytest.mark.parametrize("first", [True, False])
def test_a_header_that_stands_twice_is_refused(name: str, first: bool) -> None:
    asked = Asked()
    right = [
        ("host", HOST),
        ("cookie", asked.cookie),
        ("origin", ORIGIN),
        ("content-type", JSON),
        ("content-length", "2"),
    ]
    assert status_of(asked, right) == 200
    pairs = [*TWICE[name], *right] if first else [*right, *TWICE[name]]
    assert 400 <= status_of(asked, pairs) < 500
    assert len(asked.behind.reached) == 1


@pytest.mark.parametrize("name", OTHERWISE)
def test_a_secret_that_is_sent_otherwise_lets_nobody_in(name: str) -> None:
    asked = Asked()
    words = {"secret": asked.secret, "half": asked.secret[:16], "name": cookie_name(HOST)}
    words["hex"] = asked.secret.encode().hex()
    pairs = [(header, value.format(**words)) for header, value in OTHERWISE[name]]
    assert status_of(asked, [("host", HOST), *pairs], method="GET") == 401
    assert asked.behind.reached == []


@pytest.fixture
def clients(tmp_path: Path) -> Clients:
    made = Clients(tmp_path / "clients.json")
    made.require(["ada", "bob"])
    return made


def taken_for(clients: Clients, *headers: tuple[bytes, bytes]) -> str | None:
    """The client that a request is taken for."""
    names: list[str] = []

    async def inside(scope: object, receive: object, send: object) -> None:
        return None

    async def send(message: object) -> None:
        return None

    app = Bearer(inside, clients, lambda scope, name: names.append(name))
    anyio.run(app, {"type": "http", "headers": list(headers)}, None, send)
    return names[0] if names else None


@pytest.mark.parametrize(
    "value",
    [
        "Bearer\t{0}",
        "Bearer{0}",
        "{0}",
        "Bearer {0} {0}",
        "Bearer {0},{0}",
        "Bearer {half}",
        "Bearer {0}x",
        "Bearer \x00{0}",
    ],
)
def test_a_bearer_that_is_not_one_is_nobody(value: str, clients: Clients) -> None:
    secret = json.loads(clients.path.read_text())["clients"]["ada"]
    sent = value.format(secret, half=secret[:16]).encode("latin-1")
    assert taken_for(clients, (b"authorization", sent)) is None


def test_a_bearer_whose_letters_look_alike_is_nobody(clients: Clients) -> None:
    secret = json.loads(clients.path.read_text())["clients"]["ada"]
    wide = "".join(chr(ord(letter) + 0xFEE0) for letter in secret)
    assert taken_for(clients, (b"authorization", b"Bearer " + wide.encode())) is None
    assert taken_for(clients, (b"Authorization", b"Bearer x"), (b"authorization", f"Bearer {secret}".encode())) is None


@pytest.mark.parametrize("kind", ["a link", "a pipe", "a folder", "brackets", "a list", "short secrets", "numbers"])
def test_a_file_of_clients_that_was_exchanged_lets_nobody_in(kind: str, clients: Clients, tmp_path: Path) -> None:
    secret = "x" * 32
    good = json.dumps({"schema": 1, "clients": {"eve": secret}})
    clients.path.unlink()
    if kind == "a link":
        (tmp_path / "mine.json").write_text(good)
        clients.path.symlink_to(tmp_path / "mine.json")
    elif kind == "a pipe":
        os.mkfifo(clients.path, 0o600)
    elif kind == "a folder":
        clients.path.mkdir(0o700)
    else:
        secret = {"short secrets": "", "numbers": "7"}.get(kind, secret)
        text = {
            "brackets": "[" * 100_000,
            "a list": json.dumps([{"clients": {"eve": secret}}]),
            "short secrets": json.dumps({"clients": {"eve": ""}}),
            "numbers": json.dumps({"clients": {"eve": 7}}),
        }[kind]
        clients.path.write_text(text)
        clients.path.chmod(0o600)
    assert clients.of(secret) is None
    assert taken_for(clients, (b"authorization", f"Bearer {secret}".encode())) is None
    if kind != "a folder":
        with pytest.raises(BadInput):
            clients.revoke("eve")


def test_a_session_is_not_named_by_what_a_client_calls_itself() -> None:
    """Names are numbers of ours: a program that calls itself like another session does not end that one."""
    sessions = Sessions()
    kept = sessions.begin(address="127.0.0.1", program="a browser")
    sessions.begin(address="1", program="1")
    assert sessions.revoke("2")
    assert sessions.known(kept) is not None
    assert not sessions.revoke("1 ")
    assert not sessions.revoke("")
