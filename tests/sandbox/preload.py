"""Preload functions for the tests."""

import threading
import time
from typing import Any


def names(argument: Any) -> dict[str, Any]:
    """The package up to the API, as in real use, and a model small enough to compute by hand."""
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
    """Imports the grader."""
    import vesalius.grading

    return {"grade": vesalius.grading}


def slow(argument: Any) -> dict[str, Any]:
    """Sleeps."""
    time.sleep(argument)
    return {}
