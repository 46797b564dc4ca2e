"""Redact secrets from everything that is recorded.

Two sources: the values of environment variables that are named like secrets, and patterns of the keys that providers
issue. Matches become `[secret]`, in keys and values alike. A server may echo a key in another spelling: its values are
also found reversed, in hexadecimal, in base64 (anywhere in a longer text), and with any of its characters
percent-encoded or escaped as in HTML or JSON.
"""

import base64
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

MARK = "[secret]"
#: Shorter values are more likely words than secrets, and redacting every "test" would ruin a record.
MIN_LENGTH = 8
SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
PATTERNS = re.compile(
    r"""
      \bsk-[A-Za-z0-9_-]{12,}                                   # OpenAI, Anthropic, and many that follow them
    | \bAIza[A-Za-z0-9_-]{20,}                                  # Google
    | \b(?:hf|gsk|xai|pplx|r8|nvapi|ghp|gho|ghs|ghu)[_-][A-Za-z0-9_-]{16,}
    | \bgithub_pat_[A-Za-z0-9_]{20,}
    | \bya29\.[A-Za-z0-9_-]{16,}                                # Google access token
    | \bAKIA[A-Z0-9]{16}\b
    | \bxox[abprs]-[A-Za-z0-9-]{10,}
    | \beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}  # JSON web token
    | -----BEGIN[ A-Z]*PRIVATE\ KEY-----.*?(?:-----END[ A-Z]*PRIVATE\ KEY-----|\Z)
    | (?<=://)[^/\s:@]+:[^/\s@]+(?=@)                           # user:password in an address
    | (?i:(?<=bearer\ )|(?<=basic\ ))[A-Za-z0-9._~+/=-]{12,}    # Authorization headers
    | (?i:(?<=x-api-key:\ )|(?<=x-goog-api-key:\ ))\S{8,}
    | (?i:(?<=[?&]key=)|(?<=api_key=)|(?<=api-key=))[^\s&"']{8,}
    """,
    re.VERBOSE | re.DOTALL,
)


class Redactor:
    """Redacts secrets from text and from nested data."""

    def __init__(self, secrets: Iterable[str] = (), *, environment: Mapping[str, str] | None = None) -> None:
        variables = os.environ if environment is None else environment
        named = [value for name, value in variables.items() if SECRET_NAME.search(name)]
        values = {value.strip() for value in [*named, *secrets] if value and len(value.strip()) >= MIN_LENGTH}
        #: For each kind of spelling: what a text that may hold one contains, and the spellings.
        self._known = [
            (hint, re.compile("|".join(sorted(patterns, key=len, reverse=True))))
            for hint, spell in _SPELLINGS
            if (patterns := {pattern for value in values for pattern in spell(value)})
        ]

    def text(self, text: str) -> str:
        """The text without secrets."""
        for hint, spellings in self._known:
            if hint is None or hint.search(text):
                text = spellings.sub(MARK, text)
        return PATTERNS.sub(MARK, text)

    def tree(self, data: Any) -> Any:
        """Nested dicts, lists and strings without secrets."""
        if isinstance(data, str):
            return self.text(data)
        if isinstance(data, dict):
            return {self.tree(name): self.tree(value) for name, value in data.items()}
        if isinstance(data, list | tuple):
            return [self.tree(item) for item in data]
        return data


def _literal(secret: str) -> list[str]:
    return [re.escape(spelling) for spelling in (secret, secret[::-1], *_base64(secret.encode()))]


def _both_ways_escaped(secret: str) -> list[str]:
    return [_escaped(secret), _escaped(secret[::-1])]


def _both_ways_hexadecimal(secret: str) -> list[str]:
    return [_hexadecimal(secret.encode()), _hexadecimal(secret.encode()[::-1])]


def _escaped(text: str) -> str:
    """Each character as it is, percent-encoded, or as an escape of HTML or JSON."""
    return "".join(map(_character, text))


def _character(character: str) -> str:
    code = ord(character)
    percent = "".join(f"%{byte:02x}" for byte in character.encode())
    escapes = f"{percent}|&#0*{code};|&#x0*{code:x};|\\\\u{code:04x}"
    return f"(?:{re.escape(character)}|(?i:{escapes}))"


def _hexadecimal(data: bytes) -> str:
    """Two digits a byte, of either case, with or without separators."""
    return "(?i:" + r"[\s:,-]?".join(f"(?:0x|\\\\x)?{byte:02x}" for byte in data) + ")"


def _base64(data: bytes) -> set[str]:
    """The part of the base64 of any text that follows from the secret in it alone, wherever the secret begins."""
    spellings = set()
    for offset in range(3):
        encoded = base64.b64encode(bytes(offset) + data).decode().rstrip("=")
        first = (8 * offset + 5) // 6
        last = 8 * (offset + len(data)) // 6
        spellings.add(encoded[first:last])
    return spellings | {spelling.replace("+", "-").replace("/", "_") for spelling in spellings}


#: The costly kinds are looked for only in texts that have something of the kind.
_SPELLINGS: tuple[tuple[re.Pattern[str] | None, Callable[[str], list[str]]], ...] = (
    (None, _literal),
    (re.compile(r"%[0-9a-fA-F]{2}|&#|\\u[0-9a-fA-F]{4}"), _both_ways_escaped),
    (re.compile(r"(?:(?:0x|\\x)?[0-9a-fA-F]{2}[\s:,-]?){8}"), _both_ways_hexadecimal),
)
