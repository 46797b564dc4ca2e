"""The real clients against a server on the loopback address: requests, replies, failures."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from tests.backbones.conftest import FakeClock
from tests.backbones.fake_server import FakeServer, ReceivedRequest, Response, chat, error, serving
from vesalius.errors import BadInput
from vesalius_backbones import (
    Backbone,
    BackboneError,
    Garbled,
    Rejected,
    RetryPolicy,
    TokenUsage,
    Tool,
    ToolCall,
    assistant,
    open_backbone,
    system,
    tool_result,
    user,
)

KEY = "sk-planted-0123456789abcdef"


class Point(BaseModel):
    x: int
    y: int


class Layer(BaseModel):
    layer: int


LOOK = Tool(name="look", description="Looks at a layer.", arguments=Layer)
CONVERSATION = [
    system("Be brief."),
    user("Go."),
    assistant("Looking.", [ToolCall(id="call_1", name="look", arguments={"layer": 1})]),
    tool_result(ToolCall(id="call_1", name="look"), "nothing"),
    user("Again."),
]


def opened(provider: str, server: FakeServer, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Backbone:
    pytest.importorskip(
        {"anthropic": "langchain_anthropic", "google": "langchain_google_genai"}.get(provider, "langchain_openai")
    )
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, KEY)
    url = server.url if provider in ("anthropic", "google") else f"{server.url}/v1"
    model = {"anthropic": "claude-sonnet-4-6", "google": "gemini-3.1-pro"}.get(provider, "m")
    options = {"clock": FakeClock(), "retry": RetryPolicy(tries=1), "timeout": 60.0, **options}
    return open_backbone(f"{provider}:{model}", base_url=url, **options)


def claude(*content: dict[str, Any], stop: str = "end_turn") -> dict[str, Any]:
    usage = {"input_tokens": 100, "output_tokens": 20, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 0}
    body = {"id": "m1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-6"}
    return {**body, "content": list(content), "stop_reason": stop, "stop_sequence": None, "usage": usage}


def gemini(*parts: dict[str, Any], finish: str = "STOP") -> dict[str, Any]:
    usage = {"promptTokenCount": 100, "candidatesTokenCount": 20, "totalTokenCount": 120}
    candidate = {"content": {"role": "model", "parts": list(parts)}, "finishReason": finish, "index": 0}
    return {"candidates": [candidate], "usageMetadata": usage}


HELLO = {
    "openai": chat("hello"),
    "compatible": chat("hello"),
    "anthropic": claude({"type": "text", "text": "hello"}),
    "google": gemini({"text": "hello"}),
}
CALL = {
    "openai": chat(
        None,
        finish="tool_calls",
        tool_calls=[{"id": "c9", "type": "function", "function": {"name": "look", "arguments": '{"layer": 2}'}}],
    ),
    "anthropic": claude({"type": "tool_use", "id": "c9", "name": "look", "input": {"layer": 2}}, stop="tool_use"),
    "google": gemini({"functionCall": {"name": "look", "args": {"layer": 2}}, "thoughtSignature": "c2ln"}),
}
CALL["compatible"] = CALL["openai"]
PROVIDERS = list(HELLO)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_reply_with_its_tokens(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Response(HELLO[provider])) as server:
        reply = opened(provider, server, monkeypatch).chat(CONVERSATION, tools=[LOOK], label="x")
    assert reply.text == "hello"
    assert reply.usage is not None
    # Anthropic counts cached tokens separately, we include them in the input.
    assert (reply.usage.input, reply.usage.output) == (130 if provider == "anthropic" else 100, 20)
    assert reply.usage.cached == (30 if provider == "anthropic" else 0)
    assert (reply.finish, reply.attempts, len(server.received)) == ("stop", 1, 1)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_whole_conversation_is_sent(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Response(HELLO[provider])) as server:
        opened(provider, server, monkeypatch, max_tokens=77).chat(CONVERSATION, tools=[LOOK], stop=["END"])
    body = json.dumps(server.received[0].body)
    assert all(
        part in body for part in ("Be brief.", "Go.", "Looking.", "nothing", "Again.", "Looks at a layer.", "77")
    )
    assert "END" in body
    assert "temperature" in body


def test_each_server_gets_its_name_of_the_token_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider, name in (("openai", "max_completion_tokens"), ("compatible", "max_tokens")):
        with serving(Response(chat())) as server:
            opened(provider, server, monkeypatch, max_tokens=77).chat("Go.")
        limits = {key: value for key, value in server.received[0].body.items() if key.startswith("max_")}
        assert limits == {name: 77}


def test_a_compatible_server_never_sees_the_openai_key(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Response(chat())) as server:
        opened("compatible", server, monkeypatch).chat("Go.")
        monkeypatch.setenv("VESALIUS_API_KEY", "my-own-server-key")
        opened("compatible", server, monkeypatch).chat("Go.")
    assert [received.headers["authorization"] for received in server.received] == [
        "Bearer no-key-needed",
        "Bearer my-own-server-key",
    ]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_native_tool_call_and_its_answer(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Response(CALL[provider]), Response(HELLO[provider])) as server:
        backbone = opened(provider, server, monkeypatch)
        reply = backbone.chat("Go.", tools=[LOOK])
        (call,) = reply.tool_calls
        assert (call.name, call.arguments, call.error) == ("look", {"layer": 2}, None)
        backbone.chat([user("Go."), reply.message(), tool_result(call, "saw it")], tools=[LOOK])
    assert "saw it" in json.dumps(server.received[1].body)
    if provider == "google":  # Gemini rejects its own calls without the signature it gave them
        assert "c2ln" in json.dumps(server.received[1].body)


def test_malformed_arguments_are_repaired_or_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def calls(arguments: str) -> dict[str, Any]:
        function = {"name": "look", "arguments": arguments}
        return chat(None, finish="tool_calls", tool_calls=[{"id": "c", "type": "function", "function": function}])

    with serving(Response(calls("{'layer': 2,}")), Response(calls('{"layer": '))) as server:
        backbone = opened("openai", server, monkeypatch)
        assert backbone.chat("Go.", tools=[LOOK]).tool_calls[0].arguments == {"layer": 2}
        assert "not readable" in (backbone.chat("Go.", tools=[LOOK]).tool_calls[0].error or "")


SCHEMA_SENT: dict[str, Callable[[dict[str, Any]], Any]] = {
    "openai": lambda body: body["response_format"]["json_schema"]["schema"]["properties"],
    "compatible": lambda body: body["response_format"]["json_schema"]["schema"]["properties"],
    "anthropic": lambda body: body["output_config"]["format"]["schema"]["properties"],
    "google": lambda body: body["generationConfig"]["responseJsonSchema"]["properties"],
}
POINT = '{"x": 1, "y": 2}'
POINTS = {
    "openai": chat(POINT),
    "compatible": chat(POINT),
    "anthropic": claude({"type": "text", "text": POINT}),
    "google": gemini({"text": POINT}),
}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_schema_is_sent_natively(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Response(POINTS[provider])) as server:
        reply = opened(provider, server, monkeypatch).chat("Where?", schema=Point)
    assert reply.parsed == Point(x=1, y=2)
    assert set(SCHEMA_SENT[provider](server.received[0].body)) == {"x", "y"}


def test_features_that_a_server_rejects_are_written_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rejection is remembered, so the second call is accepted at once."""

    def old_server(received: ReceivedRequest) -> Response:
        for name in ("response_format", "tools", "temperature"):
            if name in received.body:
                return Response(error(f"{name} is not supported by this server", param=name), status=400)
        return Response(chat(POINT))

    with serving(old_server) as server:
        backbone = opened("compatible", server, monkeypatch)
        first, second = (backbone.chat("Where?", schema=Point) for _ in range(2))
        backbone.chat("Go.", tools=[LOOK])
    assert first.parsed == second.parsed == Point(x=1, y=2)
    assert [event.detail for event in first.events if event.kind == "left_out"] == ["schema", "temperature"]
    assert (first.attempts, second.attempts, second.count("left_out")) == (3, 1, 0)
    assert "JSON schema" in server.received[3].body["messages"][0]["content"]


