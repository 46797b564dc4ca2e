"""Messages between the caller and the warm process: a length, then JSON, with open files attached where needed.

JSON and never pickle: a message can be wrong, but it cannot execute code. Only the two trusted sides use this channel;
programs have no access to it.
"""

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

_HEADER = struct.Struct(">I")
MAX_BYTES = 1 << 28
MAX_FILES = 4


def send(sock: socket.socket, document: Any, files: Sequence[int] = ()) -> None:
    """Send one document; the other side gets its own copies of the descriptors `files`."""
    body = json.dumps(document).encode()
    if len(body) > MAX_BYTES:
        raise ValueError(f"a message of {len(body)} bytes is over the limit of {MAX_BYTES}")
    header = _HEADER.pack(len(body))
    if files:
        socket.send_fds(sock, [header], list(files))
    else:
        sock.sendall(header)
    sock.sendall(body)


def receive(sock: socket.socket) -> tuple[Any, list[int]]:
    """The next document and the descriptors that came with it; `EOFError` when the other side has ended."""
    header, files, _, _ = socket.recv_fds(sock, _HEADER.size, MAX_FILES)
    header += _exactly(sock, _HEADER.size - len(header))
    (length,) = _HEADER.unpack(header)
    if length > MAX_BYTES:
        raise EOFError(f"a message of {length} bytes was announced; the limit is {MAX_BYTES}")
    return json.loads(_exactly(sock, length)), list(files)


def _exactly(sock: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = sock.recv(min(count, 1 << 20))
        if not part:
            raise EOFError("the other side closed the connection")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
