"""The page that lists who was let in: it ends sessions, and makes a ticket for another browser. It has no scripts."""

import html
from collections.abc import Sequence
from datetime import UTC, datetime

from vesalius_serving.sessions import Session

ACCESS, REVOKE, NEW = "/access", "/access/revoke", "/access/new"
_LONGEST_PROGRAM = 80


def access_page(sessions: Sequence[Session], *, mine: Session, address: str, tickets: bool) -> str:
    """The sessions with a button for each; `address` is a ticket that was just made, `tickets` whether one can be."""
    rows = "\n".join(_row(one, is_mine=one.name == mine.name) for one in sessions)
    shown = f"<code>{html.escape(address)}</code>"
    made = f'<p role="status">This address lets one browser in, once: {shown}</p>' if address else ""
    another = (
        f'<form method="post" action="{NEW}"><button type="submit">Let in another browser</button></form>'
        if tickets
        else "<p>Another browser is let in by the password.</p>"
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Who is let in · Vesalius</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/static/style.css">
</head>
<body><header class="bar"><a href="/">Vesalius</a></header>
<main><h1>Who is let in</h1>
<table>
<thead><tr><th>session</th><th>from</th><th>program</th><th>since</th><th>last here</th><th>end it</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
{made}
{another}
</main></body>
</html>
"""


def _row(one: Session, *, is_mine: bool) -> str:
    name = f"{one.name} (this browser)" if is_mine else one.name
    program = one.program if len(one.program) <= _LONGEST_PROGRAM else one.program[: _LONGEST_PROGRAM - 1] + "…"
    cells = (name, one.address, program, _time(one.began), _time(one.seen))
    shown = "".join(f"<td>{html.escape(text)}</td>" for text in cells)
    button = (
        f'<form method="post" action="{REVOKE}"><input type="hidden" name="name" value="{html.escape(one.name)}">'
        f'<button type="submit" aria-label="End session {html.escape(one.name)}">End</button></form>'
    )
    return f"<tr>{shown}<td>{button}</td></tr>"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
