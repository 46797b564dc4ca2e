"""Who is let into the workbench: tickets that work once, sessions that can be ended, no secret among processes."""

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
import httpx
from starlette.testclient import TestClient

from tests.processes import PATIENCE, until
from vesalius_workbench import start
from vesalius_workbench.guard import Guard
from vesalius_workbench.server import create_app

HOST = "127.0.0.1:4321"
HERE = {"origin": f"http://{HOST}"}
KEY = "sk-not-to-be-seen-by-anybody"


@pytest.fixture
def app(tmp_path: Path) -> Guard:
    return create_app(tmp_path, token="the-token", hosts={HOST})


def browser(app: Guard) -> TestClient:
    return TestClient(app, base_url=f"http://{HOST}", follow_redirects=False)


def test_a_ticket_lets_one_browser_in(app: Guard) -> None:
    one, two = browser(app), browser(app)
    assert one.get("/runs?token=the-token").status_code == 200
    assert one.get("/api/results").status_code == 200
    assert two.get("/runs?token=the-token").status_code == 401
    assert two.get("/api/results").status_code == 401
    assert one.get("/runs?token=the-token").status_code == 200  # who is in already is led on


def test_sessions_are_listed_ended_and_let_others_in(app: Guard) -> None:
    one, two = browser(app), browser(app)
    one.get("/?token=the-token", headers={"user-agent": "<script>alert(1)</script>"})
    assert browser(app).get("/access").status_code == 401
    page = one.get("/access")
    assert "1 (this browser)" in page.text
    assert "<script" not in page.text
    assert "form-action 'self'" in page.headers["content-security-policy"]
    assert one.post("/access/new", headers={"origin": "http://evil.example"}).status_code == 403
    assert one.get("/access/new").status_code == 403
    made = re.search(r"http://127.0.0.1:4321(/\?token=[\w-]+)", one.post("/access/new", headers=HERE).text)
    assert made is not None
    assert two.get(made[1]).status_code == 200
    assert two.get("/api/results").status_code == 200
    assert "2 (this browser)" in two.post("/access/revoke", data={"name": "1"}, headers=HERE).text
    assert one.get("/api/results").status_code == 401
    assert two.get("/api/results").status_code == 200


def test_sessions_are_limited_and_a_ticket_lets_in_all_the_same(app: Guard) -> None:
    for _ in range(40):
        app.sessions.begin(address="x", program="y")
    assert [one.name for one in app.sessions.listed()] == [str(number) for number in range(9, 41)]
    assert browser(app).get("/?token=the-token").status_code == 200
    assert [one.name for one in app.sessions.listed()] == [str(number) for number in range(10, 42)]


BROWSER = """
import json, os, sys, time
from pathlib import Path
Path({seen!r}).write_text(json.dumps([sys.argv[1:], dict(os.environ)]))
"""


def test_no_token_and_no_key_in_a_command_line_or_an_environment(tmp_path: Path) -> None:
    """The server starts a browser, a stand-in here; the token is in a file that only this user can read."""
    seen, program = tmp_path / "seen", tmp_path / "browser.py"
    program.write_text(BROWSER.format(seen=str(seen)))
    (tmp_path / "results").mkdir()
    environment = {**os.environ, "BROWSER": f"{sys.executable} {program} %s", "OPENAI_API_KEY": KEY}
    command = [sys.executable, "-m", "vesalius", "open", str(tmp_path / "results")]
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            printed = re.search(r"token=(\S+)", process.stdout.readline())
            assert printed is not None
            until(lambda: seen.exists() and seen.read_text().endswith("]"))
            arguments, given = json.loads(seen.read_text())
            lines = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode() + " ".join(arguments)
            assert printed[1] not in lines
            assert "token=" not in lines
            assert KEY not in given.values()
            page = Path(arguments[0].removeprefix("file://"))
            assert page.stat().st_mode & 0o077 == 0
            assert page.parent.stat().st_mode & 0o077 == 0
            led = re.search(r"url=(http[^\"]+)", page.read_text())
            assert led is not None
            assert printed[1] not in led[1]
            entered = httpx.get(led[1], timeout=PATIENCE)
            assert entered.status_code == 200
            assert len(entered.cookies) == 1
            assert not page.exists()  # it was used
            assert httpx.get(led[1], timeout=PATIENCE).status_code == 401
        finally:
            process.terminate()
            process.wait(PATIENCE)


CHILD = """
    import json, os, runpy, sys, time
    from pathlib import Path
    from vesalius_workbench import child
    def instead(name, **options):
        environment = Path("/proc/self/environ").read_bytes().decode()
        told = [os.environ.get("OPENAI_API_KEY"), environment, os.read(0, 1).decode()]
        Path(sys.argv[1]).write_text(json.dumps(told) + "END")
        while True:
            time.sleep(0.02)
    runpy.run_module = instead
    child.main()
"""


@pytest.mark.parametrize("leave", [False, True])
def test_a_run_ends_with_its_server_or_is_left(tmp_path: Path, leave: bool) -> None:
    """The server is killed: its end of the pipe closes. Keys come through the pipe and stand in no environment."""
    told = {"keys": {"OPENAI_API_KEY": KEY}, "ends_with_server": not leave}
    command = [sys.executable, "-c", textwrap.dedent(CHILD), str(tmp_path / "told")]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, start_new_session=True
    ) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(told).encode() + b"\n")
        process.stdin.flush()
        try:
            until(lambda: (tmp_path / "told").exists() and (tmp_path / "told").read_text().endswith("END"))
            key, shown, read = json.loads((tmp_path / "told").read_text().removesuffix("END"))
            assert (key, read) == (KEY, "")
            assert KEY not in shown
            process.stdin.close()
            if leave:
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(0.5)
            else:
                assert process.wait(PATIENCE) == 130
        finally:
            process.kill()


def test_the_browser_is_given_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: list[Any] = []
    monkeypatch.setattr(start.subprocess, "Popen", lambda command, **options: started.append((command, options)))
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    start._start_browser(tmp_path / "open.html")
    ((command, options),) = started
    assert command[1:] == ["-P", "-m", "webbrowser", (tmp_path / "open.html").as_uri()]
    assert KEY not in options["env"].values()


def test_the_current_directory_opens_no_browser(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A directory of somebody else's results may hold a file that is called as a module of Python."""
    for name in ("webbrowser", "shlex"):
        (tmp_path / f"{name}.py").write_text("open('executed', 'w').close()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BROWSER", "true")
    assert start._start_browser(tmp_path / "open.html").wait(PATIENCE) == 0
    assert not (tmp_path / "executed").exists()
