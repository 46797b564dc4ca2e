"""When to try again, how long to wait, and when to stop."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backbones.conftest import FakeClock
from vesalius_backbones import BackboneError, RetryPolicy
from vesalius_backbones.failures import KINDS, Retrier
from vesalius_backbones.messages import Event

TRANSIENT = {"rate_limited", "timed_out", "unreachable", "garbled"}


def run(failures: list[BackboneError], clock: FakeClock, retry: RetryPolicy | None = None) -> tuple[str, list[Event]]:
    events: list[Event] = []

    def call() -> str:
        if failures:
            raise failures.pop(0)
        return "done"

    return Retrier(retry or RetryPolicy(), clock, random.Random(0)).run(call, events.append), events


@pytest.mark.parametrize("kind", KINDS)
def test_only_transient_failures_are_tried_again(kind: str, clock: FakeClock) -> None:
    failure = KINDS[kind]("no")
    if kind in TRANSIENT:
        result, events = run([failure, KINDS[kind]("no")], clock)
        assert result == "done"
        assert [event.kind for event in events] == [kind, kind]
        assert len(clock.waits) == 2
    else:
        with pytest.raises(KINDS[kind]):
            run([failure], clock)
        assert clock.waits == []


def test_waits_double_with_jitter(clock: FakeClock) -> None:
    retry = RetryPolicy(tries=8, first=1, longest=20)
    run([KINDS["unreachable"]("no") for _ in range(7)], clock, retry)
    for wait, most in zip(clock.waits, [1, 2, 4, 8, 16, 20, 20], strict=True):
        assert most / 2 <= wait <= most


def test_tries_end(clock: FakeClock) -> None:
    failures: list[BackboneError] = [KINDS["timed_out"](str(number)) for number in range(9)]
    with pytest.raises(BackboneError, match="2"):
        run(failures, clock, RetryPolicy(tries=3))
    assert len(clock.waits) == 2


def test_the_providers_advice_is_obeyed(clock: FakeClock) -> None:
    run([KINDS["rate_limited"]("slow down", retry_after=17.0)], clock)
    assert clock.waits == [17.0]


def test_advice_beyond_the_total_wait_ends_at_once(clock: FakeClock) -> None:
    with pytest.raises(KINDS["rate_limited"]):
        run([KINDS["rate_limited"]("tomorrow", retry_after=86400.0)], clock, RetryPolicy(total=600))
    assert clock.waits == []


@given(st.integers(1, 12), st.floats(0.1, 5), st.floats(1, 100), st.floats(1, 300), st.integers(0, 10**6))
def test_total_waiting_is_bounded(tries: int, first: float, longest: float, total: float, seed: int) -> None:
    clock = FakeClock()
    retrier = Retrier(RetryPolicy(tries, first, longest, total), clock, random.Random(seed))

    def call() -> None:
        raise KINDS["unreachable"]("no")

    with pytest.raises(BackboneError):
        retrier.run(call, lambda _: None)
    assert sum(clock.waits) <= total
    assert len(clock.waits) < tries
