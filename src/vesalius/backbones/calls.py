"""One call to a provider, with all its tries and their costs.

Before each try the most it can cost is held under the cap. That upper bound counts bytes, because a token is at least
one byte: the cap stops a little early, never late.
"""

from vesalius.backbones.connection import Connection
from vesalius.backbones.failures import BackboneError, Garbled, Refused
from vesalius.backbones.messages import Answer, Event, ModelRequest, TokenUsage
from vesalius.backbones.prices import Price
from vesalius.backbones.records import Records, canonical
from vesalius.backbones.spending_cap import SpendingCap

#: What a chat template and a provider's hidden instructions for tools may add to a prompt, in tokens.
TEMPLATE_TOKENS, TOOL_TOKENS = 64, 1024


class PaidCall:
    """One call with all its tries and their costs."""

    def __init__(
        self,
        request: ModelRequest,
        connection: Connection,
        *,
        price: Price | None = None,
        cap: SpendingCap | None = None,
        records: Records | None = None,
    ) -> None:
        self._request, self._connection, self._price = request, connection, price
        self._cap, self._records = cap, records
        self._max_cost = price.cost(token_bound(request)) if price else 0.0
        self.usage: TokenUsage | None = None
        self.cost: float | None = 0.0 if price else None
        self.doubtful = 0.0
        self.attempts = 0
        self.events: list[Event] = []

    def note(self, event: Event) -> None:
        """Add the event of a failed try."""
        self.events.append(event)

    def attempt(self) -> Answer:
        """Try once and book the cost."""
        if self._cap:
            self._cap.hold(self._max_cost)
        charged: float | None = None
        try:
            if self._records and self.attempts == 0 and self._max_cost:
                self._records.ask(self._request, self._max_cost)
            self.attempts += 1
            answer = self._connection.complete(self._request)
            charged = self._bill(answer.usage)
            _check_usable(answer, f"{self._request.provider}:{self._request.model}")
            return answer
        except BackboneError as failure:
            if charged is None and failure.perhaps_billed:
                charged = self._max_cost
                self.doubtful += self._max_cost
            raise
        finally:
            if self._cap:
                self._cap.settle(self._max_cost, charged or 0.0)

    def _bill(self, usage: TokenUsage | None) -> float:
        """Book an answer; without a token count the cost is unknown and the cap is charged the upper bound."""
        if usage is None:
            self.note(Event(kind="usage_missing"))
            self.cost = None
            self.doubtful += self._max_cost
            return self._max_cost
        self.usage = usage if self.usage is None else self.usage + usage
        if self._price is None:
            return 0.0
        charged = self._price.cost(usage)
        self.cost = None if self.cost is None else self.cost + charged
        return charged


def token_bound(request: ModelRequest) -> TokenUsage:
    """An upper bound of a request's tokens: a token is at least one byte, and the reply ends at its limit."""
    content = request.model_dump(mode="json", include={"messages", "tools", "answer_schema"})
    size = len(canonical(content).encode("utf-8", "backslashreplace"))
    extra = TEMPLATE_TOKENS + (TOOL_TOKENS if request.tools else 0)
    return TokenUsage(input=size + extra, output=request.settings.max_tokens)


def _check_usable(answer: Answer, model: str) -> None:
    if answer.finish == "refused":
        text = " ".join(answer.text.split())[:120]
        raise Refused(f"{model}: the model declined to answer{': ' + text if text else ''}")
    if not answer.text.strip() and not answer.tool_calls and not answer.logprobs:
        problem = "cut before its first word; raise max_tokens" if answer.finish == "length" else "empty"
        raise Garbled(f"{model}: the reply is {problem}")
