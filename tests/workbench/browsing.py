"""A server of `vesalius open` and a browser that clicks through it.

`serving` starts the server as a user would; `Browser.page` opens a window that remembers every console error and every
request, so that `Page.check` can say that none left loopback; `faults` are what axe-core finds wrong with a page.
"""

import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx
import pytest

from tests.forked import vesalius
from tests.processes import PATIENCE
from tests.report.browser import CHROMIUM

sync_api = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")


@dataclass(frozen=True)
class Served:
    """A running server: `base` without a path, its process, and the session that windows share: its name and secret."""

    base: str
    token: str
    process: "subprocess.Popen[str] | None"
    session: tuple[str, str] = ("", "")

    def address(self, view: str) -> str:
        """The address of a view."""
        return f"{self.base}/{view}"


@contextmanager
def serving(*arguments: str | Path, directory: Path | None = None, threads: int = 1) -> Iterator[Served]:
    """`vesalius open ARGUMENTS --no-browser`, with so many threads to compute; stopped at the end."""
    command = vesalius("open", *arguments, "--no-browser")
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=directory) as process:
        assert process.stdout is not None
        found = re.search(r"(http://[^/\s]+)/\S*?(?:token=(\S+)|$)", process.stdout.readline())
        assert found is not None, "the server printed no address"
        try:
            yield Served(found[1], found[2] or "", process, _entered(found[1], found[2]))
        finally:
            process.terminate()


def _entered(base: str, token: str | None) -> tuple[str, str]:
    """The session that a token gives; a server with a password gives none."""
    if not token:
        return "", ""
    ((name, secret),) = httpx.get(f"{base}/", params={"token": token}, timeout=PATIENCE).cookies.items()
    return name, secret


@dataclass
class Window:
    """One page of the browser with what it printed and asked for."""

    page: Any
    served: Served
    errors: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Remember what the page prints and asks for."""
        heard = {
            "console": lambda said: self.errors.append(said.text) if said.type == "error" else None,
            "pageerror": lambda error: self.errors.append(str(error)),
            "request": lambda request: self.hosts.add(urlsplit(request.url).netloc),
        }
        for event, hear in heard.items():
            self.page.on(event, hear)
        yield
        for event, hear in heard.items():
            self.page.remove_listener(event, hear)

    def open(self, view: str) -> Any:
        """Go to a view and wait until its questions are answered."""
        self.page.goto(self.served.address(view))
        self.page.wait_for_load_state("networkidle")
        return self.page

    def check(self, *, refusals: bool = False) -> None:
        """Nothing left loopback and nothing failed; `refusals` allows answers of status 4xx, which Chromium logs."""
        assert self.hosts <= {urlsplit(self.served.base).netloc, ""}
        kept = [line for line in self.errors if not (refusals and "status of 4" in line)]
        assert kept == []

    def check_views(self, views: Iterable[str], before: Callable[[Any], object] = lambda page: None) -> None:
        """Every view is accessible, light and dark, and no wider than the page, and none leaves loopback or prints an
        error; `before` is done on each first.
        """
        wrong: list[str] = []
        for view in views:
            page = self.open(view)
            before(page)
            page.emulate_media(color_scheme="dark")
            # A scheme changes nothing but colours.
            wrong += [f"{view}, dark: {fault}" for fault in self.faults(rules=["color-contrast"])]
            page.emulate_media(color_scheme="light")
            wrong += [f"{view}: {fault}" for fault in self.faults()]
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                wrong.append(f"{view}: is wider than the page")
        assert wrong == []
        self.check()

    def faults(self, *, rules: list[str] | None = None) -> list[str]:
        """Serious and critical faults that axe-core finds, by these rules or by all: rule and first element."""
        from axe_playwright_python.sync_playwright import Axe

        options = {"resultTypes": ["violations"], **({"runOnly": rules} if rules else {})}
        axe = Axe("0") if self.page.evaluate("'axe' in window") else Axe()  # half a megabyte, which the page may have
        found = axe.run(self.page, options=options).response["violations"]
        grave = [fault for fault in found if fault["impact"] in ("serious", "critical")]
        return [f"{fault['id']}: {fault['nodes'][0]['html']}" for fault in grave]


class Browser:
    """Chromium, started once for the tests of a module.

    A window starts with nothing remembered. Making what keeps it apart from others takes two seconds of a core, so one
    whose test has passed is emptied and used again.
    """

    def __init__(self, chromium: Any) -> None:
        self._chromium = chromium
        self._spare: list[Any] = []

    @contextmanager
    def window(
        self, served: Served, *, width: int = 1280, height: int = 900, scheme: Literal["light", "dark"] = "light"
    ) -> Iterator[Window]:
        """A window of its own, with its own cookies."""
        with self._opened(served.base, width, height, scheme) as page:
            if served.session[0]:
                name, secret = served.session
                cookie = {"name": name, "value": secret, "url": served.base, "httpOnly": True, "sameSite": "Strict"}
                page.context.add_cookies([cookie])
            window = Window(page, served)
            with window.listening():
                yield window

    @contextmanager
    def bare_window(self) -> Iterator[Window]:
        """A window that belongs to no server, for content that is handed to it."""
        with self._opened("", 1280, 900, "light") as page:
            window = Window(page, Served("", "", None))
            with window.listening():
                yield window

    @contextmanager
    def _opened(self, origin: str, width: int, height: int, scheme: Literal["light", "dark"]) -> Iterator[Any]:
        page = self._spare.pop() if self._spare else self._chromium.new_context(accept_downloads=True).new_page()
        page.context.set_default_timeout(PATIENCE * 1000)
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=scheme)
        try:
            yield page
        except BaseException:
            page.context.close()
            raise
        page.unroute_all()
        if origin:
            if page.url.startswith(origin):
                page.evaluate("sessionStorage.clear()")
            everything = {"origin": origin, "storageTypes": "all"}
            page.context.new_cdp_session(page).send("Storage.clearDataForOrigin", everything)
        page.context.clear_cookies()
        page.goto("about:blank")
        self._spare.append(page)


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Chromium until the block ends. Close it before other tests run an event loop of their own."""
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield Browser(chromium)
        finally:
            chromium.close()
