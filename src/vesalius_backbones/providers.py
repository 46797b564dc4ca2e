"""The providers: their names, what they need, and how their langchain clients are made.

A client is imported when it is opened. A missing package or key is one line that says what to install or to set.
"""

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from vesalius.errors import BadInput
from vesalius_backbones.messages import Abilities, CallSettings, Connection, ModelRequest, strict_schema

BASE_URL = "VESALIUS_BASE_URL"
#: A server that needs no key still gets one, or the library would send it the user's OpenAI key.
NO_KEY = "no-key-needed"


@dataclass(frozen=True)
class Access:
    """How to reach a model: its name, an address and a key where there is one, seconds to wait for an answer, and
    whether a server that is started for it stays for the next one.
    """

    model: str
    base_url: str | None
    key: str | None
    timeout: float
    keep_server: bool = False


@dataclass(frozen=True)
class Provider:
    """One provider: the pip extra that brings its client, the variables its key may be in, and what it can do."""

    name: str
    extra: str | None
    package: str | None
    keys: tuple[str, ...]
    abilities: Abilities
    open: Callable[[Access], Connection]
    key_needed: bool = True

    def key(self) -> str | None:
        """The key from the environment; where one is needed and missing, a line that names the variable."""
        key = next((value for name in self.keys if (value := os.environ.get(name, "").strip())), None)
        if key is None and self.key_needed and self.keys:
            raise BadInput(f"backbone {self.name}: no key; set {' or '.join(self.keys)} in the environment")
        return key

    def require_installed(self) -> None:
        """Raise an error with the pip command if the client's package is missing."""
        if self.package is None:
            return
        try:
            importlib.import_module(self.package)
        except ImportError as error:
            raise BadInput(
                f"backbone {self.name}: {error.name or self.package} is not installed;"
                f' run: pip install "vesalius[{self.extra}]"'
            ) from None


def _json_format(schema: dict[str, Any]) -> dict[str, Any]:
    closed, strict = strict_schema(schema)
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": closed, "strict": strict}}


def _open_openai(access: Access) -> Connection:
    """OpenAI itself."""
    return _openai_connection(access, official=True)


def _open_compatible(access: Access) -> Connection:
    """Any server that speaks OpenAI's chat API."""
    address = access.base_url or os.environ.get(BASE_URL, "").strip()
    if not address.startswith(("http://", "https://")):
        problem = f"{address!r} is not an address" if address else "no address"
        raise BadInput(
            f"backbone compatible: {problem}; give base_url or set {BASE_URL}, as in http://localhost:8000/v1"
        )
    return _openai_connection(replace(access, base_url=address), official=False)


def _openai_connection(access: Access, *, official: bool) -> Connection:
    import openai
    from langchain_openai import ChatOpenAI

    from vesalius_backbones.langchain_connection import LangchainConnection

    # Other servers accept only the older name of this limit, OpenAI's newer models only the newer name.
    limit = "max_completion_tokens" if official else "max_tokens"

    def make(settings: CallSettings) -> ChatOpenAI:
        return ChatOpenAI(
            model=access.model,
            api_key=access.key or NO_KEY,  # type: ignore[arg-type]
            base_url=access.base_url,
            temperature=settings.temperature,
            timeout=access.timeout,
            max_retries=0,
            use_responses_api=False,
        )

    def options(request: ModelRequest) -> dict[str, Any]:
        # The schema goes into the body, not into `response_format`: that would select a method of the client which
        # raises on an answer that was cut and hides its text.
        body: dict[str, Any] = {limit: request.settings.max_tokens}
        if request.answer_schema:
            body["response_format"] = _json_format(request.answer_schema)
        arguments: dict[str, Any] = {"extra_body": body}
        if request.top_logprobs:
            arguments |= {"logprobs": True, "top_logprobs": request.top_logprobs}
        return arguments

    return LangchainConnection(make, options=options, errors=[openai.OpenAIError])


def _open_anthropic(access: Access) -> Connection:
    """Anthropic."""
    import anthropic
    from langchain_anthropic import ChatAnthropic

    from vesalius_backbones.langchain_connection import LangchainConnection

    def make(settings: CallSettings) -> ChatAnthropic:
        return ChatAnthropic(
            model_name=access.model,
            api_key=access.key,  # type: ignore[arg-type]
            temperature=settings.temperature,
            max_tokens_to_sample=settings.max_tokens,
            timeout=access.timeout,
            max_retries=0,
            stop=None,
            base_url=access.base_url,
        )

    def options(request: ModelRequest) -> dict[str, Any]:
        return {"response_format": _json_format(request.answer_schema)} if request.answer_schema else {}

    return LangchainConnection(make, options=options, errors=[anthropic.AnthropicError])


def _open_google(access: Access) -> Connection:
    """Google's Gemini API."""
    from google.genai import errors
    from langchain_google_genai import ChatGoogleGenerativeAI
    from langchain_google_genai.chat_models import ChatGoogleGenerativeAIError

    from vesalius_backbones.langchain_connection import LangchainConnection

    def make(settings: CallSettings) -> ChatGoogleGenerativeAI:
        return ChatGoogleGenerativeAI(
            model=access.model,
            google_api_key=access.key,  # type: ignore[arg-type]
            base_url=access.base_url,
            temperature=settings.temperature,
            max_output_tokens=settings.max_tokens,
            timeout=access.timeout,
            max_retries=1,  # counts the first try
            vertexai=False,
        )

    def options(request: ModelRequest) -> dict[str, Any]:
        if not request.answer_schema:
            return {}
        return {"response_mime_type": "application/json", "response_json_schema": request.answer_schema}

    return LangchainConnection(make, options=options, errors=[errors.APIError, ChatGoogleGenerativeAIError])


PROVIDERS: dict[str, Provider] = {
    provider.name: provider
    for provider in (
        Provider("openai", "openai", "langchain_openai", ("OPENAI_API_KEY",), Abilities(logprobs=True), _open_openai),
        Provider("anthropic", "anthropic", "langchain_anthropic", ("ANTHROPIC_API_KEY",), Abilities(), _open_anthropic),
        Provider(
            "google",
            "google",
            "langchain_google_genai",
            ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
            Abilities(),
            _open_google,
        ),
        Provider(
            "compatible",
            "openai",
            "langchain_openai",
            ("VESALIUS_API_KEY",),
            Abilities(logprobs=True),
            _open_compatible,
            key_needed=False,
        ),
    )
}
