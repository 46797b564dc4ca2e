"""The server behind the page: parses a request, calls `vesalius.api`, answers with JSON.

Bad input is answered with its one line (status 400), a failure with its own (500); nothing of a traceback leaves the
server. Work is done in threads, one question at a time (`models`).
"""

from collections.abc import Callable, Collection, Iterable
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse, Response

from vesalius import api
from vesalius.errors import BadInput, Failed
from vesalius.progress import Stopped
from vesalius.version import __version__
from vesalius_bench.ratings.annotation import Annotating
from vesalius_workbench import annotation, circuits, claims, components, live, pages, saving, working
from vesalius_workbench.asking import (
    AttentionQuestion,
    LensQuestion,
    PromptQuestion,
    Question,
    SweepQuestion,
    WhatIfQuestion,
)
from vesalius_workbench.guard import Guard
from vesalius_workbench.jobs import Jobs
from vesalius_workbench.models import Busy, Models
from vesalius_workbench.showing import view_data
from vesalius_workbench.store import Store

#: Views that have an address of their own; the page itself decides what each shows.
VIEWS = ("runs", "result", "specimens", "specimen", "what-if", "compare", "circuit", "component", "agent", "functions")


def create_app(
    directory: Path,
    *,
    token: str | None = None,
    hosts: set[str],
    opened: str | None = None,
    backbones: Collection[str] = (),
    watch_only: bool = False,
    leave_runs: bool = False,
    started_in: Path | None = None,
    **access: Any,
) -> Guard:
    """The application on one directory; `opened` is a specimen and `backbones` are those named at the start,
    `watch_only` says that other machines can reach it, so that it starts no runs and reads no file outside the
    directory; runs end with the server unless `leave_runs`; `started_in` is where a user on this machine has the files
    that results name, `token` a first ticket, and `access` are further options of the guard.
    """
    named = {opened} if opened else set()
    store, models, works = (
        Store(directory),
        Models(directory, named, None if watch_only else started_in),
        working.Works(),
    )
    jobs = Jobs(directory, specimens=named, backbones=backbones, watch_only=watch_only, leave_runs=leave_runs)
    app = _bare_app(lifespan=live.ending(jobs, works))
    working.routes(app, works)
    live.routes(app, store, jobs)
    _results(app, store)
    pages.routes(app, store)
    _questions(app, models)
    saving.routes(app, store, models)
    results = circuits.Results(store)
    circuits.routes(app, store, models, results)
    components.routes(app, store, results)
    claims.routes(app, models, results)

    @app.get("/api/start")
    def start() -> dict[str, Any]:
        return {"directory": str(store.directory), "version": __version__, "opened": opened}

    _page(app)
    return Guard(working.Watching(app, works), token=token, hosts=hosts, works=works, **access)


def create_annotation_app(annotating: Annotating, *, hosts: set[str], **access: Any) -> Guard:
    """The application for blind rating: it answers nothing that would say who wrote a text."""
    app = _bare_app()
    annotation.routes(app, annotating)
    app.add_api_route("/", lambda: RedirectResponse("/annotate"), methods=["GET"], include_in_schema=False)
    _page(app, ("annotate",))
    return Guard(app, hosts=hosts, **access)


def _bare_app(**options: Any) -> FastAPI:
    app = FastAPI(title="Vesalius", docs_url=None, redoc_url=None, openapi_url=None, **options)
    _refusals(app)
    return app


def _results(app: FastAPI, store: Store) -> None:
    """What lies in the directory."""

    @app.get("/api/results")
    def results() -> dict[str, Any]:
        return store.results()

    @app.get("/api/result")
    def result(path: Annotated[str, Query(max_length=2_000)]) -> dict[str, Any]:
        place, _, document = store.found(path)
        return {**store.document(path), "page": pages.page_address(store, place, document)}

    @app.get("/api/claims")
    def claims(
        path: Annotated[str, Query(max_length=2_000)],
        verdict: Annotated[str | None, Query(max_length=40)] = None,
        kind: Annotated[str | None, Query(max_length=200)] = None,
        component: Annotated[str | None, Query(max_length=200)] = None,
        start: Annotated[int, Query(ge=0, le=2**31)] = 0,
    ) -> dict[str, Any]:
        return store.claims(path, verdict=verdict, kind=kind, component=component, start=start)

    @app.get("/api/diff")
    def diff(a: Annotated[str, Query(max_length=2_000)], b: Annotated[str, Query(max_length=2_000)]) -> dict[str, Any]:
        return store.difference(a, b)


