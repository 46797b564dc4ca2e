"""What lasts: progress and cancellation, the ledger after a kill, several clients, both transports."""

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import httpx
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

from tests.forked import vesalius
from tests.mcp.asking import (
    ABS,
    ABSOLUTE,
    PART,
    asked,
    data,
    desk_in,
    http_server,
    over_http,
    refusal,
    secrets_in,
    text_of,
    with_client,
)
from tests.no_room import no_room
from tests.processes import PATIENCE, until
from vesalius.api.runs import results
from vesalius.errors import BadInput, Note
from vesalius_agents.mcp.desk import Desk
from vesalius_agents.mcp.replaying import differing, replay_calls
from vesalius_agents.mcp.server import CLIENT, Server
from vesalius_agents.mcp.tools import TOOLS
from vesalius_backbones.runs.watching import Watcher, watch

#: A circuit whose explanation takes several seconds.
LARGER = "2"


def wait_for(desk: Desk, calls: int) -> None:
    """Until the ledger has so many calls: a thread that was cancelled ends by itself."""
    until(lambda: len(desk.run.calls) >= calls)


def test_long_work_reports_progress_and_stops_when_cancelled(tmp_path: Path) -> None:
    heard: list[tuple[float, str]] = []

    async def use(client: Client) -> None:
        with anyio.CancelScope() as scope:

            async def on_progress(progress: float, total: float | None, message: str | None) -> None:
                heard.append((progress, message or ""))
                scope.cancel()

            await client.call_tool("explain", {"specimen": LARGER}, progress_callback=on_progress)
        assert scope.cancelled_caught
        assert (await data(client, "list_specimens", count=1))["rows"]  # the server goes on

    with desk_in(tmp_path) as desk:
        with_client(Server(desk), use)
        wait_for(desk, 2)
        ended = next(call for call in desk.run.calls if call["tool"] == "explain")
        assert (ended["ok"], ended["error"]) == (False, "cancelled by the client")
        # The turn is free again, and nothing half done is kept as a result.
        assert not asked(desk, "predict", specimen=ABSOLUTE, inputs=[[1]]).is_error
        assert desk.cached(ended["key"] or "") is None
    assert heard
    assert all(message for _, message in heard)
    numbers = [number for number, _ in heard]
    assert numbers == sorted(set(numbers))


def test_a_second_start_knows_what_the_first_one_did(tmp_path: Path) -> None:
    claim = {"kind": "necessary", "component": PART}
    noisy = "numeric/f00003"
    with desk_in(tmp_path) as desk:
        asked(desk, "predict", specimen=ABSOLUTE, inputs=[[1, -2]])
        asked(desk, "submit_explanation", specimen=ABSOLUTE, components={PART: "MAPPER"})
        assert asked(desk, "check_claim", specimen=ABSOLUTE, claim=claim).structured_content["tried"] == 1
        asked(desk, "query_function", function=noisy, inputs=[1, 2])
        used = dict(desk.connection("local").spending.used)
    with (tmp_path / "run" / "events.jsonl").open("a") as file:
        file.write('{"event": "call", "tool": "pre')  # a process killed while it wrote
    with desk_in(tmp_path) as desk:
        client = desk.connection("local")
        assert client.spending.used == pytest.approx(used)
        again = asked(desk, "predict", specimen=ABSOLUTE, inputs=[[1, -2]])
        assert client.spending.used == pytest.approx(used)
        assert again.structured_content["outputs"] == [[1, 2]]
        assert "already" in text_of(asked(desk, "submit_explanation", specimen=ABSOLUTE, components={PART: "ROUTER"}))
        grade = asked(desk, "grade", specimen=ABSOLUTE).structured_content
        assert grade["metrics"]["tag_accuracy"]["value"] == 1.0
        assert asked(desk, "check_claim", specimen=ABSOLUTE, claim=claim).structured_content["tried"] == 2
        later = asked(desk, "query_function", function=noisy, inputs=[1, 2]).structured_content
        assert "(396 inputs left)" in later["text"]
    (tmp_path / "other").mkdir()
    with desk_in(tmp_path / "other") as other:  # the same four queries in one process
        asked(other, "query_function", function=noisy, inputs=[1, 2])
        whole = asked(other, "query_function", function=noisy, inputs=[1, 2]).structured_content
    assert later["rows"] == whole["rows"]


