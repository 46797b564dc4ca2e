"""Who may ask the server, and for what: a session for each browser, the page's own origin, small requests.

1. The address that `vesalius open` prints carries a ticket. It lets one browser in, with a session whose secret is a
   cookie that scripts cannot read and other sites do not send, and the ticket is used up.
2. Every request needs that cookie, and a `Host` that the server was started for, so that a name of another site that
   points here is refused.
3. A request that changes or computes something needs the page's own `Origin` and JSON.
4. Every answer forbids scripts, styles, frames and connections from anywhere else.

A server that other machines can reach has a password in place of tickets: a visitor without the cookie gets a form
that asks for it (`password`), and nothing else but the form's style sheet. The page at `/access` lists the sessions,
ends any of them, and makes a ticket for another browser (`access`).
"""

import html
import ipaddress
import math
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from vesalius_serving.sessions import Session, Sessions
from vesalius_workbench.access import ACCESS, NEW, REVOKE, access_page
from vesalius_workbench.password import ENTER, FORM_BYTES, Password, form

COOKIE = "vesalius"
#: Bytes of a request.
MOST_BYTES = 1_000_000
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
#: Headers that decide who may ask: one that stands twice could be read by one part of the server and not by another.
ONCE = ("host", "origin", "content-type", "content-length", "cookie")
#: Where static pages are served. They carry their style and scripts, so that they have a policy of their own.
PAGES_AT = "/page"
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]
#: What differs for the form that asks for the password: it may be sent here, with the page's own origin.
FORM_HEADERS = [
    (b"content-security-policy", POLICY.replace("form-action 'none'", "form-action 'self'").encode()),
    (b"referrer-policy", b"same-origin"),
    (b"content-type", b"text/html; charset=utf-8"),
]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def page_policy(hashes: Iterable[str]) -> str:
    """The policy of a static page: scripts of these hashes, its own style, and nothing else."""
    scripts = " ".join(f"'sha256-{one}'" for one in hashes)
    closed = "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src {scripts}; {closed}"


