"""Preload functions for the tests: what a caller would have written."""

import threading
import time
from typing import Any


def names(argument: Any) -> dict[str, Any]:
    """The whole package under the grader, as in real life; a model small enough to work out by hand."""
    import torch

    import vesalius.api

    model = torch.nn.Linear(2, 1, bias=False)
    model.weight.data[:] = torch.tensor([[2.0, 3.0]])
    return {"model": model, "double": lambda x: 2 * x, "argument": argument, "load": vesalius.api.load}


def broken(argument: Any) -> dict[str, Any]:
    """Fails."""
    raise RuntimeError(f"no specimen {argument!r}")


def threaded(argument: Any) -> dict[str, Any]:
    """Leaves a thread behind."""
    threading.Thread(target=time.sleep, args=(argument,), daemon=True).start()
    return {}


def careless(argument: Any) -> dict[str, Any]:
    """Loads the answers."""
    import vesalius.grading

    return {"grade": vesalius.grading}


def slow(argument: Any) -> dict[str, Any]:
    """Takes its time."""
    time.sleep(argument)
    return {}