def test_log_probabilities_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    body = chat("1")
    options = [{"token": "1", "logprob": -0.2, "bytes": [49]}, {"token": "0", "logprob": -1.7, "bytes": [48]}]
    place = {"token": "1", "logprob": -0.2, "bytes": [49], "top_logprobs": options}
    body["choices"][0]["logprobs"] = {"content": [place]}
    with serving(Response(body)) as server:
        scores = opened("compatible", server, monkeypatch).logprobs("0 or 1?", ["0", "1"])
    assert scores.logprobs == {"0": -1.7, "1": -0.2}
    assert (server.received[0].body["logprobs"], server.received[0].body["top_logprobs"]) == (True, 20)
    assert server.received[0].body["max_tokens"] == 8


def test_where_log_probabilities_are_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Response(HELLO["anthropic"])) as server, pytest.raises(BadInput, match="not offered"):
        opened("anthropic", server, monkeypatch).logprobs("0 or 1?", ["0", "1"])


QUOTA = "You exceeded your current quota, please check your plan and billing details."
RETRY_INFO = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17s"}]
BLOCKED = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 9}}
#: Responses of each provider, from its documentation or its own messages, and the kind of failure.
FAILURES: list[tuple[str, Response, str]] = [
    ("openai", Response(error("Rate limit reached for gpt", code="rate_limit_exceeded"), 429), "rate_limited"),
    ("openai", Response(error(QUOTA, code="insufficient_quota", type="insufficient_quota"), 429), "out_of_credit"),
    ("openai", Response(error("Incorrect API key provided", code="invalid_api_key"), 401), "bad_key"),
    ("openai", Response(error("You are not allowed to use this model"), 403), "bad_key"),
    ("openai", Response(error("The model `m` does not exist", code="model_not_found"), 404), "rejected"),
    ("openai", Response(error("maximum context length is 8192", code="context_length_exceeded"), 400), "rejected"),
    ("openai", Response(error("rejected by our safety system", code="content_policy_violation"), 400), "refused"),
    ("openai", Response(chat("", finish="content_filter")), "refused"),
    ("openai", Response(chat(None, refusal="I can't help with that.")), "refused"),
    ("openai", Response(error("The server had an error"), 500), "unreachable"),
    ("openai", Response(raw=b"<html>Bad gateway</html>", status=502), "unreachable"),
    ("openai", Response(error("gateway timeout"), 504), "timed_out"),
    ("openai", Response(chat(), wait=1.5), "timed_out"),
    ("openai", Response(chat("")), "garbled"),
    ("openai", Response(raw=b"<html>It works!</html>"), "garbled"),
    ("openai", Response(raw=b'{"choices": [{"mess'), "garbled"),
    ("openai", Response({"id": "c", "object": "chat.completion"}), "garbled"),
    ("openai", Response({"choices": []}), "garbled"),
    ("openai", Response(error("Insufficient Balance"), 402), "out_of_credit"),
    ("anthropic", Response({"type": "error", **error("slow down", type="rate_limit_error")}, 429), "rate_limited"),
    ("anthropic", Response({"type": "error", **error("Your credit balance is too low")}, 400), "out_of_credit"),
    (
        "anthropic",
        Response({"type": "error", **error("invalid x-api-key", type="authentication_error")}, 401),
        "bad_key",
    ),
    ("anthropic", Response({"type": "error", **error("Overloaded", type="overloaded_error")}, 529), "unreachable"),
    ("anthropic", Response({"type": "error", **error("prompt is too long: 300000 tokens")}, 400), "rejected"),
    ("anthropic", Response(claude({"type": "text", "text": ""}, stop="refusal")), "refused"),
    ("anthropic", Response(claude()), "garbled"),
    ("anthropic", Response(raw=b"<html>It works!</html>"), "garbled"),
    ("anthropic", Response(HELLO["anthropic"], wait=1.5), "timed_out"),
    ("google", Response(error(QUOTA, code=429, status="RESOURCE_EXHAUSTED", details=RETRY_INFO), 429), "rate_limited"),
    (
        "google",
        Response(error("API key not valid. Please pass one.", code=400, status="INVALID_ARGUMENT"), 400),
        "bad_key",
    ),
    ("google", Response(error("permission denied", code=403, status="PERMISSION_DENIED"), 403), "bad_key"),
    ("google", Response(error("The model is overloaded", code=503, status="UNAVAILABLE"), 503), "unreachable"),
    ("google", Response(gemini(finish="SAFETY")), "refused"),
    ("google", Response(BLOCKED), "refused"),
    ("google", Response(gemini({"text": ""})), "garbled"),
    ("google", Response(HELLO["google"], wait=1.5), "timed_out"),
]


