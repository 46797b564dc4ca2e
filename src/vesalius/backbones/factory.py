"""`open_backbone("provider:model")` makes a `Backbone`."""

import math
import random
from pathlib import Path

from vesalius.backbones.backbone import Backbone
from vesalius.backbones.failures import Clock, Retrier, RetryPolicy, SpendingCap, SystemClock
from vesalius.backbones.local import LocalConnection
from vesalius.backbones.messages import Abilities, CallSettings, Connection, Prices
from vesalius.backbones.providers import PROVIDERS, Access
from vesalius.backbones.records import Records, Redactor
from vesalius.backbones.scripted import Scripted, read_script
from vesalius.errors import BadInput, choices
from vesalius.options import MAX_TOKENS, TIMEOUT

LOCAL, SCRIPTED = "local", "scripted"
NAMES = (*PROVIDERS, LOCAL, SCRIPTED)
ABILITIES = {name: provider.abilities for name, provider in PROVIDERS.items()} | {
    LOCAL: Abilities(tools=False, logprobs=True, constrained=True),
    SCRIPTED: Abilities(logprobs=True),
}


def open_backbone(
    which: str | Scripted,
    *,
    base_url: str | None = None,
    temperature: float | None = 0.0,
    max_tokens: int = MAX_TOKENS,
    timeout: float = TIMEOUT,
    record: Path | str | None = None,
    replay: Path | str | None = None,
    prices: Path | str | None = None,
    cap: SpendingCap | float | None = None,
    retry: RetryPolicy | None = None,
    clock: Clock | None = None,
    seed: int | None = None,
    reasks: int = 2,
    keep_server: bool = False,
) -> Backbone:
    """Open a chat model by `provider:model`.

    Providers: `openai`, `anthropic`, `google` (their keys in the environment); `compatible` for any server that speaks
    OpenAI's chat API at `base_url` or $VESALIUS_BASE_URL; `local` for a model served on this machine
    (`local:smollm2-135m` or `local:FILE.gguf`; options: `local:FILE.gguf?context=8192&threads=2&gpu_layers=0`;
    with `base_url`, a server that is already running); `scripted:FILE`, or a `Scripted` object, for tests.

    `record` writes every call to that directory and serves calls already recorded there; `replay` serves only from
    there and needs no key, package or network. `cap` is the most to spend, in dollars. `prices` is the user's own price
    table. `temperature=None` leaves the provider's default. `keep_server` leaves the server of a local model running
    for the next backbone of this process.
    """
    provider, model = (SCRIPTED, "script") if isinstance(which, Scripted) else _parse(which)
    settings = _settings(temperature, max_tokens)
    if not (math.isfinite(timeout) and timeout > 0):
        raise BadInput(f"timeout {timeout:g}: give a positive number of seconds")
    if record and replay:
        raise BadInput("record and replay: give one of them; recording already serves recorded calls")
    table = Prices.load(prices)
    price = table.of(provider, model)
    spending_cap = SpendingCap(cap) if isinstance(cap, int | float) else cap
    if spending_cap and price is None:
        raise BadInput(
            f"cap ${spending_cap.limit:.2f}: the price of {provider}:{model} is not known (table of {table.date});"
            " name it in a file and give it with `prices`"
        )
    key = None if replay or provider not in PROVIDERS else PROVIDERS[provider].key()
    redactor = Redactor([key] if key else [])
    directory = record or replay
    records = Records(Path(directory), redactor, writable=record is not None) if directory else None
    if spending_cap and records and record:
        spending_cap.restore(str(records.path.resolve()), records.spent)
    connection = None if replay else _connect(which, provider, Access(model, base_url, key, timeout, keep_server))
    return Backbone(
        provider,
        model,
        settings=settings,
        connection=connection,
        abilities=ABILITIES[provider],
        retrier=Retrier(retry or RetryPolicy(), clock or SystemClock(), random.Random(seed)),
        redactor=redactor,
        records=records,
        price=price,
        price_date=table.date,
        cap=spending_cap,
        reasks=reasks,
    )


def backbone_name(which: str) -> str:
    """The name that a backbone and its calls have: of a script the file's name alone."""
    return ":".join(_parse(which))


def offers_logprobs(which: str) -> bool:
    """Whether the provider of `provider:model` gives log-probabilities."""
    return ABILITIES[_parse(which)[0]].logprobs


def _parse(which: str) -> tuple[str, str]:
    provider, colon, model = which.partition(":")
    if provider not in NAMES:
        raise BadInput(f"backbone {which!r}: no such provider; choose from {choices(NAMES)}, as in openai:gpt-5.4")
    if not colon or not model.strip():
        raise BadInput(f"backbone {which!r}: name a model after the provider, as in {provider}:MODEL")
    return provider, Path(model).name if provider == SCRIPTED else model


def _settings(temperature: float | None, max_tokens: int) -> CallSettings:
    if temperature is not None and not 0 <= temperature <= 2:
        raise BadInput(f"temperature {temperature:g}: give a number from 0 to 2")
    if max_tokens < 1:
        raise BadInput(f"max_tokens {max_tokens}: a reply has at least one token")
    return CallSettings(temperature=temperature, max_tokens=max_tokens)


def _connect(which: str | Scripted, provider: str, access: Access) -> Connection:
    if isinstance(which, Scripted):
        return which
    if provider == SCRIPTED:
        return read_script(Path(which.partition(":")[2]))
    if provider == LOCAL:
        return LocalConnection(access)
    PROVIDERS[provider].require_installed()
    return PROVIDERS[provider].open(access)
