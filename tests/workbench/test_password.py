"""A server that other machines can reach: only with a password, which cannot be guessed by trying."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")
pytest.importorskip("uvicorn")
import httpx
from starlette.testclient import TestClient

from tests.forked import forked
from tests.processes import PATIENCE
from vesalius.errors import BadInput, Note
from vesalius_workbench import start
from vesalius_workbench.options import Served
from vesalius_workbench.password import FIRST_WAIT, FREE_TRIES, LONGEST_WAIT, MINUTE, MOST_WRONG, Password
from vesalius_workbench.server import create_app

RIGHT, HOST = "correct horse", "192.0.2.7:4321"
HERE = {"origin": f"http://{HOST}"}


class Clock:
    """A clock that a test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stranger(tmp_path: Path, clock: Clock) -> TestClient:
    app = create_app(tmp_path, token="the-token", hosts={HOST}, password=Password(RIGHT, clock=clock))
    return TestClient(app, base_url=f"http://{HOST}", follow_redirects=False)


def enter(client: TestClient, password: str, place: str = "/runs?kind=sweep", **headers: str) -> int:
    return client.post("/enter", data={"password": password, "place": place}, headers={**HERE, **headers}).status_code


def test_the_form_is_all_that_a_stranger_gets(stranger: TestClient) -> None:
    page = stranger.get("/result?path=%22%3E%3Cscript%3E")
    assert page.status_code == 200
    assert 'type="password"' in page.text
    assert "<script" not in page.text
    assert "form-action 'self'" in page.headers["content-security-policy"]
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert stranger.get("/static/style.css").status_code == 200
    assert 'type="password"' in stranger.get("/static/app.js").text
    for path in ("/api/results", "/api/start", "/api/result?path=x"):
        assert stranger.get(path).status_code == 401
    assert stranger.post("/api/look", json={"specimen": "3", "prompt": "a"}, headers=HERE).status_code == 401


def test_the_right_password_lets_in_and_leads_on(stranger: TestClient) -> None:
    answer = stranger.post("/enter", data={"password": RIGHT, "place": "/runs?kind=sweep"}, headers=HERE)
    assert (answer.status_code, answer.headers["location"]) == (303, "/runs?kind=sweep")
    assert {"HttpOnly", "SameSite=Strict"} <= set(answer.headers["set-cookie"].split("; "))
    assert stranger.get("/api/results").status_code == 200
    assert "form-action 'none'" in stranger.get("/runs").headers["content-security-policy"]


@pytest.mark.parametrize("place", ["//evil.example/x", "https://evil.example", "\\\\evil.example", "/\\evil.example"])
def test_the_form_leads_nowhere_else(place: str, stranger: TestClient) -> None:
    answer = stranger.post("/enter", data={"password": RIGHT, "place": place}, headers=HERE)
    location = answer.headers["location"]
    assert location.startswith("/")
    assert not location.startswith(("//", "/\\"))


@pytest.mark.parametrize("given", ["", "wrong", RIGHT.upper(), RIGHT + " ", RIGHT[:-1], "x" * 20_000, "é"])
def test_a_wrong_password_is_refused(given: str, stranger: TestClient) -> None:
    answer = stranger.post("/enter", data={"password": given, "place": "/"}, headers=HERE)
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert stranger.get("/api/results").status_code == 401


def test_the_token_is_no_way_in(stranger: TestClient) -> None:
    assert "set-cookie" not in stranger.get("/runs?token=the-token").headers
    assert stranger.get("/api/results?token=the-token").status_code == 401


def test_another_page_cannot_try(stranger: TestClient) -> None:
    for origin in ("http://evil.example", "null"):
        answer = stranger.post("/enter", data={"password": RIGHT}, headers={"origin": origin})
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers


def test_whoever_tries_too_often_waits_longer_each_time(stranger: TestClient, clock: Clock) -> None:
    assert [enter(stranger, f"guess {n}") for n in range(FREE_TRIES)] == [401] * FREE_TRIES
    assert enter(stranger, RIGHT) == 429
    assert "wait 5 seconds" in stranger.post("/enter", data={"password": "x"}, headers=HERE).text
    clock.now += FIRST_WAIT
    assert enter(stranger, "guess again") == 401
    clock.now += FIRST_WAIT
    assert enter(stranger, RIGHT) == 429
    clock.now += FIRST_WAIT
    assert enter(stranger, RIGHT) == 303


def test_a_day_of_trying_gives_few_tries(clock: Clock) -> None:
    password, tries, end = Password(RIGHT, clock=clock), 0, clock.now + 86_400
    while clock.now < end:
        if not password.wait("one"):
            assert not password.accepts(str(tries), "one")
            tries += 1
        clock.now += 1
    # The wait doubles from 5 seconds to 900: 8 tries get there, and then one in 900 seconds.
    assert tries <= FREE_TRIES + 9 + 86_400 / LONGEST_WAIT


