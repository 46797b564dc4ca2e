"""Warm sandboxes of HyVE that tests share.

Starting one imports torch and takes seconds; a program changes nothing in it, which tests/sandbox checks. Tests that
hand over the same files to the same preload therefore run their programs in the same one, in whatever files they are.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vesalius.sandbox import Sandbox

#: How many stay open beside those that are used: each holds torch and a model in memory.
MOST = 3


class SharedSandboxes:
    """Takes the place of `Sandbox`: one stays open for each preload with its files and options."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: dict[str, Sandbox] = {}
        self._used: list[str] = []

    def __call__(self, preload: str | None = None, argument: Any = None, **options: Any) -> Any:
        if preload is None:  # never opened: it lists and reads the toolbox
            return Sandbox(**options)
        return self._shared(preload, argument, options)

    def close(self) -> None:
        """End all that are open."""
        while self._open:
            self._open.popitem()[1].close()

    @contextmanager
    def _shared(self, preload: str, argument: dict[str, Any], options: dict[str, Any]) -> Iterator[Sandbox]:
        files = sorted(Path(argument["directory"]).iterdir())
        contents = [(file.name, hashlib.sha256(file.read_bytes()).hexdigest()) for file in files]
        rest = {name: value for name, value in argument.items() if name != "directory"}
        started_with = json.dumps([preload, rest, contents, {name: str(options[name]) for name in sorted(options)}])
        key = hashlib.sha256(started_with.encode()).hexdigest()
        sandbox = self._open.pop(key, None)
        if sandbox is None:
            copy = shutil.copytree(argument["directory"], self._directory / key, dirs_exist_ok=True)
            sandbox = Sandbox(preload, {**argument, "directory": str(copy)}, **options).__enter__()
        self._open[key] = sandbox  # the last one used stands last
        self._used.append(key)
        try:
            yield sandbox
        finally:
            self._used.remove(key)
            for old in [one for one in self._open if one not in self._used][:-MOST]:
                self._open.pop(old).close()
