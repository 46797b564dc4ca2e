"""Records: looked up by content, free of secrets, safe against kills, enough for replay without a network."""

import base64
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from tests.backbones.conftest import FakeClock
from tests.backbones.fake_server import ReceivedRequest, Response, chat, error, serving
from vesalius.errors import BadInput
from vesalius_backbones import (
    Backbone,
    BadKey,
    NotRecorded,
    Records,
    Redactor,
    Refused,
    RetryPolicy,
    Scripted,
    ScriptedReply,
    TokenUsage,
    open_backbone,
    user,
)

SECRETS = [
    "sk-proj-AbCdEf0123456789AbCdEf",
    "sk-ant-api03-0123456789abcdefXYZ",
    "AIzaSyA0123456789abcdefghijklmnopqrstu",
    "hf_0123456789abcdefABCDEF",
    "ghp_0123456789abcdefABCDEF0123",
    "AKIAABCDEFGHIJKLMNOP",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
]


class Point(BaseModel):
    x: int


def echo(**options: object) -> Backbone:
    return open_backbone(Scripted(lambda r: r.messages[-1].text), clock=FakeClock(), **options)  # type: ignore[arg-type]


def replaying(place: Path) -> Backbone:
    return open_backbone(Scripted([]), replay=place)


def test_replay_serves_what_was_recorded(tmp_path: Path, no_sockets: None) -> None:
    live = echo(record=tmp_path).chat("one", label="a")
    again = replaying(tmp_path).chat("one", label="another label")
    assert (again.text, again.usage, again.attempts) == (live.text, live.usage, live.attempts)
    assert (live.replayed, again.replayed) == (False, True)


def test_replay_of_a_provider_needs_no_key_package_or_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    pytest.importorskip("langchain_openai")
    monkeypatch.setenv("OPENAI_API_KEY", SECRETS[0])
    with serving(Response(chat('{"x": 3}'))) as server:
        live = open_backbone("openai:gpt-5.4", base_url=f"{server.url}/v1", record=tmp_path).chat("x?", schema=Point)
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setitem(sys.modules, "langchain_openai", None)
    request.getfixturevalue("no_sockets")
    again = open_backbone("openai:gpt-5.4", replay=tmp_path).chat("x?", schema=Point)
    assert again.parsed == live.parsed == Point(x=3)
    assert again.cost == live.cost == pytest.approx((100 * 2.5 + 20 * 15) / 1e6)


def test_a_missing_call_is_one_line(tmp_path: Path) -> None:
    echo(record=tmp_path).chat("one")
    with pytest.raises(NotRecorded, match=r"call 'step 2' is not recorded in .*calls.jsonl; record it first"):
        replaying(tmp_path).chat("two", label="step 2")
    with pytest.raises(BadInput, match="no recorded calls there"):
        replaying(tmp_path / "nowhere")


@pytest.mark.parametrize("changed", [{"temperature": 0.5}, {"max_tokens": 5}, {"model": "other"}, {"text": "two"}])
def test_everything_that_can_change_the_answer_changes_the_address(tmp_path: Path, changed: dict[str, object]) -> None:
    script = tmp_path / "script.json"
    script.write_text('["hi"]')
    open_backbone(f"scripted:{script}", record=tmp_path).chat("one")
    name = changed.pop("model", "script.json")
    text = str(changed.pop("text", "one"))
    with pytest.raises(NotRecorded):
        open_backbone(f"scripted:{name}", replay=tmp_path, **changed).chat(text)  # type: ignore[arg-type]


def test_repetitions_are_different_calls(tmp_path: Path) -> None:
    backbone = open_backbone(Scripted(["first", "second", "third"]), record=tmp_path)
    assert [backbone.chat("draw").text for _ in range(3)] == ["first", "second", "third"]
    again = replaying(tmp_path)
    assert [again.chat("draw").text for _ in range(3)] == ["first", "second", "third"]


