"""What is the user's alone: files that nobody else can read or write, and secrets in the environment."""

import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from vesalius.errors import BadInput, Failed

#: Variables of the environment that hold a secret: by their names (API_KEY, API_KEY_2, AWS_ACCESS_KEY_ID), and by an
#: address with a password in it.
_SECRET_NAME = re.compile(
    r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|_PAT)S?(_[A-Z0-9]+)*$", re.IGNORECASE
)
_SECRET_ADDRESS = re.compile(r"://[^/@\s]*:[^/@\s]+@")
#: Bytes of a private file at most.
MOST_BYTES = 1_000_000


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment for a process that needs no secret: what one starts with stays readable under `/proc`."""
    secret = secrets_of(environment)
    return {name: value for name, value in environment.items() if name not in secret}


def secrets_of(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of an environment that hold a secret."""
    found = (one for one in environment.items() if _SECRET_NAME.search(one[0]) or _SECRET_ADDRESS.search(one[1]))
    return dict(found)


def write_private(path: Path, text: str) -> None:
    """Write a file that its owner alone can read, whole or not at all; what was there is replaced, links included."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.unlink(missing_ok=True)
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(partial, path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise Failed(f"{path}: cannot be written ({error.strerror}); choose another place") from None


def read_private(path: Path, *, fix: str = "remove it, and the server makes it again") -> str:
    """The text of a private file; refused, with the fix, where others could have read or written it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as file:
            about = os.fstat(handle)
            text = file.read(MOST_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read ({error}); {fix}") from None
    if not stat.S_ISREG(about.st_mode) or about.st_uid != os.getuid():
        raise BadInput(f"{path}: is not a file of this user; {fix}")
    if about.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise BadInput(f"{path}: other users can read it; {fix}")
    return text
