"""Requests that want past the guard of the workbench: none may reach what lies behind it, and none leads elsewhere."""

from typing import Any

import anyio
import pytest

from vesalius_workbench.guard import MOST_BYTES, Guard, cookie_name
from vesalius_workbench.password import Password

HOST = "127.0.0.1:4321"
ORIGIN = f"http://{HOST}"
JSON = "application/json"
Headers = dict[str, str]


class Behind:
    """An application that notes what reaches it, and reads what it is sent."""

    def __init__(self) -> None:
        self.reached: list[str] = []
        self.bytes = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.reached.append(scope["path"])
        more = scope["method"] == "POST"
        while more:
            message = await receive()
            self.bytes += len(message.get("body", b""))
            more = message.get("more_body", False)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


class Asked:
    """A guard around such an application, with the session of one browser that was let in."""

    def __init__(self, password: Password | None = None) -> None:
        self.behind = Behind()
        self.guard = Guard(self.behind, hosts={HOST}, token="the-ticket", password=password)
        self.secret = self.guard.sessions.begin(address="127.0.0.1", program="")
        self.cookie = f"{cookie_name(HOST)}={self.secret}"

    def __call__(
        self,
        path: str = "/api/results",
        *,
        method: str = "GET",
        headers: Headers | None = None,
        query: str = "",
        body: bytes = b"",
        kind: str = "http",
        times: int = 1,
    ) -> tuple[int, dict[bytes, bytes], bytes]:
        """The status, the headers and the body of the answer."""
        given = {"host": HOST, **(headers or {})}
        scope = {
            "type": kind,
            "method": method,
            "path": path,
            "query_string": query.encode("latin-1"),
            "client": ("127.0.0.1", 1),
            "headers": [(n.encode(), v.encode("latin-1")) for n, v in given.items()],
        }
        sent = iter([{"type": "http.request", "body": body, "more_body": n + 1 < times} for n in range(times)])
        heard: list[Any] = []

        async def receive() -> Any:
            return next(sent)

        async def send(message: Any) -> None:
            heard.append(message)

        anyio.run(self.guard, scope, receive, send)
        start = heard[0] if heard else {"status": 0, "headers": []}
        return start["status"], dict(start["headers"]), b"".join(one.get("body", b"") for one in heard[1:])


@pytest.fixture
def asked() -> Asked:
    return Asked()


def test_who_was_let_in_reaches_it(asked: Asked) -> None:
    """So the tests below could fail."""
    assert asked(headers={"cookie": asked.cookie})[0] == 200
    sent = {"cookie": asked.cookie, "origin": ORIGIN, "content-type": JSON}
    assert asked(method="POST", headers=sent)[0] == 200
    assert len(asked.behind.reached) == 2


#: Requests without a session: headers, query, path, method.
STRANGERS: dict[str, tuple[Headers, str, str, str]] = {
    "nothing": ({}, "", "/api/results", "GET"),
    "an empty cookie": ({"cookie": f"{cookie_name(HOST)}="}, "", "/api/results", "GET"),
    "a guess": ({"cookie": f"{cookie_name(HOST)}=guess"}, "", "/api/results", "GET"),
    "the ticket as a cookie": ({"cookie": f"{cookie_name(HOST)}=the-ticket"}, "", "/api/results", "GET"),
    "a very long cookie": ({"cookie": f"{cookie_name(HOST)}=" + "x" * 100_000}, "", "/api/results", "GET"),
    "no text": ({"cookie": f"{cookie_name(HOST)}=\xff\x00"}, "", "/api/results", "GET"),
    "a guessed ticket": ({}, "token=guess", "/", "GET"),
    "an empty ticket": ({}, "token=", "/", "GET"),
    "a guess before the ticket": ({}, "token=guess&token=the-ticket", "/", "GET"),
    "the ticket in a POST": ({"origin": ORIGIN, "content-type": JSON}, "token=the-ticket", "/", "POST"),
    "the ticket in a header": ({"authorization": "Bearer the-ticket"}, "", "/", "GET"),
    "the ticket by HEAD": ({}, "token=the-ticket", "/", "HEAD"),
    "a parameter of another name": ({}, "Token=the-ticket", "/", "GET"),
    "the list of sessions": ({}, "", "/access", "GET"),
    "the end of a session": ({"origin": ORIGIN}, "", "/access/end", "POST"),
    "an address in a header": ({"x-forwarded-for": "127.0.0.1", "x-real-ip": "127.0.0.1"}, "", "/api/results", "GET"),
    "a user in a header": ({"x-forwarded-user": "root", "remote-user": "root"}, "", "/api/results", "GET"),
    "a path that climbs": ({}, "", "/static/../api/results", "GET"),
    "a page": ({}, "", "/page/report.html", "GET"),
    "the style sheet": ({}, "", "/static/style.css", "GET"),
}


@pytest.mark.parametrize("name", STRANGERS)
def test_no_stranger_gets_in(name: str, asked: Asked) -> None:
    headers, query, path, method = STRANGERS[name]
    status, answer, _ = asked(path, method=method, headers=headers, query=query)
    assert (status, asked.behind.reached) == (401, [])
    assert b"set-cookie" not in answer