def test_scopes_keep_their_own_count(tmp_path: Path) -> None:
    backbone = open_backbone(Scripted(["a1", "b1", "a2"]), record=tmp_path)
    a, b = backbone.within("a"), backbone.within("b")
    assert [a.chat("draw").text, b.chat("draw").text, a.chat("draw").text] == ["a1", "b1", "a2"]
    resumed = replaying(tmp_path)  # a run that continues with b alone still finds b's own call
    assert resumed.within("b").chat("draw").text == "b1"


def test_a_resumed_run_pays_nothing_twice(tmp_path: Path) -> None:
    echo(record=tmp_path).chat("one")
    script = Scripted(["fresh"])
    resumed = open_backbone(script, record=tmp_path)
    assert resumed.chat("one").replayed
    assert resumed.chat("two").text == "fresh"
    assert len(script.requests) == 1


def test_failures_are_replayed_but_not_resumed(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="declined"):
        open_backbone(Scripted([ScriptedReply(finish="refused")]), record=tmp_path).chat("x")
    with pytest.raises(Refused, match="declined"):
        replaying(tmp_path).chat("x")
    assert open_backbone(Scripted(["now I will"]), record=tmp_path).chat("x").text == "now I will"
    assert replaying(tmp_path).chat("x").text == "now I will"


def test_what_a_server_rejects_is_remembered_by_the_record(tmp_path: Path) -> None:
    pytest.importorskip("langchain_openai")

    def old_server(received: ReceivedRequest) -> Response:
        if "response_format" in received.body:
            return Response(error("response_format is not supported"), status=400)
        return Response(chat('{"x": 3}'))

    with serving(old_server) as server:
        url = f"{server.url}/v1"
        open_backbone("compatible:m", base_url=url, record=tmp_path).chat("x?", schema=Point)
        open_backbone("compatible:m", base_url=url, record=tmp_path).chat("y?", schema=Point)
    assert len(server.received) == 3
    again = open_backbone("compatible:m", replay=tmp_path)
    assert [again.chat(text, schema=Point).parsed for text in ("y?", "x?")] == [Point(x=3)] * 2


