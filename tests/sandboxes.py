"""Warm sandboxes of HyVE that tests share.

Starting one imports torch and takes seconds; a program changes nothing in it, which tests/sandbox checks. Tests that
hand over the same files to the same preload therefore run their programs in the same one.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from vesalius.sandbox import Sandbox


class SharedSandboxes:
    """Takes the place of `Sandbox`: one stays open for each preload with its files and options."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory, self._stack = directory, stack
        self._open: dict[str, Sandbox] = {}

    def __call__(self, preload: str | None = None, argument: Any = None, **options: Any) -> Any:
        if preload is None:  # never opened: it lists and reads the toolbox
            return Sandbox(**options)
        return self._shared(preload, argument, options)

    @contextmanager
    def _shared(self, preload: str, argument: dict[str, Any], options: dict[str, Any]) -> Iterator[Sandbox]:
        files = sorted(Path(argument["directory"]).iterdir())
        contents = [(file.name, hashlib.sha256(file.read_bytes()).hexdigest()) for file in files]
        rest = {name: value for name, value in argument.items() if name != "directory"}
        started_with = json.dumps([preload, rest, contents, {name: str(options[name]) for name in sorted(options)}])
        key = hashlib.sha256(started_with.encode()).hexdigest()
        if key not in self._open:
            copy = shutil.copytree(argument["directory"], self._directory / key)
            sandbox = Sandbox(preload, {**argument, "directory": str(copy)}, **options)
            self._open[key] = self._stack.enter_context(sandbox)
        yield self._open[key]
