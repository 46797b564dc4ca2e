"""Questions that take long: how far they are, cancelling, the time they may take, and the end of the server."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")
from starlette.testclient import TestClient

from tests.processes import PATIENCE, heed_interrupts, until
from vesalius.progress import checkpoint
from vesalius_workbench import working
from vesalius_workbench.models import Models
from vesalius_workbench.server import create_app

HOST = "127.0.0.1:4321"
HERE = {"origin": f"http://{HOST}"}
NAME = "0123456789abcdef"
ASKED = {"specimen": "3", "components": ["L0H0"]}


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    app = create_app(tmp_path, token="the-token", hosts={HOST})
    entered = TestClient(app, base_url=f"http://{HOST}", follow_redirects=False)
    entered.get("/?token=the-token")
    return entered


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """A what-if that goes on until somebody stops it; set when it has ended."""
    ended = threading.Event()

    def what_if(self: Models, asked: dict[str, Any]) -> Any:
        try:
            for done in range(10**9):
                checkpoint("replacing", done, 10**9)
                time.sleep(0.005)
        finally:
            ended.set()

    monkeypatch.setattr(Models, "what_if", what_if)
    return ended


class Asking(threading.Thread):
    """A question that is asked in a thread of its own."""

    def __init__(self, client: TestClient, name: str = NAME) -> None:
        super().__init__()
        self.client, self.headers = client, {**HERE, "x-vesalius-work": name}
        self.answer: Any = None
        self.start()

    def run(self) -> None:
        self.answer = self.client.post("/api/what-if", json=ASKED, headers=self.headers)

    def result(self) -> Any:
        """The answer, once it is there."""
        self.join(PATIENCE)
        assert self.answer is not None
        return self.answer


def progress(client: TestClient, name: str = NAME) -> Any:
    return client.get(f"/api/work?name={name}").json()["work"]


def is_running(client: TestClient, name: str = NAME) -> bool:
    work = progress(client, name)
    return work is not None and not work["waiting"] and work["done"] > 2


def cancel(client: TestClient, name: str = NAME) -> bool:
    return client.post("/api/work/cancel", json={"name": name}, headers=HERE).json()["found"]


def test_a_question_says_how_far_it_is_and_is_cancelled(client: TestClient, endless: threading.Event) -> None:
    asking = Asking(client)
    until(lambda: is_running(client))
    assert {"step": "replacing", "total": 10**9, "waiting": False}.items() <= progress(client).items()
    assert cancel(client)
    assert asking.result().json() == {"stopped": "it was cancelled"}
    assert endless.is_set()
    assert progress(client) is None
    assert not cancel(client)


def test_a_question_that_waits_is_cancelled_too(client: TestClient, endless: threading.Event) -> None:
    other = "fedcba9876543210"
    first = Asking(client)
    until(lambda: is_running(client))
    second = Asking(client, other)
    until(lambda: (progress(client, other) or {"waiting": False})["waiting"])
    assert cancel(client, other)
    assert second.result().json() == {"stopped": "it was cancelled"}
    assert is_running(client)
    assert cancel(client)
    assert first.result().json() == {"stopped": "it was cancelled"}


def test_what_takes_too_long_ends_with_one_line(
    client: TestClient, endless: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working, "MOST_SECONDS", 0.0)
    answer = client.post("/api/what-if", json=ASKED, headers=HERE)
    assert answer.status_code == 503
    assert answer.json()["error"].startswith("stopped: it took longer than 0 minutes; ask on fewer prompts")


@pytest.mark.parametrize("name", ["", "short", "x" * 80, "../../../etc", "ABCDEFGH\n"])
def test_names_that_are_none_are_not_kept(name: str, client: TestClient) -> None:
    headers = {**HERE, **({"x-vesalius-work": name.strip()} if name.strip() else {})}
    assert client.post("/api/specimen", json={"specimen": "frac_prevs"}, headers=headers).status_code == 200
    assert client.get("/api/work", params={"name": name[:64]}).json() == {"work": None}


def test_the_end_of_the_server_ends_its_work() -> None:
    works = working.Works()
    early = works.add(NAME)
    early.begin()
    assert not works.ended(0.0)
    works.close()
    for work in (early, works.add(None)):
        with pytest.raises(working.Stopped, match="the server is ending"):
            work.check()
    works.remove(NAME, early)
    assert not works.ended(0.0)  # nobody waits for the answer, and it is still computed
    early.end()
    assert works.ended(0.0)


def test_ctrl_c_ends_a_server_whose_work_cannot_be_stopped(tmp_path: Path) -> None:
    """The work here never looks whether it should end, as a library might not."""
    program = f"""
        import time
        from pathlib import Path
        from vesalius_workbench import start
        from vesalius_workbench.models import Models
        def what_if(self, asked):
            print("at work", flush=True)
            time.sleep({10 * PATIENCE})
        Models.what_if = what_if
        from vesalius_workbench.options import Served
        start.serve(Path({str(tmp_path)!r}), Served(), first="/runs", browser=False,
                    say=lambda line: "token" in line and print(line, flush=True))
    """
    pytest.importorskip("uvicorn")
    import httpx

    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=heed_interrupts,
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            base = address.partition("/runs")[0]
            with httpx.Client(base_url=base, headers={"origin": base}, timeout=PATIENCE) as client:
                client.get(address)
                assert "The next one: " in process.stdout.readline()
                threading.Thread(target=_ask_in_vain, args=(client,), daemon=True).start()
                assert process.stdout.readline() == "at work\n"
                process.send_signal(signal.SIGINT)
                assert process.wait(PATIENCE) != 0
        finally:
            process.kill()


def _ask_in_vain(client: Any) -> None:
    import httpx

    with suppress(httpx.HTTPError):  # the server ends
        client.post("/api/what-if", json=ASKED)