class Guard:
    """ASGI middleware around the server. `hosts` are the values of `Host` that it answers to; with `any_address` also
    every address in digits, which no other site can make a browser send. A `password` takes the place of tickets;
    `works` is what the server works on, so that ending it can end that. `token` is a first ticket, for programs that
    make the application themselves.
    """

    def __init__(
        self,
        app: Any,
        *,
        hosts: set[str],
        token: str | None = None,
        any_address: bool = False,
        password: Password | None = None,
        works: Any = None,
    ) -> None:
        self.app, self.hosts, self.any_address = app, hosts, any_address
        self.password, self.works, self.sessions = password, works, Sessions()
        if token is not None:
            self.sessions.ticket(token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or hand on with the headers of every answer."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        guarded = _with_headers(send, own_policy=scope["path"].startswith(f"{PAGES_AT}/"))
        names = [name.decode("latin-1").lower() for name, _ in scope["headers"]]
        if twice := next((name for name in ONCE if names.count(name) > 1), None):
            return await _refuse(guarded, 400, f"the header {twice} stands twice")
        host = headers.get("host", "")
        if host not in self.hosts and not (self.any_address and _is_address(host)):
            return await _refuse(guarded, 400, "this address is not one that the workbench was started for")
        if self.password is not None and scope["path"] == ENTER and scope["method"] == "POST":
            return await self._ask(scope, headers, receive, send, self.password)
        session = self._session(headers.get("cookie", ""), host)
        token = parse_qs(scope["query_string"].decode("latin-1")).get("token")
        if self.password is None and scope["method"] == "GET" and token:
            return await self._enter(scope, headers, guarded, token[0], session)
        if session is None:
            if self.password is not None and scope["method"] == "GET" and not scope["path"].startswith("/api/"):
                if scope["path"] == "/static/style.css":
                    return await self.app(scope, receive, guarded)
                return await _send_form(send, 200, place=_place(scope))
            text = "open the address that `vesalius open` printed last; it lets this browser in"
            return await _refuse(guarded, 401, text)
        if scope["path"] in (ACCESS, REVOKE, NEW):
            return await self._manage(scope, headers, receive, send, session)
        if scope["method"] not in ("GET", "HEAD"):
            if headers.get("origin") not in {f"http://{host}", f"https://{host}"}:
                return await _refuse(guarded, 403, "a request from another page is refused")
            if not headers.get("content-type", "").startswith("application/json"):
                return await _refuse(guarded, 415, "send JSON")
        if not _is_short(headers.get("content-length", "0")):
            return await _refuse(guarded, 413, f"a request may have {MOST_BYTES:,} bytes")
        return await self.app(scope, _bounded(receive), guarded)

    async def _enter(
        self, scope: Scope, headers: dict[str, str], send: Send, given: str, session: Session | None
    ) -> None:
        """Let in a browser that shows a ticket. One that is in already keeps its session, and the ticket stays."""
        place, host = _place(scope), headers.get("host", "")
        if session is not None:
            return await _lead(send, place)
        secret = self.sessions.enter(given, **_who(scope, headers))
        if secret is None:
            line = "this address is used up or not of this server; open the one that `vesalius open` printed last"
            return await _refuse(send, 401, line)
        return await _lead(send, place, cookie=f"{cookie_name(host)}={secret}")

    async def _manage(
        self, scope: Scope, headers: dict[str, str], receive: Receive, send: Send, session: Session
    ) -> None:
        """The sessions as a page, the end of one, or a ticket for another browser."""
        guarded, host, path = _with_headers(send), headers.get("host", ""), scope["path"]
        if path == ACCESS:
            address = ""
        elif scope["method"] != "POST" or headers.get("origin") not in {f"http://{host}", f"https://{host}"}:
            return await _refuse(guarded, 403, "a request from another page is refused")
        elif path == REVOKE:
            sent = parse_qs((await _body(receive, FORM_BYTES)).decode("utf-8", "replace"))
            self.sessions.revoke(sent.get("name", [""])[0])
            address = ""
        else:
            address = "" if self.password is not None else f"http://{host}/?token={self.sessions.ticket()}"
        page = access_page(self.sessions.listed(), mine=session, address=address, tickets=self.password is None)
        return await _send_page(send, 200, page)

    async def _ask(
        self, scope: Scope, headers: dict[str, str], receive: Receive, send: Send, password: Password
    ) -> None:
        """Let in a request that sends the right password from the form."""
        guarded, host = _with_headers(send), headers.get("host", "")
        if headers.get("origin") not in {f"http://{host}", f"https://{host}"}:
            return await _refuse(guarded, 403, "a request from another page is refused")
        sent = parse_qs((await _body(receive, FORM_BYTES)).decode("utf-8", "replace"))
        place = "/" + "".join(filter(str.isprintable, sent.get("place", [""])[0])).lstrip("/\\")
        address = (scope.get("client") or ("", 0))[0]
        if seconds := math.ceil(password.wait(address)):
            return await _send_form(send, 429, place=place, why=f"Too many wrong passwords; wait {seconds} seconds.")
        if not password.accepts(sent.get("password", [""])[0], address):
            return await _send_form(send, 401, place=place, why="This is not the password.")
        secret = self.sessions.begin(**_who(scope, headers))
        return await _lead(guarded, place, cookie=f"{cookie_name(host)}={secret}", status=303)

    def _session(self, cookies: str, host: str) -> Session | None:
        values = [part.strip().split("=", 1) for part in cookies.split(";")]
        given = next((pair[1] for pair in values if len(pair) == 2 and pair[0] == cookie_name(host)), "")
        return self.sessions.known(given)


def _is_short(length: str) -> bool:
    """Whether a request may have so many bytes. Its digits are counted before they are read as a number, which Python
    refuses to do with thousands of them.
    """
    digits = length.lstrip("0") or "0"
    return length.isascii() and length.isdecimal() and len(digits) <= len(str(MOST_BYTES)) and int(digits) <= MOST_BYTES


def cookie_name(host: str) -> str:
    """A cookie of this port's own: browsers send the cookies of a host to all its ports, so servers would otherwise
    lock each other's visitors out.
    """
    port = host.rpartition(":")[2]
    return f"{COOKIE}-{port}" if port.isdecimal() else COOKIE


def _who(scope: Scope, headers: dict[str, str]) -> dict[str, str]:
    """Where a client comes from, and what it calls itself."""
    return {"address": str((scope.get("client") or ("", 0))[0]), "program": headers.get("user-agent", "")}


def _place(scope: Scope) -> str:
    """Where a request wanted to go, without the token."""
    rest = parse_qs(scope["query_string"].decode("latin-1"))
    rest.pop("token", None)
    query = urlencode(rest, doseq=True)
    place = urlsplit(scope["path"])._replace(scheme="", netloc="").geturl()
    return "/" + place.lstrip("/\\") + (f"?{query}" if query else "")


def _is_address(host: str) -> bool:
    """Whether a `Host` is an address in digits, with or without a port."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _with_headers(send: Send, *, own_policy: bool = False) -> Send:
    """Add the headers of every answer; with `own_policy` the policy of an answer that brings one stays."""

    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            brought = message.get("headers", [])
            kept = {name for name, _ in brought if own_policy and name == b"content-security-policy"}
            ours = [pair for pair in HEADERS if pair[0] not in kept]
            own = [pair for pair in brought if pair[0] not in {name for name, _ in ours}]
            message = {**message, "headers": [*own, *ours]}
        await send(message)

    return sending


async def _lead(send: Send, place: str, *, cookie: str = "", status: int = 200) -> None:
    """Lead on to a place, with a cookie for who was let in. A page does that and no redirection: where the browser was
    sent here by a page on the disk, it would follow a redirection without the cookie of this site.
    """
    safe = place.encode("ascii", "replace").decode()
    headers = [(b"content-type", b"text/html; charset=utf-8")]
    if status == 303:
        headers.append((b"location", safe.encode()))
    if cookie:
        headers.append((b"set-cookie", f"{cookie}; Path=/; HttpOnly; SameSite=Strict".encode()))
    quoted = html.escape(safe, quote=True)
    page = (
        f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={quoted}">'
        f'<title>Vesalius</title><a href="{quoted}">Vesalius</a>'
    )
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": page.encode()})


async def _send_form(send: Send, status: int, *, place: str, why: str = "") -> None:
    await _send_page(send, status, form(place, why))


async def _send_page(send: Send, status: int, page: str) -> None:
    names = {name for name, _ in FORM_HEADERS}
    headers = [*FORM_HEADERS, *(pair for pair in HEADERS if pair[0] not in names)]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": page.encode()})


async def _body(receive: Receive, most: int) -> bytes:
    """The body of a request; empty where it is longer than `most` bytes."""
    body, more = b"", True
    while more and len(body) <= most:
        message = await receive()
        body, more = body + message.get("body", b""), bool(message.get("more_body"))
    return body if len(body) <= most else b""


def _bounded(receive: Receive) -> Receive:
    """A body that says it is short and is not ends early, and is then no JSON."""
    seen = 0

    async def receiving() -> MutableMapping[str, Any]:
        nonlocal seen
        message = await receive()
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > MOST_BYTES:
                return {"type": "http.request", "body": b"", "more_body": False}
        return message

    return receiving


async def _refuse(send: Send, status: int, why: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": why.encode()})