def test_a_run_of_calls_is_listed_and_replayed(tmp_path: Path) -> None:
    with desk_in(tmp_path) as desk:
        asked(desk, "predict", specimen=ABSOLUTE, inputs=[[1, -2]])
        asked(desk, "sweep", specimen=ABSOLUTE, n=4)
        asked(desk, "query_function", function="numeric/f00001", inputs=[1.5])
        asked(desk, "predict", specimen="none", inputs=[[1]])
    (row,) = results(tmp_path).results
    assert (row.kind, row.title, row.state) == ("mcp", "mcp, 1 connection", "finished")
    assert row.figures.startswith("4 calls")
    replayed = replay_calls(tmp_path / "run")
    assert (replayed.calls, replayed.differences) == (3, ())
    stored = [call["result"] for call in map(json.loads, (tmp_path / "run" / "events.jsonl").open()) if call["ok"]]
    other: dict[str, Any] = {**stored[0], "outputs": [[1, 3]]}
    assert list(differing(stored[0], other, "call 1")) == ["call 1.outputs[0][1]: 2 is stored, 3 came out"]


def test_the_calls_of_a_run_can_be_watched(tmp_path: Path) -> None:
    """What the workbench shows: tool, arguments, result, passes and verdict of each call."""
    claim = {"kind": "necessary", "component": PART, "replacement": "zero"}
    with desk_in(tmp_path) as desk:
        for _ in range(2):
            asked(desk, "predict", specimen=ABSOLUTE, inputs=[[1, -2]])
        verdict = asked(desk, "check_claim", specimen=ABSOLUTE, claim=claim).structured_content["verdict"]
        asked(desk, "predict", specimen="none", inputs=[[1]])
        forwards = desk.connection("local").spending.used["forwards"]
    run = watch(tmp_path / "run")
    assert (run.state, run.specimen, run.n_calls, run.forwards) == (
        "finished",
        "mcp, local",
        4,
        pytest.approx(forwards),
    )
    first, again, checked, refused = run.calls
    (use,) = first.tools
    assert (first.label, use.tool, first.forwards, json.loads(use.given.text)["inputs"]) == (
        *("predict", "predict", 1.0),
        [[1, -2]],
    )
    assert use.result is not None
    assert use.result.text == "[1, -2] -> [1, 2]"
    assert (again.tools[0].result, again.forwards) == (use.result, 0.0)  # answered from the record
    assert (checked.tools[0].claim, checked.tools[0].verdict) == ("necessary", verdict)
    assert (refused.failure or "").startswith("specimen 'none' is not known")
    assert refused.tools[0].result is None
    assert Watcher().text(tmp_path / "run", case="local", number=0, part="tool.0.result") == use.result.text
    for case, number, part in (("eve", 0, "tool.0.result"), (None, 9, "tool.0.result"), (None, 0, "prompt")):
        with pytest.raises(BadInput):
            Watcher().text(tmp_path / "run", case=case, number=number, part=part)


