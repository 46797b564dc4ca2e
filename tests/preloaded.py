"""Imports the packages whole, for processes that tests are forked from: what a fork imports it imports for itself."""

import importlib
import os
import pkgutil
import subprocess
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from tests import warm_forks
from tests.forked import PLACE, forked

PACKAGES = (
    "vesalius",
    "vesalius_functions",
    "vesalius_mechrl",
    "vesalius_bench",
    "vesalius_agents.mcp",
    "vesalius_workbench",
)
#: Modules that import for seconds what few tests need, and those that run when they are imported.
LEFT_OUT = ("inspect_model", "langchain_connection", "__main__")

for package in PACKAGES:
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        if not module.name.endswith(LEFT_OUT):
            with suppress(ImportError):  # an extra that is not installed
                importlib.import_module(module.name)

warm_forks.install()


def _job(command: list[str], **options: Any) -> Any:
    return subprocess.Popen(forked(*command[1:]) if PLACE in os.environ else command, **options)


with suppress(ImportError):  # the runs that a workbench starts are forked as well
    jobs = importlib.import_module("vesalius_workbench.jobs")
    vars(jobs)["subprocess"] = SimpleNamespace(**{**vars(subprocess), "Popen": _job})
