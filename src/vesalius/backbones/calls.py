"""One call to a provider, with all its tries and their bills.

Before each try the most it can cost is held under the cap. The most is counted in bytes, because a token is at least
one byte: the cap stops a little early, never late.
"""

from vesalius.backbones.budget import Budget
from vesalius.backbones.failures import BackboneError, Garbled, Refused
from vesalius.backbones.messages import Answer, Event, Request, Usage
from vesalius.backbones.prices import Price
from vesalius.backbones.records import Records, canonical
from vesalius.backbones.wire import Wire

#: What a chat template and a provider's hidden instructions for tools may add to a prompt, in tokens.
TEMPLATE_TOKENS, TOOL_TOKENS = 64, 1024


class PaidCall:
    """One call with all its tries and their bills."""

    def __init__(
        self,
        request: Request,
        wire: Wire,
        *,
        price: Price | None = None,
        budget: Budget | None = None,
        records: Records | None = None,
    ) -> None:
        self._request, self._wire, self._price = request, wire, price
        self._budget, self._records = budget, records
        self._most = price.cost(most_tokens(request)) if price else 0.0
        self.usage: Usage | None = None
        self.cost: float | None = 0.0 if price else None
        self.doubtful = 0.0
        self.attempts = 0
        self.events: list[Event] = []

    def note(self, event: Event) -> None:
        """Write down a failed try."""
        self.events.append(event)

    def attempt(self) -> Answer:
        """One try, paid for."""
        if self._budget:
            self._budget.hold(self._most)
        charged: float | None = None
        try:
            if self._records and self.attempts == 0 and self._most:
                self._records.ask(self._request, self._most)
            self.attempts += 1
            answer = self._wire.complete(self._request)
            charged = self._bill(answer.usage)
            _usable(answer, f"{self._request.provider}:{self._request.model}")
            return answer
        except BackboneError as failure:
            if charged is None and failure.perhaps_billed:
                charged = self._most
                self.doubtful += self._most
            raise
        finally:
            if self._budget:
                self._budget.settle(self._most, charged or 0.0)

    def _bill(self, usage: Usage | None) -> float:
        """Book an answer; where tokens were not counted the cost is unknown and the cap is charged the most."""
        if usage is None:
            self.note(Event(kind="usage_missing"))
            self.cost = None
            self.doubtful += self._most
            return self._most
        self.usage = usage if self.usage is None else self.usage + usage
        if self._price is None:
            return 0.0
        charged = self._price.cost(usage)
        self.cost = None if self.cost is None else self.cost + charged
        return charged


def most_tokens(request: Request) -> Usage:
    """More tokens than a request can use: a token is at least one byte, and the reply ends at its limit."""
    said = request.model_dump(mode="json", include={"messages", "tools", "answer_schema"})
    size = len(canonical(said).encode("utf-8", "backslashreplace"))
    extra = TEMPLATE_TOKENS + (TOOL_TOKENS if request.tools else 0)
    return Usage(input=size + extra, output=request.settings.max_tokens)


def _usable(answer: Answer, who: str) -> None:
    if answer.finish == "refused":
        said = " ".join(answer.text.split())[:120]
        raise Refused(f"{who}: the model declined to answer{': ' + said if said else ''}")
    if not answer.text.strip() and not answer.tool_calls and not answer.logprobs:
        why = "cut before its first word; raise max_tokens" if answer.finish == "length" else "empty"
        raise Garbled(f"{who}: the reply is {why}")
