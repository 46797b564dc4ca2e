"""Questions while they are worked on: how far they are, who cancels them, and how long they may take.

The page gives a question a name of its own in a header. Under that name it asks how far the work is and cancels it; a
page that is closed cancels it too. Work ends at its next layer or batch (`vesalius.progress`), where it takes too long
and where the server ends as well.
"""

import asyncio
import re
import threading
import time
from contextvars import ContextVar
from typing import Annotated, Any

from fastapi import FastAPI, Query
from pydantic import BaseModel, ConfigDict, Field

from vesalius.progress import Stopped
from vesalius_workbench.guard import Receive, Scope, Send

#: Seconds that one question is worked on; what takes longer belongs on the command line.
MOST_SECONDS = 600.0
CANCELLED = "it was cancelled"
HEADER = b"x-vesalius-work"
NAME = re.compile(r"[0-9a-f-]{8,64}")
_CURRENT: ContextVar["Work | None"] = ContextVar("work", default=None)


class Work:
    """One question. `running` while it has its turn; `step`, `done` and `total` are what it reported last."""

    def __init__(self) -> None:
        self.running, self.step, self.done, self.total = False, "", 0, 0
        self._begun, self._ends = time.monotonic(), float("inf")
        self._why: str | None = None

    def begin(self) -> None:
        """Its turn has come: the time it may take counts from now."""
        self.running, self._ends = True, time.monotonic() + MOST_SECONDS

    def end(self) -> None:
        """Nothing is computed for it any more."""
        self.running = False

    def stop(self, why: str) -> None:
        """Ask it to end."""
        self._why = self._why or why

    def check(self, step: str = "", done: int = 0, total: int = 0) -> None:
        """Note how far it is, and end it where that was asked for."""
        if step:
            self.step, self.done, self.total = step, done, total
        if self._why is not None:
            raise Stopped(self._why)
        if time.monotonic() > self._ends:
            raise Stopped(
                f"it took longer than {MOST_SECONDS / 60:g} minutes; ask on fewer prompts, or on the command line"
            )

    def as_data(self) -> dict[str, Any]:
        """What the page shows of it."""
        told = {"waiting": not self.running, "step": self.step, "done": self.done, "total": self.total}
        return {**told, "seconds": time.monotonic() - self._begun}


class Works:
    """Every question that is worked on or waits."""

    def __init__(self) -> None:
        self._named: dict[str, Work] = {}
        self._all: set[Work] = set()
        self._lock = threading.Lock()
        self._closed = False

    def add(self, name: str | None) -> Work:
        """Begin to watch a question."""
        work = Work()
        with self._lock:
            self._all.add(work)
            if name is not None:
                self._named.setdefault(name, work)
            if self._closed:
                work.stop("the server is ending")
        return work

    def remove(self, name: str | None, work: Work) -> None:
        """The question was answered. What is still computed for it, as when the server ends, is not forgotten."""
        with self._lock:
            if not work.running:
                self._all.discard(work)
            if name is not None and self._named.get(name) is work:
                del self._named[name]

    def find(self, name: str) -> Work | None:
        """The question of a name, while it is not answered."""
        with self._lock:
            return self._named.get(name)

    def close(self) -> None:
        """Ask all work to end, now and later. Safe in the handler of a signal: it waits for nothing."""
        self._closed = True
        for work in list(self._all):
            work.stop("the server is ending")

    def ended(self, seconds: float) -> bool:
        """Whether nothing is computed any more after so many seconds at most."""
        end = time.monotonic() + seconds
        while any(work.running for work in list(self._all)):
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True


def current() -> Work | None:
    """The question that the present thread works on."""
    return _CURRENT.get()


class Watching:
    """ASGI middleware: every question to the server is work that can be cancelled."""

    def __init__(self, app: Any, works: Works) -> None:
        self.app, self.works = app, works

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Watch a question while it is answered."""
        if scope["type"] != "http" or scope["method"] == "GET" or not scope["path"].startswith("/api/"):
            return await self.app(scope, receive, send)
        given = dict(scope["headers"]).get(HEADER, b"").decode("latin-1")
        name = given if NAME.fullmatch(given) else None
        work = self.works.add(name)
        token = _CURRENT.set(work)
        heard = _Heard(receive)
        gone = None if name is None else asyncio.create_task(heard.stop_when_closed(work))
        try:
            await self.app(scope, heard.receive, send)
        finally:
            if gone is not None:
                gone.cancel()
            _CURRENT.reset(token)
            self.works.remove(name, work)


class _Heard:
    """The messages of one request; after its body, only that the page was closed is of interest."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self._whole = receive, asyncio.Event()

    async def receive(self) -> Any:
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body"):
            self._whole.set()
        return message

    async def stop_when_closed(self, work: Work) -> None:
        await self._whole.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        work.stop("the page was closed")


class WorkNamed(BaseModel):
    """One question by its name."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(min_length=8, max_length=64)]


def routes(app: FastAPI, works: Works) -> None:
    """How far a question is, and its end; answered at once, whatever else is computed."""

    @app.get("/api/work")
    async def work(name: Annotated[str, Query(max_length=64)]) -> dict[str, Any]:
        found = works.find(name)
        return {"work": None if found is None else found.as_data()}

    @app.post("/api/work/cancel")
    async def cancel(asked: WorkNamed) -> dict[str, Any]:
        found = works.find(asked.name)
        if found is not None:
            found.stop(CANCELLED)
        return {"found": found is not None}