def test_many_addresses_try_no_faster(clock: Clock) -> None:
    password = Password(RIGHT, clock=clock)
    tried = sum(not password.wait(f"address {n}") and not password.accepts("x", f"address {n}") for n in range(1000))
    assert tried == MOST_WRONG
    assert password.wait("somebody new") == pytest.approx(MINUTE)
    clock.now += MINUTE
    assert password.wait("somebody new") == 0


def test_the_right_password_clears_the_count(clock: Clock) -> None:
    password = Password(RIGHT, clock=clock)
    for _ in range(5):
        for _ in range(FREE_TRIES - 1):
            assert not password.accepts("x", "one")
        assert password.accepts(RIGHT, "one")
        clock.now += MINUTE
    assert password.wait("one") == 0


@pytest.mark.parametrize(
    ("host", "status"),
    [("192.0.2.7:4321", 200), ("[2001:db8::1]:4321", 200), ("evil.example:4321", 400), ("1.2.3.4.evil.example", 400)],
)
def test_on_all_addresses_a_host_is_one_in_digits(host: str, status: int, tmp_path: Path) -> None:
    app = create_app(tmp_path, token="t", hosts={"mine:4321"}, any_address=True, password=Password(RIGHT))
    client = TestClient(app, base_url="http://mine:4321")
    assert client.get("/", headers={"host": host}).status_code == status
    assert client.get("/").status_code == 200


def test_a_wrong_host_is_refused_before_the_password(stranger: TestClient) -> None:
    evil = {"host": "evil.example", "origin": "http://evil.example"}
    assert stranger.post("/enter", data={"password": RIGHT}, headers=evil).status_code == 400


def test_where_a_password_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VESALIUS_PASSWORD", raising=False)
    assert start.read_password(None, "127.0.0.1") is None
    assert start.read_password(None, "::1") is None
    file = tmp_path / "password"
    file.write_text(f"{RIGHT}\n")
    file.chmod(0o600)
    assert start.read_password(str(file), "0.0.0.0") == RIGHT
    file.chmod(0o644)
    with pytest.warns(Note, match="chmod 600"):
        start.read_password(str(file), "0.0.0.0")
    monkeypatch.setenv("VESALIUS_PASSWORD", "from the environment")
    assert start.read_password(None, "localhost") is None
    assert start.read_password(None, "192.0.2.7") == "from the environment"
    assert "VESALIUS_PASSWORD" not in os.environ
    monkeypatch.setenv("VESALIUS_PASSWORD", "short")
    with pytest.raises(BadInput, match="at least 8 characters"):
        start.read_password(None, "192.0.2.7")
    with pytest.raises(BadInput, match="cannot be read"):
        start.read_password(str(tmp_path / "none"), "0.0.0.0")


def test_the_terminal_is_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VESALIUS_PASSWORD", raising=False)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    answers = iter([RIGHT, RIGHT, RIGHT, "another"])
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(answers))
    assert start.read_password(None, "0.0.0.0") == RIGHT
    with pytest.raises(BadInput, match="the two differ"):
        start.read_password(None, "0.0.0.0")


def test_a_host_without_a_password_is_refused(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "VESALIUS_PASSWORD"}
    done = subprocess.run(
        forked("-m", "vesalius", "open", tmp_path, "--no-browser", "--host", "0.0.0.0"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "--host 0.0.0.0: other machines could reach the server, so it needs a password" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_server_for_other_machines(tmp_path: Path) -> None:
    """The real thing on all addresses: what it prints, and who is answered what."""
    environment = {**os.environ, "VESALIUS_PASSWORD": RIGHT, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    command = forked("-m", "vesalius", "open", tmp_path, "--no-browser", "--host", "0.0.0.0")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        address, warning = process.stdout.readline(), process.stdout.readline()
        try:
            found = re.fullmatch(r"http://[^/]+:(\d+)/runs\n", address)
            assert found is not None
            port = found[1]
            assert "not encrypted" in warning
            assert f"ssh -N -L {port}:127.0.0.1:{port}" in warning
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client:
                assert 'type="password"' in client.get("/runs").text
                assert client.get("/runs", headers={"host": f"evil.example:{port}"}).status_code == 400
                origin = {"origin": f"http://127.0.0.1:{port}"}
                wrong = client.post("/enter", data={"password": "wrong"}, headers=origin)
                right = client.post("/enter", data={"password": RIGHT, "place": "/runs"}, headers=origin)
                assert (wrong.status_code, right.status_code) == (401, 303)
                assert client.get("/api/results").json()["results"] == []
        finally:
            process.terminate()


def test_an_address_that_cannot_be_served_is_refused_before_the_password_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VESALIUS_PASSWORD", raising=False)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("getpass.getpass", lambda prompt: pytest.fail("it was asked for"))
    with pytest.raises(BadInput, match=r"--host 192\.0\.2\.7"):
        start.serve(tmp_path, Served(host="192.0.2.7", port=0), first="/runs", browser=False, say=print)
