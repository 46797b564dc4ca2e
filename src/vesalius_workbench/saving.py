"""What the page can keep: itself as one file, and a what-if as a result of the directory."""

import shlex
from importlib import resources
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from vesalius import api
from vesalius.report.html import package_text, script_hash
from vesalius.version import __version__
from vesalius_workbench.asking import WhatIfQuestion
from vesalius_workbench.models import Models
from vesalius_workbench.store import Store

#: The directory of saved what-ifs, below the one that is open.
WHAT_IFS = "what-ifs"


def routes(app: FastAPI, store: Store, models: Models) -> None:
    """Saving a view and a what-if."""

    @app.get("/api/shell")
    def shell() -> dict[str, str]:
        style = (resources.files("vesalius_workbench") / "static" / "style.css").read_text(encoding="utf-8")
        script = package_text("theme.js")
        return {"style": style, "script": script, "script_hash": script_hash(script), "version": __version__}

    @app.post("/api/what-if/save")
    def save(asked: WhatIfQuestion) -> dict[str, Any]:
        with models.turn():
            answer = models.what_if(asked.model_dump())
        place = api.save_what_if(answer, store.place(WHAT_IFS))
        here = place.relative_to(Path.cwd()) if place.is_relative_to(Path.cwd()) else place
        path = str(place.parent.relative_to(store.directory))
        return {"path": path, "command": f"vesalius what-if --from {shlex.quote(str(here))}"}
