"""Programs that talk to a server over HTTP: each has a secret, which it sends with every request.

The secrets are in a private file, by the name of the client. The file is read again whenever it changes, so that a
secret that is revoked lets nobody in from that moment on, whichever process revoked it.
"""

import hashlib
import hmac
import json
import os
import secrets
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from vesalius.errors import BadInput
from vesalius.private import read_private, write_private

SCHEMA = 1
#: Characters of a secret that a client may send.
MOST_CHARACTERS = 200


class Clients:
    """The clients of a server and their secrets, in the file at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read_at: tuple[int, int] | None = None
        self._secrets: dict[str, str] = {}
        self._lock = threading.Lock()

    def require(self, names: Iterable[str]) -> None:
        """Make a secret for every one of these clients that has none; the others keep theirs, and no further ones stay
        admitted.
        """
        before = self._load() if self.path.exists() or self.path.is_symlink() else {}
        self._save({name: before.get(name) or secrets.token_urlsafe(24) for name in names})

    def revoke(self, name: str) -> None:
        """Replace the secret of a client: the old one is worth nothing from now on."""
        known = self._load()
        if name not in known:
            raise BadInput(f"client {name!r}: is not one of this server; there are {', '.join(known)}")
        self._save({**known, name: secrets.token_urlsafe(24)})

    def names(self) -> list[str]:
        """Every client."""
        return list(self._current())

    def of(self, secret: str) -> str | None:
        """The client whose secret this is."""
        given = hashlib.sha256(secret.encode("utf-8", "replace")).digest()
        found = None
        for name, one in self._current().items():
            if hmac.compare_digest(hashlib.sha256(one.encode()).digest(), given):
                found = name
        return found

    def _current(self) -> dict[str, str]:
        with self._lock:
            try:
                about = os.stat(self.path, follow_symlinks=False)
                now = about.st_mtime_ns, about.st_ino
                if now != self._read_at:
                    self._secrets, self._read_at = self._load(), now
            except (OSError, BadInput):  # a file that is gone or damaged lets nobody in
                self._secrets, self._read_at = {}, None
            return self._secrets

    def _load(self) -> dict[str, str]:
        try:
            known = json.loads(read_private(self.path))["clients"]
            if all(isinstance(one, str) and len(one) >= 16 for one in known.values()):
                return dict(known)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass
        raise BadInput(f"{self.path}: does not hold the secrets of clients; remove it, so that new ones are made")

    def _save(self, known: dict[str, str]) -> None:
        write_private(self.path, json.dumps({"schema": SCHEMA, "clients": known}, indent=2) + "\n")


class Bearer:
    """ASGI middleware: a request without the secret of a client is refused before anything of it is read.

    `admit` marks the request for what lies behind, by the client's name.
    """

    def __init__(self, app: Any, clients: Clients, admit: Callable[[Any, str], None]) -> None:
        self.app, self.clients, self.admit = app, clients, admit

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Refuse, or hand on."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return None
        given = [value.decode("latin-1") for name, value in scope["headers"] if name.lower() == b"authorization"]
        kind, _, secret = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        known = kind.lower() == "bearer" and len(secret) <= MOST_CHARACTERS
        client = self.clients.of(secret.strip()) if known else None
        if client is None:
            headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"www-authenticate", b"Bearer")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            line = b"send the secret of a client: Authorization: Bearer SECRET; the server printed where they are"
            return await send({"type": "http.response.body", "body": line})
        self.admit(scope, client)
        return await self.app(scope, receive, send)