def _questions(app: FastAPI, models: Models) -> None:
    """What is computed on a specimen."""

    @app.get("/api/specimens")
    def specimens() -> Any:
        return {"specimens": api.specimens(), "behaviours": api.behaviours()}

    @app.post("/api/specimen")
    def specimen(asked: Question) -> Any:
        with models.turn():
            return api.show(models.specimen(asked.specimen, asked.behaviour)).as_data()

    @app.post("/api/look")
    def look(asked: PromptQuestion) -> Any:
        with models.turn():
            return api.look(models.specimen(asked.specimen, asked.behaviour), asked.prompt).as_data()

    @app.post("/api/attention")
    def attention(asked: AttentionQuestion) -> Any:
        with models.turn():
            model = models.specimen(asked.specimen, asked.behaviour)
            return api.attention(model, asked.prompt, layer=asked.layer).as_data()

    @app.post("/api/lens")
    def lens(asked: LensQuestion) -> Any:
        with models.turn():
            model = models.specimen(asked.specimen, asked.behaviour)
            return api.lens(model, asked.prompt, asked.components, top=asked.top).as_data()

    @app.post("/api/sweep")
    def sweep(asked: SweepQuestion) -> Any:
        with models.turn():
            model = models.specimen(asked.specimen, asked.behaviour)
            options = {"kind": asked.kind, "n": asked.n, "seed": asked.seed}
            document = api.sweep_report(model, **options, progress=models.report)
        return {**document.as_data(), "view": view_data(document.view())}

    @app.post("/api/what-if")
    def what_if(asked: WhatIfQuestion) -> Any:
        with models.turn():
            answer = models.what_if(asked.model_dump())
        command = answer.request.command_line()
        return {"document": answer.as_data(), "view": view_data(answer.view()), "command": command}


def _page(app: FastAPI, views: Iterable[str] = VIEWS) -> None:
    """The page and its files; every view has the same page at its address."""
    static = Path(str(resources.files("vesalius_workbench") / "static"))
    page = static / "index.html"

    @app.get("/")
    def index() -> Response:
        return FileResponse(page)

    for view in views:
        app.add_api_route(f"/{view}", index, methods=["GET"], include_in_schema=False)

    @app.get("/favicon.ico", include_in_schema=False)
    def icon() -> Response:
        """Nothing: browsers ask for it on static pages, which name no icon."""
        return Response(status_code=204)

    @app.get("/static/{name}")
    def file(name: str) -> Response:
        if name not in {path.name for path in static.iterdir()}:
            return JSONResponse({"error": "there is no such file"}, 404)
        return FileResponse(static / name)


def _refusals(app: FastAPI) -> None:
    """One line for everything that goes wrong."""

    def answer(status: int, line: Callable[[Any], str]) -> Callable[[Request, Any], Response]:
        return lambda request, error: JSONResponse({"error": " ".join(line(error).split())}, status)

    app.add_exception_handler(BadInput, answer(400, str))
    app.add_exception_handler(Failed, answer(500, str))
    app.add_exception_handler(Busy, answer(503, lambda error: "too many questions are waiting; ask again in a moment"))
    app.add_exception_handler(Stopped, _stopped)
    app.add_exception_handler(RequestValidationError, answer(422, _first_problem))
    app.add_exception_handler(MemoryError, answer(500, lambda error: "out of memory; ask on fewer prompts"))


def _stopped(request: Request, error: Exception) -> Response:
    """Work that the page cancelled is no fault, and a browser would log one."""
    if str(error) == working.CANCELLED:
        return JSONResponse({"stopped": str(error)})
    return JSONResponse({"error": f"stopped: {error}"}, 503)


def _first_problem(error: RequestValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"] if part not in ("body", "query"))
    return f"{place or 'request'}: {first['msg']}"