def test_no_secret_reaches_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted key comes in through the environment, the prompt, the reply, the label and the error message."""
    pytest.importorskip("langchain_openai")
    password = "correct-horse-battery"
    monkeypatch.setenv("MY_SERVICE_TOKEN", password)
    monkeypatch.setenv("OPENAI_API_KEY", SECRETS[0])
    text = " ".join([password, *SECRETS, "https://me:hunter2@host/x", "Authorization: Bearer abcdefghijklmnop"])
    with serving(Response(chat(f"You said {text}")), Response(error(f"bad key {SECRETS[0]}"), 401)) as server:
        backbone = open_backbone("openai:gpt-5.4", base_url=f"{server.url}/v1", record=tmp_path)
        reply = backbone.chat([user(text)], label=text)
        with pytest.raises(BadKey) as caught:
            backbone.chat("more")
        assert server.received[0].headers["authorization"] == f"Bearer {SECRETS[0]}"
    record = (tmp_path / "calls.jsonl").read_bytes().decode()
    for secret in [password, *SECRETS, "hunter2", "abcdefghijklmnop"]:
        assert secret not in record
        assert secret not in reply.text
    assert SECRETS[0] not in str(caught.value)
    assert record.count("[secret]") > 15
    replayed = open_backbone("openai:gpt-5.4", replay=tmp_path).chat([user(text)])
    assert replayed.text == reply.text


@given(st.text(min_size=8).filter(lambda text: len(text.strip()) >= 8), st.text(), st.text())
def test_known_values_are_redacted_everywhere(secret: str, before: str, after: str) -> None:
    redactor = Redactor(environment={"SOME_API_KEY": secret})
    redacted = redactor.tree({"a": [before + secret + after], secret: {"b": secret}})
    assert secret.strip() not in json.dumps(redacted, ensure_ascii=False).replace("[secret]", "")


ECHOES: dict[str, Callable[[str], str]] = {
    "hexadecimal": lambda key: key.encode().hex(),
    "hexadecimal, upper case": lambda key: key.encode().hex().upper(),
    "hexadecimal with separators": lambda key: key.encode().hex(":"),
    "reversed": lambda key: key[::-1],
    "reversed hexadecimal": lambda key: key.encode()[::-1].hex(),
    "percent-encoded": lambda key: "".join(f"%{byte:02X}" for byte in key.encode()),
    "partly percent-encoded": lambda key: f"%{ord(key[0]):02x}" + key[1:],
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
    "base64 of a longer text": lambda key: base64.b64encode(f"Bearer {key} was refused".encode()).decode(),
    "base64 for addresses": lambda key: base64.urlsafe_b64encode(f"k:{key}".encode()).decode(),
    "entities": lambda key: "".join(f"&#{ord(c)};" for c in key),
    "JSON escapes": lambda key: "".join(f"\\u{ord(c):04x}" for c in key),
}


@pytest.mark.parametrize("key", ["hunter2-hunter2", "Q~x?y/z+w=1234>>", "pässwört!"])
@pytest.mark.parametrize("echo", ECHOES)
def test_a_key_that_is_echoed_in_another_spelling(echo: str, key: str) -> None:
    redactor = Redactor([key], environment={})
    spelt = ECHOES[echo](key)
    redacted = redactor.text(f"error 401: {spelt} is not valid")
    assert "[secret]" in redacted
    # Of base64 there may stay what depends on the text around the key: a few characters at either side.
    assert len(redacted) < len("error 401: [secret] is not valid") + (30 if "longer" in echo else 9)
    assert redacted.startswith("error 401: ")
    assert redacted.endswith(" is not valid")


LOOSE: dict[str, Callable[[str], str]] = {
    "upper case": str.upper,
    "other dashes": lambda key: key.replace("-", "\u2013"),
    "underscores": lambda key: key.replace("-", "_"),
    "groups of four": lambda key: " ".join(key[at : at + 4] for at in range(0, len(key), 4)),
    "dashes between": lambda key: "-".join(key),
    "a line break": lambda key: f"{key[:9]}\n    {key[9:]}",
    "a line break and an indentation": lambda key: f"{key[:9]}\r\n{' ' * 10}{key[9:]}",
    "a long way": lambda key: f"{key[:9]}{' .' * 5_000}{key[9:]}",
    "an escaped line break": lambda key: f"{key[:9]}\\n{key[9:]}",
    "reversed and in upper case": lambda key: key[::-1].upper(),
}


@pytest.mark.parametrize("echo", LOOSE)
def test_case_dashes_spaces_and_line_breaks_do_not_hide_a_key(echo: str) -> None:
    key = "org-7Kq2Lm9Zx4-Tv8Bn1"
    redacted = Redactor([key], environment={}).text(f"error 401: {LOOSE[echo](key)} is not valid")
    assert redacted == "error 401: [secret] is not valid"


def test_a_key_in_letters_that_no_pattern_finds_takes_the_whole_text_along() -> None:
    """The small letter of the first one is two characters."""
    redactor = Redactor(["\u0130STANBUL-2026-xy"], environment={})
    assert redactor.text("error 401: \u0130STA NBUL 2026 xy is not valid") == "[secret]"
    assert redactor.text("error 401: ISTANBUL 2026 is not valid") == "error 401: ISTANBUL 2026 is not valid"


def test_most_of_a_key_with_escapes_between_does_not_keep_the_reader_busy() -> None:
    """Backslashes and an n can be read in many ways; trying all of them for every gap would never end."""
    key = "org7Kq2Lm9Zx4Pv8Bs1"
    decoy = ("\\" * 9 + "n").join(key[:-1]) + "\\" * 50_000
    text = f"{decoy}? {key[:9]} {key[9:]}"
    assert Redactor([key], environment={}).text(text) == f"{decoy}? [secret]"


def test_ordinary_words_stay() -> None:
    text = "The key=value token is short; sk-8 and task-oriented words, AIza, bearer of news."
    assert Redactor(environment={"A_KEY": "short", "TOKENIZERS_PARALLELISM": "disabled-by-me"}).text(text) == text


@pytest.mark.slow
def test_a_file_cut_anywhere_opens_and_loses_one_call(tmp_path: Path) -> None:
    backbone = echo(record=tmp_path)
    for text in ("one", "two é", "three"):
        backbone.chat(text)
    path = tmp_path / "calls.jsonl"
    data = path.read_bytes()
    last = data.rstrip(b"\n").rfind(b"\n") + 1
    for cut in range(last, len(data)):
        path.write_bytes(data[:cut])
        records = Records(tmp_path, Redactor(), writable=True)
        # The last byte is the line's end: without it the call is still complete.
        assert records.calls == (3 if cut == len(data) - 1 else 2)
        resumed = echo(record=tmp_path)
        assert resumed.chat("three").text == "three"
        assert Records(tmp_path, Redactor(), writable=False).calls == 3


def test_an_altered_record_is_refused(tmp_path: Path) -> None:
    echo(record=tmp_path).chat("honest answer")
    path = tmp_path / "calls.jsonl"
    path.write_text(path.read_text().replace("honest", "forged"))
    with pytest.raises(BadInput, match="line 1: altered"):
        replaying(tmp_path)


KILLED = """
    import os, signal, sys
    from vesalius_backbones import Scripted, open_backbone
    record, prices, deadline = sys.argv[1], sys.argv[2], int(sys.argv[3])
    calls = 0

    def reply(request):
        global calls
        with open(record + "/calls", "a") as file:
            file.write(request.messages[-1].text + "\\n")
        calls += 1
        if calls == deadline:
            os.kill(os.getpid(), signal.SIGKILL)
        return request.messages[-1].text.upper()

    backbone = open_backbone(Scripted(reply), record=record, prices=prices, cap=1.0)
    total = sum(backbone.chat(f"case {number}").cost for number in range(12))
    print(backbone.records.spent, total)
