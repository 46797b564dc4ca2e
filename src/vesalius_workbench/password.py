"""The password of a server that other machines can reach: asked for once per browser, and not to be guessed by trying.

After `FREE_TRIES` wrong ones an address waits, twice as long with each further one. All addresses together have
`MOST_WRONG` wrong ones a minute, so that many addresses try no faster than one. While a wait lasts the right password
is refused as well, so that an answer says nothing.
"""

import hashlib
import hmac
import html
import time
from collections import OrderedDict, deque
from collections.abc import Callable

#: Where the form is sent, and how long what it sends may be.
ENTER, FORM_BYTES = "/enter", 8_192
#: The least characters of a password.
SHORTEST = 8
FREE_TRIES, FIRST_WAIT, LONGEST_WAIT = 5, 5.0, 900.0
MOST_WRONG, MINUTE = 30, 60.0
#: Addresses that are remembered.
MOST_ADDRESSES = 10_000


class Password:
    """Says whether a password is right, and makes those wait who tried too often."""

    def __init__(self, password: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._digest, self._clock = _digest(password), clock
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()  # wrong ones of an address, end of its wait
        self._lately: deque[float] = deque()

    def wait(self, address: str) -> float:
        """Seconds until this address may try; 0 if it may now."""
        now = self._clock()
        while self._lately and self._lately[0] <= now - MINUTE:
            self._lately.popleft()
        everybody = self._lately[0] + MINUTE - now if len(self._lately) >= MOST_WRONG else 0.0
        return max(0.0, everybody, self._wrong.get(address, (0, now))[1] - now)

    def accepts(self, given: str, address: str) -> bool:
        """Whether the password is right; call it only when `wait` is 0."""
        if hmac.compare_digest(_digest(given), self._digest):
            self._wrong.pop(address, None)
            return True
        now = self._clock()
        count = self._wrong.pop(address, (0, 0.0))[0] + 1
        over = count - FREE_TRIES
        wait = 0.0 if over < 0 else min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(over, 20))
        self._wrong[address] = count, now + wait
        self._lately.append(now)
        while len(self._wrong) > MOST_ADDRESSES:
            self._wrong.popitem(last=False)
        return False


def form(place: str, why: str = "") -> str:
    """The page that asks for the password and then leads to `place`."""
    problem = f'<p class="problem" role="alert">{html.escape(why)}</p>' if why else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Password · Vesalius</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/static/style.css">
</head>
<body><header class="bar"><strong>Vesalius</strong></header>
<main><h1>Password</h1>
{problem}
<form class="filters" method="post" action="{ENTER}">
<input type="hidden" name="place" value="{html.escape(place, quote=True)}">
<label class="field"><span>The password that this server was started with</span>
<input type="password" name="password" autocomplete="current-password" required autofocus></label>
<button type="submit">Enter</button>
</form>
</main></body>
</html>
"""


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()
