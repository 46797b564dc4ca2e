"""Prices and the cap: published totals, unknown prices, and a cap that is never exceeded."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backbones.conftest import FakeClock
from vesalius.errors import BadInput
from vesalius_backbones import (
    Backbone,
    CapReached,
    Garbled,
    Prices,
    RetryPolicy,
    Scripted,
    ScriptedReply,
    SpendingCap,
    TimedOut,
    TokenUsage,
    open_backbone,
)
from vesalius_backbones.messages import CallSettings, ModelRequest, user
from vesalius_backbones.records import token_bound
from vesalius_backbones.runs.access import SharedCap, SpendingFile, booked


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    """A dollar per thousand tokens, for scripted models."""
    path = tmp_path / "prices.json"
    table = {"schema": 1, "date": "2026-11-01", "models": {"scripted:*": {"input": 1000.0, "output": 1000.0}}}
    path.write_text(json.dumps(table))
    return path


@pytest.mark.parametrize(
    ("provider", "model", "input_millions", "output_millions", "dollars"),
    [
        ("anthropic", "claude-sonnet-4-6", 34.49, 2.94, 147.55),
        ("openai", "gpt-5.4", 16.73, 2.38, 77.47),
        ("google", "gemini-3.1-pro", 12.77, 0.69, 33.81),
    ],
)
def test_the_published_bill_of_hyve(
    provider: str, model: str, input_millions: float, output_millions: float, dollars: float
) -> None:
    """Table 11 of the paper: tokens of 84 cases and their cost, each rounded to two places."""
    price = Prices.load().of(provider, model)
    assert price is not None
    rounding = 0.005 * (price.input + price.output) + 0.005
    # Summed over short prompts, so that no long-prompt price applies.
    bill = 1000 * price.cost(TokenUsage(input=round(input_millions * 1000), output=round(output_millions * 1000)))
    assert abs(bill - dollars) <= rounding


def test_long_prompts_and_cached_tokens() -> None:
    price = Prices.load().of("openai", "gpt-5.4")
    assert price is not None
    assert price.cost(TokenUsage(input=100_000, output=1000)) == pytest.approx(0.25 + 0.015)
    assert price.cost(TokenUsage(input=100_000, output=0, cached=60_000)) == pytest.approx(0.1 + 0.015)
    assert price.cost(TokenUsage(input=300_000, output=1000)) == pytest.approx(1.5 + 0.0225)


def test_snapshots_cost_what_their_model_costs() -> None:
    table = Prices.load()
    assert table.of("openai", "gpt-5.4-2026-03-05") == table.of("openai", "gpt-5.4")
    assert table.of("openai", "gpt-5.4-pro") is None
    assert table.of("compatible", "gpt-5.4") is None


def test_every_price_names_its_source() -> None:
    assert all(price.source for price in Prices.load().models.values())


def test_the_users_prices_win(prices: Path) -> None:
    table = Prices.load(prices)
    assert table.date == "2026-11-01"
    assert table.of("scripted", "x") != Prices.load().of("scripted", "x")
    assert table.of("openai", "gpt-5.4") == Prices.load().of("openai", "gpt-5.4")


@pytest.mark.parametrize(
    "text", ["", "[]", '{"models": {}}', '{"date": "2026-01-01", "models": {"a:b": {"input": -1}}}']
)
def test_a_bad_price_file_is_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.json"
    path.write_text(text)
    with pytest.raises(BadInput, match="not a price table") as caught:
        Prices.load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("limit", [0, -1, float("nan"), float("inf")])
def test_a_cap_that_allows_no_call(limit: float) -> None:
    with pytest.raises(BadInput, match="no call could be made"):
        open_backbone(Scripted([]), cap=limit)


def test_a_cap_without_a_price_does_not_start() -> None:
    with pytest.raises(BadInput, match=r"the price of compatible:m is not known .* `prices`"):
        open_backbone("compatible:m", base_url="http://localhost:1/v1", cap=5)


def spending(prices: Path, cap: SpendingCap, *, calls: int = 1000, **options: object) -> tuple[Backbone, Scripted]:
    script = Scripted([ScriptedReply(text="ok", usage=TokenUsage(input=20, output=10))] * calls)
    return open_backbone(script, prices=prices, cap=cap, max_tokens=50, clock=FakeClock(), **options), script  # type: ignore[arg-type]


def spend(backbone: Backbone) -> None:
    """Call until the cap is reached."""
    for number in range(900):
        assert backbone.chat(f"go {number}").cost == pytest.approx(0.03)


def test_the_call_that_could_break_the_cap_is_not_made(prices: Path) -> None:
    cap = SpendingCap(1.0)
    backbone, script = spending(prices, cap)
    with pytest.raises(CapReached, match=r"cap \$1.00: \$\d\.\d+ is spent and the next call could cost up to"):
        spend(backbone)
    assert cap.spent == pytest.approx(0.03 * len(script.requests))
    assert 0.6 < cap.spent <= 1.0


def test_the_cap_survives_a_resume(prices: Path, tmp_path: Path) -> None:
    first, _ = spending(prices, SpendingCap(1.0), record=tmp_path / "run")
    for number in range(10):
        first.chat(f"case {number}")
    again = SpendingCap(1.0)  # a new process, with or without a ledger
    resumed, _ = spending(prices, again, record=tmp_path / "run")
    assert again.spent == pytest.approx(0.3)
    assert SpendingCap(1.0, spent_before=0.4).left == pytest.approx(0.6)
    for number in range(10):
        assert resumed.chat(f"case {number}").replayed
    assert again.spent == pytest.approx(0.3)
    with pytest.raises(CapReached):
        spend(resumed)
    assert 0.6 < again.spent <= 1.0


def test_the_larger_of_ledger_and_record_counts(tmp_path: Path) -> None:
    cap = SpendingCap(10.0, spent_before=3.0)
    cap.restore("a", 1.0)
    cap.restore("a", 1.0)
    assert cap.spent == 3.0
    cap.restore("b", 2.5)
    assert cap.spent == 3.5


def test_a_timeout_counts_at_its_upper_bound(prices: Path) -> None:
    cap = SpendingCap(10.0)
    script = Scripted([{"fail": "timed_out"}])
    backbone = open_backbone(script, prices=prices, cap=cap, max_tokens=50, retry=RetryPolicy(tries=1))
    with pytest.raises(TimedOut):
        backbone.chat("go")
    assert cap.spent == pytest.approx(Prices.load(prices).models["scripted:*"].cost(token_bound(script.requests[0])))


def test_an_empty_reply_is_paid_once(prices: Path) -> None:
    cap = SpendingCap(10.0)
    replies = [
        ScriptedReply(fail="empty", usage=TokenUsage(input=20, output=1)),
        ScriptedReply(text="ok", usage=TokenUsage(input=20, output=2)),
    ]
    reply = open_backbone(Scripted(replies), prices=prices, cap=cap, clock=FakeClock()).chat("go")
    assert reply.cost == pytest.approx(0.043)
    assert cap.spent == pytest.approx(0.043)


def test_a_shared_cap_holds_under_threads(prices: Path) -> None:
    cap = SpendingCap(1.0)
    backbones = [spending(prices, cap)[0] for _ in range(4)]

    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(spend, backbone) for backbone in backbones]
        ends = [job.exception() for job in jobs]
    assert {type(end) for end in ends} == {CapReached}
    assert 0.6 < cap.spent <= 1.0


@given(st.lists(st.text(), min_size=1, max_size=4))
def test_the_bound_exceeds_any_count(texts: list[str]) -> None:
    """No tokenizer makes more tokens than there are bytes."""
    request = ModelRequest(
        provider="p", model="m", settings=CallSettings(max_tokens=9), messages=tuple(map(user, texts))
    )
    bound = token_bound(request)
    assert bound.input > sum(len(text.encode("utf-8", "backslashreplace")) for text in texts)
    assert bound.output == 9


def test_a_provider_that_bills_beyond_the_bound_gets_no_further_call(prices: Path, tmp_path: Path) -> None:
    """The bill of one call cannot be known before it is made; that of a second one can be refused."""
    file = SpendingFile(tmp_path / "spending.json")
    for cap in (SpendingCap(0.5), SharedCap(0.5, file, "one")):
        greedy = ScriptedReply(text="ok", usage=TokenUsage(input=200_000, output=10))
        script = Scripted([greedy] * 5)
        backbone = open_backbone(script, prices=prices, cap=cap, max_tokens=50, clock=FakeClock())
        assert backbone.chat("one").cost > 0.5
        for _ in range(2):
            with pytest.raises(CapReached, match=r"a call that could cost at most .* was billed at"):
                backbone.chat("two")
        assert len(script.requests) == 1
    other = SharedCap(1e6, file, "another process")
    with pytest.raises(CapReached, match="was billed at"):
        other.hold(0.01)


@pytest.mark.parametrize("text", ["ok", ""], ids=["an answer", "an empty reply, which is tried again elsewhere"])
@pytest.mark.parametrize("is_shared", [False, True])
def test_the_stop_after_such_a_bill_outlasts_a_resume(is_shared: bool, text: str, prices: Path, tmp_path: Path) -> None:
    """A resumed process knows the bill from the record, whatever the file of the cap says, and the other way round."""
    record, file = tmp_path / "calls.jsonl", SpendingFile(tmp_path / "spending.json")

    def opened() -> tuple[Backbone, Scripted]:
        script = Scripted([ScriptedReply(text=text, usage=TokenUsage(input=20_000, output=10))] * 5)
        cap = SharedCap(1e3, file, record.name) if is_shared else SpendingCap(1e3)
        options = {"cap": cap, "max_tokens": 50, "clock": FakeClock(), "record": record}
        return open_backbone(script, prices=prices, **options), script  # type: ignore[arg-type]

    def require_stopped() -> None:
        backbone, script = opened()
        with pytest.raises(CapReached, match=r"at most \$\d.* was billed at \$20\.01"):
            backbone.chat("two")
        assert script.requests == []

    backbone, script = opened()
    with nullcontext() if text else pytest.raises(Garbled):
        backbone.chat("one")
    assert len(script.requests) == 1
    require_stopped()
    assert booked(record)[0] == pytest.approx(20.01)
    if is_shared:
        file.begin({record.name: (20.01, None)})  # killed before the bill was recorded: the file alone knows
        require_stopped()
        file.path.unlink()
        file.begin({record.name: booked(record)})
        with pytest.raises(CapReached, match="was billed at"):
            SharedCap(1e3, file, "another").hold(0.01)


def test_tries_that_are_billed_within_the_bound_stop_nothing(prices: Path, tmp_path: Path) -> None:
    """Two empty replies and an answer cost three times what one may, which no single call exceeds."""
    usage = TokenUsage(input=60, output=50)
    script = Scripted([ScriptedReply(text=text, usage=usage) for text in ("", "", "ok", "ok")])
    options = {"cap": SpendingCap(10), "max_tokens": 50, "clock": FakeClock(), "record": tmp_path}
    backbone = open_backbone(script, prices=prices, **options)  # type: ignore[arg-type]
    assert backbone.chat("one").cost == pytest.approx(0.33)
    assert booked(tmp_path / "calls.jsonl") == (pytest.approx(0.33), None)