def test_two_clients_at_once_and_a_kill(tmp_path: Path) -> None:
    """Over HTTP: budgets and submissions are each client's own, and a killed server has lost nothing."""

    async def ada(client: Client) -> float:
        await data(client, "submit_explanation", specimen=ABSOLUTE, components={PART: "MAPPER"})
        return (await data(client, "predict", specimen=ABSOLUTE, inputs=[[1], [2], [3]]))["left"]["forwards"]

    async def bob(client: Client) -> float:
        left = (await data(client, "predict", specimen=ABSOLUTE, inputs=[[4]]))["left"]["forwards"]
        assert "nothing was submitted" in await refusal(client, "grade", specimen=ABSOLUTE)
        await data(client, "submit_explanation", specimen=ABSOLUTE, components={PART: "ROUTER"})
        assert (await data(client, "grade", specimen=ABSOLUTE))["metrics"]["tag_accuracy"]["value"] == 0.0
        return left

    async def both(address: str) -> dict[str, float]:
        left: dict[str, float] = {}

        async def one(name: str, use: Any, secret: str) -> None:
            async with over_http(address, secret) as client:
                left[name] = await use(client)

        first, second, third = secrets_in(tmp_path)
        async with anyio.create_task_group() as group:
            group.start_soon(one, "ada", ada, first)
            group.start_soon(one, "bob", bob, second)
        # A name in the address is no way into somebody else's budget.
        async with over_http(f"{address}?client=1", third, mode="legacy") as client:
            assert "nothing was submitted" in await refusal(client, "grade", specimen=ABSOLUTE)
            left["third"] = (await data(client, "predict", specimen=ABSOLUTE, inputs=[[5]]))["left"]["forwards"]
        return left

    async def ada_again(client: Client) -> dict[str, Any]:
        assert "already" in await refusal(client, "submit_explanation", specimen=ABSOLUTE, components={PART: "ROUTER"})
        await refusal(client, "predict", specimen="none", inputs=[[1]])
        return await data(client, "grade", specimen=ABSOLUTE)

    options = ("--forwards", "100", "--clients", "3")
    with http_server(tmp_path, *options) as (address, process):
        assert anyio.run(both, address) == {"ada": 97, "bob": 99, "third": 99}
        first = secrets_in(tmp_path)[0]
        for headers, status in (({"Host": "evil.example"}, 421), ({"Origin": "http://evil.example"}, 403)):
            sent = {"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {first}", **headers}
            answer = httpx.post(address, json={"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers=sent)
            assert answer.status_code == status
        os.kill(process.pid, signal.SIGKILL)
        process.wait(timeout=PATIENCE)
    with http_server(tmp_path, *options) as (address, _):
        assert secrets_in(tmp_path)[0] == first

        async def again() -> dict[str, Any]:
            async with over_http(address, first) as client:
                return await ada_again(client)

        grade = anyio.run(again)
    assert grade["metrics"]["tag_accuracy"]["value"] == 1.0
    assert grade["left"]["forwards"] == 97


def test_a_client_is_known_by_its_secret_alone(tmp_path: Path) -> None:
    def of(client: str) -> Any:
        request = SimpleNamespace(scope={CLIENT: client}, query_params={"client": "ada"})
        return SimpleNamespace(request_context=SimpleNamespace(request=request))

    with desk_in(tmp_path) as desk:
        server = Server(desk)
        assert {server.connection_name(of(name)) for name in ("1", "2")} == {"http"}
        desk.options = replace(desk.options, clients=2)
        assert [server.connection_name(of(name)) for name in ("1", "2")] == ["client-1", "client-2"]


def test_what_one_client_was_given_is_no_other_clients(tmp_path: Path) -> None:
    with desk_in(tmp_path) as desk:
        claim = {"kind": "necessary", "component": PART, "replacement": "zero"}
        address = asked(desk, "check_claim", specimen=ABSOLUTE, claim=claim).structured_content["resource"]
        name = address.rpartition("/")[2]
        assert desk.owners == {name: "local"}

        encoded = address.removesuffix(name) + "".join(f"%{ord(character):02x}" for character in name)

        def read(spelling: str) -> str:
            async def work(client: Client) -> str:
                return (await client.read_resource(spelling)).contents[0].text  # type: ignore[union-attr]

            return with_client(Server(desk), work)

        assert read(address) == read(encoded)
        desk.owners[name] = "client-2"
        for spelling in (address, encoded):
            with pytest.raises(ExceptionGroup) as refused:
                read(spelling)
            assert refused.group_contains(MCPError, match="no such result")


def test_a_program_keeps_its_number_after_others_and_after_a_restart(tmp_path: Path) -> None:
    """Asking the same again must not make the rule stricter, as for the agents of this package."""

    def tried(desk: Desk, formula: str) -> int:
        program = {"variables": [{**ABS["variables"][0], "formula": formula}], "output": "v1"}
        claim = {"kind": "computes", "component": PART, "program": program, "carriers": {PART: ["v1"]}}
        return asked(desk, "check_claim", specimen=ABSOLUTE, claim=claim).structured_content["tried"]

    with desk_in(tmp_path) as desk:
        assert [tried(desk, formula) for formula in ("abs(x)", "-x", "abs(x)")] == [1, 2, 1]
    with desk_in(tmp_path) as desk:
        assert [tried(desk, formula) for formula in ("abs(x)", "x")] == [1, 3]


@pytest.mark.parametrize(
    "call", [{}, {"connection": "local", "tool": "predict", "arguments": {}, "ok": True, "used": {}}]
)
def test_a_ledger_of_something_else_is_refused_by_its_record(tmp_path: Path, call: dict[str, Any]) -> None:
    with desk_in(tmp_path):
        pass
    (tmp_path / "run" / "events.jsonl").write_text(json.dumps({"event": "call", **call}) + "\n")
    for use in (lambda: desk_in(tmp_path).__enter__(), lambda: replay_calls(tmp_path / "run")):
        with pytest.warns(Note), pytest.raises(BadInput, match=r"events.jsonl, record 1: .*; put back a good copy"):
            use()


def test_calls_at_once_are_counted_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call is in the ledger before the next one begins, however long writing takes."""
    numbers: list[int] = []
    resources: list[str] = []
    claim = {"kind": "necessary", "component": PART, "replacement": "zero"}

    async def use(client: Client) -> None:
        async def one() -> None:
            result = await data(client, "check_claim", specimen=ABSOLUTE, claim=claim)
            numbers.append(result["tried"])
            resources.append(result["resource"])

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(one)

    with desk_in(tmp_path) as desk:
        append = desk.run.append
        monkeypatch.setattr(desk.run, "append", lambda **fields: (time.sleep(0.2), append(**fields))[1])
        with_client(Server(desk), use)
    assert sorted(numbers) == [1, 2, 3]
    assert len(set(resources)) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
def test_on_a_full_disk_a_call_is_refused_and_nothing_is_taken(tmp_path: Path) -> None:
    """What an agent submits then is not submitted: it gives it again when there is room."""
    calls: dict[str, dict[str, Any]] = {
        "predict": {"specimen": ABSOLUTE, "inputs": [[1, -2]]},
        "sweep": {"specimen": ABSOLUTE, "n": 4},
        "submit_explanation": {"specimen": ABSOLUTE, "components": {PART: "MAPPER"}},
        "submit_function": {"function": "numeric/f00001", "description": "zero"},
    }
    with desk_in(tmp_path) as desk:
        asked(desk, "predict", **calls["predict"])
        ledger = tmp_path / "run" / "events.jsonl"
        before = ledger.read_bytes()
        with no_room(len(before)):
            for tool, arguments in calls.items():
                result = asked(desk, tool, **arguments)
                assert result.is_error
                assert "could not be written" in text_of(result)
        assert ledger.read_bytes() == before
        assert not [path for path in tmp_path.rglob("*") if "partial" in path.name]
        assert not [tool for tool, arguments in calls.items() if asked(desk, tool, **arguments).is_error]
    assert len(ledger.read_text().splitlines()) == len(before.splitlines()) + len(calls)


def test_grades_take_seconds_too(tmp_path: Path) -> None:
    with desk_in(tmp_path, seconds=50) as desk:
        asked(desk, "submit_explanation", specimen=ABSOLUTE, components={PART: "MAPPER"})
        asked(desk, "submit_function", function="numeric/f00001", description="zero", code="def f(x): return 0")
        desk.connection("local").spending.add(seconds=50.0)
        for tool, name in (("grade", {"specimen": ABSOLUTE}), ("grade_function", {"function": "numeric/f00001"})):
            assert text_of(asked(desk, tool, **name)).startswith("budget exhausted: all 50 seconds")
        # What is left to do is submitted all the same.
        assert not asked(desk, "submit_explanation", specimen="8", components={PART: "MAPPER"}).is_error


def test_over_stdin_and_stdout(tmp_path: Path) -> None:
    command, *arguments = vesalius("mcp", "--root", tmp_path, "--run", tmp_path / "run", "--forwards", 50)
    server = StdioServerParameters(command=command, args=arguments, env={**os.environ, "OMP_NUM_THREADS": "1"})

    async def use(client: Client) -> None:
        assert "50 forward passes" in (client.instructions or "")
        assert len((await client.list_tools()).tools) == len(TOOLS)
        made = await data(client, "predict", specimen=ABSOLUTE, inputs=[[-4]])
        assert (made["outputs"], made["left"]["forwards"]) == ([[4]], 49)
        assert "Field required" in await refusal(client, "sweep")

    with_client(server, use)
    calls = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").open()]
    assert [(call["tool"], call["ok"]) for call in calls] == [("predict", True), ("sweep", False)]
