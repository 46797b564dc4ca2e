"""Map exceptions of providers' libraries to our failures.

The libraries differ, but all of them keep the HTTP status, the body and the headers somewhere in the chain of
causes. The status decides, except where providers use one status for two things: 429 is also "no credit left" (OpenAI),
400 is also "credit balance too low" (Anthropic) and "API key not valid" (Google).
"""

import email.utils
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

from vesalius.backbones.failures import (
    BackboneError,
    BadKey,
    Garbled,
    OutOfCredit,
    RateLimited,
    Refused,
    Rejected,
    TimedOut,
    Unreachable,
)

NO_CREDIT = re.compile(
    r"insufficient_quota|exceeded your current quota|credit balance is too low|billing|payment required"
    r"|insufficient (?:funds|balance|credit)|out of credits?",
    re.IGNORECASE,
)
BAD_KEY = re.compile(
    r"api[ _]key not valid|api_key_invalid|invalid[ _](?:x-)?api[ _-]key|incorrect api key", re.IGNORECASE
)
REFUSAL = re.compile(
    r"content_policy|content[ _]filter|content management policy|safety system|prohibited_content", re.IGNORECASE
)
#: How a server names the part of a request that it rejects; searched in this order.
PARAMETERS = {
    "schema": re.compile(
        r"response_format|json_schema|output_config|output_format|response_json_schema|response_mime_type"
        r"|structured output|grammar",
        re.IGNORECASE,
    ),
    "tools": re.compile(r"\btools\b|tool_choice|tool use|function[ _]call|--jinja", re.IGNORECASE),
    "temperature": re.compile(r"temperature|sampling parameter", re.IGNORECASE),
    "stop": re.compile(r"^stop$|['\"`]stop['\"`]|stop parameter|stop_sequences", re.IGNORECASE),
    "logprobs": re.compile(r"logprobs", re.IGNORECASE),
}
RETRY_DELAY = re.compile(r"retryDelay['\"]?\s*[:=]\s*['\"]?(\d+(?:\.\d+)?)s", re.IGNORECASE)
MAX_MESSAGE_LENGTH = 300


def classify(error: BaseException, model: str) -> BackboneError:
    """The failure for an exception of a provider's library; `model` is `provider:model`."""
    chain = list(_causes(error))
    status = next((code for link in chain if (code := _status(link)) is not None), None)
    text = " ".join(dict.fromkeys(_body(link) for link in chain))
    line = _one_line(f"{model}: {_headline(chain)}")
    if status is None:
        return _without_status(chain, line)
    retry_after = _retry_after(chain, text)
    # Google words a temporary rate limit as "check your billing", but says when to retry; OpenAI has a code for it.
    permanent = status != 429 or retry_after is None or "insufficient_quota" in text
    if status == 402 or (status in (400, 403, 429) and NO_CREDIT.search(text) and permanent):
        return OutOfCredit(f"{line}; add credit to the account or choose another backbone")
    if status in (401, 403) or (status == 400 and BAD_KEY.search(text)):
        return BadKey(f"{line}; check the key")
    if status == 429:
        return RateLimited(line, retry_after=retry_after)
    if status in (408, 504):
        return TimedOut(line)
    if status >= 500 or status == 409:
        return Unreachable(f"{line} (the server answered with status {status})", retry_after=retry_after)
    if REFUSAL.search(text):
        return Refused(line)
    return Rejected(line, parameter=_parameter(chain, text) if status in (400, 404, 422) else None)


def _parameter(chain: list[BaseException], text: str) -> str | None:
    """The part of the request that the server named: in the field for it, else in its message."""
    fields = [str(inner["param"]) for link in chain if (inner := _inner(link)).get("param")]
    return next(
        (name for part in fields or [text] for name, pattern in PARAMETERS.items() if pattern.search(part)), None
    )


def _without_status(chain: list[BaseException], line: str) -> BackboneError:
    names = {base.__name__ for link in chain for base in type(link).__mro__}
    if any("Timeout" in name for name in names):
        return TimedOut(line)
    if names & {"APIConnectionError", "ModelConnectionError", "TransportError", "NetworkError", "ConnectionError"}:
        return Unreachable(line)
    if "ContentFilterFinishReasonError" in names:
        return Refused(line)
    return Garbled(f"{line} (the server's answer could not be understood)")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _status(link: BaseException) -> int | None:
    response = getattr(link, "response", None)
    for holder, name in ((link, "status_code"), (link, "code"), (response, "status_code")):
        value = getattr(holder, name, None)
        if isinstance(value, int) and not isinstance(value, bool) and 400 <= value < 600:
            return value
    return None


def _body(link: BaseException) -> str:
    parts = [str(link), *(str(value) for name in ("body", "details") if (value := getattr(link, name, None)))]
    return " ".join(parts)


def _headline(chain: list[BaseException]) -> str:
    """The provider's own message if it sent one, else the exception's."""
    for link in chain:
        message = _inner(link).get("message")
        if isinstance(message, str) and message:
            return message
    return str(chain[0]) or type(chain[0]).__name__


def _inner(link: BaseException) -> Mapping[str, Any]:
    """The error object of the provider's answer, if there is one."""
    body = getattr(link, "body", None) or getattr(link, "details", None)
    inner = body.get("error", body) if isinstance(body, Mapping) else None
    return inner if isinstance(inner, Mapping) else {}


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_MESSAGE_LENGTH else line[: MAX_MESSAGE_LENGTH - 3] + "..."


def _retry_after(chain: list[BaseException], text: str) -> float | None:
    for link in chain:
        headers: Any = getattr(getattr(link, "response", None), "headers", None)
        if isinstance(headers, Mapping):
            if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
                return milliseconds / 1000
            if (seconds := _seconds(headers.get("retry-after"))) is not None:
                return seconds
    delay = RETRY_DELAY.search(text)
    return float(delay[1]) if delay else None


def _seconds(value: str | None) -> float | None:
    """Retry-After is a number of seconds or a date."""
    if value is None:
        return None
    if (number := _number(value)) is not None:
        return number
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


def _number(value: str | None) -> float | None:
    return float(value) if value and re.fullmatch(r"\d+(\.\d+)?", value.strip()) else None
