"""Somebody else's function, named on the command line as `package.module:function`."""

import importlib
from collections.abc import Callable, Iterable
from typing import Any

from vesalius.errors import BadInput, choices


def function_named(name: str, *, role: str, known: Iterable[str]) -> Callable[..., Any]:
    """The function that `package.module:function` names; `role` and the `known` names are for the refusal."""
    module, colon, function = name.partition(":")
    mend = f"use {choices(known)} or package.module:function"
    if not (colon and module and function):
        raise BadInput(f"{role} {name!r} does not exist; {mend}")
    try:
        found = getattr(importlib.import_module(module), function)
    except ModuleNotFoundError as error:
        raise BadInput(f"{role} {name!r}: {error}; put its folder on PYTHONPATH, or {mend}") from None
    except (ImportError, AttributeError) as error:
        raise BadInput(f"{role} {name!r}: {error}; {mend}") from None
    except (Exception, SystemExit) as error:  # whatever the first lines of somebody's module raise
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise BadInput(f"{role} {name!r}: importing {module} raises {said}; mend it") from error
    if not callable(found):
        raise BadInput(f"{role} {name!r} is no function; {mend}")
    return found
