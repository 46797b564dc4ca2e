"""Tickets, sessions, private files, secrets of clients: who is let in, and who no longer is."""

import json
import os
import stat
from pathlib import Path

import anyio
import pytest

from tests.no_room import no_room
from vesalius.errors import BadInput, Failed
from vesalius.private import read_private, write_private
from vesalius_serving.clients import Bearer, Clients
from vesalius_serving.private import private_directory, redirect_page
from vesalius_serving.sessions import MOST_TICKETS, UNUSED, Sessions

WHO = {"address": "127.0.0.1", "program": "a browser"}


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_ticket_lets_one_client_in_once() -> None:
    sessions, used = Sessions(), []
    ticket = sessions.ticket(used=lambda: used.append(1))
    assert sessions.enter("guess", **WHO) is None
    assert used == []
    secret = sessions.enter(ticket, **WHO)
    assert secret is not None
    assert used == [1]
    assert sessions.enter(ticket, **WHO) is None
    known = sessions.known(secret)
    assert known is not None
    assert (known.name, known.program) == ("1", "a browser")
    assert sessions.known(ticket) is None


def test_a_session_is_revoked_and_others_stay() -> None:
    sessions = Sessions()
    one, two = (sessions.begin(**WHO) for _ in range(2))
    assert [session.name for session in sessions.listed()] == ["1", "2"]
    assert sessions.revoke("1")
    assert not sessions.revoke("1")
    assert sessions.known(one) is None
    assert sessions.known(two) is not None


def test_sessions_and_tickets_are_limited_and_unused_ones_end() -> None:
    clock = Clock()
    sessions = Sessions(most=2, clock=clock)
    first, *_, last = [sessions.ticket() for _ in range(MOST_TICKETS + 1)]
    assert sessions.enter(first, **WHO) is None
    kept = sessions.enter(last, **WHO)
    assert kept is not None
    sessions.begin(**WHO)
    clock.now += UNUSED / 2
    assert sessions.known(kept) is not None
    clock.now += UNUSED / 2 + 1
    assert [one.name for one in sessions.listed()] == ["1"]


def test_where_there_is_no_room_the_session_that_was_unused_longest_ends() -> None:
    clock = Clock()
    sessions = Sessions(most=2, clock=clock)
    secrets = [sessions.begin(**WHO) for _ in range(2)]
    clock.now += 1
    assert sessions.known(secrets[0]) is not None
    assert sessions.enter("guess", **WHO) is None
    assert [one.name for one in sessions.listed()] == ["1", "2"]
    assert sessions.enter(sessions.ticket(), **WHO) is not None
    assert [one.name for one in sessions.listed()] == ["1", "3"]
    assert sessions.known(secrets[1]) is None


def test_private_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    os.umask(previous := os.umask(0))
    try:
        os.umask(0)
        write_private(tmp_path / "secret", "text")
        with private_directory() as place:
            assert stat.S_IMODE(place.stat().st_mode) == 0o700
    finally:
        os.umask(previous)
    assert not place.exists()
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    assert read_private(tmp_path / "secret") == "text"
    (tmp_path / "secret").chmod(0o640)
    with pytest.raises(BadInput, match="other users can read it"):
        read_private(tmp_path / "secret")
    target = tmp_path / "target"
    target.write_text("mine")
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(BadInput, match="cannot be read"):
        read_private(tmp_path / "link")
    write_private(tmp_path / "link", "new")
    assert target.read_text() == "mine"
    held = sorted(os.listdir(tmp_path))
    with no_room(), pytest.raises(Failed, match="cannot be written"):
        write_private(tmp_path / "secret", "new")
    assert sorted(os.listdir(tmp_path)) == held
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(BadInput, match="is not a file"):
        read_private(tmp_path / "pipe")


def test_the_redirect_page_holds_no_markup_of_the_address() -> None:
    assert "<script" not in redirect_page('http://x/"><script>')


def answered(app: Bearer, *headers: tuple[bytes, bytes]) -> tuple[int, str | None]:
    """The status of a request and the client that it was taken for."""
    seen: list[int] = []
    scope: dict[str, object] = {"type": "http", "headers": list(headers)}

    async def send(message: dict[str, object]) -> None:
        if message["type"] == "http.response.start":
            seen.append(int(str(message["status"])))

    anyio.run(app, scope, None, send)
    return seen[0] if seen else 200, scope.get("client_name")  # type: ignore[return-value]


def test_a_request_needs_the_secret_of_a_client(tmp_path: Path) -> None:
    async def inside(scope: object, receive: object, send: object) -> None:
        return None

    clients = Clients(tmp_path / "clients.json")
    clients.require(["ada", "bob"])
    app = Bearer(inside, clients, lambda scope, name: scope.update(client_name=name))
    ada, bob = json.loads((tmp_path / "clients.json").read_text())["clients"].values()
    name = b"authorization"
    assert answered(app) == (401, None)
    assert answered(app, (name, b"Bearer guess")) == (401, None)
    assert answered(app, (name, f"Basic {ada}".encode())) == (401, None)
    assert answered(app, (name, b"Bearer " + b"x" * 100_000)) == (401, None)
    assert answered(app, (name, f"Bearer {ada}".encode())) == (200, "ada")
    assert answered(app, (name, f"bearer {bob}".encode())) == (200, "bob")
    assert answered(app, *[(name, f"Bearer {one}".encode()) for one in (ada, bob)]) == (401, None)
    Clients(tmp_path / "clients.json").revoke("ada")  # another process
    assert answered(app, (name, f"Bearer {ada}".encode())) == (401, None)
    assert answered(app, (name, f"Bearer {bob}".encode())) == (200, "bob")
    with pytest.raises(BadInput, match="there are ada, bob"):
        clients.revoke("eve")
    clients.require(["bob"])  # a server that is started for fewer admits fewer
    assert clients.names() == ["bob"]
    assert clients.of(bob) == "bob"
    (tmp_path / "clients.json").chmod(0o644)
    os.utime(tmp_path / "clients.json", ns=(1, 1))
    assert answered(app, (name, f"Bearer {bob}".encode())) == (401, None)
