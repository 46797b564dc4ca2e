"""`open_backbone("provider:model")` makes a `Backbone`."""

import math
import random
from pathlib import Path
from typing import Annotated

from vesalius.errors import BadInput, choices
from vesalius.options import MAX_TOKENS, TIMEOUT, Calls, OptionRecord, flag, flattened
from vesalius_backbones.backbone import Backbone, Pays
from vesalius_backbones.failures import Clock, Retrier, RetryPolicy, SpendingCap, SystemClock
from vesalius_backbones.local import LocalConnection
from vesalius_backbones.messages import Abilities, CallSettings, Connection, Prices
from vesalius_backbones.providers import PROVIDERS, Access
from vesalius_backbones.records import Records, Redactor
from vesalius_backbones.scripted import Scripted, read_script

LOCAL, SCRIPTED = "local", "scripted"
NAMES = (*PROVIDERS, LOCAL, SCRIPTED)
ABILITIES = {name: provider.abilities for name, provider in PROVIDERS.items()} | {
    LOCAL: Abilities(tools=False, logprobs=True, constrained=True),
    SCRIPTED: Abilities(logprobs=True),
}


class Endpoint(OptionRecord):
    """How a language model is reached, and how it answers."""

    base_url: Annotated[str | None, flag("Address of its server, for compatible and local models.")] = None
    temperature: Annotated[float | None, flag("How freely it chooses its words; None: the provider's default.")] = 0.0
    max_tokens: Annotated[int, flag("Its longest reply.")] = MAX_TOKENS
    timeout: Annotated[float, flag("Seconds to wait for a reply.")] = TIMEOUT
    keep_server: Annotated[bool, flag("Leave the server of a local model running for the next backbone.")] = False

    def __post_init__(self) -> None:
        if self.temperature is not None and not 0 <= self.temperature <= 2:
            raise BadInput(f"temperature {self.temperature:g}: give a number from 0 to 2")
        if self.max_tokens < 1:
            raise BadInput(f"max_tokens {self.max_tokens}: a reply has at least one token")
        if not (math.isfinite(self.timeout) and self.timeout > 0):
            raise BadInput(f"timeout {self.timeout:g}: give a positive number of seconds")


class Patience(OptionRecord):
    """What is done about calls that fail, and replies that cannot be read."""

    retry: Annotated[RetryPolicy | None, flag("How often a call that failed is made again, and after how long.")] = None
    clock: Annotated[Clock | None, flag("What tells the time and waits.")] = None
    seed: Annotated[int | None, flag("Seed of the random part of the waits.")] = None
    reasks: Annotated[int, flag("How often a reply that cannot be read is asked for again.")] = 2


@flattened
def open_backbone(
    which: str | Scripted,
    *,
    endpoint: Endpoint,
    calls: Calls,
    patience: Patience,
    prices: Path | str | None = None,
    cap: SpendingCap | float | None = None,
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
    record, replay = calls.record, calls.replay
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
        spending_cap.restore(str(records.path.resolve()), records.spent, records.excess)
    access = Access(model, endpoint.base_url, key, endpoint.timeout, endpoint.keep_server)
    waits = random.Random(patience.seed)
    return Backbone(
        provider,
        model,
        settings=CallSettings(temperature=endpoint.temperature, max_tokens=endpoint.max_tokens),
        connection=None if replay else _connect(which, provider, access),
        abilities=ABILITIES[provider],
        retrier=Retrier(patience.retry or RetryPolicy(), patience.clock or SystemClock(), waits),
        redactor=redactor,
        records=records,
        pays=Pays(price, table.date, spending_cap),
        reasks=patience.reasks,
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


def _connect(which: str | Scripted, provider: str, access: Access) -> Connection:
    if isinstance(which, Scripted):
        return which
    if provider == SCRIPTED:
        return read_script(Path(which.partition(":")[2]))
    if provider == LOCAL:
        return LocalConnection(access)
    PROVIDERS[provider].require_installed()
    return PROVIDERS[provider].open(access)
