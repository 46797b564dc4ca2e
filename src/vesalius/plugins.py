"""User-supplied functions, named on the command line as `package.module:function`."""

import importlib
from collections.abc import Callable, Iterable
from typing import Any

from vesalius.errors import BadInput, choices


def function_named(name: str, *, role: str, known: Iterable[str]) -> Callable[..., Any]:
    """Import the function that `package.module:function` names; `role` and `known` are for the error message."""
    module, colon, function = name.partition(":")
    fix = f"use {choices(known)} or package.module:function"
    if not (colon and module and function):
        raise BadInput(f"{role} {name!r} does not exist; {fix}")
    try:
        target = getattr(importlib.import_module(module), function)
    except ModuleNotFoundError as error:
        raise BadInput(f"{role} {name!r}: {error}; put its folder on PYTHONPATH, or {fix}") from None
    except (ImportError, AttributeError) as error:
        raise BadInput(f"{role} {name!r}: {error}; {fix}") from None
    except (Exception, SystemExit) as error:  # an imported module may raise anything
        problem = " ".join(f"{type(error).__name__}: {error}".split())
        raise BadInput(f"{role} {name!r}: importing {module} raises {problem}; fix that module") from error
    if not callable(target):
        raise BadInput(f"{role} {name!r} is not a function; {fix}")
    return target