#: What other pages make a browser send that was let in: it has the cookie unless a test says otherwise.
MISLED: dict[str, tuple[Headers, str]] = {
    "no origin": ({"content-type": JSON}, "POST"),
    "origin null": ({"origin": "null", "content-type": JSON}, "POST"),
    "another origin": ({"origin": "http://evil.example", "content-type": JSON}, "POST"),
    "an origin that begins alike": ({"origin": f"{ORIGIN}.evil.example", "content-type": JSON}, "POST"),
    "an origin that ends alike": ({"origin": f"http://evil.example/{HOST}", "content-type": JSON}, "POST"),
    "another port": ({"origin": "http://127.0.0.1:4322", "content-type": JSON}, "POST"),
    "another name of this machine": ({"origin": "http://localhost:4321", "content-type": JSON}, "POST"),
    "another scheme": ({"origin": f"file://{HOST}", "content-type": JSON}, "POST"),
    "a form": ({"origin": ORIGIN, "content-type": "application/x-www-form-urlencoded"}, "POST"),
    "plain text": ({"origin": ORIGIN, "content-type": "text/plain; application/json"}, "POST"),
    "no type": ({"origin": ORIGIN}, "POST"),
    "PUT": ({"content-type": JSON}, "PUT"),
    "DELETE": ({}, "DELETE"),
    "OPTIONS": ({"origin": "http://evil.example", "access-control-request-method": "POST"}, "OPTIONS"),
    "a method of no standard": ({}, "get"),
    "TRACE": ({}, "TRACE"),
    "a name that points here": ({"host": "evil.example:4321"}, "GET"),
    "a name that begins alike": ({"host": f"{HOST}.evil.example"}, "GET"),
    "a user before the host": ({"host": f"evil.example@{HOST}"}, "GET"),
    "a host without its port": ({"host": "127.0.0.1"}, "GET"),
    "an empty host": ({"host": ""}, "GET"),
    "a host with a blank": ({"host": f"{HOST} evil.example"}, "GET"),
    "a large body": ({"origin": ORIGIN, "content-type": JSON, "content-length": str(MOST_BYTES + 1)}, "POST"),
    "a length below zero": ({"origin": ORIGIN, "content-type": JSON, "content-length": "-1"}, "POST"),
    "a length of many digits": (
        {"origin": ORIGIN, "content-type": JSON, "content-length": "9" * 5000},
        "POST",
    ),
    "a length of other digits": ({"origin": ORIGIN, "content-type": JSON, "content-length": "\u00b9"}, "POST"),
    "a length that is no number": ({"origin": ORIGIN, "content-type": JSON, "content-length": "1e9"}, "POST"),
}


@pytest.mark.parametrize("name", MISLED)
def test_no_other_page_uses_a_browser_that_was_let_in(name: str, asked: Asked) -> None:
    headers, method = MISLED[name]
    status, answer, _ = asked(method=method, headers={"cookie": asked.cookie, **headers})
    assert 400 <= status < 500
    assert asked.behind.reached == []
    assert b"access-control-allow-origin" not in answer


def test_a_body_that_lies_about_its_length_ends_early(asked: Asked) -> None:
    headers = {"cookie": asked.cookie, "origin": ORIGIN, "content-type": JSON, "content-length": "10"}
    asked(method="POST", headers=headers, body=b"x" * (MOST_BYTES // 4), times=20)
    assert asked.behind.bytes <= MOST_BYTES


def test_a_socket_is_not_opened(asked: Asked) -> None:
    asked(kind="websocket", headers={"cookie": asked.cookie, "origin": "http://evil.example"})
    assert asked.behind.reached == []


def test_the_cookie_of_another_port_and_a_secret_that_ended_let_nobody_in(asked: Asked) -> None:
    assert asked(headers={"cookie": f"vesalius-9={asked.secret}; vesalius={asked.secret}"})[0] == 401
    assert asked.guard.sessions.revoke("1")
    assert asked(headers={"cookie": asked.cookie})[0] == 401
    assert asked.behind.reached == []


@pytest.mark.parametrize(
    "path",
    [
        "//evil.example",
        "/\\evil.example",
        "/\t/evil.example",
        "\\\\evil.example",
        "/%09/evil.example",
        "//\n/evil.example",
    ],
)
def test_nobody_is_led_elsewhere(path: str, asked: Asked) -> None:
    status, headers, page = asked(path, query="token=the-ticket")
    assert (status, asked.behind.reached) == (200, [])
    place = page.split(b"url=")[1].split(b'"')[0].decode()
    assert place.startswith("/")
    assert not place.replace("\t", "").replace("\n", "").startswith(("//", "/\\"))
    assert b"HttpOnly; SameSite=Strict" in headers[b"set-cookie"]


@pytest.mark.parametrize("place", ["//evil.example", "\t//evil.example", "/\t/evil.example", "x\r\nset-cookie: a=b"])
def test_the_form_leads_nowhere_else(place: str) -> None:
    asked = Asked(Password("a long password"))
    body = f"password=a+long+password&place={place}".encode()
    sent = {"origin": ORIGIN, "content-type": "application/x-www-form-urlencoded"}
    status, headers, _ = asked("/enter", method="POST", headers=sent, body=body)
    where = headers[b"location"].decode()
    assert status == 303
    assert where.isprintable()
    assert where.startswith("/")
    assert not where.startswith(("//", "/\\"))
