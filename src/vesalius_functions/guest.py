"""Runs an interpreter of somebody else as a confined program: `guest.py package.module:function FOLDER ...`.

It is started like any command (`interpreters.interpret_by_command`) and speaks the same lines. The function gets a box
that asks by these lines, so what it explains is in another process, which it cannot reach. Of this package it finds
this file, the module of boxes and answers, and what those import.
"""

import importlib
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from vesalius_functions.box import Answer, Asked, OutOfQueries, Reply


class AskingBox:
    """A box as `vesalius_functions.box.Box` shows itself, that asks by lines."""

    def __init__(self, task: dict[str, Any], sending: TextIO) -> None:
        self.category, self.budget, self.layers = task["category"], task["budget"], task.get("layers")
        self._numeric, self._sending, self._log = task["output"]["type"] == "number", sending, list[Asked]()

    @property
    def log(self) -> tuple[Asked, ...]:
        """Everything asked so far, in order."""
        return tuple(self._log)

    @property
    def asked(self) -> int:
        """How many inputs were asked so far."""
        return len(self._log)

    @property
    def left(self) -> int | None:
        """How many inputs may still be asked; None for any number."""
        return None if self.budget is None else self.budget - self.asked

    def ask(self, inputs: Sequence[object]) -> list[Reply]:
        """Ask all of them: one reply each, in order."""
        inputs = list(inputs)
        if not inputs:
            return []
        say(self._sending, {"query": inputs})
        told = json.loads(sys.stdin.readline())
        if "error" in told:
            raise OutOfQueries(told["error"])
        errors = told.get("errors") or [None] * len(inputs)
        replies = [Reply(self._value(value), error) for value, error in zip(told["values"], errors, strict=True)]
        self._log += [Asked(value, reply) for value, reply in zip(inputs, replies, strict=True)]
        return replies

    def _value(self, value: object) -> object:
        if not (self._numeric and isinstance(value, str)):
            return value
        try:
            return float(value)
        except ValueError:
            pass
        try:
            return complex(value)
        except ValueError:
            return value


def say(sending: TextIO, line: object) -> None:
    """Write one line."""
    sending.write(json.dumps(line) + "\n")
    sending.flush()


def main() -> None:
    """Read the task, call the function, write its answer."""
    target, folders = sys.argv[1], sys.argv[2:]
    sending = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the function prints is not a line of ours
    task = json.loads(sys.stdin.readline())
    sys.path[:0] = folders
    module, _, name = target.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    answer = found(AskingBox(task, sending), seed=task["seed"])
    if not isinstance(answer, Answer):
        sys.exit(f"it returned a {type(answer).__name__}; it must return an Answer")
    fields = {"description", "domain", "code", "structure", "table"}
    say(sending, {"answer": answer.model_dump(mode="json", include=fields)})


if __name__ == "__main__":
    main()
