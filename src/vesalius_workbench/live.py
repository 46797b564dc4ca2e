"""Routes of runs that are under way: watch them, start, stop and resume them; and of the functions benchmark."""

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from vesalius_backbones.runs.watching import Watcher
from vesalius_functions.bench.function_runs import functions_run, one_function
from vesalius_workbench.jobs import Jobs, RunQuestion
from vesalius_workbench.store import Store
from vesalius_workbench.working import Works

Path = Annotated[str, Query(max_length=2_000)]
Case = Annotated[str | None, Query(max_length=200)]
Count = Annotated[int, Query(ge=0, le=10**9)]


class RunNamed(BaseModel):
    """One run by its path."""

    model_config = ConfigDict(extra="forbid")

    path: Annotated[str, Field(min_length=1, max_length=2_000)]


class ResumeNamed(RunNamed):
    """A run and the digest of what was shown to be started."""

    digest: Annotated[str, Field(max_length=100)]


def ending(jobs: Jobs, works: Works) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """The life of the server: when it ends, so do its work and the runs that it started."""

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        yield
        works.close()
        await run_in_threadpool(jobs.close)

    return life


def routes(app: FastAPI, store: Store, jobs: Jobs) -> None:
    """Add the routes of this module."""
    watcher, turn = Watcher(), threading.Lock()
    _results(app, store)
    _agent(app, store, jobs, watcher, turn)
    _functions(app, store, watcher, turn)
    _starting(app, store, jobs)


def _results(app: FastAPI, store: Store) -> None:
    @app.get("/api/changes")
    def changes(since: Count = 0) -> dict[str, Any]:
        found = store.index.changes(since)
        rows = [row.as_data() for row in found.rows]
        return {"version": found.version, "rows": rows, "gone": found.gone, "left_out": found.left_out}


def _agent(app: FastAPI, store: Store, jobs: Jobs, watcher: Watcher, turn: threading.Lock) -> None:
    @app.get("/api/agent")
    def agent(path: Path, case: Case = None, first: Count = 0) -> dict[str, Any]:
        place = store.place(path)
        about = jobs.about(place)
        with turn:
            run = watcher.look(place, case=case, first=first, expected=about["asked"] is not None)
        return {"run": run.as_data(), **about}

    @app.get("/api/agent/text")
    def text(
        path: Path, number: Count, part: Annotated[str, Query(max_length=200)], case: Case = None
    ) -> dict[str, Any]:
        with turn:
            return {"text": watcher.text(store.place(path), case=case, number=number, part=part)}


def _functions(app: FastAPI, store: Store, watcher: Watcher, turn: threading.Lock) -> None:
    @app.get("/api/functions")
    def functions(path: Path) -> dict[str, Any]:
        with turn:
            return functions_run(store.place(path)).as_data()

    @app.get("/api/function")
    def function(path: Path, function: Annotated[str, Query(max_length=200)]) -> dict[str, Any]:
        with turn:
            return one_function(store.place(path), function, watcher=watcher).as_data()


def _starting(app: FastAPI, store: Store, jobs: Jobs) -> None:
    @app.get("/api/jobs")
    def started() -> dict[str, Any]:
        return {"running": jobs.running(), "backbones": jobs.backbones, "watch_only": jobs.watch_only}

    @app.post("/api/jobs/start")
    def start(asked: RunQuestion) -> dict[str, Any]:
        return {"path": str(jobs.start(asked).relative_to(store.directory))}

    @app.post("/api/jobs/stop")
    def stop(asked: RunNamed) -> dict[str, Any]:
        jobs.stop(store.place(asked.path))
        return {"path": asked.path}

    @app.post("/api/jobs/resume")
    def resume(asked: ResumeNamed) -> dict[str, Any]:
        jobs.resume(store.place(asked.path), asked.digest)
        return {"path": asked.path}
