"""How progress is shown: a function as it is, plain lines at intervals, a bar in a notebook, or nothing."""

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from vesalius import progress as module
from vesalius.progress import Lines, Progress, bar_html, shown, silent


@pytest.fixture(autouse=True)
def asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(module.SILENT, raising=False)


def test_lines_come_at_most_every_ten_seconds() -> None:
    now, file = [100.0], io.StringIO()
    lines = Lines(file, clock=lambda: now[0])
    for second in range(26):
        now[0] = 100.0 + second
        lines("effects of ioi", second, 60)
    now[0] += 10
    lines("drawing", 0, 0)
    assert file.getvalue() == "effects of ioi: 10 of 60\neffects of ioi: 20 of 60\ndrawing\n"


def test_a_function_is_called_and_false_is_silent() -> None:
    steps: list[Any] = []

    def listen(step: str, done: int, total: int) -> None:
        steps.append((step, done, total))

    with shown(listen) as report:
        report("sweep", 1, 2)
    assert steps == [("sweep", 1, 2)]
    with shown(False) as report:
        assert report is silent


def test_the_environment_silences_the_default_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(module.SILENT, "0")
    with shown() as default, shown(True) as asked:
        assert default is silent
        assert isinstance(asked, Lines)


def test_a_file_gets_lines_and_a_terminal_a_bar_that_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    with shown() as report:
        assert isinstance(report, Lines)

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    with shown():
        pass
    assert terminal.getvalue() == ""
    with shown() as report:
        report("sweep [bold]", 3, 4)
    written = terminal.getvalue()
    assert "sweep [bold]" in written
    assert written.endswith("\x1b[2K")  # the line is cleared


def test_a_notebook_gets_one_element_that_is_drawn_again_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    handle = SimpleNamespace(update=drawn.append)

    def display(html: str, display_id: bool) -> Any:
        drawn.append(html)
        return handle

    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(HTML=str, display=display))
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])

    def work(report: Progress) -> None:
        for second in range(4):
            now[0] = float(second)
            report("<sweep>", second, 4)
            report("too soon", second, 4)

    with shown() as report:
        work(report)
    bars = [bar_html("<sweep>", second, 4) for second in (1, 2, 3)]
    assert drawn == [*bars, ""]
    assert bars[0] == '<progress value="1" max="4"></progress> &lt;sweep&gt; 1/4'


def test_ipython_in_a_terminal_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace()))
    with shown() as report:
        assert isinstance(report, Lines)