@pytest.mark.parametrize(
    ("provider", "response", "kind"), FAILURES, ids=[f"{p}-{s.status}-{k}-{n}" for n, (p, s, k) in enumerate(FAILURES)]
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_failures_are_classified(provider: str, response: Response, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(response) as server:
        backbone = opened(provider, server, monkeypatch, timeout=0.5 if response.wait else 60.0)
        with pytest.raises(BackboneError) as caught:
            backbone.chat("Go.")
    assert caught.value.kind == kind
    assert "\n" not in str(caught.value)
    assert len(server.received) == 1  # the client must not retry by itself


def test_a_server_that_is_not_running(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Response(chat())) as server:
        pass
    for provider in PROVIDERS:
        with pytest.raises(BackboneError) as caught:
            opened(provider, server, monkeypatch).chat("Go.")
        assert caught.value.kind == "unreachable", provider


@pytest.mark.parametrize(
    ("provider", "response", "wait"),
    [
        ("openai", Response(error("slow"), 429, {"Retry-After": "7"}), 7.0),
        ("openai", Response(error("slow"), 429, {"retry-after-ms": "2500"}), 2.5),
        ("anthropic", Response(error("slow"), 429, {"retry-after": "11"}), 11.0),
        ("google", Response(error(QUOTA, code=429, details=RETRY_INFO), 429), 17.0),
    ],
)
def test_retry_after_is_obeyed(
    provider: str, response: Response, wait: float, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(response, Response(HELLO[provider])) as server:
        backbone = opened(provider, server, monkeypatch, clock=clock, retry=RetryPolicy(tries=2, first=0.1))
        reply = backbone.chat("Go.")
    assert (reply.text, reply.attempts, clock.waits) == ("hello", 2, [wait])


def test_a_rejection_that_cannot_be_worked_around_names_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    response = Response(error("temperature is odd today", param="temperature"), status=400)
    with serving(response) as server, pytest.raises(Rejected, match="compatible:m: temperature is odd"):
        opened("compatible", server, monkeypatch).chat("Go.")
    assert len(server.received) == 2  # once with, once without the temperature


def test_an_answer_without_a_count_has_no_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Response(chat("hi", usage=False))) as server:
        reply = opened("compatible", server, monkeypatch).chat("Go.")
    assert (reply.usage, reply.cost, reply.count("usage_missing")) == (None, None, 1)


def test_an_unknown_price_is_none_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Response(chat("hi"))) as server:
        reply = opened("compatible", server, monkeypatch).chat("Go.")
    assert reply.usage == TokenUsage(input=100, output=20)
    assert reply.cost is None


def test_known_prices_are_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Response(HELLO["anthropic"])) as server:
        reply = opened("anthropic", server, monkeypatch).chat("Go.")
    assert reply.cost == pytest.approx((130 * 3 + 20 * 15) / 1e6)


def test_a_cut_object_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Response(chat('{"x": 1, "y"', finish="length")), Response(chat(POINT))) as server:
        reply = opened("openai", server, monkeypatch).chat("Where?", schema=Point)
    assert reply.parsed == Point(x=1, y=2)
    assert "it was cut after 4096 tokens" in server.received[1].body["messages"][-1]["content"]


def test_garbled_after_every_try_keeps_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Response(raw=b"nonsense")) as server, pytest.raises(Garbled) as caught:
        opened("openai", server, monkeypatch, retry=RetryPolicy(tries=3)).chat("Go.")
    assert (caught.value.attempts, len(server.received)) == (3, 3)


def test_a_failure_says_which_call_failed_and_how(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Response(error("boom"), status=500)) as server:
        backbone = opened("compatible", server, monkeypatch, retry=RetryPolicy(tries=3))
        with pytest.raises(BackboneError) as raised:
            backbone.within("case 7").chat("Hello.", label="L0H1 observation")
    assert str(raised.value) == (
        "compatible:m: boom (the server answered with status 500) (call 'L0H1 observation' of 'case 7', 3 tries)"
    )