"""


def test_killed_in_the_middle_of_calls(tmp_path: Path) -> None:
    """SIGKILL inside a call, three times: each repeats one call, and its possible cost stays in the record."""
    prices = tmp_path / "prices.json"
    prices.write_text('{"date": "2026-01-01", "models": {"scripted:*": {"input": 1.0, "output": 1.0}}}')
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path), str(prices)]
    for deadline in (4, 3, 1):
        killed = subprocess.run([*command, str(deadline)], capture_output=True, env=os.environ)
        assert killed.returncode == -signal.SIGKILL
    finished = subprocess.run([*command, "-1"], capture_output=True, text=True, check=True)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == 12 + 3
    assert sorted(set(calls)) == sorted(f"case {number}" for number in range(12))
    spent, total = map(float, finished.stdout.split())
    assert spent > total  # three calls may have been charged without a bill
    reference = open_backbone(Scripted(lambda r: r.messages[-1].text.upper()), prices=prices)
    assert total == pytest.approx(sum(reference.chat(f"case {number}").cost or 0 for number in range(12)))


def test_an_unwritable_path_is_one_line(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(BadInput, match="cannot be written"):
        echo(record=blocked / "below")


def test_usage_adds_up() -> None:
    assert TokenUsage(input=1, output=2, cached=1) + TokenUsage(input=3, output=4) == TokenUsage(
        input=4, output=6, cached=1
    )


def test_unusual_characters_survive_the_record(tmp_path: Path) -> None:
    odd = "line\nbreak \u2028 \ud800 \x00 \x7f 😀"
    assert echo(record=tmp_path).chat(odd).text == replaying(tmp_path).chat(odd).text == odd.replace("\ud800", "?")


def test_retries_on_record(tmp_path: Path) -> None:
    script = Scripted([{"fail": "unreachable"}, "ok"])
    live = open_backbone(script, record=tmp_path, clock=FakeClock(), retry=RetryPolicy(tries=2)).chat("x")
    again = replaying(tmp_path).chat("x")
    assert again.events == live.events
    assert (again.attempts, again.events[0].kind) == (2, "unreachable")
