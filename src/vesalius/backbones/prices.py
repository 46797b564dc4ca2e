"""What a call costs, from a dated table that the user can override.

The table names its date and where each price was read. A model that is not in it has no price: its cost is None and is
never counted as zero. An entry `provider:*` holds for every model of a provider that is not listed.
"""

import re
from importlib import resources
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vesalius.backbones.messages import TokenUsage
from vesalius.errors import BadInput
from vesalius.files import parse_json

MILLION = 1_000_000
#: A dated snapshot costs what its model costs: gpt-5.4-2026-03-05 is gpt-5.4.
SNAPSHOT = re.compile(r"-\d{4}-?\d{2}-?\d{2}$")
EXAMPLE = '{"schema": 1, "date": "2026-11-01", "models": {"openai:NAME": {"input": 2.5, "output": 15.0}}}'


class LongPrompt(BaseModel):
    """The price of a whole call whose prompt has more than `above` tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    above: int = Field(gt=0)
    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)


class Price(BaseModel):
    """US dollars per million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)
    cached_input: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    long: LongPrompt | None = None
    source: str = ""

    def cost(self, usage: TokenUsage) -> float:
        """What these tokens cost. Tokens from the provider's cache count in full unless their price is known."""
        if self.long and usage.input > self.long.above:
            return (usage.input * self.long.input + usage.output * self.long.output) / MILLION
        cached = min(usage.cached, usage.input) if self.cached_input is not None else 0
        fresh = usage.input - cached
        return (fresh * self.input + cached * (self.cached_input or 0.0) + usage.output * self.output) / MILLION


class Prices(BaseModel):
    """A dated price table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int = Field(default=1, alias="schema")
    date: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")
    unit: str = "US dollars per million tokens"
    models: dict[str, Price]

    @classmethod
    def load(cls, override: Path | str | None = None) -> "Prices":
        """The table of this package; entries of the user's file replace it or are added."""
        shipped = cls.model_validate_json(
            resources.files("vesalius.backbones").joinpath("prices.json").read_text("utf-8")
        )
        if override is None:
            return shipped
        try:
            table = cls.model_validate(parse_json(Path(override).read_bytes(), source=f"prices {override}"))
        except BadInput as error:
            raise BadInput(f"{error}: not a price table; an example is {EXAMPLE}") from None
        except OSError as error:
            raise BadInput(f"prices {override}: could not be read ({error.strerror})") from None
        except ValidationError as error:
            problem = str(error).splitlines()[0]
            raise BadInput(f"prices {override}: not a price table ({problem}); an example is {EXAMPLE}") from None
        return cls(schema=1, date=table.date, models=shipped.models | table.models)

    def of(self, provider: str, model: str) -> Price | None:
        """The price of a model, or None if it is not known."""
        names = [f"{provider}:{model}", f"{provider}:{SNAPSHOT.sub('', model)}", f"{provider}:*"]
        return next((self.models[name] for name in names if name in self.models), None)
