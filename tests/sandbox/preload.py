"""Preload functions for the tests."""

import threading
import time
from typing import Any


def names(argument: Any) -> dict[str, Any]:
    """The modules of the names of HyVE, as in real use, and a model small enough to compute by hand."""
    import torch

    import vesalius_session.scope

    model = torch.nn.Linear(2, 1, bias=False)
    model.weight.data[:] = torch.tensor([[2.0, 3.0]])
    loaded = vesalius_session.scope.load_model
    return {"model": model, "double": lambda x: 2 * x, "argument": argument, "load_model": loaded}


def broken(argument: Any) -> dict[str, Any]:
    """Fails."""
    raise RuntimeError(f"no specimen {argument!r}")


def threaded(argument: Any) -> dict[str, Any]:
    """Leaves a thread behind."""
    threading.Thread(target=time.sleep, args=(argument,), daemon=True).start()
    return {}


def careless(argument: Any) -> dict[str, Any]:
    """Imports the grader."""
    import vesalius_truth.grading

    return {"grade": vesalius_truth.grading}


def generating(argument: Any) -> dict[str, Any]:
    """Imports the generators of functions."""
    import vesalius_functions.suite

    return {"suite": vesalius_functions.suite}


def slow(argument: Any) -> dict[str, Any]:
    """Sleeps."""
    time.sleep(argument)
    return {}
