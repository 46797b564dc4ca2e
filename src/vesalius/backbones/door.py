"""The one door: `open_backbone("provider:model")`."""

import math
import random
from pathlib import Path

from vesalius.backbones.backbone import Backbone
from vesalius.backbones.budget import Budget
from vesalius.backbones.local import LocalWire
from vesalius.backbones.messages import Settings
from vesalius.backbones.prices import Prices
from vesalius.backbones.providers import PROVIDERS, Access
from vesalius.backbones.records import Records
from vesalius.backbones.redact import Redactor
from vesalius.backbones.retry import Clock, Patience, Retrier, SystemClock
from vesalius.backbones.scripted import Scripted, read_script
from vesalius.backbones.wire import Abilities, Wire
from vesalius.errors import BadInput, choices

LOCAL, SCRIPTED = "local", "scripted"
NAMES = (*PROVIDERS, LOCAL, SCRIPTED)
ABILITIES = {name: provider.abilities for name, provider in PROVIDERS.items()} | {
    LOCAL: Abilities(tools=False, logprobs=True),
    SCRIPTED: Abilities(logprobs=True),
}


def open_backbone(
    which: str | Scripted,
    *,
    base_url: str | None = None,
    temperature: float | None = 0.0,
    max_tokens: int = 4096,
    timeout: float = 120.0,
    record: Path | str | None = None,
    replay: Path | str | None = None,
    prices: Path | str | None = None,
    cap: Budget | float | None = None,
    patience: Patience | None = None,
    clock: Clock | None = None,
    seed: int | None = None,
    reasks: int = 2,
) -> Backbone:
    """Open a chat model by `provider:model`.

    Providers: `openai`, `anthropic`, `google` (their keys in the environment); `compatible` for any server that speaks
    OpenAI's chat API at `base_url` or $VESALIUS_BASE_URL; `local` for a model served on this machine
    (`local:smollm2-135m` or `local:FILE.gguf`; with `base_url`, a server that is already running); `scripted:FILE`, or
    a `Scripted` object, for tests.

    `record` keeps every call at that place and serves what is already there; `replay` serves only from there and needs
    no key, package or network. `cap` is the most to spend, in dollars. `prices` is the user's own price table.
    `temperature=None` leaves the provider's default.
    """
    provider, model = (SCRIPTED, "script") if isinstance(which, Scripted) else _parse(which)
    settings = _settings(temperature, max_tokens)
    if not (math.isfinite(timeout) and timeout > 0):
        raise BadInput(f"timeout {timeout:g}: give a positive number of seconds")
    if record and replay:
        raise BadInput("record and replay: give one of them; recording already serves what is on record")
    table = Prices.load(prices)
    price = table.of(provider, model)
    budget = Budget(cap) if isinstance(cap, int | float) else cap
    if budget and price is None:
        raise BadInput(
            f"cap ${budget.limit:.2f}: the price of {provider}:{model} is not known (table of {table.date});"
            " name it in a file and give it with --prices"
        )
    key = None if replay or provider not in PROVIDERS else PROVIDERS[provider].key()
    redactor = Redactor([key] if key else [])
    place = record or replay
    records = Records(Path(place), redactor, writable=record is not None) if place else None
    if budget and records and record:
        budget.restore(str(records.path.resolve()), records.spent)
    wire = None if replay else _wire(which, provider, Access(model, base_url, key, timeout))
    return Backbone(
        provider,
        model,
        settings=settings,
        wire=wire,
        abilities=ABILITIES[provider],
        retrier=Retrier(patience or Patience(), clock or SystemClock(), random.Random(seed)),
        redactor=redactor,
        records=records,
        price=price,
        price_date=table.date,
        budget=budget,
        reasks=reasks,
    )


def _parse(which: str) -> tuple[str, str]:
    provider, colon, model = which.partition(":")
    if provider not in NAMES:
        raise BadInput(f"backbone {which!r}: no such provider; choose from {choices(NAMES)}, as in openai:gpt-5.4")
    if not colon or not model.strip():
        raise BadInput(f"backbone {which!r}: name a model after the provider, as in {provider}:MODEL")
    return provider, Path(model).name if provider == SCRIPTED else model


def _settings(temperature: float | None, max_tokens: int) -> Settings:
    if temperature is not None and not 0 <= temperature <= 2:
        raise BadInput(f"temperature {temperature:g}: give a number from 0 to 2")
    if max_tokens < 1:
        raise BadInput(f"max_tokens {max_tokens}: a reply has at least one token")
    return Settings(temperature=temperature, max_tokens=max_tokens)


def _wire(which: str | Scripted, provider: str, access: Access) -> Wire:
    if isinstance(which, Scripted):
        return which
    if provider == SCRIPTED:
        return read_script(Path(which.partition(":")[2]))
    if provider == LOCAL:
        return LocalWire(access)
    PROVIDERS[provider].installed()
    return PROVIDERS[provider].open(access)
